"""Stored times as values that can be compared: whole models race by race, candidates one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autofuse.database.records import OK, SampleBlock
from autofuse.values.ratios import FULL_CLOCK, Contender, Timed, compare, race
from autofuse.values.statistics import Interval, median_interval

Row = Mapping[str, Any]


def timed_plans(rows: Iterable[Row]) -> dict[int, Timed]:
    """The time of each row of `plan_measurements` that has one, by its number.

    Rows of one `series` were interleaved in rounds: block i of each belongs to round i. The first row is the one that
    the others are compared with. A row without blocks keeps its stored median. A flagged block waited for a core;
    earlier versions flagged those below full clock, too.
    """
    series: dict[str, dict[str, Contender]] = {}
    for row in rows:
        if row["state"] == OK:
            stored = Interval(row["median_us"], row["ci_lo_us"], row["ci_hi_us"], 0.95, 0)
            blocks = [_block(block) for block in row["blocks"]]
            clocks = {n: block.clock_ratio or 1.0 for n, block in enumerate(blocks) if not block.flagged}
            steady = {number: (_us(blocks[number]), clock) for number, clock in clocks.items()}
            good = {number: us for number, (us, clock) in steady.items() if clock >= FULL_CLOCK}
            made = Contender(good, bool(row["trusted"]), stored, steady)
            series.setdefault(row["series"], {})[str(row["plan_measurement_id"])] = made
    return {int(key): timed for name, one in series.items() for key, timed in race(one, name).items()}


def beside_no_fusion(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of `plan_measurements` with their medians over the rounds that count, and their ratio to no fusion.

    `speedup`, `speedup_lo`, `speedup_hi` and `verdict` (see `autofuse.values.ratios.Ratio`) stand against the plan
    "none" of the same series; None and "" where there is none.
    """
    timed = timed_plans(rows)
    number = "plan_measurement_id"
    none = {row["series"]: timed[row[number]] for row in rows if row["name"] == "none" and row[number] in timed}
    found = []
    for row in rows:
        own, first = timed.get(row[number]), none.get(row["series"])
        ratio = compare(first, own) if first is not None and own is not None else None
        times = {} if own is None else {"median_us": own.us.median, "ci_lo_us": own.us.lo, "ci_hi_us": own.us.hi}
        value, lo, hi = (ratio.value, ratio.lo, ratio.hi) if ratio else (None, None, None)
        verdict = ratio.verdict if ratio else ""
        found.append({**row, **times, "speedup": value, "speedup_lo": lo, "speedup_hi": hi, "verdict": verdict})
    return found


def timed_candidate(blocks: Sequence[SampleBlock], us: Interval, trusted: bool) -> Timed:
    """The time of a candidate: its stored median `us`, and the good ones of its blocks."""
    return Timed(us, trusted, tuple(_us(block) for block in blocks if not block.flagged))


def _block(stored: Sequence[Any]) -> SampleBlock:
    us, clock, flagged = stored
    return SampleBlock(tuple(us), clock, flagged)


def _us(block: SampleBlock) -> float:
    return block.us[0] if len(block.us) == 1 else median_interval(block.us).median
