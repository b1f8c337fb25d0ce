"""Races of a few whole networks while the search goes on: what they teach corrects the sums that it goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autofuse.errors import PlanError
from autofuse.fusion.plan import FusionPlan
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import EARLY_RACE_S, SLACK
from autofuse.search.finals.finals import Finals, race_whole
from autofuse.search.finals.learning import learn


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
