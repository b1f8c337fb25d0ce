"""Two runs, or two jobs, against each other: by what each of them measured itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.values.ratios import Timed, compare, same_thing
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.frames.frames import read_frame
from autofuse.views.frames.own_times import own_times
from autofuse.views.frames.whole import whole_model

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase
    from autofuse.database.records import RunInfo

NOT_BY_A, NOT_BY_B, NEITHER = "not measured by A", "not measured by B", "not measured by either"
"""Verdicts where there is nothing to compare: the run chose a schedule that an earlier run had measured."""


def compare_runs(database: ProfilingDatabase, a: Sequence[RunInfo], b: Sequence[RunInfo]) -> pd.DataFrame:
    """See `Analysis.compare`."""
    rows = [
        row for old, new in _pairs(a, b) for row in (*_whole_model(database, old, new), *_workloads(database, old, new))
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS["comparison"]))


def _pairs(a: Sequence[RunInfo], b: Sequence[RunInfo]) -> Iterator[tuple[RunInfo, RunInfo]]:
    """Two single runs, whatever they are of; of jobs, the runs of the same model on the same device and threads."""
    if len(a) == len(b) == 1:
        yield a[0], b[0]
        return
    after = {_place(run): run for run in b}
    yield from ((run, after[_place(run)]) for run in a if _place(run) in after)


def _place(run: RunInfo) -> tuple[str, str, str, int]:
    return run.graph_key, run.setting.device, run.setting.target, run.setting.threads


def _whole_model(database: ProfilingDatabase, a: RunInfo, b: RunInfo) -> Iterator[dict[str, object]]:
    if a.graph_key != b.graph_key:
        return
    old, new = _chosen_time(database, a), _chosen_time(database, b)
    if old is not None and new is not None:
        yield _row("model", "", b.model_name, (a, b), old, new)


def _chosen_time(database: ProfilingDatabase, run: RunInfo) -> Timed | None:
    """Whole-model time of what a run chose."""
    measurements = read_frame(database, "plan_measurements", run.id)
    return whole_model(measurements, read_frame(database, "choices", run.id)).time


def _workloads(database: ProfilingDatabase, a: RunInfo, b: RunInfo) -> Iterator[dict[str, object]]:
    before, after = own_times(database, a), own_times(database, b)
    for key, old in before.items():
        if key in after:
            yield _row("workload", key, old.label, (a, b), old.time, after[key].time)


def _row(
    kind: str, key: str, label: str, runs: tuple[RunInfo, RunInfo], old: Timed | None, new: Timed | None
) -> dict[str, object]:
    nothing = float("nan")
    found = {
        "model": runs[1].model_name,
        "run_a": runs[0].id,
        "run_b": runs[1].id,
        "kind": kind,
        "workload_key": key,
        "label": label,
        "a_us": old.us.median if old is not None else nothing,
        "b_us": new.us.median if new is not None else nothing,
    }
    if old is None or new is None:
        verdict = NEITHER if old is new else NOT_BY_A if old is None else NOT_BY_B
        return {**found, "ratio": nothing, "ci_lo": nothing, "ci_hi": nothing, "trusted": False, "verdict": verdict}
    ratio = same_thing(new) if runs[0].id == runs[1].id else compare(old, new)
    return {
        **found,
        "ratio": ratio.value,
        "ci_lo": ratio.lo,
        "ci_hi": ratio.hi,
        "trusted": ratio.trusted,
        "verdict": ratio.verdict,
    }
