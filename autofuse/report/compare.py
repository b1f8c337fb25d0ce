"""Two sets of times against each other: paired where they were interleaved, a verdict only where it is earned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from autofuse.profiling.records import Block
from autofuse.report.columns import COLUMNS
from autofuse.report.frames import read_frame
from autofuse.statistics import differ, ratio_interval

if TYPE_CHECKING:
    from autofuse.profiling.database import ProfilingDatabase
    from autofuse.profiling.records import RunInfo

FASTER, SLOWER, SAME = "faster", "slower", "no difference"


@dataclass(frozen=True)
class Timed:
    """A time with its blocks. `series`: those of one series were interleaved, block by block."""

    median_us: float
    trusted: bool
    blocks: tuple[Block, ...]
    series: str = ""


@dataclass(frozen=True)
class Ratio:
    """How many times the new time the old one is (above 1: the new one is faster), and the verdict on the new."""

    value: float
    lo: float
    hi: float
    trusted: bool
    verdict: str


def compare_times(old: Timed, new: Timed) -> Ratio:
    """`new` against `old`. Without blocks on both sides the ratio has no interval (NaN) and no verdict."""
    trusted = old.trusted and new.trusted
    before, after, paired = _comparable(old, new)
    if not before or not after:
        return Ratio(old.median_us / new.median_us, float("nan"), float("nan"), trusted, SAME)
    interval = ratio_interval(before, after, paired=paired)
    verdict = SAME
    if trusted and differ(before, after, paired=paired):
        verdict = FASTER if interval.median > 1 else SLOWER
    return Ratio(interval.median, interval.lo, interval.hi, trusted, verdict)


def timed_plan(row: pd.Series) -> Timed:
    """The time of a row of `plan_measurements`."""
    blocks = tuple(Block(tuple(us), clock, flagged) for us, clock, flagged in row["blocks"])
    return Timed(float(row["median_us"]), bool(row["trusted"]), blocks, str(row["series"]))


def compare_runs(database: ProfilingDatabase, a: RunInfo, b: RunInfo) -> pd.DataFrame:
    """See `Analysis.compare`."""
    rows = [*_whole_models(database, a, b), *_workloads(database, a, b)]
    return pd.DataFrame(rows, columns=list(COLUMNS["comparison"]))


def chosen_measurement(measurements: pd.DataFrame, choices: pd.DataFrame) -> pd.Series | None:
    """The newest whole-model time of the plan that a run chose last; both frames of that run alone."""
    if choices.empty:
        return None
    plan = choices.iloc[-1]["plan_key"]
    found = measurements[(measurements["plan_key"] == plan) & (measurements["state"] == "ok")]
    return None if found.empty else found.iloc[-1]


def _comparable(old: Timed, new: Timed) -> tuple[list[float], list[float], bool]:
    """(one time a block of either, whether they are pairs), flagged blocks left out while any are left."""
    if old.series and old.series == new.series and len(old.blocks) == len(new.blocks):
        pairs = list(zip(old.blocks, new.blocks, strict=True))
        good = [(x, y) for x, y in pairs if not x.flagged and not y.flagged] or pairs
        return [_median(x) for x, _ in good], [_median(y) for _, y in good], True
    return _counted(old.blocks), _counted(new.blocks), False


def _counted(blocks: Sequence[Block]) -> list[float]:
    return [_median(block) for block in blocks if not block.flagged] or [_median(block) for block in blocks]


def _median(block: Block) -> float:
    return float(np.median(block.us))


def _whole_models(database: ProfilingDatabase, a: RunInfo, b: RunInfo) -> Iterator[dict[str, object]]:
    if a.graph_key != b.graph_key:
        return
    whole = [
        chosen_measurement(read_frame(database, "plan_measurements", run.id), read_frame(database, "choices", run.id))
        for run in (a, b)
    ]
    if whole[0] is not None and whole[1] is not None:
        old, new = timed_plan(whole[0]), timed_plan(whole[1])
        yield _row("model", "", b.model_name, old, new, compare_times(old, new))


def _workloads(database: ProfilingDatabase, a: RunInfo, b: RunInfo) -> Iterator[dict[str, object]]:
    before, after = _chosen_candidates(database, a), _chosen_candidates(database, b)
    for key, row in before.items():
        other = after.get(key)
        if other is None:
            continue
        old, new = _timed_candidate(database, row), _timed_candidate(database, other)
        same = row["candidate_id"] == other["candidate_id"]
        ratio = Ratio(1.0, 1.0, 1.0, old.trusted, SAME) if same else compare_times(old, new)
        yield _row("workload", key, str(row["label"]), old, new, ratio)


def _chosen_candidates(database: ProfilingDatabase, run: RunInfo) -> dict[str, pd.Series]:
    """Groups of the run's last choice that were measured, one a workload."""
    groups = read_frame(database, "groups", run.id)
    last = groups[groups["choice_id"] == groups["choice_id"].max()]
    measured = last[last["candidate_id"].notna() & last["median_us"].notna()].drop_duplicates("workload_key")
    return {str(row["workload_key"]): row for _, row in measured.iterrows()}


def _timed_candidate(database: ProfilingDatabase, row: pd.Series) -> Timed:
    blocks = database.samples(int(row["candidate_id"]))
    return Timed(float(row["median_us"]), bool(row["trusted"]), blocks)


def _row(kind: str, key: str, label: str, old: Timed, new: Timed, ratio: Ratio) -> dict[str, object]:
    return {
        "kind": kind,
        "workload_key": key,
        "label": label,
        "a_us": old.median_us,
        "b_us": new.median_us,
        "ratio": ratio.value,
        "ci_lo": ratio.lo,
        "ci_hi": ratio.hi,
        "trusted": ratio.trusted,
        "verdict": ratio.verdict,
    }
