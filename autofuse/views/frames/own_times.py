"""The times that a run measured itself, without those that it found measured by an earlier run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.database.ask.times import timed_candidate
from autofuse.values.ratios import Timed
from autofuse.values.statistics import Interval, median_interval
from autofuse.views.frames.frames import read_frame
from autofuse.views.frames.groups import last_choice

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase
    from autofuse.database.records import RunInfo


@dataclass(frozen=True)
class OwnTime:
    """A workload of a run: its label, and its time; None where the run took over what an earlier one had measured."""

    label: str
    time: Timed | None


def own_times(database: ProfilingDatabase, run: RunInfo) -> dict[str, OwnTime]:
    """The groups of the run's last choice by workload key; for a run without one, the best that it measured."""
    timed = read_frame(database, "measurements", run.id)
    timed = timed[timed["state"] == "ok"]
    groups = read_frame(database, "groups", run.id)
    if groups.empty:
        rows = _best_measured(timed, read_frame(database, "candidates", run.id))
    else:
        last = last_choice(groups)
        rows = last[last["candidate_id"].notna()].drop_duplicates("workload_key")
    found = {}
    for key, label, candidate in rows[["workload_key", "label", "candidate_id"]].itertuples(index=False):
        found[str(key)] = OwnTime(str(label), _timed(database, timed[timed["candidate_id"] == candidate], run.id))
    return found


def _best_measured(timed: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """The fastest candidate of each workload by the run's own times, trusted ones first."""
    ranked = timed.sort_values(["trusted", "median_us"], ascending=[False, True], kind="stable")
    named = ranked[["candidate_id"]].merge(candidates[["candidate_id", "workload_key", "label"]], on="candidate_id")
    best: pd.DataFrame = named.drop_duplicates("workload_key")
    return best


def _timed(database: ProfilingDatabase, measurements: pd.DataFrame, run: int) -> Timed | None:
    """One candidate's measurements of a run as one time: trusted ones outweigh the others, several are pooled."""
    if measurements.empty:
        return None
    trusted = measurements[measurements["trusted"].astype(bool)]
    counted = measurements if trusted.empty else trusted
    blocks = database.samples(int(counted["candidate_id"].iloc[0]), run)
    newest = counted.iloc[0]
    us = Interval(float(newest["median_us"]), float(newest["ci_lo_us"]), float(newest["ci_hi_us"]), 0.95, 0)
    found = timed_candidate(blocks, us, not trusted.empty)
    several = len(counted) > 1 and found.counted_us
    return replace(found, us=median_interval(found.counted_us)) if several else found
