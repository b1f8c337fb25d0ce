"""`tune` of a model in parts: each segment gets its share of the budget, then whole models are raced."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from autofuse.compiler import Context, Policy, compile_in
from autofuse.compiler.parts import SEGMENTS
from autofuse.environment.place import Place
from autofuse.errors import InputError, UncoveredError
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.parted.race import raced, record, task_of
from autofuse.search.progress import PlanTime, Progress, TuneResult
from autofuse.search.tune import tune
from autofuse.segments.choice import Choice, Piece, parts_of
from autofuse.segments.report import rest_reports
from autofuse.values.arguments import Given, file_title, micros
from autofuse.values.names import ONNX_RUNTIME
from autofuse.values.scratch import scratch_folder

RACE_PART, LEAST_RACE_S, MOST_RACE_S = 0.1, 3.0, 60.0
"""Part of the budget that the race of whole models takes, and its limits in seconds."""
MOST_REASONS = 3


def tune_parts(
    model: Path,
    place: Place,
    error: UncoveredError,
    *,
    budget_s: float | None,
    trials: int | None,
    seed: int,
    space: str | None,
    exact: bool,
    trained: str | None,
    given: Given,
    progress: Callable[[Progress], None],
    stop: Callable[[], bool],
    since: float,
) -> TuneResult:
    """Tune the segments of a model that kernels of ours do not cover whole, as `error` says; see `autofuse.api.tune`.

    `trials`: of each segment. InputError when there is no segment to tune.
    """
    choice = parts_of(model, given, error)
    _require_segments(model, choice)
    race_s = LEAST_RACE_S if budget_s is None else min(MOST_RACE_S, max(LEAST_RACE_S, RACE_PART * budget_s))
    with scratch_folder() as folder:
        search = partial(
            tune, place=place, trials=trials, seed=seed, space=space, exact=exact, trained=trained, given={},
            progress=progress, stop=stop,
        )  # fmt: skip
        ends = None if budget_s is None else since + budget_s - race_s
        results = _segments(choice, search, folder, f"{file_title(model)}-segment", ends)
        times = _race(model, place, choice, given, exact, race_s, folder)
    return _together(file_title(model), results, times, time.monotonic() - since)


def _require_segments(model: Path, choice: Choice) -> None:
    if choice.segments:
        return
    rows = rest_reports(choice)
    named = "; ".join(f"{row.count} {row.op_type} ({row.reason})" for row in rows[:MOST_REASONS])
    raise InputError(
        f"{model}: ONNX Runtime runs all of this model, so there is nothing to tune: {named}"
        f"{f', and {len(rows) - MOST_REASONS} more reasons' if len(rows) > MOST_REASONS else ''}; "
        "`autofuse compile` makes a library of it all the same"
    )


def _segments(
    choice: Choice, search: Callable[..., TuneResult], folder: Path, title: str, ends: float | None
) -> list[TuneResult]:
    """One search a segment; each gets of the time that is left what its work is of the work that is left."""
    left = list(enumerate(choice.segments))
    results = []
    while left:
        number, piece = left[0]
        share = _share([one for _, one in left])
        path = folder / f"{title}{number}.onnx"
        path.write_bytes(piece.content)
        budget_s = None if ends is None else max(1.0, (ends - time.monotonic()) * share)
        results.append(search(path, budget_s=budget_s))
        left = left[1:]
    return results


def _share(pieces: Sequence[Piece]) -> float:
    """The first one's part of the work."""
    return max(pieces[0].work_us, 1.0) / sum(max(piece.work_us, 1.0) for piece in pieces)


def _race(
    model: Path,
    place: Place,
    choice: Choice,
    given: Given,
    exact: bool,
    race_s: float,
    folder: Path,
) -> dict[str, ContenderResult]:
    """The segments as they are tuned now against ONNX Runtime alone; recorded."""
    from autofuse.fusion.plan import ScheduleLimits

    policy = Policy(limits=ScheduleLimits(exact=exact), every_segment=True)
    with ExitStack() as stack:
        context = stack.enter_context(Context(place, policy=policy))
        library = folder / "segments.so"
        compile_in(context, model, library, [given], None)
        task = task_of(choice, library, folder)
        contenders = [
            Contender(SEGMENTS, "autofuse", library),
            Contender(ONNX_RUNTIME, "onnxruntime", task.model),
        ]
        results = raced(context, contenders, task, race_s)
        record(context, choice, results)
        return results


def _together(
    title: str, results: Sequence[TuneResult], times: Mapping[str, ContenderResult], elapsed_s: float
) -> TuneResult:
    """One result of all segments; its plans are the two that were raced."""
    kernels = sum(one.kernels for one in results)
    own, alone = times[SEGMENTS], times[ONNX_RUNTIME]
    chosen, warning = ONNX_RUNTIME, f"the segments could not be timed: {own.error}"
    if own.median_us is not None and alone.median_us is not None:
        chosen = SEGMENTS if own.median_us <= alone.median_us else ONNX_RUNTIME
        taken = "the segments" if chosen == SEGMENTS else "ONNX Runtime alone"
        warning = (
            f"raced whole: with {len(results)} segments {micros(own.median_us)}, ONNX Runtime alone "
            f"{micros(alone.median_us)}; a compile takes {taken}"
        )
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
        warning="; ".join([warning, *(f"{one.model}: {one.warning}" for one in results if one.warning)]),
        untrusted=tuple(name for one in results for name in one.untrusted),
        composition=None,
        questions=(),
        front=(),
        waterfall=None,
        not_asked=(),
        more_time=None,
        decision=None,
    )
