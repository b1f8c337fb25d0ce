"""The former order of a search, kept to compare with: phases with fixed shares of the budget.

Schedules went to the weightiest workloads, changes were asked about by the bytes of their tensors, and what Optuna
proposed followed, one plan at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from autofuse.fusion.planner.planner import Decision
from autofuse.fusion.planner.sites import SeedSite, SiblingSite
from autofuse.graph.model import Graph
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import (
    BATCH,
    FIRST_CANDIDATE_S,
    FIXED,
    FLIPS_AHEAD,
    IDLE_TRIALS,
    LITTLE_FUSION,
    PLANNING_S,
    PLANS_AT_ONCE,
)
from autofuse.search.phases.phases import measure_baselines
from autofuse.search.phases.questions import Search, compose, explore, measure_groups, plan_search, refine, try_flips
from autofuse.search.plans.plan_search import Flip, PlanSearch
from autofuse.search.schedules.schedule_search import WorkloadSearch, anchor_key

FIRST_SHARE, PLANS_SHARE, LITTLE_SHARE = 0.35, 0.3, 0.4
"""Parts of the budget: schedules of the default plan, plans, and (of what is left then) plans that fuse little."""
RIVAL_SHARE = 1 / 8
"""Weight of a workload that only a fixed plan has."""


def in_phases(search: Search, budget: Budget) -> None:
    """The former order, to the end of the budget."""
    measure_baselines(search, budget, budget)
    left_s = budget.left()
    _until_dry(search, budget.part(left_s * FIRST_SHARE), _schedules)
    _until_dry(search, budget.part(left_s * PLANS_SHARE), _plans)
    _until_dry(search, budget.part(budget.left() * LITTLE_SHARE), _fixed_plans)
    compose(search, budget)
    _until_dry(search, budget, _schedules)


def _until_dry(search: Search, budget: Budget, ask: Callable[[Search, Budget], None]) -> None:
    """Asks one kind of question until nothing comes of it any more."""
    while not budget.spent():
        before = search.evidence.counts.measured, search.standing.plan_trials
        ask(search, budget)
        if before == (search.evidence.counts.measured, search.standing.plan_trials):
            return


def _schedules(search: Search, budget: Budget) -> None:
    standing, evidence = search.standing, search.evidence
    weights = evidence.weights(standing.best) if standing.best is not None else {}
    for plan in standing.baselines.values():
        for key, us in evidence.weights(plan).items():
            weights[key] = max(weights.get(key, 0.0), RIVAL_SHARE * us)
    refine(search, weightiest(list(evidence.searches.values()), weights, BATCH), budget)


def _plans(search: Search, budget: Budget) -> None:
    plans, standing = plan_search(search, budget), search.standing
    flips = sorted(plans.flips(FLIPS_AHEAD), key=lambda flip: -_bytes_per_second(search, plans, flip))
    if flips:
        try_flips(search, plans, flips[:PLANS_AT_ONCE], budget)
    elif standing.idle < IDLE_TRIALS and (trial := plans.ask()) is not None:
        explore(search, plans, [trial], budget)


def _bytes_per_second(search: Search, plans: PlanSearch, flip: Flip) -> float:
    """Bytes of the tensors that a flip is about, for each second that it takes."""
    named = {decision.name: decision for decision in plans.planner.decisions}
    missing = search.evidence.missing(flip.plan)
    size = sum(_bytes(plans.planner.graph, named[name]) for name in flip.answers)
    return size / (PLANNING_S + len(missing) * (search.lab.candidate_s or FIRST_CANDIDATE_S))


def _bytes(graph: Graph, decision: Decision) -> float:
    single = [site.operators[0] for site in decision.sites if not isinstance(site, SeedSite | SiblingSite)]
    outputs = [out for name in single if name in graph.by_name for out in graph.by_name[name].outputs if out]
    return float(sum(graph.tensors[out].size_bytes for out in outputs)) if decision.sites else inf


def _fixed_plans(search: Search, budget: Budget) -> None:
    for name in (*LITTLE_FUSION, *FIXED):
        plan = search.standing.baselines.get(name)
        missing = search.evidence.missing(plan) if plan is not None else []
        if plan is not None and missing:
            measure_groups(search, plan, missing[:BATCH], budget)
            return


def weightiest(searches: Sequence[WorkloadSearch], weights_us: Mapping[str, float], count: int) -> list[WorkloadSearch]:
    """The searches with most time in the plan per candidate tried, after whatever a related workload suggests; of those
    with one anchor only the weightiest."""
    weighty = [search for search in searches if not search.complete and weights_us.get(search.key, 0.0) > 0]
    chosen = [search for search in weighty if search.suggested][:count]
    leaders: dict[str, WorkloadSearch] = {}
    for search in sorted(weighty, key=lambda one: -weights_us[one.key]):
        leaders.setdefault(anchor_key(search.bound.workload), search)
    issued: dict[str, int] = {}
    for _ in range(count - len(chosen)):
        free = [one for one in leaders.values() if issued.get(one.key, 0) < max(2, count // 2)]
        if not free:
            break
        best = max(free, key=lambda one: weights_us[one.key] / (1 + len(one.tried) + issued.get(one.key, 0)))
        issued[best.key] = issued.get(best.key, 0) + 1
        chosen.append(best)
    return chosen
