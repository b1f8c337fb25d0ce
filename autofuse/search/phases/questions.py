"""The questions of a search: what may be measured next, what each is expected to gain and to cost (stated rules, see
`autofuse.search.budget.agenda`), and what asking it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autofuse.database.records import Trial
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.search.budget.agenda import Question
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import (
    ASKING_SHARE,
    BATCH,
    CLEARLY,
    COMBINED_AHEAD,
    COMPOSING_S,
    DOUBTED_ERROR,
    EARLY_PLANS,
    EARLY_SHARE,
    FIRST_CANDIDATE_S,
    FIXED,
    FIXED_GAIN,
    FLIPS_AHEAD,
    IDLE_TRIALS,
    LARGEST_GAIN,
    LEAST_COMPOSED,
    LEAST_OF_FIRST,
    LITTLE_FUSION,
    NEAR,
    PLANNING_S,
    PLANS_AT_ONCE,
    RIVAL_SHARE,
    WRONG_SUMS,
)
from autofuse.search.composition.composer import compose_measured
from autofuse.search.finals.early import EarlyRace
from autofuse.search.lab.lab import Asked, Lab, asked_text
from autofuse.search.plans.changes import behind, changes_tried, needed, several, single, us_of, weights_of
from autofuse.search.plans.changes import chosen as chosen_changes
from autofuse.search.plans.guide import ASKING_S, Guide
from autofuse.search.plans.plan_search import Flip, PlanSearch
from autofuse.search.plans.plan_search import Trial as PlanTrial
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.prospects import Stake, next_candidates
from autofuse.search.schedules.schedule_search import WorkloadSearch
from autofuse.search.standing.standing import Standing


@dataclass(frozen=True)
class Search:
    """The search of one model: what its phases work with.

    `second_objective`: what plans are searched for besides time, the smaller the better (None: time alone). `guide`: a
    trained model (None: there is none). `race`: races whole networks (None: nothing does, so sums are all there is).
    """

    evidence: SearchEvidence
    lab: Lab
    standing: Standing
    guide: Guide | None = None
    second_objective: Callable[[FusionPlan], int] | None = None
    race: EarlyRace | None = None


def questions(search: Search, budget: Budget) -> list[Question]:
    """Everything that may be measured next, with what it is expected to gain and to cost."""
    found = [_better_schedules(search), _changed_plans(search, budget), _composition(search), _doubted_winners(search)]
    found.append(_whole_networks(search, budget))
    found += [_fixed_plan(search, name) for name in (*LITTLE_FUSION, *FIXED)]
    return [one for one in found if one is not None]


def _candidate_s(search: Search) -> float:
    return search.lab.candidate_s or FIRST_CANDIDATE_S


def _better_schedules(search: Search) -> Question | None:
    """Schedules, each candidate where it promises most: of the best plan's workloads, and of those of changes and fixed
    plans that stand behind it and may still catch up."""
    if search.standing.leading() is None:
        return None
    chosen, gain_us = next_candidates(list(search.evidence.searches.values()), _stakes(search), BATCH, LEAST_OF_FIRST)
    if not chosen:
        return None
    ask = partial(refine, search, chosen)
    return Question("schedules", gain_us, len(chosen) * _candidate_s(search), ask, first=chosen)


def _stakes(search: Search) -> dict[str, list[Stake]]:
    """What each workload takes in the best plan, in a change that was tried, and (a small part) in fixed plans."""
    standing, evidence = search.standing, search.evidence
    found: dict[str, list[Stake]] = {}
    leading = standing.leading()
    for key, us in evidence.weights(leading).items() if leading is not None else ():
        found.setdefault(key, []).append(Stake(us))
    for plan in standing.baselines.values():
        for key, us in evidence.weights(plan).items():
            found.setdefault(key, []).append(Stake(RIVAL_SHARE * us))
    for key, stake in _stakes_of_changes(evidence, standing.plan_search) if standing.plan_search is not None else ():
        found.setdefault(key, []).append(stake)
    return found


def _stakes_of_changes(evidence: SearchEvidence, plans: PlanSearch) -> Iterator[tuple[str, Stake]]:
    """What each workload takes in a change that was tried, and in what a change replaces that saves: either may only
    lack a good schedule."""
    changes = changes_tried(evidence, plans)
    for change, behind_us in zip(changes, behind(evidence, changes), strict=True):
        gone_us, come_us = us_of(evidence, change.gone), us_of(evidence, change.come)
        for key, count in change.come.items():
            yield key, Stake(count * (evidence.searches[key].best_us or 0.0), behind_us, come_us)
        for key, count in change.gone.items() if come_us < gone_us else ():
            yield key, Stake(count * (evidence.searches[key].best_us or 0.0), gone_us - come_us + behind_us, gone_us)


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
    owed = name in LITTLE_FUSION or len(missing) <= BATCH
    return Question("fixed plans", gain_us, cost_s, ask, owed=owed, first=part)


def measure_groups(search: Search, plan: FusionPlan, missing: Sequence[WorkloadSearch], budget: Budget) -> None:
    """First times of some workloads of a plan."""
    search.lab.measure_first(missing, budget)
    search.standing.consider(plan)


def _changed_plans(search: Search, budget: Budget) -> Question | None:
    """The next changes of decisions: single ones first, then several together."""
    standing, evidence, plans = search.standing, search.evidence, plan_search(search, budget)
    best_us = standing.expected_us() or 0.0
    default_weights = weights_of(evidence, plans.default)
    flips = plans.flips(FLIPS_AHEAD, default_weights)
    if flips:
        found = [single(evidence, plans.default, flip, LARGEST_GAIN * best_us) for flip in flips]
        taken, cost_s = chosen_changes(found, _candidate_s(search), PLANNING_S, PLANS_AT_ONCE, BATCH, LEAST_OF_FIRST)
        gain_us = sum(one.saved_us for one in taken)
        ask = partial(try_flips, search, plans, [one.flip for one in taken])
        return Question("plans", gain_us, cost_s, ask, parts=len(taken), first=needed(taken))
    return _several_changes(search, plans, best_us)


def _several_changes(search: Search, plans: PlanSearch, best_us: float) -> Question | None:
    """Several changed decisions together: what pays with what else pays, and what Optuna proposes."""
    standing, evidence = search.standing, search.evidence
    leading = standing.leading()
    if standing.exhausted or standing.idle >= IDLE_TRIALS or leading is None:
        return None
    plans.renew(evidence.expected_us)
    flips = plans.together(COMBINED_AHEAD, weights_of(evidence, plans.default))
    if not flips:
        standing.exhausted = True
        return None
    achieved_us = max(0.0, (plans.default_us or best_us) - best_us)
    found = [
        several(
            evidence, leading, flip, achieved_us - plans.promised_us(flip.answers), LARGEST_GAIN * best_us
        )
        for flip in flips
    ]  # fmt: skip
    taken, cost_s = chosen_changes(found, _candidate_s(search), PLANNING_S, PLANS_AT_ONCE, BATCH, LEAST_OF_FIRST)
    ask = partial(try_together, search, plans, [one.flip for one in taken])
    gain_us = sum(one.saved_us for one in taken)
    return Question("combinations", gain_us, cost_s, ask, parts=len(taken), first=needed(taken))


def try_together(search: Search, plans: PlanSearch, flips: Sequence[Flip], budget: Budget) -> None:
    """Tries plans that differ in several decisions each."""
    explore(search, plans, [plans.begin(flip) for flip in flips], budget)


def try_flips(search: Search, plans: PlanSearch, flips: Sequence[Flip], budget: Budget) -> None:
    """Tries plans that differ in one decision each."""
    explore(search, plans, [plans.take(flip) for flip in flips], budget)


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
        plans.tell(answers, plan, evidence.expected_us(plan))
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


def _whole_networks(search: Search, budget: Budget) -> Question | None:
    """The leading plan whole, beside the default and the plans that are nearly as good by their sums: what that teaches
    of the kernels in which they differ corrects all sums. Asked once a plan leads that was not raced yet."""
    standing, evidence, race = search.standing, search.evidence, search.race
    leading, default = standing.leading(), standing.baselines.get("default")
    if race is None or leading is None or default is None or leading.key in {default.key, *standing.raced}:
        return None
    default_us, leading_us = evidence.expected_us(default), evidence.expected_us(leading)
    if default_us is None or leading_us is None:
        return None
    plans = {"default": default, "search": leading, **_near(search, leading_us)}
    raced = (evidence.expected_us(plan) for plan, _ in evidence.known_plans() if plan.key in standing.raced)
    known_us = min([default_us, *(us for us in raced if us is not None)])
    gain_us, cost_s = WRONG_SUMS * (known_us - leading_us), race.seconds(plans)
    if gain_us <= 0.0 or cost_s > EARLY_SHARE * budget.left():
        return None
    return Question("whole networks", gain_us, cost_s, partial(race_early, search, race, plans))


def _near(search: Search, leading_us: float) -> dict[str, FusionPlan]:
    """Plans that were not raced yet and whose sums are nearly the least."""
    evidence, named = search.evidence, search.standing.plans()
    known = {plan.key for name, plan in named.items() if name == "default"} | search.standing.raced
    sums = [(evidence.expected_us(plan), plan) for plan, _ in evidence.known_plans() if plan.key not in known]
    near = sorted((us, plan.key, plan) for us, plan in sums if us is not None and leading_us < us <= NEAR * leading_us)
    return {f"near {number}": plan for number, (*_, plan) in enumerate(near[: EARLY_PLANS - 2], 1)}


def race_early(search: Search, race: EarlyRace, plans: Mapping[str, FusionPlan], budget: Budget) -> None:
    """Races plans whole, and goes on from the one that is expected to be fastest by then."""
    standing = search.standing
    standing.raced |= {plan.key for plan in plans.values()}
    for plan in plans.values():
        search.lab.record_plan(plan, "search")
    race(plans, budget)
    for plan in plans.values():
        standing.consider(plan)


def _composition(search: Search) -> Question | None:
    """The best plan of all measured groups, once some plans were tried that it has not seen."""
    standing, plans = search.standing, search.standing.plan_search
    unseen = standing.plan_trials - standing.composed_trials
    if plans is None or not unseen:
        return None
    plans.renew(search.evidence.expected_us)
    best_us = standing.expected_us() or 0.0
    together_us = best_us if plans.default_us is None else plans.default_us - plans.paid_us
    gain_us = max(LEAST_COMPOSED * best_us, best_us - together_us)
    account = standing.agenda.account("compositions")
    cost_s = account.spent_s / account.asked if account.asked else COMPOSING_S
    return Question("compositions", gain_us, cost_s, partial(compose, search), credit="plans")


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
    best_us = evidence.expected_us(standing.best) if standing.best is not None else None
    if best_us is None or composed.us < best_us * CLEARLY:
        standing.best = composed.plan
