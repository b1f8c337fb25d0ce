"""The finalists: built whole, checked whole, measured interleaved; a tie goes to the simpler plan."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from autofuse.backend.realise import build_library
from autofuse.errors import AutofuseError, DeviceError, PlanError, WrongResultError
from autofuse.fusion.explain import explain
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.inputs import generate_inputs
from autofuse.measure.bench import Contender, ContenderResult, bench_contenders
from autofuse.measure.reference import run_reference
from autofuse.profiling.records import Block, ChosenGroup, EdgeDecision, PlanOutcome
from autofuse.search.progress import PlanTime
from autofuse.search.workbench import Workbench

FINALISTS = 4
HOPELESS = 2.5
"""A plan whose composed time is so many times the best one's is not built whole (plan "none" always is)."""
TIE = 1.005
SIMPLER = ("default", "tvm", "dnnfusion", "search", "none")
EXTRA_SEEDS = 2


def conclude(
    bench: Workbench, plans: Mapping[str, FusionPlan], folder: Path, seconds: float, tell: Callable[[str], None]
) -> tuple[dict[str, PlanTime], tuple[str, FusionPlan]]:
    """Measures the finalists whole, records them and the choice: (plan times, (name, plan) chosen)."""
    named = _finalists(bench, plans)
    inputs = generate_inputs(bench.graph, bench.seed)
    expected = [bench.reference.array(name) for name in bench.graph.outputs]
    contenders, problems = _built(bench, named, folder, tell)
    if not contenders:
        raise PlanError("no plan could be built whole: " + "; ".join(problems.values()))
    bench.runner.close()
    tell("measuring the finalists")
    threads, target = bench.around.setting.threads, bench.around.target
    results = bench_contenders(contenders, inputs, threads, seconds, target=target, expected=expected)
    times = {name: _time(bench, plan, results.get(name), problems.get(name, "")) for name, plan in named.items()}
    _record(bench, named, results)
    chosen = _choose(named, times)
    _record_choice(bench, chosen[1], times[chosen[0]])
    return times, chosen


def _finalists(bench: Workbench, plans: Mapping[str, FusionPlan]) -> dict[str, FusionPlan]:
    """The best composed plans, each once, with "none" and "tvm" always among them."""
    composed = {name: bench.composed_us(plan) or float("inf") for name, plan in plans.items()}
    best = min(composed.values())
    order = sorted(plans, key=lambda name: (composed[name], SIMPLER.index(name)))
    kept: dict[str, FusionPlan] = {}
    for name in order:
        needed = name in ("none", "tvm")
        if not needed and (len(kept) >= FINALISTS - 1 or composed[name] > HOPELESS * best):
            continue
        if plans[name].key not in {plan.key for plan in kept.values()}:
            kept[name] = plans[name]
    return kept


def _built(
    bench: Workbench, named: Mapping[str, FusionPlan], folder: Path, tell: Callable[[str], None]
) -> tuple[list[Contender], dict[str, str]]:
    contenders, problems = [], {}
    target, threads = bench.around.target, bench.around.setting.threads
    for name, plan in named.items():
        tell(f"building plan {name}")
        path = folder / f"plan-{name}.so"
        try:
            build_library(bench.admit(plan), bench.schedules(plan), target, threads, path, plan_key=plan.key)
        except AutofuseError as error:
            problems[name] = str(error)
            continue
        contenders.append(Contender(name, "autofuse", path))
    return contenders, problems


def _time(bench: Workbench, plan: FusionPlan, result: ContenderResult | None, problem: str) -> PlanTime:
    kernels = len(bench.admit(plan).kernels)
    composed = bench.composed_us(plan)
    if result is None or result.median_us is None or result.wrong:
        reason = problem or (result.wrong or result.error if result else "not measured")
        return PlanTime(kernels, composed, problem=reason, max_rel_error=result.max_rel_error if result else None)
    return PlanTime(kernels, composed, result.median_us, None, None, None, result.trusted, result.max_rel_error)


