"""The prospects of schedules: which candidates come next, and what a search may still gain, by which a job shares its
time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autofuse.search.schedules.expectations import caught_up, saved_by_schedules
from autofuse.search.schedules.schedule_search import WorkloadSearch, anchor_key


@dataclass(frozen=True)
class Stake:
    """What a workload takes in a plan (microseconds). In what was tried and stands behind: by how much, and what all
    kernels of that side of the decision take."""

    us: float
    behind_us: float = 0.0
    side_us: float = 0.0


def next_candidates(
    searches: Sequence[WorkloadSearch], stakes: Mapping[str, Sequence[Stake]], count: int, least: float
) -> tuple[list[WorkloadSearch], float]:
    """Up to `count` searches to measure the next candidates of, and the microseconds that they are expected to save.

    Each candidate goes where it saves most; those that save less than the part `least` of the first are left for later.
    What a related workload suggests counts as a second schedule, however many were tried; of the workloads with the
    same anchor only the weightiest is searched: the others follow its suggestions.
    """
    open_ = [search for search in searches if not search.complete and search.key in stakes]
    saved = {search.key: _next_saving(search, stakes[search.key], 0) for search in open_}
    leaders: dict[str, WorkloadSearch] = {}
    for search in sorted(open_, key=lambda one: -saved[one.key]):
        leaders.setdefault(anchor_key(search.bound.workload), search)
    candidates = [one for one in open_ if one.suggested or leaders[anchor_key(one.bound.workload)] is one]
    issued: dict[str, int] = {}
    chosen: list[WorkloadSearch] = []
    total = first = 0.0
    for _ in range(count):
        best = max(candidates, key=lambda one: saved[one.key], default=None)
        if best is None or saved[best.key] <= 0.0 or saved[best.key] < least * first:
            break
        first = first or saved[best.key]
        total += saved[best.key]
        chosen.append(best)
        issued[best.key] = issued.get(best.key, 0) + 1
        left = best.limit - len(best.tried) - issued[best.key]
        saved[best.key] = _next_saving(best, stakes[best.key], issued[best.key]) if left > 0 else 0.0
    return chosen, total


def _next_saving(search: WorkloadSearch, stakes: Sequence[Stake], issued: int) -> float:
    """Microseconds that one more candidate is expected to save, beyond so many that are asked for already."""
    tried = 1 if issued < len(search.suggested) else len(search.tried) + issued
    part = search.expected_part(saved_by_schedules(tried, 1), issued)
    return max((caught_up(part * stake.us, stake.behind_us, stake.side_us) for stake in stakes), default=0.0)


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
        saved += one.share * saved_by_schedules(one.tried, more)
    return saved
