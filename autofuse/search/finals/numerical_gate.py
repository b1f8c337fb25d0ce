"""The numerical gate: a model that Winograd's rounding carries too far gets smaller tiles, or none.

Each kernel is right within its own limit, but a deep network may magnify what is left (detectors do: the places of
their boxes depend on each other).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autofuse.errors import WrongResultError
from autofuse.fusion.plan import NO_LIMITS, WINOGRAD_TILES, FusionPlan, ScheduleLimits
from autofuse.kernels.schedule.limits import winograd_tile
from autofuse.search.budget.budget import Budget
from autofuse.search.finals.verdict import Verdict
from autofuse.search.lab.lab import Lab
from autofuse.search.schedules.evidence import SearchEvidence


def right_as_a_whole(
    lab: Lab,
    plans: Mapping[str, FusionPlan],
    attempt: Callable[[Mapping[str, FusionPlan]], Verdict],
    budget: Budget,
) -> Verdict:
    """What `attempt` makes of the plans; where none is right as a whole, with smaller tiles, at last without.

    Where no time is left for another attempt, the tiles are given up altogether.
    """
    evidence = lab.evidence
    while True:
        if evidence.limits != NO_LIMITS:
            _prepare(lab, plans, budget)
        try:
            return attempt(plans)
        except WrongResultError:
            taken = tiles_taken(evidence, plans)
            if not taken:
                raise
            smaller = max(tile for tile in WINOGRAD_TILES if tile < taken)
            evidence.limit_schedules(ScheduleLimits(min(WINOGRAD_TILES) if budget.spent() else smaller))
            lab.tell("no plan is right as a whole: once more with smaller tiles of Winograd's algorithm")


def tiles_taken(evidence: SearchEvidence, plans: Mapping[str, FusionPlan]) -> int:
    """Side of the largest tiles that a kernel of these plans takes; 0 when none takes any."""
    schedules = (schedule for plan in plans.values() for schedule in evidence.schedules(plan).values())
    return max(map(winograd_tile, schedules), default=0)


def _prepare(lab: Lab, plans: Mapping[str, FusionPlan], budget: Budget) -> None:
    """A time for every workload of plans that may not have the schedules which were measured for them."""
    for plan in plans.values():
        lab.measure_first(lab.evidence.missing(plan), budget)
