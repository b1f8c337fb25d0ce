"""The verdict over all measurements of a candidate, in whatever order they were recorded or merged."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from autofuse.database.records import OK
from autofuse.database.tables.columns import TIMING_COLUMNS
from autofuse.values.statistics import ordered_interval

WRONG = "wrong"

BlocksOf = Callable[[list[int]], Sequence[Sequence[float]]]
"""The times of each block that counts, of measurements with these numbers."""


def verdict(history: Sequence[Mapping[str, Any]], blocks_of: BlocksOf) -> dict[str, Any]:
    """State, time and build time of a candidate over `history`, its measurements in the order of (time, uid).

    A result that was wrong once is never chosen again. Otherwise one time outweighs any failure (which
    stays on record), trusted times outweigh the others, and equal ones are pooled by their blocks.
    """
    wrong = [row for row in history if row["state"] == WRONG]
    times = [row for row in history if row["state"] == OK]
    deciding = (wrong or times or history)[-1]
    if deciding["state"] == OK:
        counted = [row for row in times if row["trusted"]] or times
        found = _pooled(counted, blocks_of)
    else:
        found = {name: deciding[name] for name in TIMING_COLUMNS}
    errors = [row["max_rel_error"] for row in history if row["max_rel_error"] is not None]
    found["max_rel_error"] = max(errors, default=None)
    found["build_s"] = next((row["build_s"] for row in reversed(history) if row["build_s"] is not None), None)
    return found


def doubted(history: Sequence[Mapping[str, Any]], numbers: Container[int]) -> list[dict[str, Any]]:
    """`history` with the measurements of these numbers no longer trusted."""
    return [{**row, "trusted": False} if row["id"] in numbers and row["trusted"] else dict(row) for row in history]


def _pooled(rows: list[Mapping[str, Any]], blocks_of: BlocksOf) -> dict[str, Any]:
    latest = {name: rows[-1][name] for name in TIMING_COLUMNS}
    if len(rows) == 1:
        return latest
    blocks = [us[0] if len(us) == 1 else statistics.median(us) for us in blocks_of([row["id"] for row in rows])]
    if not blocks:
        return latest
    interval = ordered_interval(sorted(blocks))
    return {**latest, "median_us": interval.median, "ci_lo_us": interval.lo, "ci_hi_us": interval.hi}
