"""A model that our kernels cover in part: what a compile does about the rest, and what it says of both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from autofuse.backend.compile.realise import Rest
from autofuse.backend.container.metadata import Parts, PartSpec, ValueSpec
from autofuse.compiler.report import PartReport, RestReport
from autofuse.errors import InputError, UncoveredError
from autofuse.graph.cost import flops
from autofuse.segments.choice import Choice, read_choice
from autofuse.values.arguments import Shapes

OWN, REST = "autofuse", "ONNX Runtime"
MOST_KINDS, MOST_REASONS = 4, 3


def chosen_parts(model: Path, shapes: Sequence[Shapes], error: UncoveredError, complete: bool) -> Choice:
    """The parts of a model that kernels of ours do not cover whole, as `error` says.

    InputError when ONNX Runtime cannot run it either, when it has several sets of shapes, and when it must be
    `complete`, with a reason for each operator of the rest.
    """
    if len(shapes) > 1:
        raise InputError(f"{error}; a library of several shapes must be computed by kernels of ours alone") from error
    try:
        choice = read_choice(model, shapes[0])
    except InputError as other:
        raise InputError(f"{error}; and {str(other).removeprefix(f'{model}: ')}") from error
    if complete and choice.rest:
        rows = rest_reports(choice)
        named = [f"{row.count} {row.op_type} such as {row.first!r} ({row.reason})" for row in rows[:MOST_REASONS]]
        more = f", and {len(rows) - MOST_REASONS} more kinds" if len(rows) > MOST_REASONS else ""
        raise InputError(
            f"{model}: ONNX Runtime would run a part of the model: {'; '.join(named)}{more}; replace these operators, "
            "or compile without --require-complete"
        )
    return choice


def rest_of(choice: Choice) -> Rest:
    """What a library holds besides the segments; the whole model as it is where there are none."""
    source = choice.source
    inputs = tuple(_spec(choice, name) for name in source.inputs)
    outputs = tuple(_spec(choice, name) for name in source.outputs)
    if not choice.segments:
        order = (PartSpec(None, 0, source.inputs, source.outputs),)
        return Rest((source.whole(),), Parts(inputs, outputs, order))
    models = [piece.content for piece in choice.rest]
    found = []
    segments = rest = 0
    for piece in choice.pieces:
        own = piece.graph is not None
        found.append(PartSpec(segments if own else None, None if own else rest, piece.inputs, piece.outputs))
        segments, rest = segments + own, rest + (not own)
    return Rest(tuple(models), Parts(inputs, outputs, tuple(found)))


def _spec(choice: Choice, name: str) -> ValueSpec:
    found = choice.source.type_of(name)
    return ValueSpec(name, found.text, found.shape)


def part_reports(choice: Choice) -> tuple[PartReport, ...]:
    """Each part, in the order in which they run; ONNX Runtime's alone where there is no segment."""
    if not choice.segments:
        nodes = choice.source.nodes
        return (PartReport(REST, len(nodes), _kinds(node.op_type for node in nodes)),)
    return tuple(
        PartReport(
            REST if piece.graph is None else OWN,
            len(piece.nodes),
            _kinds(node.op_type for node in piece.nodes),
            0 if piece.graph is None else sum(flops(piece.graph, operator) for operator in piece.graph.operators),
            piece.work_us,
        )
        for piece in choice.pieces
    )


def rest_reports(choice: Choice) -> tuple[RestReport, ...]:
    """Why operators are in the rest, those of one type and reason together."""
    found: dict[tuple[str, str], list[str]] = {}
    for place, reason in sorted(choice.reasons.items()):
        node = choice.source.nodes[place]
        found.setdefault((node.op_type, reason), []).append(node.name)
    return tuple(RestReport(kind, len(names), names[0], reason) for (kind, reason), names in found.items())


def _kinds(types: Iterable[str]) -> str:
    counted = Counter(types).most_common()
    more = f", {len(counted) - MOST_KINDS} more" if len(counted) > MOST_KINDS else ""
    return ", ".join(f"{count} {kind}" for kind, count in counted[:MOST_KINDS]) + more
