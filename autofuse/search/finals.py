"""The finalists: built whole, checked whole, measured interleaved; a tie goes to the simpler plan."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from autofuse.database.records import ChosenGroup, EdgeDecision
from autofuse.environment.group_times import known_pieces
from autofuse.environment.outcomes import plan_outcome
from autofuse.errors import DeviceError, PlanError, WrongResultError
from autofuse.fusion.evidence import Evidence
from autofuse.fusion.explain import explain
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.skeleton import settled
from autofuse.graph.inputs import generate_inputs
from autofuse.kernels.schedule.limits import larger
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.measure.networks.judgement import difference, judged
from autofuse.measure.networks.libraries import Model, Order, build_libraries
from autofuse.search.progress import PlanTime
from autofuse.search.shares import LITTLE_FUSION
from autofuse.search.workbench import Workbench
from autofuse.values.names import TVM_PARTITION
from autofuse.values.ratios import compare

FINALISTS = 4
HOPELESS = 2.5
"""A plan whose composed time is so many times the best one's is not built whole (plan "none" always is)."""
TIE = 1.02
"""Beyond this ratio a plan is slower, however wide the interval is."""
SIMPLER = ("default", TVM_PARTITION, "dnnfusion", "previous", "model", "search", "composed", "none")

Concluded = tuple[dict[str, PlanTime], tuple[str, FusionPlan]]
"""Times of the finalists by name, and the choice with its name."""


def conclude(
    bench: Workbench,
    plans: Mapping[str, FusionPlan],
    model: Model,
    folder: Path,
    seconds: float,
    tell: Callable[[str], None],
) -> Concluded:
    """Measures the finalists whole, records them and the choice.

    Libraries are built, run and checked in child processes only. `tell` is called often, and may raise to stop.
    """
    named = _finalists(bench, plans)
    inputs = generate_inputs(bench.graph, bench.seed)
    expected = [bench.reference.array(name) for name in bench.graph.outputs]
    contenders, problems = _built(bench, named, model, folder, tell)
    if not contenders:
        raise PlanError("no plan could be built whole: " + "; ".join(problems.values()))
    note = "measuring the finalists"
    tell(note)
    results = bench.runner.race(contenders, inputs, seconds, expected=expected, between=lambda: tell(note))
    results = judged(results, bench.graph, inputs)
    _record(bench, named, results)
    none = results.get("none")
    times = {name: _time(bench, plan, results.get(name), none, problems.get(name, "")) for name, plan in named.items()}
    chosen = _choose(bench, named, times, results, folder)
    # A plan may have won with schedules that no candidate of its own has tried; `compile` wants to find them measured.
    bench.measure_first(bench.missing(chosen[1]))
    _record_choice(bench, chosen[1], times[chosen[0]])
    return times, chosen


def _finalists(bench: Workbench, plans: Mapping[str, FusionPlan]) -> dict[str, FusionPlan]:
    """The best composed plans, each once, with no fusion and TVM's partition always among them."""
    composed = {name: bench.composed_us(plan) or float("inf") for name, plan in plans.items()}
    best = min(composed.values())
    order = sorted(plans, key=lambda name: (composed[name], _complexity(name)))
    kept: dict[str, FusionPlan] = {}
    for name in order:
        needed = name in LITTLE_FUSION
        if not needed and (len(kept) >= FINALISTS - 1 or composed[name] > HOPELESS * best):
            continue
        if plans[name].key not in {plan.key for plan in kept.values()}:
            kept[name] = plans[name]
    return kept


def _complexity(name: str) -> int:
    """Place of a plan among equally fast ones; a plan that only the caller knows comes before no fusion."""
    return SIMPLER.index(name) if name in SIMPLER else len(SIMPLER) - 1


def _library(folder: Path, name: str) -> Path:
    return folder / f"plan-{name}.so"


def _built(
    bench: Workbench, named: Mapping[str, FusionPlan], model: Model, folder: Path, tell: Callable[[str], None]
) -> tuple[list[Contender], dict[str, str]]:
    """Contenders, plan "none" first so that ratios are to it, and why other plans could not be built."""
    target, threads = bench.around.target, bench.around.setting.threads
    order = sorted(named, key=lambda name: name != "none")
    orders = [Order(name, named[name], bench.schedules(named[name]), _library(folder, name)) for name in order]
    bench.runner.close()  # idle children would hold memory that the builds need
    problems = build_libraries(model, target, threads, orders, tell)
    return [Contender(one.name, "autofuse", one.output) for one in orders if one.name not in problems], problems


