"""The questions of a search: what may be measured next, what each is expected to gain and to cost (stated rules, see
`autofuse.search.budget.agenda`), and what asking it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autofuse.database.records import Trial
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.kernels.lowering.memory import moved_bytes
from autofuse.search.budget.agenda import Question
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import (
    ASKING_SHARE,
    BATCH,
    CLEARLY,
    COMPOSING_S,
    DOUBTED_ERROR,
    FIRST_CANDIDATE_S,
    FIXED_GAIN,
    FLIPS_AHEAD,
    IDLE_TRIALS,
    LARGEST_GAIN,
    LEAST_COMPOSED,
    LITTLE_FUSION,
    PAPER,
    PAYING,
    PLANNING_S,
    PLANS_AT_ONCE,
    RIVAL_SHARE,
    SAMPLED_GAIN,
    UNKNOWN_US,
)
from autofuse.search.composition.composer import compose_measured
from autofuse.search.lab.lab import Asked, Lab, asked_text
from autofuse.search.plans.guide import ASKING_S, Guide
from autofuse.search.plans.plan_search import Flip, PlanSearch
from autofuse.search.plans.plan_search import Trial as PlanTrial
from autofuse.search.schedules.evidence import SearchEvidence
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


def questions(search: Search, budget: Budget) -> list[Question]:
    """Everything that may be measured next, with what it is expected to gain and to cost."""
    found = [_better_schedules(search), _changed_plans(search, budget), _composition(search), _doubted_winners(search)]
    found += [_fixed_plan(search, name) for name in (*LITTLE_FUSION, PAPER)]
    return [one for one in found if one is not None]


def likely_next(search: Search, budget: Budget) -> Sequence[WorkloadSearch]:
    """What the next question will probably measure first, while the one at hand is not answered yet."""
    if budget.spent():
        return ()
    plan_us = search.standing.best_us() or UNKNOWN_US
    chosen = search.standing.agenda.likely(questions(search, budget), plan_us, budget.left())
    return chosen.first if chosen is not None else ()


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
    ask = partial(refine, search, chosen)
    return Question("schedules", gain_us, len(chosen) * _candidate_s(search), ask, first=chosen)


def refine(search: Search, chosen: Sequence[WorkloadSearch], budget: Budget) -> None:
    """One candidate of each of these searches."""
    search.lab.measure(chosen, budget)
    for plan in search.standing.baselines.values():
        search.standing.consider(plan)


def _doubted_winners(search: Search) -> Question | None:
    """The best plan's winners whose times are not trusted: the search may follow an error; each is asked once."""
    standing, evidence = search.standing, search.evidence
    if standing.best is None:
        return None
    found = [one for one in search.lab.doubtful([standing.best]) if asked_text(*one) not in standing.asked_again]
    if not found:
        return None
    weights = evidence.weights(standing.best)
    gain_us = DOUBTED_ERROR * sum(weights[one.key] for one, _ in found[:BATCH])
    cost_s = len(found[:BATCH]) * _candidate_s(search)
    return Question("distrusted winners", gain_us, cost_s, partial(measure_again, search, found[:BATCH]))


def measure_again(search: Search, winners: Sequence[Asked], budget: Budget) -> None:
    """Winners once more; what all their measurements say together counts from now on."""
    search.standing.asked_again |= {asked_text(*one) for one in winners}
    search.lab.remeasure(winners, budget)


def _fixed_plan(search: Search, name: str) -> Question | None:
    """The groups of a fixed plan that have no time: what the report compares with, and what a fission may win."""
    plan = search.standing.baselines.get(name)
    missing = search.evidence.missing(plan) if plan is not None else []
    if plan is None or not missing:
        return None
    part = missing[:BATCH]
    gain_us = FIXED_GAIN * (search.standing.best_us() or 0.0) * len(part) / len(missing)
    cost_s, ask = len(part) * _candidate_s(search), partial(measure_groups, search, plan, part)
    return Question("fixed plans", gain_us, cost_s, ask, owed=name in LITTLE_FUSION, first=part)


def measure_groups(search: Search, plan: FusionPlan, missing: Sequence[WorkloadSearch], budget: Budget) -> None:
    """First times of some workloads of a plan."""
    search.lab.measure_first(missing, budget)
    search.standing.consider(plan)


