"""The finalists: built whole, checked whole, measured interleaved; what noise leaves open goes to the simpler plan."""

from __future__ import annotations

import uuid
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.environment.outcomes import plan_outcome
from autofuse.errors import DeviceError, PlanError, WrongResultError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.inputs import generate_inputs
from autofuse.measure.networks.bench import OUT_OF_TIME, Contender, ContenderResult
from autofuse.measure.networks.judgement import difference, judged
from autofuse.measure.networks.libraries import NO_TIME, Model, Order, build_libraries
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import race_until_decided_s
from autofuse.search.finals.finale import OBJECTS, Estimates, Finale, complexity, preferred, schedules_of
from autofuse.search.finals.learning import learn
from autofuse.search.finals.numerical_gate import tiles_taken
from autofuse.search.finals.verdict import LATE, Verdict
from autofuse.search.lab.lab import Lab
from autofuse.search.progress import PlanTime
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.standing.standing import Standing
from autofuse.values.names import UNTUNED
from autofuse.values.ratios import compare, decide

LEAST_PACE = 0.2
"""Part of the expected time that further steps take at least, however fast the first ones were."""


@dataclass(frozen=True)
class Finals:
    """The end of a search: what it works with. `folder`: where libraries go. `estimates`: what it will take."""

    lab: Lab
    standing: Standing
    model: Model
    folder: Path
    estimates: Estimates

    @property
    def evidence(self) -> SearchEvidence:
        """What the search knows."""
        return self.lab.evidence

    def base(self, plans: Mapping[str, FusionPlan]) -> str:
        """Name of the plan without fusion among `plans`; "" when it is not there."""
        none = self.standing.baselines.get("none")
        return next((name for name, plan in plans.items() if plan == none), "")

    def preferred(self, plans: Mapping[str, FusionPlan]) -> list[str]:
        """Names of `plans` in the order in which they are taken while noise tells none of them apart."""
        standing = self.standing
        kept = standing.previous if standing.decided_before else ""
        return preferred(plans, kept, standing.baselines.get("default"))

    def library(self, name: str) -> Path:
        """Where a plan's library goes."""
        return self.folder / f"plan-{name}.so"


def measured_whole(finals: Finals, plans: Mapping[str, FusionPlan], budget: Budget) -> Verdict:
    """Builds, races and checks the plans that there is time for, and chooses among them."""
    evidence, base = finals.evidence, finals.base(plans)
    results, problems = race_whole(finals, plans, budget)
    record_whole(finals.lab, plans, results)
    learn(evidence, {name: plan for name, plan in plans.items() if name != UNTUNED}, results)
    times = {
        name: _time(evidence, name, plan, results.get(name), results.get(base), problems.get(name, ""))
        for name, plan in plans.items()
    }
    return _choose(finals, plans, times, results, budget)


def race_whole(
    finals: Finals, plans: Mapping[str, FusionPlan], budget: Budget
) -> tuple[Mapping[str, ContenderResult], Mapping[str, str]]:
    """Builds the plans that there is time for, checks them and times them in turn: the results, and why others have
    none, by name."""
    evidence, lab = finals.evidence, finals.lab
    contenders, problems, race_s = _built_in_time(finals, plans, budget)
    if not contenders and NO_TIME not in problems.values():
        raise PlanError("no plan could be built whole: " + "; ".join(problems.values()))
    if not contenders:
        return {}, problems
    lab.tell("measuring whole networks")
    inputs = generate_inputs(evidence.graph, evidence.seed)
    expected = [lab.reference.array(name) for name in evidence.graph.outputs]
    race_budget = _for_the_race(finals.estimates, len(contenders), budget)
    seconds = race_until_decided_s(race_s, race_budget.left())
    results = lab.runner.race(contenders, inputs, seconds, expected=expected, left=race_budget.left)
    return judged(results, evidence.graph, inputs), problems


