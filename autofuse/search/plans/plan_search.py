"""Plan search: Optuna over the planner's decisions, on plan times composed from measured groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from math import inf, prod
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
WHOLE, SEVERAL = "whole", "several"
"""Kinds of flips beside those of decisions: of one about the whole graph, and of several decisions."""
PROPOSALS = 4
"""Proposals of the Optuna study among the plans of several changes that are compared before one is tried."""
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
    """A change of one decision that makes a new plan, or none at all. `kind`: of the decision ("" for the defaults,
    `WHOLE` where it is about the whole graph)."""

    answers: Answers
    plan: FusionPlan
    kind: str = ""


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
    tried: dict[tuple[str, str], FusionPlan] = field(default_factory=dict)
    gains: dict[tuple[str, str], float] = field(default_factory=dict)
    _queue: list[dict[str, str]] = field(default_factory=list)
    _planned: dict[tuple[tuple[str, str], ...], FusionPlan] = field(default_factory=dict)
    _combined: bool = False
    _open: list[dict[str, str]] = field(default_factory=list)
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

    def flips(self, count: int, weight: Callable[[Decision], float] | None = None) -> list[Flip]:
        """Up to `count` open flips that make new plans, the defaults first: they do not depend on each other's times.

        `weight`: those of the decisions that weigh most come first (None: the order of their tensors' bytes, or that
        of the model that guides the search).
        """
        named = {decision.name: decision for decision in self.planner.decisions}
        found: dict[str, Flip] = {}
        if weight is not None and self.guide is None:
            weights = {name: weight(decision) for name, decision in named.items()}
            self._queue.sort(key=lambda answers: -sum(weights[name] for name in answers) if answers else -inf)
        for answers in list(self._queue):
            if len(found) == count:
                break
            plan = self._plan(answers)
            if plan.key in self.seen:
                self._queue.remove(answers)
                self._tell(answers, plan, self.seen[plan.key])
            elif plan.key not in found:
                found[plan.key] = Flip(answers, plan, _kind([named[name] for name in answers]))
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
        for _ in range(FEW_DUPLICATES if self._exhaustible else DUPLICATES):
            answers = self._next()
            plan = self.planner.plan(answers)
            if plan.key in self.seen:
                self._tell(answers, plan, self.seen[plan.key])
                continue
            return self._asked(answers, plan)
        if self._exhaustible:
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
        elif len(answers) == 1:
            ((name, choice),) = answers.items()
            self.tried[name, choice] = plan
            if composed_us is not None and self.default_us is not None:
                self.gains[name, choice] = self.default_us - composed_us
        self._tell(answers, plan, composed_us)

    def renew(self, composed_us: Callable[[FusionPlan], float | None]) -> None:
        """Takes in what the defaults and each single flip come to by now: schedules were measured since."""
        self.default_us = composed_us(self.default)
        for answer, plan in self.tried.items():
            now_us = composed_us(plan)
            if now_us is not None and self.default_us is not None:
                self.gains[answer] = self.default_us - now_us

    @property
    def default(self) -> FusionPlan:
        """The plan that the defaults make."""
        return self._plan({})

    def together(self, count: int, weight: Callable[[Decision], float]) -> list[Flip]:
        """Plans of several changed decisions that were not tried: all that paid together; that with one answer
        changed, the weightiest decisions first; and a few that the Optuna study proposes. Up to `count` of them."""
        base = self.best_flips()
        options = [base] if len(base) > 1 else []
        ranked = sorted(self.planner.decisions, key=weight, reverse=True)
        options += [
            {**base, one.name: choice}
            for one in ranked
            for choice in one.choices
            if base and choice != base.get(one.name, one.default)
        ]
        found: dict[str, Flip] = {}
        for answers in options:
            if len(found) >= count - PROPOSALS:
                break
            self._add(found, answers)
        for answers in self._proposals():
            self._add(found, answers)
        if not found and self._exhaustible:
            for every in islice(self._every(), EXHAUSTIBLE):
                self._add(found, every)
        return list(found.values())

    def _proposals(self) -> list[dict[str, str]]:
        """What the study proposes: new plans, as far as it has any, which stay until one of them is tried."""
        self._open = [answers for answers in self._open if self._plan(answers).key not in self.seen]
        for _ in range(FEW_DUPLICATES):
            if len(self._open) >= PROPOSALS:
                break
            answers = self._proposed()
            if self._plan(answers).key not in self.seen:
                self._open.append(answers)
        return self._open

    @property
    def _exhaustible(self) -> bool:
        """Whether there are so few plans that all of them may be tried."""
        return prod(len(decision.choices) for decision in self.planner.decisions) <= EXHAUSTIBLE

    def _add(self, found: dict[str, Flip], answers: Answers) -> None:
        plan = self._plan(answers)
        if plan.key not in self.seen:
            found.setdefault(plan.key, Flip(answers, plan, SEVERAL))

    def several(self, answers: Answers) -> Flip | None:
        """These answers together; None where their plan was tried."""
        found: dict[str, Flip] = {}
        self._add(found, answers)
        return next(iter(found.values()), None)

    def promised_us(self, answers: Answers) -> float:
        """What single flips say that these answers save together."""
        return sum(self.gains.get(answer, 0.0) for answer in answers.items())

    def begin(self, flip: Flip) -> Trial:
        """Begins the trial of several changes."""
        return self._asked(flip.answers, flip.plan)

    def _next(self) -> Answers:
        if self._queue:
            return self._queue.pop(0)
        if not self._combined:
            self._combined = True
            return self.best_flips()
        return self._proposed()

    def _proposed(self) -> dict[str, str]:
        """What the study proposes."""
        trial = self.study.ask(self._distributions())
        self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return dict(trial.params)

    def best_flips(self) -> dict[str, str]:
        """Of each decision the choice that saved most by itself, where one did."""
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


def _kind(decisions: Sequence[Decision]) -> str:
    """What kind of flip one of these decisions (none: the defaults) makes."""
    return next((one.kind if one.sites else WHOLE for one in decisions), "")
