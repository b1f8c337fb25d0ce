"""A model of open sizes of which ONNX Runtime runs a part, raced with ONNX Runtime alone: what was said, and what a
compile takes for it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from autofuse.compiler.context import Context
from autofuse.compiler.formats import check_form, read_files, write_alone
from autofuse.compiler.open_sizes.tiles import with_parts
from autofuse.compiler.parts.open_head import OpenHead
from autofuse.compiler.parts.rest import SEGMENTS
from autofuse.compiler.report import NONE, CompileReport, PlanReport
from autofuse.environment.alone import is_slower, ratio_of
from autofuse.environment.outcomes import AtSize, newest_races
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.segments.choice import Choice
from autofuse.segments.deviations import deviation
from autofuse.values.arguments import file_title
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.ratios import Ratio, Timed, compare, over_shares
from autofuse.values.signatures import private_key

HEAD = "head"
"""The name of a model of which our kernels run the head alone, without segments of rows, in such a race."""
ALONE = "ONNX Runtime alone"
RUNS = {
    SEGMENTS: "kernels of autofuse run its head and its segments of rows",
    HEAD: "kernels of autofuse run its head",
    ONNX_RUNTIME: "ONNX Runtime runs the model",
}
"""What each side that may be taken runs."""


@dataclass(frozen=True)
class HeadVerdict:
    """What a race at several sizes said. `side`: one of `RUNS`; `ratio`: ONNX Runtime's time over ours, of the better
    one of ours, over all sizes; `rows`: the time without segments of rows over that with them, where both raced; `at`:
    `ratio` at each size."""

    side: str
    ratio: Ratio
    rows: Ratio | None
    at: tuple[AtSize[Ratio], ...]

    @property
    def text(self) -> str:
        """The race and who runs the model for it, in a line."""
        at = ", ".join(f"{one.size}: {one.found.value:.2f}x" for one in self.at)
        rows = "" if self.rows is None else f"; with segments of rows {_told(self.rows)} as fast as without"
        return f"{_told(self.ratio)} as fast as ONNX Runtime alone over its sizes (at {at}){rows}: {RUNS[self.side]}"


def _told(ratio: Ratio) -> str:
    return f"{ratio.value:.3f}x ({ratio.lo:.3f}-{ratio.hi:.3f}, {ratio.verdict})"


def head_key(head: OpenHead, sizes: Sequence[OpenSize], onnxruntime: str | None) -> str:
    """What races of a head are recorded under: changes with any part, where it is cut, with the ranges of all sizes and
    with the version of `onnxruntime`. `sizes`: all that were named."""
    digest = sha256(f"head onnxruntime={onnxruntime or ''} ".encode())
    for size in sorted(sizes, key=lambda one: one.name):
        digest.update(f"{size.name} {size.low} {size.high} {size.step} ".encode())
    for number, piece in enumerate(head.pieces):
        digest.update(f"{number == head.place} {piece.sha256} ".encode())
    return digest.hexdigest()


def verdict_of_sizes(races: Sequence[AtSize[Mapping[str, Timed]]]) -> HeadVerdict | None:
    """What is best over all sizes; None where one of them has no ratio.

    Segments of rows are left out where the head alone is faster beyond doubt, and ONNX Runtime alone is taken where it
    is faster than what is left of ours.
    """
    side, rows = SEGMENTS, None
    if races and all(HEAD in one.found and SEGMENTS in one.found for one in races):
        rows = over_shares([(compare(one.found[HEAD], one.found[SEGMENTS]), one.share) for one in races])
    elif not any(SEGMENTS in one.found for one in races):
        side = HEAD
    if rows is not None and is_slower(rows):
        side = HEAD
    at = [(ratio_of(one.found, side), one) for one in races]
    known = [AtSize(one.size, one.share, ratio) for ratio, one in at if ratio is not None and ratio.value is not None]
    ratio = over_shares([(one.found, one.share) for one in known])
    if ratio is None or len(known) < len(races):
        return None
    return HeadVerdict(ONNX_RUNTIME if is_slower(ratio) else side, ratio, rows, tuple(known))


def newest_verdict(context: Context, head: OpenHead, sizes: Sequence[OpenSize]) -> HeadVerdict | None:
    """What the newest race here of a head over these very ranges said; None where there was none, and where all of ours
    is wanted whatever it said."""
    if context.policy.every_segment:
        return None
    environment = context.environment
    key = head_key(head, sizes, environment.provenance.onnxruntime)
    return verdict_of_sizes(newest_races(context.database, environment.setting, key))


def is_alike(head: OpenHead) -> bool:
    """Whether ONNX Runtime computes all of the model as ONNX says."""
    return not any(deviation(head.source, node) for node in head.source.nodes)


def compile_alone(
    context: Context, model: Path, output: Path | None, head: OpenHead, reason: str, key: Path | None
) -> CompileReport:
    """Write the library of a model all of which ONNX Runtime runs at any size, for this reason."""
    started = time.monotonic()
    if output is not None:
        check_form("so", output, read_files(context, model, output, None), context.environment.target)
    if key is not None:
        private_key(key)
    choice = Choice(head.source, (), {node.place: reason for node in head.source.nodes})
    if output is not None:
        write_alone("so", choice, context, output, key, head.asked)
    report = CompileReport(
        model=file_title(model),
        library="" if output is None else str(output),
        plan=ALONE,
        plan_tier=NONE,
        plan_key="",
        threads=context.threads,
        device=context.environment.profile.name,
        kernels=0,
        hits=0,
        size_bytes=0 if output is None else output.stat().st_size,
        elapsed_s=time.monotonic() - started,
        groups=(),
        plans=(PlanReport({}, ALONE, NONE, "", 0),),
    )
    return with_parts(report, choice, head.asked)
