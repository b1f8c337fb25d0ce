"""Plan search: Optuna over the planner's decisions, on plan times composed from measured groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import optuna

from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Decision, Planner
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.fusion.planner.sites import SeedSite, SiblingSite
from autofuse.search.budget.budget import Budget
from autofuse.search.lab.lab import Lab
from autofuse.search.plans.guide import ASKING_S, Guide

Answers = Mapping[str, str]
Trial = tuple[int, Answers, FusionPlan]
"""A plan that is tried: its number, the answers that made it, and itself."""
STARTUP_TRIALS = 10
DUPLICATES, FEW_DUPLICATES = 20, 4
MOST_REFUSALS = 3
"""Times that a trial's plan is made again without the groups of which no kernel works."""
EXHAUSTIBLE = 256
"""Combinations of answers up to which what the sampler leaves out is tried too."""


@dataclass(frozen=True)
class Flip:
    """A change of one decision that makes a new plan, or none at all. `size_bytes`: of the tensors that it is about,
    over all sites of the decision: what it is worth at most."""

    answers: Answers
    plan: FusionPlan
    size_bytes: float


@dataclass
class PlanSearch:
    """A search over plans: it asks for answers and is told composed times. First the defaults, then each decision
    flipped by itself, then all flips that paid together, then Optuna's sampler.

    Times add up over groups, so single flips say most of what there is to know. `second`: another number of a plan that
    the sampler makes small as well (None: time alone); what it proposes then lies along the front of both.
    `guide`: a trained model that says which flips are worth trying, and in which order;
    `asking_s`: seconds for asking it.
    """

    planner: Planner | RewritingPlanner
    seed: int
    second: Callable[[FusionPlan], int] | None = None
    guide: Guide | None = None
    asking_s: float = ASKING_S
    number: int = 0
    seen: dict[str, float | None] = field(default_factory=dict)
    default_us: float | None = None
    gains: dict[tuple[str, str], float] = field(default_factory=dict)
    _queue: list[dict[str, str]] = field(default_factory=list)
    _planned: dict[tuple[tuple[str, str], ...], FusionPlan] = field(default_factory=dict)
    _combined: bool = False
    _study: Any = None

    def __post_init__(self) -> None:
        self._queue = [{}]
        heaviest = sorted(self.planner.decisions, key=self._moved_bytes, reverse=True)
        self._queue += [{decision.name: choice} for decision in heaviest for choice in decision.choices[1:]]
        if self.guide is not None:
            self._queue = self.guide.arrange(self._queue, self.planner, self.asking_s)

    def _moved_bytes(self, decision: Decision) -> float:
        """Bytes of the tensors that a decision keeps or fuses away, over all its sites: what it is worth at most."""
        graph = self.planner.graph
        if not decision.sites:
            return float("inf")
        # Siblings write what they write in one kernel or in several.
        single = [site.operators[0] for site in decision.sites if not isinstance(site, SeedSite | SiblingSite)]
        outputs = [out for name in single if name in graph.by_name for out in graph.by_name[name].outputs if out]
        return float(sum(graph.tensors[out].size_bytes for out in outputs))

    @property
    def open_flips(self) -> int:
        """Single flips that were not tried yet."""
        return len(self._queue)

    @property
    def paid_us(self) -> float:
        """What the best choice of each decision saved by itself, all together: microseconds."""
        best: dict[str, float] = {}
        for (name, _), gain in self.gains.items():
            best[name] = max(gain, best.get(name, 0.0))
        return sum(best.values())

    @property
    def unopened(self) -> bool:
        """Whether the defaults were not tried yet; the times of all others are compared with theirs."""
        return bool(self._queue) and not self._queue[0]

    def flips(self, count: int) -> list[Flip]:
        """Up to `count` open flips that make new plans, the defaults first, then the heaviest: they do not depend on
        each other's times."""
        named = {decision.name: decision for decision in self.planner.decisions}
        found: dict[str, Flip] = {}
        for answers in list(self._queue):
            if len(found) == count:
                break
            plan = self._plan(answers)
            if plan.key in self.seen:
                self._queue.remove(answers)
                self._tell(answers, plan, self.seen[plan.key])
            elif plan.key not in found:
                found[plan.key] = Flip(answers, plan, sum(self._moved_bytes(named[name]) for name in answers))
        return list(found.values())

    def take(self, flip: Flip) -> Trial:
        """Begins the trial of a flip."""
        self._queue.remove(dict(flip.answers))
        return self._asked(flip.answers, flip.plan)

    def _plan(self, answers: Answers) -> FusionPlan:
        """What the planner makes of answers, kept until it refuses a group for good."""
        key = tuple(sorted(answers.items()))
        if key not in self._planned:
            self._planned[key] = self.planner.plan(answers)
        return self._planned[key]

    def ask(self) -> Trial | None:
        """The next trial: its number, answers and plan; None when there is no new plan, or it is hard to find."""
        exhaustible = prod(len(decision.choices) for decision in self.planner.decisions) <= EXHAUSTIBLE
        for _ in range(FEW_DUPLICATES if exhaustible else DUPLICATES):
            answers = self._next()
            plan = self.planner.plan(answers)
            if plan.key in self.seen:
                self._tell(answers, plan, self.seen[plan.key])
                continue
            return self._asked(answers, plan)
        if exhaustible:
            for answers in self._every():
                plan = self.planner.plan(answers)
                if plan.key not in self.seen:
                    return self._asked(answers, plan)
        return None

    def _asked(self, answers: Answers, plan: FusionPlan) -> Trial:
        self.seen[plan.key] = None
        self.number += 1
        return self.number - 1, answers, plan

    def _every(self) -> Iterator[Answers]:
        decisions = self.planner.decisions
        for choices in product(*(decision.choices for decision in decisions)):
            yield {decision.name: choice for decision, choice in zip(decisions, choices, strict=True)}

    def buildable(self, answers: Answers, plan: FusionPlan, lab: Lab, budget: Budget) -> FusionPlan:
        """`plan`, or what its answers make once the groups of which no kernel works are refused for good."""
        for _ in range(MOST_REFUSALS):
            refused = lab.evidence.unbuildable(plan)
            if not refused:
                break
            for operators in refused:
                self.planner.refuse(operators)
            self._planned.clear()
            plan = self.planner.plan(answers)
            lab.measure_first(lab.evidence.missing(plan), budget)
        return plan

    def postpone(self, answers: Answers, plan: FusionPlan) -> None:
        """Takes back a trial whose groups there was no time to measure: it is asked for again."""
        self.seen.pop(plan.key, None)
        self._queue.insert(0, dict(answers))

    def tell(self, answers: Answers, plan: FusionPlan, composed_us: float | None) -> None:
        """Takes in what a trial came to (None: one of its groups has no time)."""
        self.seen[plan.key] = composed_us
        if self.guide is not None:
            self.guide.observe(answers, plan, composed_us)
        if not answers:
            self.default_us = composed_us
        elif len(answers) == 1 and composed_us is not None and self.default_us is not None:
            ((name, choice),) = answers.items()
            self.gains[name, choice] = self.default_us - composed_us
        self._tell(answers, plan, composed_us)

    def _next(self) -> Answers:
        if self._queue:
            return self._queue.pop(0)
        if not self._combined:
            self._combined = True
            return self._best_flips()
        trial = self.study.ask(self._distributions())
        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return dict(trial.params)

    def _best_flips(self) -> dict[str, str]:
        best: dict[str, tuple[float, str]] = {}
        for (name, choice), gain in self.gains.items():
            if gain > 0 and gain > best.get(name, (0.0, ""))[0]:
                best[name] = (gain, choice)
        return {name: choice for name, (_, choice) in best.items()}

    @property
    def study(self) -> Any:
        """The Optuna study, in memory."""
        if self._study is None:
            sampler = optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=STARTUP_TRIALS, multivariate=False)
            objectives = 1 if self.second is None else 2
            self._study = optuna.create_study(directions=["minimize"] * objectives, sampler=sampler)
        return self._study

    def _tell(self, answers: Answers, plan: FusionPlan, composed_us: float | None) -> None:
        if composed_us is None or not self.planner.decisions:
            return
        params = {d.name: answers.get(d.name, d.default) for d in self.planner.decisions}
        values = [composed_us] if self.second is None else [composed_us, float(self.second(plan))]
        trial = optuna.trial.create_trial(params=params, distributions=self._distributions(), values=values)
        self.study.add_trial(trial)

    def _distributions(self) -> dict[str, Any]:
        return {d.name: optuna.distributions.CategoricalDistribution(d.choices) for d in self.planner.decisions}
