"""The phases of a search before its finalists: first times of the fixed plans, then one question after another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from autofuse.environment.named_plans import named_plan
from autofuse.environment.plan_evidence import known_limits
from autofuse.errors import AutofuseError, PlanError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner, is_exact
from autofuse.fusion.space import FusionSpace
from autofuse.graph.key import graph_key
from autofuse.search.budget.agenda import Question
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import (
    ASKING_SHARE,
    BATCH,
    FIXED,
    LITTLE_FUSION,
    NAMING_S,
    UNKNOWN_US,
)
from autofuse.search.phases.care import equal_care
from autofuse.search.phases.questions import Search, plan_search, questions, try_flips
from autofuse.search.plans.guide import ADVICE_S
from autofuse.search.progress import SEARCHING_ON
from autofuse.search.schedules.evidence import failures_of
from autofuse.search.schedules.schedule_search import WorkloadSearch
from autofuse.values.names import UNTUNED

PLANS = "plans"
"""Questions of this kind ask about a few of many changes: others are open when one was asked."""


def search_all(search: Search, budget: Budget, counted: Budget) -> None:
    """Everything up to the finalists, or as much as the budget allows.

    `counted`: a part of `budget` that may end earlier, with the number of candidates; the default plan gets its first
    times all the same.
    """
    standing = search.standing
    if not standing.prepared:
        measure_baselines(search, budget, counted)
    _enter(search, SEARCHING_ON if standing.phase == "confirming" else "search")
    plans = plan_search(search, counted)
    if plans.unopened:
        try_flips(search, plans, plans.flips(1), counted)
    while not counted.spent():
        plan_us = standing.leading_us() or UNKNOWN_US
        standing.offered = offered(search, counted)
        chosen = standing.agenda.choose(standing.offered, plan_us, counted.left())
        if chosen is None:
            break
        standing.asking = chosen.kind
        search.lab.next_up = partial(likely_next, search, counted)
        standing.agenda.ask(chosen, counted, standing.leading_us)
        standing.offered = [one for one in standing.offered if one is not chosen or one.kind == PLANS]
    standing.asking, search.lab.next_up = "", tuple


def offered(search: Search, budget: Budget) -> list[Question]:
    """Everything that may be asked next."""
    closing = equal_care(search)
    return [*questions(search, budget), *([closing] if closing is not None else [])]


def likely_next(search: Search, budget: Budget) -> Sequence[WorkloadSearch]:
    """What the next question will probably measure first, while the one at hand is not answered yet."""
    if budget.spent():
        return ()
    plan_us = search.standing.leading_us() or UNKNOWN_US
    chosen = search.standing.agenda.likely(offered(search, budget), plan_us, budget.left())
    return chosen.first if chosen is not None else ()


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
    fixed = LITTLE_FUSION if evidence.space.fusion.exact else (*LITTLE_FUSION, *FIXED)  # they fold BatchNormalizations
    for name in fixed:
        name_baseline(search, name, budget)
    measure_advised(search, counted)
    if previous is not None:
        standing.previous = standing.known_as(previous)
        if standing.previous == "previous":
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
    decided = stored.source == "chosen" and bool(stored.trusted)
    search.standing.decided_before = decided and stored.details.get("name") != UNTUNED  # it comes first by itself
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
        plan = named_plan(search.evidence.graph, name)
    except AutofuseError:
        return
    if name in LITTLE_FUSION or plan.key not in {known.key for known in standing.baselines.values()}:
        add_baseline(search, name, plan)


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
        search.lab.next_up = partial(tuple, missing[start + BATCH : start + 2 * BATCH])
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


def _refuse_hopeless(search: Search, plan: FusionPlan) -> None:
    """PlanError when not one group of `plan` could be measured, whatever was tried: there is nothing to go on with."""
    searches = search.evidence.of(plan)
    if searches and all(one.best_us is None and one.complete for one in searches):
        raise PlanError(f"no group of the model could be built and checked: {failures_of(searches)}")
