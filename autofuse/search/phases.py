"""The phases of a search: each a function of what is known, of the lab that measures, and of the budget it may take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from autofuse.database.records import Trial
from autofuse.environment.named_plans import named_plan
from autofuse.environment.plan_evidence import known_limits
from autofuse.errors import AutofuseError, PlanError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner, is_exact
from autofuse.fusion.space import FusionSpace
from autofuse.graph.key import graph_key
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import (
    ASKING_SHARE,
    BATCH,
    CLEARLY,
    FIRST_SHARE,
    IDLE_TRIALS,
    LITTLE_FUSION,
    LITTLE_SHARE,
    NAMING_S,
    PAPER,
    PLANS_AT_ONCE,
    PLANS_SHARE,
    RIVAL_SHARE,
)
from autofuse.search.composition.composer import compose_measured
from autofuse.search.lab.lab import Lab
from autofuse.search.plans.guide import ADVICE_S, ASKING_S, Guide
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.schedules.evidence import SearchEvidence, failures_of
from autofuse.search.schedules.schedule_search import next_workloads
from autofuse.search.standing.standing import Standing


@dataclass(frozen=True)
class Search:
    """The search of one model: what its phases work with.

    `second_objective`: what plans are searched for besides time, the smaller the better (None: time alone). `guide`: a
    trained model (None: there is none).
    """

    evidence: SearchEvidence
    lab: Lab
    standing: Standing
    guide: Guide | None = None
    second_objective: Callable[[FusionPlan], int] | None = None


def search_all(search: Search, budget: Budget, counted: Budget) -> None:
    """All phases up to the finalists, or as many as the budget allows.

    `counted`: a part of `budget` that may end earlier, with the number of candidates; the default plan gets its first
    times all the same.
    """
    if not search.standing.prepared:
        measure_baselines(search, budget, counted)
    refine(search, counted, counted.left() * FIRST_SHARE)
    explore(search, counted, counted.left() * PLANS_SHARE / (1 - FIRST_SHARE))
    measure_little_fusion(search, counted, counted.left() * LITTLE_SHARE)
    compose(search, counted)
    refine(search, counted, counted.left(), "refinement")


def _enter(search: Search, phase: str) -> None:
    """Begins a phase, and says so: its first candidate may take long to be built."""
    search.standing.phase, search.standing.firsts = phase, ()
    search.lab.tell("")


def measure_baselines(search: Search, budget: Budget, counted: Budget) -> None:
    """A first time for every workload of the default plan, and of the plan that an earlier job chose."""
    standing, evidence = search.standing, search.evidence
    _enter(search, "baselines")
    previous = recall(search)
    default = RewritingPlanner(evidence.graph, FusionSpace(exact=evidence.space.fusion.exact)).plan({})
    add_baseline(search, "default", default)
    measure_baseline(search, "default", budget)
    if evidence.composed_us(default) is None:
        _refuse_hopeless(search, default)
    for name in LITTLE_FUSION:
        name_baseline(search, name, budget)
    measure_advised(search, counted)
    if previous is not None:
        same = (name for name, plan in standing.baselines.items() if plan.key == previous.key)
        standing.previous = next(same, "previous")
    if previous is not None and standing.previous == "previous":
        add_baseline(search, "previous", previous)
        measure_baseline(search, "previous", counted)
    standing.prepared = not counted.spent()


def recall(search: Search) -> FusionPlan | None:
    """What an earlier job chose for this model here: it must be beaten to be replaced; the known limits hold."""
    evidence = search.evidence
    setting, key = evidence.environment.setting, graph_key(evidence.graph)
    evidence.limit_schedules(known_limits(evidence.database, setting, key))
    stored = evidence.database.best_plan(setting, key)
    if stored is None:
        return None
    try:
        plan = FusionPlan.from_json(stored.plan)
        check_plan(evidence.graph, plan)
    except PlanError:
        return None
    return None if evidence.space.fusion.exact and not is_exact(plan) else plan


def name_baseline(search: Search, name: str, budget: Budget) -> None:
    """Takes in a fixed plan, if this graph has it (TVM may be unable to say how it would fuse) and time is left."""
    standing = search.standing
    if name in standing.baselines:
        return
    if budget.left() < NAMING_S:
        standing.unnamed.add(name)
        return
    standing.unnamed.discard(name)
    try:
        add_baseline(search, name, named_plan(search.evidence.graph, name))
    except AutofuseError:
        return


def add_baseline(search: Search, name: str, plan: FusionPlan) -> None:
    """Takes in a plan that may be measured whole at the end."""
    search.standing.baselines[name] = plan
    search.lab.record_plan(plan, name)


def measure_baseline(search: Search, name: str, budget: Budget) -> None:
    """A first time for every workload of one fixed plan, or for as many as there is time for."""
    plan = search.standing.baselines.get(name)
    missing = search.evidence.missing(plan) if plan is not None else []
    search.standing.firsts = missing
    for start in range(0, len(missing), BATCH):
        search.lab.measure_first(missing[start : start + BATCH], budget)
    search.standing.firsts = ()
    if plan is not None:
        search.standing.consider(plan)


def measure_advised(search: Search, budget: Budget) -> None:
    """A first time for every workload of the plan that a trained model chooses, where there is a model."""
    evidence, guide = search.evidence, search.guide
    if guide is None or budget.spent():
        return
    seconds = min(ADVICE_S, budget.left() * ASKING_SHARE)
    plan = guide.first_plan(evidence.graph, evidence.space.fusion, seconds)
    if plan is not None and plan.key not in {known.key for known in search.standing.baselines.values()}:
        add_baseline(search, "model", plan)
        measure_baseline(search, "model", budget)


def measure_little_fusion(search: Search, budget: Budget, seconds: float) -> None:
    """The groups of the plans that fuse little: what the report compares with, and what a fission may win."""
    if budget.spent():
        return
    _enter(search, "little fusion")
    part = budget.part(seconds)
    for name in LITTLE_FUSION:
        name_baseline(search, name, budget)
        measure_baseline(search, name, part)


def _refuse_hopeless(search: Search, plan: FusionPlan) -> None:
    """PlanError when not one group of `plan` could be measured, whatever was tried: there is nothing to go on with."""
    searches = search.evidence.of(plan)
    if searches and all(one.best_us is None and one.complete for one in searches):
        raise PlanError(f"no group of the model could be built and checked: {failures_of(searches)}")


def refine(search: Search, budget: Budget, seconds: float, phase: str = "schedules") -> None:
    """Searches schedules, each candidate where it promises most for the best plan."""
    if budget.spent():
        return
    standing, evidence = search.standing, search.evidence
    _enter(search, phase)
    part = budget.part(seconds)
    while standing.best is not None and not part.spent():
        weights = evidence.weights(standing.best)
        for plan in standing.baselines.values():
            for key, weight in evidence.weights(plan).items():
                weights[key] = max(weights.get(key, 0.0), weight * RIVAL_SHARE)
        chosen = next_workloads(list(evidence.searches.values()), weights, BATCH)
        if not chosen or not search.lab.measure(chosen, budget):
            return
        for plan in standing.baselines.values():
            standing.consider(plan)


def explore(search: Search, budget: Budget, seconds: float) -> None:
    """Searches plans; groups that no plan had before are measured."""
    if budget.spent():
        return
    standing, evidence = search.standing, search.evidence
    _enter(search, "plans")
    part = budget.part(seconds)
    plans = _plan_search(search, part)
    if PAPER not in standing.baselines and not evidence.space.fusion.exact:  # it folds every BatchNormalization
        name_baseline(search, PAPER, budget)
        measure_baseline(search, PAPER, budget)
    idle = 0
    while not part.spent() and (idle < IDLE_TRIALS or plans.open_flips):
        asked = plans.ask_flips(PLANS_AT_ONCE)
        if not asked:
            trial = plans.ask()
            if trial is None:
                return
            asked = [trial]
        missing = {found.key: found for _, _, plan in asked for found in evidence.missing(plan)}
        search.lab.measure_first(list(missing.values()), budget)
        for number, answers, first in asked:
            plan = plans.buildable(answers, first, search.lab, budget)
            if budget.spent() and evidence.missing(plan):
                plans.postpone(answers, plan)
                continue
            standing.plan_trials += 1
            time_us = evidence.composed_us(plan)
            plans.tell(answers, plan, time_us)
            _record(search, number, answers, plan, time_us)
            idle = 0 if standing.consider(plan) else idle + 1


def _plan_search(search: Search, budget: Budget) -> PlanSearch:
    """The one of this model, which goes on where it was."""
    standing, evidence = search.standing, search.evidence
    if standing.plan_search is None:
        planner = RewritingPlanner(evidence.graph, evidence.space.fusion)
        asking_s = min(ASKING_S, budget.left() * ASKING_SHARE)
        standing.plan_search = PlanSearch(planner, evidence.seed, search.second_objective, search.guide, asking_s)
    return standing.plan_search


def _record(search: Search, number: int, answers: Mapping[str, str], plan: FusionPlan, time_us: float | None) -> None:
    """Stores a plan trial."""
    search.lab.record_plan(plan, "search")
    state = "complete" if time_us is not None else "fail"
    trial = Trial(number=number, answers=dict(answers), state=state, plan_key=plan.key, composed_us=time_us)
    search.evidence.database.record_trial(search.lab.run_id, trial)


def compose(search: Search, budget: Budget, measure: bool = True) -> None:
    """The best plan of all groups that have a time, whichever plans they stood in; a finalist of its own.

    Recorded as a plan, and the search goes on from it when it is clearly ahead (see `Standing.consider`).
    """
    if budget.spent():
        return
    standing, evidence = search.standing, search.evidence
    own = standing.composed.keys if standing.composed is not None else frozenset()
    times = (evidence.composed_us(plan) for plan, _ in evidence.known_plans() if plan.key not in own)
    sampled_us = min((us for us in times if us is not None), default=None)
    composed = compose_measured(evidence, search.lab if measure else None, sampled_us, budget)
    if composed is None:
        return
    standing.composed = replace(composed, keys=composed.keys | own)
    search.lab.record_plan(composed.plan, "composed")
    best_us = standing.best_us()
    if best_us is None or composed.us < best_us * CLEARLY:
        standing.best = composed.plan