def _time(
    bench: Workbench, plan: FusionPlan, result: ContenderResult | None, none: ContenderResult | None, problem: str
) -> PlanTime:
    """A finalist's time, and its ratio to that of plan "none" in the same rounds."""
    kernels, composed = len(bench.admit(plan).kernels), bench.composed_us(plan)
    if result is None or result.timed is None:
        reason = problem or (result.wrong or result.error if result else "not measured")
        return PlanTime(kernels, composed, problem=reason, max_rel_error=result.max_rel_error if result else None)
    own, why = result.timed, result.samples.reason if result.samples else ""
    time = PlanTime(kernels, composed, own.us.median, None, None, None, own.trusted, result.max_rel_error, why)
    if none is None or none.timed is None:
        return time
    ratio = compare(none.timed, own)
    return replace(time, speedup=ratio.value, ci_lo=ratio.lo, ci_hi=ratio.hi, verdict=ratio.verdict)


def _choose(
    bench: Workbench,
    named: Mapping[str, FusionPlan],
    times: dict[str, PlanTime],
    results: Mapping[str, ContenderResult],
    folder: Path,
) -> tuple[str, FusionPlan]:
    """The fastest plan that is right on further inputs too; among those that are no slower, the simplest."""
    measured = {name: time.median_us for name, time in times.items() if time.median_us is not None}
    while measured:
        best = min(measured, key=lambda name: measured[name])
        tied = [name for name in measured if name == best or not _slower(results[name], results[best])]
        chosen = min(tied, key=_complexity)
        problem = _problem_on_further_inputs(bench, _library(folder, chosen))
        if not problem:
            return chosen, named[chosen]
        del measured[chosen]
        times[chosen] = replace(times[chosen], problem=problem)
    problems = "; ".join(f"{name}: {time.problem}" for name, time in times.items())
    if all(time.max_rel_error is None for time in times.values()):
        raise DeviceError(f"no plan could be measured as a whole: {problems}")
    raise WrongResultError(f"no plan is right as a whole: {problems}")


def _slower(result: ContenderResult, best: ContenderResult) -> bool:
    """Whether the rounds that count say that a plan is slower than the best one beyond noise."""
    assert result.timed is not None and best.timed is not None
    ratio = compare(result.timed, best.timed)
    return ratio.value is None or ratio.lo is None or ratio.lo > 1.0 or ratio.value > TIE


def _problem_on_further_inputs(bench: Workbench, library: Path) -> str:
    """How a library differs from ONNX Runtime on inputs that no group was checked with; "" when it does not."""
    inputs = generate_inputs(bench.graph, bench.seed + 1)
    try:
        problem = difference(bench.graph, inputs, bench.runner.outputs(library, inputs))
    except DeviceError as error:
        return f"on further inputs: {error}"
    return f"{problem} on further inputs" if problem else ""


def _record(bench: Workbench, named: Mapping[str, FusionPlan], results: Mapping[str, ContenderResult]) -> None:
    series = uuid.uuid4().hex
    for name, result in results.items():
        outcome = plan_outcome(result, name, series, named[name].key)
        bench.database.record_plan_measurement(bench.run_id, outcome)


def _record_choice(bench: Workbench, plan: FusionPlan, time: PlanTime) -> None:
    """What `compile` takes from now on, and why each edge is as it is."""
    keys = [bound.workload.key for bound in bench.admit(plan).kernels]
    stored = bench.database.lookup(bench.around.setting, keys, larger(plan.winograd))
    groups = []
    for group, bound in zip(plan.groups, bench.admit(plan).groups, strict=True):
        best = stored.get(bound.workload.key)
        us = best.median_us if best else None
        bench.database.record_workload(bound.workload.key, bound.workload.text, bound.workload.label)
        groups.append(ChosenGroup(group.operators, bound.workload.key, best.candidate_id if best else None, us))
    bench.database.record_choice(bench.run_id, plan.key, groups, median_us=time.median_us, trusted=time.trusted)
    alike = [known for known in bench.known_plans() if known[0].rewrites == plan.rewrites]
    pieces = known_pieces(bench.graph, alike, bench.database, bench.around.setting)
    evidence = Evidence(settled(bench.graph, plan)[0], pieces)
    # Several tensors may connect two operators, and a rewrite may keep the names of an edge: the first row tells.
    rows: dict[tuple[str, str], EdgeDecision] = {}
    for row in explain(bench.graph, plan, "chosen_measured", evidence):
        edge = EdgeDecision(row.producer, row.consumer, row.fused, row.code, row.gain_us)
        rows.setdefault((row.producer, row.consumer), edge)
    bench.database.record_edges(bench.run_id, plan.key, list(rows.values()))