def _choose(named: Mapping[str, FusionPlan], times: dict[str, PlanTime]) -> tuple[str, FusionPlan]:
    """The fastest right plan; among those within the noise the simplest. Also fills in speedups over "none"."""
    measured = {name: time for name, time in times.items() if time.median_us is not None}
    if not measured:
        problems = "; ".join(f"{name}: {time.problem}" for name, time in times.items())
        if any(time.max_rel_error is not None for time in times.values()):
            raise WrongResultError(f"no plan is right as a whole: {problems}")
        raise DeviceError(f"no plan could be measured as a whole: {problems}")
    none = measured.get("none")
    if none is not None and none.median_us is not None:
        for name, time in measured.items():
            assert time.median_us is not None
            speedup = none.median_us / time.median_us
            times[name] = PlanTime(**{**vars(time), "speedup": speedup})
    best = min(time.median_us or 0.0 for time in measured.values())
    tied = [name for name, time in measured.items() if (time.median_us or 0.0) <= best * TIE]
    chosen = min(tied, key=lambda name: (SIMPLER.index(name), name))
    return chosen, named[chosen]


def _record(bench: Workbench, named: Mapping[str, FusionPlan], results: Mapping[str, ContenderResult]) -> None:
    series = uuid.uuid4().hex
    for name, result in results.items():
        samples = result.samples
        if result.median_us is None or samples is None or samples.us is None:
            failure = result.wrong or result.error or "no time"
            state = "wrong" if result.wrong else "run_error"
            outcome = PlanOutcome(state=state, failure=failure, name=name, series=series, plan_key=named[name].key)
        elif result.wrong:
            outcome = PlanOutcome(
                state="wrong", failure=result.wrong, name=name, series=series, plan_key=named[name].key
            )
        else:
            blocks = tuple(Block((part.us,), part.clock, not part.good) for part in samples.slices)
            outcome = PlanOutcome(
                state="ok", median_us=samples.us.median, ci_lo_us=samples.us.lo, ci_hi_us=samples.us.hi,
                trusted=samples.trusted, max_rel_error=result.max_rel_error, blocks=blocks,
                name=name, series=series, plan_key=named[name].key,
            )  # fmt: skip
        bench.database.record_plan_measurement(bench.run_id, outcome)


def _record_choice(bench: Workbench, plan: FusionPlan, time: PlanTime) -> None:
    """What `compile` takes from now on, and why each edge is as it is."""
    stored = bench.database.lookup(bench.around.setting, [b.workload.key for b in bench.admit(plan).kernels])
    groups = []
    for group, bound in zip(plan.groups, bench.admit(plan).groups, strict=True):
        best = stored.get(bound.workload.key)
        us = best.median_us if best else None
        bench.database.record_workload(bound.workload.key, bound.workload.text, bound.workload.label)
        groups.append(ChosenGroup(group.operators, bound.workload.key, best.candidate_id if best else None, us))
    bench.database.record_choice(bench.run_id, plan.key, groups, median_us=time.median_us, trusted=time.trusted)
    rows = [
        EdgeDecision(row.producer, row.consumer, row.fused, row.code if row.code != "folded" else "chosen_measured")
        for row in explain(bench.graph, plan, "chosen_measured")
    ]
    bench.database.record_edges(bench.run_id, plan.key, rows)


def check_whole(bench: Workbench, run: Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]) -> float:
    """Largest relative error of `run` against the reference over several generated inputs."""
    worst = 0.0
    for seed in range(bench.seed + 1, bench.seed + 1 + EXTRA_SEEDS):
        inputs = generate_inputs(bench.graph, seed)
        wanted = run_reference(bench.graph, inputs)
        for name, got in zip(bench.graph.outputs, run(inputs), strict=True):
            span = float(np.ptp(wanted[name])) or 1.0
            worst = max(worst, float(np.abs(got - wanted[name]).max()) / span)
    return worst
