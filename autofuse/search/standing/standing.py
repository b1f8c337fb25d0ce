"""The state of one model's search: the plans that it has, the best of them, what it is doing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autofuse.fusion.plan import FusionPlan
from autofuse.search.budget.agenda import Agenda, Question
from autofuse.search.budget.time_budget import CLEARLY, LITTLE_FUSION
from autofuse.search.progress import PHASES
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.prospects import Prospect, prospects
from autofuse.search.schedules.schedule_search import WorkloadSearch
from autofuse.values.names import UNTUNED

if TYPE_CHECKING:
    from autofuse.search.composition.composer import Composed
    from autofuse.search.plans.plan_search import PlanSearch


@dataclass
class Standing:
    """The state of one model's search. `baselines`: fixed plans by name. `best`: the plan that the search goes on
    from. `composed`: the best plan of all measured groups. `prepared`: the baselines have their first times.
    `plan_search`: goes on where it was in the next slice of a job. `previous`: name of the plan that an earlier run
    chose ("" when there was none), `decided_before`: by a race that decided it. `unnamed`: fixed plans that there was
    no time to make. `phase`: one of `PHASES`; `firsts`: workloads that get a first time in it. `built`: how many
    finalists are, and of how many, while they are built. `ends_at`: when the finalists will have been measured, once
    that has begun. `agenda`: what the questions so far came to; `asking`: kind of the one at hand; `offered`: those
    that it was chosen from. `idle`: plan trials in a row without a better plan; `exhausted`: there are no others;
    `composed_trials`: how many the last composition knew. `asked_again`: distrusted winners that were measured
    again. `raced`: keys of the plans that were measured whole while the search went on. `decided`: what the
    leading plan of that key decides otherwise than the default, by the kernels of either side."""

    evidence: SearchEvidence
    baselines: dict[str, FusionPlan] = field(default_factory=dict)
    best: FusionPlan | None = None
    composed: Composed | None = None
    plan_search: PlanSearch | None = None
    phase: str = PHASES[0]
    firsts: Sequence[WorkloadSearch] = ()
    built: tuple[int, int] | None = None
    ends_at: float | None = None
    plan_trials: int = 0
    previous: str = ""
    decided_before: bool = False
    unnamed: set[str] = field(default_factory=set)
    prepared: bool = False
    agenda: Agenda = field(default_factory=Agenda)
    asking: str = ""
    offered: Sequence[Question] = ()
    idle: int = 0
    exhausted: bool = False
    composed_trials: int = 0
    asked_again: set[tuple[str, str]] = field(default_factory=set)
    raced: set[str] = field(default_factory=set)
    decided: tuple[str, Sequence[tuple[Sequence[str], Sequence[str]]]] | None = None

    def ready(self) -> bool:
        """Whether at least one plan has a time."""
        return any(self.evidence.composed_us(plan) is not None for plan in self.baselines.values())

    def best_us(self) -> float | None:
        """Composed time of the best plan so far."""
        return self.evidence.composed_us(self.best) if self.best is not None else None

    def leading(self) -> FusionPlan | None:
        """The plan that is expected to be fastest: the best, or what was composed since, which may not be clearly ahead
        of it."""
        composed = self.composed.plan if self.composed is not None else None
        composed_us = self.evidence.expected_us(composed) if composed is not None else None
        best_us = self.evidence.expected_us(self.best) if self.best is not None else None
        return composed if composed_us is not None and (best_us is None or composed_us < best_us) else self.best

    def leading_us(self) -> float | None:
        """Composed time of the leading plan."""
        plan = self.leading()
        return self.evidence.composed_us(plan) if plan is not None else None

    def expected_us(self) -> float | None:
        """What the leading plan is expected to take, see `SearchEvidence.expected_us`."""
        plan = self.leading()
        return self.evidence.expected_us(plan) if plan is not None else None

    def baseline_us(self) -> float | None:
        """Composed time of the plan without fusion."""
        return self.evidence.composed_us(self.baselines["none"]) if "none" in self.baselines else None

    def plans(self) -> dict[str, FusionPlan]:
        """Every plan that may be the answer, once each, by name; the search's own best is "search"."""
        found = dict(self.baselines)
        composed = self.composed.plan if self.composed is not None else None
        for name, plan in (("search", self.best), ("composed", composed)):
            if plan is not None and plan.key not in {known.key for known in found.values()}:
                found = {name: plan, **found}
        return found

    def ahead(self) -> tuple[Prospect, ...]:
        """What is left to gain in the best plan, by workload."""
        if self.best is None:
            return ()
        return prospects(list(self.evidence.searches.values()), self.evidence.weights(self.best))

    def known_as(self, plan: FusionPlan) -> str:
        """The name of the fixed plan that a plan chosen before is; "previous" where it is none of them."""
        same = (name for name, other in self.baselines.items() if other.key == plan.key)
        return next(same, "previous")

    def keep(self, plan: FusionPlan, name: str) -> None:
        """Goes on from a plan that was chosen as `name` by a race that decided it: it stays unless it is beaten."""
        self.previous = self.known_as(plan)
        self.baselines[self.previous] = plan
        self.decided_before = name != UNTUNED  # it comes first by itself
        self.ends_at = None
        if name != UNTUNED:
            self.best = plan

    def consider(self, plan: FusionPlan) -> bool:
        """Makes `plan` the best when its groups are faster together; the search goes on from there.

        Sums flatter plans with many kernels: each is timed alone, with its inputs in the cache. So the two plans that
        fuse little or nothing lead the search only when they are clearly ahead (they are finalists in any case).
        """
        time_us = self.evidence.expected_us(plan)
        best_us = self.evidence.expected_us(self.best) if self.best is not None else None
        little = [self.baselines[name].key for name in LITTLE_FUSION if name in self.baselines]
        share = CLEARLY if plan.key in little else 1.0
        if time_us is not None and (best_us is None or time_us < best_us * share):
            self.best = plan
            return True
        return False
