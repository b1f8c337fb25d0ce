"""A model that our kernels cover in part: what a compile does about the rest, and what it says of both sides."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path

from autofuse.backend.compile.rest import Rest, RowProgram
from autofuse.backend.container.metadata import Parts, PartSpec, ValueSpec
from autofuse.backend.container.open_spec import SizeSpec
from autofuse.compiler.context import Context
from autofuse.compiler.parts.bodies import BodyModels
from autofuse.environment.alone import is_slower, ratio_of, told
from autofuse.environment.outcomes import newest_race
from autofuse.errors import InputError, UncoveredError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.segments.choice import Choice
from autofuse.segments.read import parts_of
from autofuse.segments.report import rest_reports
from autofuse.segments.rows import may_have_rows
from autofuse.segments.worth import least_us
from autofuse.values.arguments import Given, LibraryFormat
from autofuse.values.ratios import Ratio

SEGMENTS = "segments"
"""The name of a model in parts in a race with ONNX Runtime alone."""
SEGMENTS_RUN = "its segments run in kernels of autofuse, the rest in ONNX Runtime"
"""Who runs a model in parts, as `autofuse.environment.alone.told` says it."""
MOST_REASONS = 3


def chosen_parts(
    model: Path, given: Sequence[Given], error: UncoveredError, complete: bool, form: LibraryFormat
) -> Choice:
    """The parts of a model that kernels of ours do not cover whole, as `error` says, for a library of this form.

    InputError when ONNX Runtime cannot run it either, when it has several sets of shapes, and when it must be
    `complete`, with a reason for each operator of the rest.
    """
    if len(given) > 1:
        raise InputError(f"{error}; a library of several shapes must be computed by kernels of ours alone") from error
    choice = parts_of(model, given[0], error, least_us(inside=form == "ort"), bare=form == "ort")
    if complete and choice.rest:
        rows = rest_reports(choice)
        named = [f"{row.count} {row.op_type} such as {row.first!r} ({row.reason})" for row in rows[:MOST_REASONS]]
        more = f", and {len(rows) - MOST_REASONS} more kinds" if len(rows) > MOST_REASONS else ""
        raise InputError(
            f"{model}: ONNX Runtime would run a part of the model: {'; '.join(named)}{more}; replace these operators, "
            "or compile without --require-complete"
        )
    return choice


def parts_key(choice: Choice, onnxruntime: str | None) -> str:
    """What a race of this choice is recorded under: changes with any part, with where it is cut, and with the version
    of `onnxruntime`. `choice`: before segments of rows are found in it; races from before there were such are none of a
    model that may have them."""
    rows = "rows " if may_have_rows(choice) else ""
    digest = sha256(f"{rows}onnxruntime={onnxruntime or ''} ".encode())
    for piece in choice.pieces:
        digest.update(f"{piece.graph is not None} {piece.sha256} ".encode())
    for inside in choice.bodies:
        digest.update(
            f"{inside.body.node.name} {inside.body.attribute} {parts_key(inside.choice, onnxruntime)} ".encode()
        )
    return digest.hexdigest()


def as_raced(choice: Choice, context: Context) -> Choice:
    """The choice, or ONNX Runtime alone where the newest race here says so."""
    return by_race(choice, raced_parts(choice, context))


def by_race(choice: Choice, ratio: Ratio | None) -> Choice:
    """The choice, or ONNX Runtime alone where the segments are slower beyond doubt; `ratio`: see `raced_parts`.

    What a race leaves undecided, or has no ratio of, is compiled as if there had been none.
    """
    if ratio is None or not is_slower(ratio):
        return choice
    return choice.without_segments(f"measured: {told(ratio, SEGMENTS_RUN)}")


def raced_parts(choice: Choice, context: Context) -> Ratio | None:
    """ONNX Runtime's time over that of the model with its segments, in the newest race here; None without one."""
    if not choice.all_segments and not may_have_rows(choice):
        return None
    environment = context.environment
    key = parts_key(choice, environment.provenance.onnxruntime)
    return ratio_of(newest_race(context.database, environment.setting, key), SEGMENTS)


def rest_of(
    choice: Choice, bodies: BodyModels | None = None, rows: Sequence[RowProgram] = (), sizes: Sequence[OpenSize] = ()
) -> Rest:
    """What a library holds besides the segments; the whole model as it is where there are none.

    `bodies`: the models of the rest that have segments in bodies. `rows`: the programs of its segments of rows.
    `sizes`: the model's open ones, where a head of it is or was ours.
    """
    source = choice.source
    inputs = tuple(_spec(choice, name) for name in source.inputs)
    outputs = tuple(_spec(choice, name) for name in source.results)
    specs = tuple(SizeSpec(size.name, size.low, size.high, size.step) for size in sizes)
    if not choice.all_segments and not rows:
        order = (PartSpec(None, 0, source.inputs, source.outputs),)
        return Rest((source.whole(),), Parts(inputs, outputs, order, sizes=specs), source.origin)
    changed = {} if bodies is None else bodies.models
    models = [changed.get(number) or piece.content for number, piece in enumerate(choice.rest)]
    found = []
    segments, rest, counting = count(), count(), count()
    for piece in choice.pieces:
        own = piece.graph is not None
        program = next(segments) if own else next(counting) if piece.most_rows else None
        found.append(PartSpec(program, None if own else next(rest), piece.inputs, piece.outputs))
    provider = b"" if bodies is None else bodies.provider
    parts = Parts(inputs, outputs, tuple(found), sizes=specs)
    return Rest(tuple(models), parts, source.origin, provider, tuple(rows))


def _spec(choice: Choice, name: str) -> ValueSpec:
    found = choice.source.type_of(name)
    return ValueSpec(name, found.text, found.shape)
