"""The tuning job: baselines, schedules, plans, schedules of the best plan, finalists measured whole."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import optuna

from autofuse.errors import AutofuseError, PlanError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner import Planner
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.key import graph_key
from autofuse.graph.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.coverage import require_kernels
from autofuse.measure.pool import LocalRunner
from autofuse.measure.reference import capture
from autofuse.measure.sampling import SamplingPolicy
from autofuse.named_plans import named_plan
from autofuse.named_setting import Circumstances, circumstances
from autofuse.profiling.database import ProfilingDatabase, open_database
from autofuse.profiling.records import RunStart, Trial
from autofuse.scratch import scratch_folder
from autofuse.search.finals import FINALISTS, conclude
from autofuse.search.plans import PlanSearch
from autofuse.search.progress import PlanTime, Progress, TuneResult
from autofuse.search.schedules import WorkloadSearch, next_workloads
from autofuse.search.workbench import Workbench
from autofuse.search_space import SearchSpace, load_space

__all__ = ["PlanTime", "Progress", "TuneResult", "tune"]

BASELINES = ("default", "none", "tvm")
PAPER = "dnnfusion"
BATCH = 8
FIRST_SHARE, PLANS_SHARE, FINALS_SHARE = 0.35, 0.3, 0.2
PLANS_AT_ONCE = 6
"""Plan trials whose new groups are built and measured in one batch."""
RIVAL_SHARE = 1 / 8
"""Weight of a workload that only a fixed plan has: small, yet no finalist has schedules that nobody searched."""
FINALS_MIN_S = 25.0
IDLE_TRIALS = 40
"""Plan trials in a row without a better plan after which the plan search rests."""


class _BudgetSpent(Exception):  # noqa: N818 not an error: how the search hears that time is up
    """The time or the number of candidates is used up."""


def tune(
    model: Path,
    *,
    database: str | None,
    budget_s: float | None,
    trials: int | None,
    threads: int,
    device: str,
    seed: int,
    space: str | None,
    shapes: Mapping[str, tuple[int, ...]],
    progress: Callable[[Progress], None],
) -> TuneResult:
    """Search schedules and plans of `model` and record everything; see `autofuse.api.tune`."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    started = time.monotonic()
    graph = load(model, shapes)
    require_kernels(graph)
    with ExitStack() as stack:
        base = stack.enter_context(open_database(database))
        around = circumstances(base, device, threads, measuring=True)
        chosen_space = load_space(space, around.target.isa)
        scratch = stack.enter_context(scratch_folder())
        wanted = [t for op in graph.operators for t in op.outputs if t and t not in graph.constants]
        reference = capture(graph, generate_inputs(graph, seed), scratch / "reference", wanted)
        base.release_dead()
        run_id, name = _run(base, around, model, graph, seed, budget_s, trials)
        runner = stack.enter_context(LocalRunner(around.target, threads, policy=SamplingPolicy(cold_constants=True)))
        job = _Job(graph, budget_s, trials, started, progress)
        job.bench = Workbench(graph, chosen_space, around, base, runner, reference, run_id, seed, job.on_candidate)
        state = "failed"
        try:
            job.search(chosen_space, seed)
            plans, chosen = conclude(job.bench, job.plans(), scratch, job.finals_s(), job.tell)
            state = "finished"
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        finally:
            base.finish_run(run_id, state)
        return job.result(model, name, around, state, plans, chosen, str(base.location.text))


def _run(
    base: ProfilingDatabase,
    around: Circumstances,
    model: Path,
    graph: Graph,
    seed: int,
    budget_s: float | None,
    trials: int | None,
) -> tuple[int, str]:
    """Goes on with the interrupted run of this model in this setting, or starts a new one."""
    sha = hashlib.sha256(model.read_bytes()).hexdigest()
    old = base.interrupted_run(around.setting, sha)
    if old is not None:
        base.resume_run(old.id)
        return old.id, old.name
    name = f"{model.stem}-{around.setting.threads}t-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    start = RunStart(
        name=name,
        model_name=model.stem,
        model_sha256=sha,
        graph_key=graph_key(graph),
        seed=seed,
        arguments={"model": model.name, "threads": around.setting.threads, "device": around.profile.name},
        budget={"seconds": budget_s, "trials": trials},
        provenance=around.provenance.as_dict(),
    )
    return base.start_run(around.setting, start), name


