"""The prospects of a search: what it may still gain, by which a job shares its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autofuse.search.schedules.schedule_search import WorkloadSearch

HEADROOM = 0.25
"""Exponent of what more candidates save: k more after n leave (n / (n + k)) ** 0.25 of a workload's time, as long as
there are k to try. Measured searches improve about so: much at first, then with the logarithm of the effort."""


@dataclass(frozen=True)
class Prospect:
    """The prospect of a workload: its `share` of a plan's time, candidates that were `tried`, and those `left` to
    try."""

    share: float
    tried: int
    left: int


def prospects(searches: Sequence[WorkloadSearch], weights_us: Mapping[str, float]) -> tuple[Prospect, ...]:
    """What is left to gain in a plan, by workload; `weights_us`: microseconds that each takes in it."""
    total = sum(weights_us.values())
    if total <= 0:
        return ()
    return tuple(
        Prospect(weights_us[search.key] / total, len(search.tried), max(0, search.limit - len(search.tried)))
        for search in searches
        if not search.complete and weights_us.get(search.key, 0.0) > 0
    )


def expected_saving(ahead: Sequence[Prospect], candidates: float) -> float:
    """Part of a plan's time that so many more candidates are expected to save, given in proportion to the shares."""
    total = sum(one.share for one in ahead)
    saved = 0.0
    for one in ahead:
        more = min(float(one.left), candidates * one.share / total)
        saved += one.share * (1.0 - (max(one.tried, 1) / (max(one.tried, 1) + more)) ** HEADROOM)
    return saved
