"""Races of a few whole networks while the search goes on: what they teach corrects the sums that it goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autofuse.errors import PlanError
from autofuse.fusion.plan import FusionPlan
from autofuse.measure.networks.bench import ContenderResult
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import EARLY_RACE_S, SLACK
from autofuse.search.finals.finals import Finals, race_whole
from autofuse.search.schedules.beyond_sums import Whole
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.values.ratios import compare

DEVIATIONS = 1.96
"""Deviations on either side that an interval of 95 % holds."""


@dataclass(frozen=True)
class EarlyRace:
    """A race of whole networks before the finals."""

    finals: Finals

    def seconds(self, plans: Mapping[str, FusionPlan]) -> float:
        """Those that it is expected to take."""
        return SLACK * self.finals.estimates.early_s(plans, EARLY_RACE_S)

    def __call__(self, plans: Mapping[str, FusionPlan], budget: Budget) -> None:
        """Races the plans, and has the evidence learn from it; the first one is what the others are compared with."""
        estimates = replace(self.finals.estimates, race_s=EARLY_RACE_S)
        finals = replace(self.finals, estimates=estimates)
        part = budget.part(self.seconds(plans) + estimates.after_s(len(plans)))
        try:
            results, _ = race_whole(finals, plans, part)
        except PlanError:  # none of them can be built: the finals will say so
            return
        learn(finals.evidence, plans, results)


def learn(evidence: SearchEvidence, plans: Mapping[str, FusionPlan], results: Mapping[str, ContenderResult]) -> None:
    """Takes in by how much the ratios of whole networks differ from those of sums."""
    summed = {name: one for name, plan in plans.items() if (one := evidence.summed(plan)) is not None}
    timed = {name: one.timed for name, one in results.items() if one.timed is not None and name in summed}
    first = next((name for name in plans if name in timed), None)
    if first is None:
        return
    others = []
    for name, time in timed.items():
        ratio = compare(time, timed[first])
        if name != first and ratio.value is not None and ratio.lo is not None and ratio.hi is not None:
            error = (ratio.hi - ratio.lo) / (2 * DEVIATIONS * ratio.value)
            others.append(Whole(summed[name], ratio.value, error, plans[name].key))
    kinds = {key: kind for name in timed for key, kind in evidence.kinds(plans[name]).items()}
    if others:
        evidence.beyond.learn(summed[first], others, kinds)
