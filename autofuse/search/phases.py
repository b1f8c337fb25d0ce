"""What a search measures: first times, then one question after another, each a function of what is known, of the lab
that measures, and of the budget it may take. Which question comes next: `autofuse.search.budget.agenda`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from autofuse.kernels.lowering.memory import moved_bytes
from autofuse.search.budget.agenda import Question
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import (
    ASKING_SHARE,
    BATCH,
    CLEARLY,
    COMPOSING_S,
    FIRST_CANDIDATE_S,
    FIXED_GAIN,
    IDLE_TRIALS,
    LARGEST_GAIN,
    LEAST_COMPOSED,
    LITTLE_FUSION,
    NAMING_S,
    PAPER,
    PAYING,
    PLANS_AT_ONCE,
    RIVAL_SHARE,
    SAMPLED_GAIN,
    UNKNOWN_US,
)
from autofuse.search.composition.composer import compose_measured
from autofuse.search.lab.lab import Lab
from autofuse.search.plans.guide import ADVICE_S, ASKING_S, Guide
from autofuse.search.plans.plan_search import PlanSearch
from autofuse.search.schedules.evidence import SearchEvidence, failures_of
from autofuse.search.schedules.prospects import expected_saving, prospects
from autofuse.search.schedules.schedule_search import WorkloadSearch, next_workloads
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
    """Everything up to the finalists, or as much as the budget allows.

    `counted`: a part of `budget` that may end earlier, with the number of candidates; the default plan gets its first
    times all the same.
    """
    standing = search.standing
    if not standing.prepared:
        measure_baselines(search, budget, counted)
    _enter(search, "search")
    while not counted.spent():
        plan_us = standing.best_us() or UNKNOWN_US
        chosen = standing.agenda.choose(questions(search, counted), plan_us, counted.left())
        if chosen is None:
            return
        standing.asking = chosen.kind
        standing.agenda.ask(chosen, counted, standing.best_us)
    standing.asking = ""


def questions(search: Search, budget: Budget) -> list[Question]:
    """Everything that may be measured next, with what it is expected to gain and to cost."""
    found = [_better_schedules(search), _changed_plans(search, budget), _composition(search)]
    found += [_fixed_plan(search, name) for name in (*LITTLE_FUSION, PAPER)]
    return [one for one in found if one is not None]


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
    fixed = LITTLE_FUSION if evidence.space.fusion.exact else (*LITTLE_FUSION, PAPER)  # it folds BatchNormalizations
    for name in fixed:
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


def _candidate_s(search: Search) -> float:
    return search.lab.candidate_s or FIRST_CANDIDATE_S


def _better_schedules(search: Search) -> Question | None:
    """Schedules of the best plan's workloads, each candidate where it promises most."""
    standing, evidence = search.standing, search.evidence
    if standing.best is None:
        return None
    weights = evidence.weights(standing.best)
    for plan in standing.baselines.values():
        for key, weight in evidence.weights(plan).items():
            weights[key] = max(weights.get(key, 0.0), weight * RIVAL_SHARE)
    searches = list(evidence.searches.values())
    chosen = next_workloads(searches, weights, BATCH)
    if not chosen:
        return None
    gain_us = expected_saving(prospects(searches, weights), len(chosen)) * sum(weights.values())
    return Question(
        "schedules", gain_us, len(chosen) * _candidate_s(search), lambda budget: refine(search, chosen, budget)
    )


def refine(search: Search, chosen: Sequence[WorkloadSearch], budget: Budget) -> None:
    """One candidate of each of these searches."""
    search.lab.measure(chosen, budget)
    for plan in search.standing.baselines.values():
        search.standing.consider(plan)


def _fixed_plan(search: Search, name: str) -> Question | None:
    """The groups of a fixed plan that have no time: what the report compares with, and what a fission may win."""
    plan = search.standing.baselines.get(name)
    missing = search.evidence.missing(plan) if plan is not None else []
    if plan is None or not missing:
        return None
    part = missing[:BATCH]
    gain_us = FIXED_GAIN * (search.standing.best_us() or 0.0) * len(part) / len(missing)
    return Question(
        "fixed plans", gain_us, len(part) * _candidate_s(search),
        lambda budget: measure_groups(search, plan, part, budget), owed=name in LITTLE_FUSION,
    )  # fmt: skip


def measure_groups(search: Search, plan: FusionPlan, missing: Sequence[WorkloadSearch], budget: Budget) -> None:
    """First times of some workloads of a plan."""
    search.lab.measure_first(missing, budget)
    search.standing.consider(plan)


def _changed_plans(search: Search, budget: Budget) -> Question | None:
    """The next changes of decisions: single ones first, then those that paid together, then what Optuna samples.

    A change is worth at most the time that its tensors take in memory, at the mean rate of the best plan.
    """
    standing, plans = search.standing, _plan_search(search, budget)
    best_us = standing.best_us() or 0.0
    if standing.exhausted or (standing.idle >= IDLE_TRIALS and not plans.open_flips):
        return None
    kind, count = ("plans", PLANS_AT_ONCE) if plans.open_flips else ("combinations", 1)
    us_per_byte = best_us / max(1, moved_bytes(search.evidence.admit(standing.best))) if standing.best else 0.0
    at_most_us = [min(size * us_per_byte, LARGEST_GAIN * best_us) for size in plans.next_bytes(count)]
    gain_us = PAYING * (sum(at_most_us) if at_most_us else SAMPLED_GAIN * best_us)
    account = standing.agenda.account(kind)
    cost_s = account.spent_s / account.asked if account.asked else 2 * count * _candidate_s(search)
    return Question(kind, gain_us, cost_s, lambda budget: explore(search, budget))


def explore(search: Search, budget: Budget) -> None:
    """A few plans that differ in one decision each, or one that differs in several; their new groups are measured."""
    standing, evidence = search.standing, search.evidence
    plans = _plan_search(search, budget)
    asked = plans.ask_flips(PLANS_AT_ONCE)
    if not asked:
        trial = plans.ask()
        standing.exhausted = trial is None
        asked = [trial] if trial is not None else []
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
        standing.idle = 0 if standing.consider(plan) else standing.idle + 1


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


def _composition(search: Search) -> Question | None:
    """The best plan of all measured groups, once some plans were tried that it has not seen."""
    standing, plans = search.standing, search.standing.plan_search
    unseen = standing.plan_trials - standing.composed_trials
    if plans is None or unseen < (1 if standing.exhausted else PLANS_AT_ONCE):
        return None
    best_us = standing.best_us() or 0.0
    together_us = best_us if plans.default_us is None else plans.default_us - plans.paid_us
    gain_us = max(LEAST_COMPOSED * best_us, best_us - together_us)
    account = standing.agenda.account("compositions")
    cost_s = account.spent_s / account.asked if account.asked else COMPOSING_S
    return Question("compositions", gain_us, cost_s, lambda budget: compose(search, budget))


def compose(search: Search, budget: Budget, measure: bool = True) -> None:
    """The best plan of all groups that have a time, whichever plans they stood in; a finalist of its own.

    Recorded as a plan, and the search goes on from it when it is clearly ahead (see `Standing.consider`).
    """
    if budget.spent():
        return
    standing, evidence = search.standing, search.evidence
    standing.composed_trials = standing.plan_trials
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