class _Job:
    """One run of the search: what it has spent, its plans, its phases."""

    bench: Workbench

    def __init__(
        self,
        graph: Graph,
        budget_s: float | None,
        trials: int | None,
        started: float,
        progress: Callable[[Progress], None],
    ) -> None:
        self.graph, self.budget_s, self.trials = graph, budget_s, trials
        self.started, self.progress = started, progress
        self.baselines: dict[str, FusionPlan] = {}
        self.best: FusionPlan | None = None
        self.phase = "baselines"
        self.plan_trials = 0

    # what is left

    def elapsed_s(self) -> float:
        """Seconds since the job began."""
        return time.monotonic() - self.started

    def finals_s(self) -> float:
        """Seconds kept for measuring the finalists whole."""
        if self.budget_s is None:
            return 40.0
        return max(min(FINALS_MIN_S, self.budget_s / 3), self.budget_s * FINALS_SHARE / 2)

    def left_s(self) -> float:
        """Seconds left for the search itself."""
        if self.budget_s is None:
            return float("inf")
        known = {plan.key: plan for plan in (*self.baselines.values(), self.best) if plan is not None}
        builds = sorted((self.bench.build_estimate_s(plan) for plan in known.values()), reverse=True)
        return self.budget_s - self.finals_s() - sum(builds[:FINALISTS]) - self.elapsed_s()

    def on_candidate(self, search: WorkloadSearch) -> None:
        """After each candidate: tells, and ends the search when its budget is spent."""
        self.tell(search.bound.workload.label)
        spent = self.trials is not None and self.bench.counts.measured >= self.trials
        if (spent or self.left_s() <= 0) and (self.ready() or self.phase != "baselines"):
            raise _BudgetSpent

    def ready(self) -> bool:
        """Whether at least one plan has a time, so that a job may end."""
        return any(self.bench.composed_us(plan) is not None for plan in self.baselines.values())

    def tell(self, note: str) -> None:
        """Reports the state to whoever watches."""
        counts = self.bench.counts
        best_us = self.bench.composed_us(self.best) if self.best is not None else None
        none = self.baselines.get("none")
        baseline_us = self.bench.composed_us(none) if none is not None and best_us is not None else None
        known = list(self.bench.searches.values())
        total = self.trials if self.trials is not None else None
        done = counts.measured if self.trials is not None else sum(len(s.tried) for s in known)
        self.progress(
            Progress(
                self.phase,
                note,
                self.elapsed_s(),
                self.budget_s,
                done,
                total,
                counts.ok,
                counts.failed,
                counts.hits,
                best_us,
                baseline_us,
            )
        )

    # phases

    def search(self, space: SearchSpace, seed: int) -> None:
        """All phases up to the finalists, or as many as the budget allows."""
        planner = Planner(self.graph, space.fusion)
        try:
            self.measure_baselines()
            self.refine(self.left_s() * FIRST_SHARE)
            self.explore(PlanSearch(planner, seed), self.left_s() * PLANS_SHARE / (1 - FIRST_SHARE))
            self.refine(self.left_s())
        except _BudgetSpent:
            pass

    def measure_baselines(self) -> None:
        """A first time for every workload of the fixed plans; the default plan comes first."""
        for name in BASELINES:
            self.measure_baseline(name)
            default = self.baselines["default"]
            if self.bench.composed_us(default) is None:
                self._refuse_hopeless(default)

        previous = self.previous()
        if previous is not None:
            self.add_baseline("previous", previous)

    def previous(self) -> FusionPlan | None:
        """What an earlier job chose for this model here: it must be beaten to be replaced."""
        stored = self.bench.database.best_plan(self.bench.around.setting, graph_key(self.graph))
        if stored is None:
            return None
        try:
            plan = FusionPlan.from_json(stored.plan)
            check_plan(self.graph, plan)
        except PlanError:
            return None
        return plan if plan.key not in {known.key for known in self.baselines.values()} else None

    def measure_baseline(self, name: str) -> None:
        """A first time for every workload of one fixed plan."""
        try:
            plan = named_plan(self.graph, name)
        except AutofuseError:
            if name == "default":
                raise
            return
        self.add_baseline(name, plan)

    def add_baseline(self, name: str, plan: FusionPlan) -> None:
        """Takes in a plan that is measured whole at the end."""
        self.baselines[name] = plan
        self.bench.database.record_plan(graph_key(self.graph), plan.key, plan.to_json(), name)
        self.bench.measure_first(self.bench.missing(plan))
        self.consider(plan)

    def _refuse_hopeless(self, plan: FusionPlan) -> None:
        """PlanError when not one group of `plan` could be measured: there is nothing to go on with."""
        searches = self.bench.of(plan)
        if searches and all(search.best_us is None for search in searches):
            raise PlanError(f"no group of the model could be built and checked: {_failures(searches)}")

    def consider(self, plan: FusionPlan) -> bool:
        """Makes `plan` the best when its groups are faster together."""
        time_us = self.bench.composed_us(plan)
        best_us = self.bench.composed_us(self.best) if self.best is not None else None
        if time_us is not None and (best_us is None or time_us < best_us):
            self.best = plan
            return True
        return False

    def refine(self, seconds: float) -> None:
        """Searches schedules, each candidate where it promises most for the best plan."""
        self.phase = "schedules"
        end = time.monotonic() + seconds
        while self.best is not None and time.monotonic() < end:
            weights = self.bench.weights(self.best)
            for plan in self.baselines.values():
                for key, weight in self.bench.weights(plan).items():
                    weights[key] = max(weights.get(key, 0.0), weight * RIVAL_SHARE)
            chosen = next_workloads(list(self.bench.searches.values()), weights, BATCH)
            if not chosen or not self.bench.measure(chosen):
                return
            for plan in self.baselines.values():
                self.consider(plan)

    def explore(self, search: PlanSearch, seconds: float) -> None:
        """Searches plans; groups that no plan had before are measured."""
        self.phase = "plans"
        end = time.monotonic() + seconds
        self.measure_baseline(PAPER)
        idle = 0
        while time.monotonic() < end and (idle < IDLE_TRIALS or search.open_flips):
            asked = search.ask_flips(PLANS_AT_ONCE)
            if not asked:
                trial = search.ask()
                if trial is None:
                    return
                asked = [trial]
            missing = {found.key: found for _, _, plan in asked for found in self.bench.missing(plan)}
            self.bench.measure_first(list(missing.values()))
            for number, answers, plan in asked:
                self.plan_trials += 1
                time_us = self.bench.composed_us(plan)
                search.tell(answers, plan, time_us)
                self.record(number, answers, plan, time_us)
                idle = 0 if self.consider(plan) else idle + 1

    def record(self, number: int, answers: Mapping[str, str], plan: FusionPlan, time_us: float | None) -> None:
        """Stores a plan trial."""
        base = self.bench.database
        base.record_plan(graph_key(self.graph), plan.key, plan.to_json(), "search")
        state = "complete" if time_us is not None else "fail"
        trial = Trial(number=number, answers=dict(answers), state=state, plan_key=plan.key, composed_us=time_us)
        base.record_trial(self.bench.run_id, trial)

    # the end

    def plans(self) -> dict[str, FusionPlan]:
        """The plans that may be finalists, by name; the search's own best is "search"."""
        found = {name: plan for name, plan in self.baselines.items() if self.bench.composed_us(plan) is not None}
        if not found and self.best is None:
            failed = [search for search in self.bench.searches.values() if search.best_us is None]
            raise PlanError(
                f"no plan has a time for all its groups; {len(failed)} of {len(self.bench.searches)} could not be "
                f"built and checked: {_failures(failed)}"
            )
        self.phase = "confirming"
        if self.best is not None and self.best.key not in {plan.key for plan in found.values()}:
            found = {"search": self.best, **found}
        return found

    def result(
        self,
        model: Path,
        name: str,
        around: Circumstances,
        state: str,
        plans: Mapping[str, PlanTime],
        chosen: tuple[str, FusionPlan],
        database: str,
    ) -> TuneResult:
        """The outcome."""
        counts = self.bench.counts
        return TuneResult(
            model.stem, name, self.bench.run_id, database, around.profile.name, around.setting.threads, state,
            self.elapsed_s(), counts.measured, counts.failed, counts.hits, self.plan_trials, chosen[0],
            chosen[1].key, plans[chosen[0]].kernels, plans,
        )  # fmt: skip


def _failures(searches: Sequence[WorkloadSearch]) -> str:
    """What became of workloads without a time, the first few by name."""
    return "; ".join(f"{search.bound.workload.label}: {search.failure or 'not tried'}" for search in searches[:3])
