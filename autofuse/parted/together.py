"""What the search of a model in parts came to: its segments, and the race of whole models, as one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autofuse.compiler.parts.rest import SEGMENTS, SEGMENTS_RUN
from autofuse.environment.alone import is_slower, ratio_of, told
from autofuse.environment.outcomes import NO_TIME
from autofuse.errors import InputError
from autofuse.measure.networks.bench import ContenderResult
from autofuse.search.progress import PlanTime, TuneResult
from autofuse.segments.choice import Choice, Piece
from autofuse.segments.report import PartReport, rest_reports
from autofuse.values.names import ONNX_RUNTIME

LEAST_WHOLE_S, MOST_WHOLE_S = 3.0, 60.0
MOST_REASONS = 3
NO_RACE = "the budget left no time for it"


def race_seconds(wanted_s: float | None) -> float:
    """Seconds of a race of whole models, where so many are wanted (None: as few as will do)."""
    return LEAST_WHOLE_S if wanted_s is None else min(MOST_WHOLE_S, max(LEAST_WHOLE_S, wanted_s))


def shares(pieces: Sequence[Piece]) -> list[float]:
    """The part of the work that each segment is."""
    work = [max(piece.work_us, 1.0) for piece in pieces]
    return [one / sum(work) for one in work]


def require_segments(model: Path, choice: Choice) -> None:
    """InputError, with reasons, where ONNX Runtime runs all of the model."""
    if choice.all_segments or choice.rows:
        return
    rows = rest_reports(choice)
    named = "; ".join(f"{row.count} {row.op_type} ({row.reason})" for row in rows[:MOST_REASONS])
    raise InputError(
        f"{model}: ONNX Runtime runs all of this model, so there is nothing to tune: {named}"
        f"{f', and {len(rows) - MOST_REASONS} more reasons' if len(rows) > MOST_REASONS else ''}; "
        "`autofuse compile` makes a library of it all the same"
    )


def result_of_all(
    title: str,
    results: Sequence[TuneResult],
    times: Mapping[str, ContenderResult],
    elapsed_s: float,
    left_out: Sequence[str] = (),
    parts: tuple[PartReport, ...] = (),
) -> TuneResult:
    """One result of all segments; its plans are the two that were raced (none: there was no time). `left_out`: names of
    segments that were not searched; `parts`: of the model."""
    kernels = sum(one.kernels for one in results)
    ratio = ratio_of({name: one.timed for name, one in times.items() if one.timed is not None}, SEGMENTS)
    chosen = ONNX_RUNTIME if ratio is not None and is_slower(ratio) else SEGMENTS
    warning = f"raced whole: {told(ratio, SEGMENTS_RUN)}" if ratio else f"not raced whole: {_failure(times)}"
    unsearched = f"no time was left to search {', '.join(left_out)}; give a larger --budget" if left_out else ""
    notes = [f"{one.model}: {one.warning}" for one in results if one.warning]
    plans = {
        name: PlanTime(
            kernels if name == SEGMENTS else 0, None, one.median_us, trusted=one.trusted,
            max_rel_error=one.max_rel_error, problem=one.reason,
        )
        for name, one in times.items()
    }  # fmt: skip
    return replace(
        results[0],
        model=title,
        elapsed_s=elapsed_s,
        measured=sum(one.measured for one in results),
        failed=sum(one.failed for one in results),
        hits=sum(one.hits for one in results),
        plan_trials=sum(one.plan_trials for one in results),
        chosen=chosen,
        kernels=kernels if chosen == SEGMENTS else 0,
        plans=plans,
        warning="; ".join(filter(None, [warning, unsearched, *notes])),
        untrusted=tuple(name for one in results for name in one.untrusted),
        composition=None,
        questions=(),
        front=(),
        waterfall=None,
        not_asked=(),
        more_time=None,
        decision=None,
        tiles=(),
        raced=(),
        ranges=(),
        sizes=(),
        left_out=(*((unsearched,) if unsearched else ()), *(text for one in results for text in one.left_out)),
        compile_s=sum(one.compile_s for one in results),
        parts=parts,
    )


def _failure(times: Mapping[str, ContenderResult]) -> str:
    """Why a contender of the race of whole models has no time."""
    if not times:
        return NO_RACE
    return next(f"{name}: {one.wrong or one.error or NO_TIME}" for name, one in times.items() if one.timed is None)