def _for_the_race(estimates: Estimates, count: int, budget: Budget) -> Budget:
    """The time in which the finalists are checked and timed: all but what comes after it; where that is too little, it
    is the check on further inputs that has to go."""
    race_budget = budget.before(estimates.after_s(count))
    enough = race_budget.left() >= estimates.least_race_s(count) + count * estimates.check_s()
    return race_budget if enough else budget.before(estimates.after_s(0))


def _built_in_time(
    finals: Finals, plans: Mapping[str, FusionPlan], budget: Budget
) -> tuple[list[Contender], dict[str, str], float]:
    """Contenders in the order of preference, why other plans could not be built, and seconds of the race.

    In rounds: what took less time to build than was expected leaves some for what was left out.
    """
    made: dict[str, Contender] = {}
    problems: dict[str, str] = {}
    pace = 1.0
    while True:
        open_plans = {name: plan for name, plan in plans.items() if name not in problems}
        finale = finals.estimates.finale(open_plans, budget.left(), made, pace)
        new = replace(finale, names=tuple(name for name in finale.names if name not in made))
        if not new.names and (made or problems or budget.spent()):
            break
        if not new.names:  # the estimate may be wrong, and the time is there
            first = next(iter(open_plans))
            new = replace(finale, names=(first,), after_s=finals.estimates.after_s(0))
        started = budget.now()
        found, failed = _built(finals, plans, new, budget.before(new.after_s))
        expected_s = finals.estimates.building_s([finale.builds_s[name] for name in new.names], pace)
        pace = max(LEAST_PACE, pace * min(1.0, (budget.now() - started) / expected_s))
        made |= {one.name: one for one in found}
        problems |= failed
    problems |= dict.fromkeys(finale.left_out, NO_TIME)
    order = finals.preferred(plans)
    race_s = max(finale.race_s, finals.estimates.least_race_s(len(made)))
    return sorted(made.values(), key=lambda one: order.index(one.name)), _without(problems, made), race_s


def _without(problems: Mapping[str, str], made: Container[str]) -> dict[str, str]:
    return {name: problem for name, problem in problems.items() if name not in made}


def _built(
    finals: Finals, plans: Mapping[str, FusionPlan], finale: Finale, budget: Budget
) -> tuple[list[Contender], dict[str, str]]:
    """Contenders, and why other plans could not be built."""
    evidence, lab = finals.evidence, finals.lab
    orders = [
        Order(name, plan, schedules_of(evidence, name, plan), finals.library(name), finale.builds_s[name])
        for name, plan in ((name, plans[name]) for name in finale.names)
    ]
    lab.runner.close()  # idle children would hold memory that the builds need
    target, threads = evidence.environment.target, evidence.environment.setting.threads

    def tell(note: str, done: int, total: int) -> None:
        finals.standing.built = done, total
        lab.tell(note)

    problems = (
        build_libraries(finals.model, target, threads, orders, tell, left=budget.left, objects=finals.folder / OBJECTS)
        if orders
        else {}
    )
    finals.standing.built = None
    made = (one for one in orders if one.name not in problems)
    return [Contender(one.name, "autofuse", one.output) for one in made], problems


def _time(
    evidence: SearchEvidence,
    name: str,
    plan: FusionPlan,
    result: ContenderResult | None,
    none: ContenderResult | None,
    problem: str,
) -> PlanTime:
    """A finalist's time, and its ratio to that of plan "none" in the same rounds."""
    composed = evidence.rule_us(plan) if name == UNTUNED else evidence.composed_us(plan)
    kernels = len(evidence.admit(plan).kernels)
    if result is None or result.timed is None:
        reason = problem or (result.wrong or result.error or OUT_OF_TIME if result else "not measured")
        return PlanTime(kernels, composed, problem=reason, max_rel_error=result.max_rel_error if result else None)
    own, why = result.timed, result.samples.reason if result.samples else ""
    time = PlanTime(kernels, composed, own.us.median, None, None, None, own.trusted, result.max_rel_error, why)
    if none is None or none.timed is None:
        return time
    ratio = compare(none.timed, own)
    return replace(time, speedup=ratio.value, ci_lo=ratio.lo, ci_hi=ratio.hi, verdict=ratio.verdict)


