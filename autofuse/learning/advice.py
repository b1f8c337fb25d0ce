"""What a model says of whole plans: the time of each group, and the plan that it would choose.

A group's time is that of its operators one by one, divided by the predicted gain of fusing them all. The same operators
cost the same in every plan, so that plans are compared by their gains alone, which are known better than times.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp2, hypot, log

from autofuse.device.target import Target
from autofuse.errors import AutofuseError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Decision
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import Workload
from autofuse.learning.features import Machine, cut_features, facts_of
from autofuse.learning.model import DEVIATIONS, Estimate, ProfitabilityModel
from autofuse.learning.parts import Parts

ASKED = ("depend", "break", "recompute", "prologue", "join", "copy", "eliminate", "horizontal", "batch")
"""Kinds of decisions that the model is asked about; rewrites, folds and seeds keep their defaults."""
ROUNDS = 2
PROMISE = 0.5
"""Deviations by which a change of a plan must promise to save time before it is made, or to cost time before it is not
worth a measurement. Fewer than `SURE` of a single decision: what is wrong of several groups cancels in part."""
LEAST_SAVING = 1e-3
MOST_UNSURE = 0.5
"""Share of a plan's time in groups that the model abstains on, beyond which it advises nothing."""


@dataclass(frozen=True)
class Guess:
    """A guess at a group: predicted microseconds with its launch, the deviation of what fusing saves, and why it is
    unsure."""

    us: float
    deviation_us: float = 0.0
    unsure: str = ""


@dataclass(frozen=True)
class Change:
    """A predicted change: what a plan saves against another (microseconds), and how sure that is; `unsure`: why not
    at all."""

    saved_us: float
    deviation_us: float
    unsure: str = ""

    @property
    def pays(self) -> bool:
        """Whether it is likely to save time."""
        return not self.unsure and self.saved_us > PROMISE * self.deviation_us

    @property
    def hopeless(self) -> bool:
        """Whether it is likely to cost time."""
        return not self.unsure and self.saved_us < -PROMISE * self.deviation_us


class Adviser:
    """An adviser that predicts the groups of plans of one graph on one machine; each workload once."""

    def __init__(self, model: ProfitabilityModel, target: Target, facts: Mapping[str, object], threads: int) -> None:
        """`facts`: of the device's fingerprint."""
        self.model = model
        self.machine = Machine.of(target, facts, threads)
        self._facts: dict[str, dict[str, float]] = {}
        self._times: dict[str, Estimate] = {}
        self._guesses: dict[str, Guess] = {}

    @property
    def refusal(self) -> str:
        """Why the model says nothing here; "" when it does."""
        return self.model.refusal(self.machine)

    def guesses(self, workloads: Iterable[Workload]) -> dict[str, Guess]:
        """What each workload takes, by key; a view takes nothing."""
        wanted = {workload.key: workload for workload in workloads}
        new = [workload for key, workload in wanted.items() if key not in self._guesses]
        kernels = [workload for workload in new if not is_free_reshape(workload)]
        self._guesses |= {workload.key: Guess(0.0) for workload in new if is_free_reshape(workload)}
        cuts = [_Cut(workload) for workload in kernels]
        self._time([single for cut in cuts for single in cut.singles])
        groups = [cut for cut in cuts if len(cut.workload.operators) > 1]
        gains = self.model.gains([self._cut_features(cut) for cut in groups], self.machine)
        gain_of = {cut.workload.key: gain for cut, gain in zip(groups, gains, strict=True)}
        for cut in cuts:
            self._guesses[cut.workload.key] = self._guess(cut, gain_of.get(cut.workload.key))
        return {key: self._guesses[key] for key in wanted}

    def _time(self, workloads: Sequence[Workload]) -> None:
        new = {one.key: one for one in workloads if one.key not in self._times}
        for key, workload in new.items():
            self._facts.setdefault(key, facts_of(workload))
        found = self.model.times([self._facts[key] for key in new], self.machine)
        self._times |= dict(zip(new, found, strict=True))

    def _cut_features(self, cut: _Cut) -> dict[str, float]:
        parts = [self._facts.setdefault(part.key, facts_of(part)) for part in cut.parts]
        whole = self._facts.setdefault(cut.workload.key, facts_of(cut.workload))
        return cut_features(whole, parts, self.machine, len(cut.singles))

    def _guess(self, cut: _Cut, gain: Estimate | None) -> Guess:
        times = [self._times[single.key] for single in cut.singles]
        alone = sum(one.value + LAUNCH_US for one in times)
        if gain is None:
            return Guess(alone, 0.0, next((one.abstains for one in times if one.abstains), ""))
        us = alone * exp2(-gain.value)
        return Guess(us, us * log(2) * (gain.hi - gain.lo) / 2 / DEVIATIONS, gain.abstains)


