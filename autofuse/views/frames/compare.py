"""Two sets of times against each other: paired where they were interleaved, a verdict only where it is earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from autofuse.database.records import Block
from autofuse.values.statistics import differ, ratio_interval

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