def _choose(
    finals: Finals,
    plans: Mapping[str, FusionPlan],
    times: dict[str, PlanTime],
    results: Mapping[str, ContenderResult],
    budget: Budget,
) -> Verdict:
    """The plan that the race decides for (`autofuse.values.ratios.decide`), if it is right on further inputs too.

    Where the time was over before one of them could be measured: see `_unchecked`.
    """
    timed = {name: results[name].timed for name in finals.preferred(plans) if times[name].median_us is not None}
    measured = {name: time for name, time in timed.items() if time is not None}
    while measured:
        decision = decide(measured)
        chosen = decision.chosen
        if budget.spent():
            return Verdict(times, chosen, plans[chosen], further=False, decision=decision)
        problem = _problem_on_further_inputs(finals, finals.library(chosen), budget)
        if problem in ("", OUT_OF_TIME):
            return Verdict(times, chosen, plans[chosen], further=not problem, decision=decision)
        del measured[chosen]
        times[chosen] = replace(times[chosen], problem=problem)
    wrong = any(time.max_rel_error is not None and time.problem not in LATE for time in times.values())
    if any(time.problem in LATE for time in times.values()) and not (wrong and tiles_taken(finals.evidence, plans)):
        return _unchecked(finals, plans, times)
    problems = "; ".join(f"{name}: {time.problem}" for name, time in times.items())
    if all(time.max_rel_error is None for time in times.values()):
        raise DeviceError(f"no plan could be measured as a whole: {problems}")
    raise WrongResultError(f"no plan is right as a whole: {problems}")


def _problem_on_further_inputs(finals: Finals, library: Path, budget: Budget) -> str:
    """How a library differs from ONNX Runtime on inputs that no group was checked with; "" when it does not."""
    evidence, lab = finals.evidence, finals.lab
    reference_s = finals.estimates.opening.reference_s
    if budget.left() <= reference_s:
        return OUT_OF_TIME
    inputs = generate_inputs(evidence.graph, evidence.seed + 1)
    try:
        outputs = lab.runner.outputs(library, inputs, budget.left)
    except DeviceError as error:
        return OUT_OF_TIME if budget.spent() else f"on further inputs: {error}"
    if budget.left() <= reference_s:  # loading the library took longer than expected
        return OUT_OF_TIME
    problem = difference(evidence.graph, inputs, outputs)
    return f"{problem} on further inputs" if problem else ""


def _unchecked(finals: Finals, plans: Mapping[str, FusionPlan], times: Mapping[str, PlanTime]) -> Verdict:
    """The choice where no time was left to measure a plan whole: what an earlier run chose, and measured whole then;
    the best by the times of its kernels, of those that have them all; the first, which is the default. One that was
    built and found right, and only not timed, comes before others."""
    late = [name for name in plans if times[name].problem in LATE]
    right = [name for name in late if times[name].max_rel_error is not None]
    open_plans = right or late
    composed = {name: times[name].composed_us for name in open_plans}
    timed = {name: us for name, us in composed.items() if us is not None}
    name = min(timed, key=lambda one: (timed[one], complexity(one))) if timed else open_plans[0]
    if finals.standing.previous in open_plans:
        name = finals.standing.previous
    return Verdict(times, name, plans[name], checked=name in right, further=False)


def record_whole(lab: Lab, named: Mapping[str, FusionPlan], results: Mapping[str, ContenderResult]) -> None:
    """Stores what a race of whole plans came to."""
    series = uuid.uuid4().hex
    for name, result in results.items():
        if result.timed is None and not result.wrong and result.error in ("", OUT_OF_TIME):
            continue  # nothing is known of it
        outcome = plan_outcome(result, name, series, named[name].key, lab.evidence.limits)
        lab.evidence.database.record_plan_measurement(lab.run_id, outcome)