class _Cut:
    """A workload with its operators one by one; `singles`: those of them that are kernels."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        parts = Parts(workload) if len(workload.operators) > 1 else None
        self.parts = [workload] if parts is None else [parts.part({index}) for index in sorted(parts.all)]
        self.singles = [part for part in self.parts if not is_free_reshape(part)] or [workload]


class PlanAdviser:
    """An adviser on plans of one graph."""

    def __init__(self, adviser: Adviser, lowering: Lowering) -> None:
        self.adviser, self.lowering = adviser, lowering
        self._plans: dict[str, Counter[str]] = {}
        self._guesses: dict[str, Guess] = {}

    def guesses(self, plan: FusionPlan) -> Counter[str]:
        """How often each workload stands in a plan, by key; their guesses are in `guess`."""
        if plan.key not in self._plans:
            kernels = [bound.workload for bound in self.lowering.lower(plan).kernels]
            self._guesses |= self.adviser.guesses(kernels)
            self._plans[plan.key] = Counter(workload.key for workload in kernels)
        return self._plans[plan.key]

    def us(self, plan: FusionPlan) -> float:
        """Predicted microseconds of a plan."""
        return sum(self._guesses[key].us * count for key, count in self.guesses(plan).items())

    def unsure_share(self, plan: FusionPlan) -> float:
        """Share of a plan's predicted time in groups that the model abstains on."""
        uses = self.guesses(plan)
        unsure = sum(self._guesses[key].us * count for key, count in uses.items() if self._guesses[key].unsure)
        return unsure / max(self.us(plan), 1e-9)

    def change(self, old: FusionPlan, new: FusionPlan) -> Change:
        """What `new` saves against `old`; groups that both have do not count."""
        before, after = self.guesses(old), self.guesses(new)
        gone, come = before - after, after - before
        saved = sum(self._guesses[key].us * count for key, count in gone.items())
        saved -= sum(self._guesses[key].us * count for key, count in come.items())
        deviation = hypot(*(self._guesses[key].deviation_us * count for key, count in (gone + come).items()))
        unsure = next((self._guesses[key].unsure for key in (*come, *gone) if self._guesses[key].unsure), "")
        return Change(saved, deviation, unsure)


@dataclass(frozen=True)
class Advice:
    """The plan that the model chooses (None: it abstains, `abstains` says why) and what it expects of it.

    `us`, `default_us`: predicted microseconds of it and of the default plan. `answers`: what it changes of the
    defaults. `asked`: plans that were looked at; `unsure`: share of its time in groups the model abstains on.
    """

    plan: FusionPlan | None
    abstains: str = ""
    us: float = 0.0
    default_us: float = 0.0
    answers: Mapping[str, str] = field(default_factory=dict)
    asked: int = 0
    unsure: float = 0.0


def advise(graph: Graph, planner: RewritingPlanner, adviser: PlanAdviser, seconds: float) -> Advice:
    """The plan that the model chooses for a graph, found within about `seconds`.

    It starts from the default answers, and changes one answer at a time where that is likely to save something: what
    the model is not sure of stays as the fixed rule has it. Every plan is one of the planner's, and checked again.
    """
    if adviser.adviser.refusal:
        return Advice(None, adviser.adviser.refusal)
    end = time.monotonic() + seconds
    answers: dict[str, str] = {}
    best = default = planner.plan({})
    unsure = adviser.unsure_share(default)
    if unsure > MOST_UNSURE:
        return Advice(None, f"it is unsure of groups that take {unsure:.0%} of the default plan's time")
    least = LEAST_SAVING * adviser.us(default)
    asked = 1
    decisions = by_moved_bytes(planner)
    for _ in range(ROUNDS):
        changed = False
        for decision in decisions:
            if time.monotonic() > end:
                break
            for choice in decision.choices:
                if choice == answers.get(decision.name, decision.default):
                    continue
                plan = planner.plan({**answers, decision.name: choice})
                asked += 1
                found = adviser.change(best, plan)
                if found.pays and found.saved_us > least and _is_legal(graph, plan):
                    answers[decision.name], best, changed = choice, plan, True
        if not changed:
            break
    return Advice(best, "", adviser.us(best), adviser.us(default), answers, asked, adviser.unsure_share(best))


def by_moved_bytes(planner: RewritingPlanner) -> list[Decision]:
    """The decisions that a model is asked about, those over the largest tensors first: they are worth most."""
    graph = planner.graph

    def moved(decision: Decision) -> float:
        names = [name for site in decision.sites for name in site.operators[:1]]
        outputs = [out for name in names if name in graph.by_name for out in graph.by_name[name].outputs if out]
        return float(sum(graph.tensors[out].size_bytes for out in outputs))

    return sorted((decision for decision in planner.decisions if decision.kind in ASKED), key=moved, reverse=True)


def _is_legal(graph: Graph, plan: FusionPlan) -> bool:
    try:
        check_plan(graph, plan)
    except AutofuseError:
        return False
    return True