def _changed_plans(search: Search, budget: Budget) -> Question | None:
    """The next changes of decisions: single ones first, then those that paid together, then what Optuna samples.

    A change is worth at most the time that its tensors take in memory, at the mean rate of the best plan.
    """
    standing, plans = search.standing, plan_search(search, budget)
    best_us = standing.best_us() or 0.0
    flips = _promising(search, plans.flips(FLIPS_AHEAD))
    if flips:
        us_per_byte = best_us / max(1, moved_bytes(search.evidence.admit(standing.best))) if standing.best else 0.0
        at_most_us = (min(flip.size_bytes * us_per_byte, LARGEST_GAIN * best_us) for flip in flips)
        missing = {found.key: found for flip in flips for found in search.evidence.missing(flip.plan)}
        cost_s = len(missing) * _candidate_s(search) + len(flips) * PLANNING_S
        ask = partial(try_flips, search, plans, flips)
        first = tuple(missing.values())
        return Question("plans", PAYING * sum(at_most_us), cost_s, ask, parts=len(flips), first=first)
    if standing.exhausted or standing.idle >= IDLE_TRIALS:
        return None
    account = standing.agenda.account("combinations")
    cost_s = account.spent_s / account.asked if account.asked else 2 * _candidate_s(search)
    return Question("combinations", PAYING * SAMPLED_GAIN * best_us, cost_s, partial(sample_plan, search, plans))


def _promising(search: Search, flips: Sequence[Flip]) -> list[Flip]:
    """Those of the flips that are about most bytes for each group that must be measured for them."""
    cost = {
        flip.plan.key: PLANNING_S + len(search.evidence.missing(flip.plan)) * _candidate_s(search) for flip in flips
    }
    return sorted(flips, key=lambda flip: -flip.size_bytes / cost[flip.plan.key])[:PLANS_AT_ONCE]


def try_flips(search: Search, plans: PlanSearch, flips: Sequence[Flip], budget: Budget) -> None:
    """Tries plans that differ in one decision each."""
    explore(search, plans, [plans.take(flip) for flip in flips], budget)


def sample_plan(search: Search, plans: PlanSearch, budget: Budget) -> None:
    """Tries one plan that differs in several decisions."""
    trial = plans.ask()
    search.standing.exhausted = trial is None
    if trial is not None:
        explore(search, plans, [trial], budget)


def explore(search: Search, plans: PlanSearch, trials: Sequence[PlanTrial], budget: Budget) -> None:
    """Measures the groups of plans that no plan had before, and takes in what the plans come to."""
    standing, evidence = search.standing, search.evidence
    missing = {found.key: found for _, _, plan in trials for found in evidence.missing(plan)}
    search.lab.measure_first(list(missing.values()), budget)
    for number, answers, first in trials:
        plan = plans.buildable(answers, first, search.lab, budget)
        if budget.spent() and evidence.missing(plan):
            plans.postpone(answers, plan)
            continue
        standing.plan_trials += 1
        time_us = evidence.composed_us(plan)
        plans.tell(answers, plan, time_us)
        _record(search, number, answers, plan, time_us)
        standing.idle = 0 if standing.consider(plan) else standing.idle + 1


def plan_search(search: Search, budget: Budget) -> PlanSearch:
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
    return Question("compositions", gain_us, cost_s, partial(compose, search))


def compose(search: Search, budget: Budget, measure: bool = True) -> None:
    """The best plan of all groups that have a time, whichever plans they stood in; a finalist of its own.

    Recorded as a plan, and the search goes on from it when it is clearly ahead (see `Standing.consider`).
    """
    if budget.spent():
        return
    standing, evidence = search.standing, search.evidence
    standing.composed_trials = standing.plan_trials
    own = standing.composed.keys if standing.composed is not None else frozenset()
    composed = compose_measured(evidence, search.lab if measure else None, budget)
    if composed is None:
        return
    standing.composed = replace(composed, keys=composed.keys | own)
    search.lab.record_plan(composed.plan, "composed")
    best_us = standing.best_us()
    if best_us is None or composed.us < best_us * CLEARLY:
        standing.best = composed.plan
