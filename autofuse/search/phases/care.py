"""Equal care for both sides of what the leading plan decides: a kernel of the default that had few schedules may only
lack a good one, and a kernel of the plan that has a suggested one may be slower than untuned. Asked when just the time
that this takes is left."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from autofuse.search.budget.agenda import Question
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import BATCH, CARE, CARE_FROM, CARE_SHARE, FIRST_CANDIDATE_S
from autofuse.search.phases.questions import Search, compose
from autofuse.search.schedules.expectations import caught_up, saved_by_schedules
from autofuse.search.schedules.schedule_search import WorkloadSearch
from autofuse.search.standing.waterfall import at_best, changes_between

Sides = tuple[Sequence[str], Sequence[str]]
"""Workloads of the kernels that a decision is about: of the default, and of the leading plan."""


def equal_care(search: Search) -> Question | None:
    """Further schedules of the kernels of the default that the leading plan replaces, where they had few, and of its
    own kernels what would be compiled untuned, where only others have a time."""
    found = _lacking(search)[: max(1, int(CARE_SHARE * search.evidence.counts.measured))]
    if not found:
        return None
    cost_s = len(found) * (search.lab.candidate_s or FIRST_CANDIDATE_S)
    gain_us, wanted = sum(us for us, _ in found), [one for _, one in found]
    ask = partial(care, search, len(found))
    return Question("equal care", gain_us, cost_s, ask, first=wanted[:BATCH], closing=True)


def care(search: Search, most: int, budget: Budget) -> None:
    """Up to so many schedules where they are lacking, those that may save most first; then the plan that is best."""
    while most > 0 and not budget.spent():
        found = [one for _, one in _lacking(search)[: min(most, BATCH)]]
        if not found or not search.lab.measure(found, budget):
            return
        most -= len(found)
        compose(search, budget, measure=False)


def _lacking(search: Search) -> list[tuple[float, WorkloadSearch]]:
    """The searches that lack a schedule, with what one is expected to save; the best first."""
    evidence, found = search.evidence, dict[str, float]()
    least_us = CARE_FROM * (search.standing.expected_us() or 0.0)
    for gone, come in _decisions(search):
        gone_us, come_us = (sum(evidence.kernel_us(key) or 0.0 for key in side) for side in (gone, come))
        for key in gone:
            one = evidence.searches[key]
            if one.best_us is None or one.complete or len(one.tried) >= CARE or one.best_us < least_us:
                continue
            saved_us = one.expected_part(saved_by_schedules(len(one.tried), 1)) * gone.count(key) * one.best_us
            found[key] = max(caught_up(saved_us, gone_us - come_us, gone_us), found.get(key, 0.0))
        for key in come:
            one = evidence.searches[key]
            if one.lacks_rules_own and one.best_us is not None and one.best_us >= least_us:
                found[key] = saved_by_schedules(1, 1) * come.count(key) * one.best_us
    return sorted(((us, evidence.searches[key]) for key, us in found.items()), key=lambda pair: -pair[0])


def _decisions(search: Search) -> Sequence[Sides]:
    """What the leading plan decides otherwise than the default."""
    standing, evidence = search.standing, search.evidence
    leading, default = standing.leading(), standing.baselines.get("default")
    if leading is None or default is None or evidence.composed_us(default) is None:
        return ()
    if standing.decided is None or standing.decided[0] != leading.key:
        regions = changes_between(evidence, default, leading, at_best)
        both = (([one.key for one in region.before], [one.key for one in region.after]) for region in regions)
        known = [[[key for key in side if key in evidence.searches] for side in sides] for sides in both]
        standing.decided = leading.key, [(gone, come) for gone, come in known if gone and come]
    return standing.decided[1]
