"""The search of one model on one device: baselines, schedules, plans, in one go or in slices of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from autofuse.database.records import Json, Trial
from autofuse.environment.plans import named_plan
from autofuse.errors import AutofuseError, PlanError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import LARGEST_TILE, FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner, is_exact
from autofuse.fusion.space import FusionSpace
from autofuse.graph.key import graph_key
from autofuse.graph.model import Graph
from autofuse.measure.children.process import available_cores
from autofuse.measure.networks.judgement import WHOLE_LIMIT
from autofuse.measure.networks.libraries import Model
from autofuse.search.composer import Composed, compose_measured
from autofuse.search.finals import FINALISTS, conclude
from autofuse.search.gate import right_as_a_whole
from autofuse.search.guide import measure_advised
from autofuse.search.plans import PlanSearch
from autofuse.search.progress import PlanTime, Progress, TuneResult
from autofuse.search.prospects import Prospect, prospects
from autofuse.search.schedules import WorkloadSearch, next_workloads
from autofuse.search.shares import (
    BATCH,
    CLEARLY,
    FIRST_SHARE,
    IDLE_TRIALS,
    LITTLE_FUSION,
    LITTLE_SHARE,
    PAPER,
    PLANS_AT_ONCE,
    PLANS_SHARE,
    REST_SHARE,
    RIVAL_SHARE,
    SECONDS_AGAIN,
    START_S,
    finals_seconds,
    limited,
    loosely_held,
    uncompared,
)
from autofuse.search.telling import state_of
from autofuse.search.workbench import Workbench, failures_of


class _BudgetSpent(Exception):  # noqa: N818 not an error: how the search hears that time is up
    """The time or the number of candidates is used up."""


class ModelSession:
    """What is known and planned for one model while its search lasts; made by `autofuse.search.tune.open_session`.

    `trials`: candidates after which the search ends (None: no limit). `state`: what the run ends as when the session
    is closed. `exhausted`: nothing worth measuring is left. `firsts`: workloads that are getting their first time.
    `ends_at`: when the finalists will have been measured (monotonic), once that has begun. `rival_us`: see `Progress`.
    """

    bench: Workbench

    def __init__(
        self,
        graph: Graph,
        name: str,
        files: tuple[Path, Mapping[str, tuple[int, ...]], Path],
        budget_s: float | None,
        trials: int | None,
        progress: Callable[[Progress], None],
        started: float,
    ) -> None:
        self.graph, self.name, self.budget_s, self.trials = graph, name, budget_s, trials
        self.model, self.shapes, self.folder = files
        self.started, self.progress = started, progress
        self.baselines: dict[str, FusionPlan] = {}
        self.best: FusionPlan | None = None
        self.composed: Composed | None = None
        self.phase = "baselines"
        self.plan_trials, self.state = 0, "interrupted"
        self.exhausted = self._prepared = False
        self._slice_end: float | None = None
        self.firsts: list[WorkloadSearch] = []
        self.ends_at: float | None = None
        self.rival_us: float | None = None
        self._plan_search: PlanSearch | None = None

    # what is left

    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self.started

    def builds_s(self) -> float:
        """Seconds that building the finalists will take."""
        composed = self.composed.plan if self.composed is not None else None
        plans = (*self.baselines.values(), self.best, composed)
        known = {plan.key: plan for plan in plans if plan is not None}
        builds = sorted((self.bench.build_estimate_s(plan) for plan in known.values()), reverse=True)
        return sum(builds[:FINALISTS]) / min(available_cores(), FINALISTS) + START_S

    def left_s(self) -> float:
        """Seconds left for the search itself: of the slice, or of the whole budget."""
        if self._slice_end is not None:
            return self._slice_end - time.monotonic()
        if self.budget_s is None:
            return float("inf")
        return self.budget_s - finals_seconds(self.budget_s) - self.builds_s() - self.elapsed_s()

    def on_candidate(self, search: WorkloadSearch) -> None:
        """After each candidate: tells, and ends the search when its budget is spent."""
        self.tell(search.bound.workload.label)
        spent = self.trials is not None and self.bench.counts.measured >= self.trials
        if (spent or self.left_s() <= 0) and (self.ready() or self.phase != "baselines") and self.phase != "confirming":
            raise _BudgetSpent

    def ready(self) -> bool:
        """Whether at least one plan has a time, so that a job may end."""
        return any(self.bench.composed_us(plan) is not None for plan in self.baselines.values())

    def best_us(self) -> float | None:
        """Composed time of the best plan so far."""
        return self.bench.composed_us(self.best) if self.best is not None else None

    def baseline_us(self) -> float | None:
        """Composed time of the plan without fusion."""
        return self.bench.composed_us(self.baselines["none"]) if "none" in self.baselines else None

    def ahead(self) -> tuple[Prospect, ...]:
        """What is left to gain in the best plan, by workload."""
        if self.best is None:
            return ()
        return prospects(list(self.bench.searches.values()), self.bench.weights(self.best))

    def tell(self, note: str) -> None:
        """Reports the state to whoever watches."""
        self.progress(state_of(self, note))

    def _enter(self, phase: str) -> None:
        """Begins a phase, and says so: its first candidate may take long to be built."""
        self.phase, self.firsts = phase, []
        self.tell("")

    def rest(self, seconds: float) -> None:
        """Lets a device that became slow cool down, in a short slice but shortly; a stop is noticed meanwhile."""
        end = time.monotonic() + min(seconds, max(0.0, self.left_s()) * REST_SHARE)
        while (left := end - time.monotonic()) > 0:
            self.tell(f"the device is slower than it was and rests for {left:.0f} s")
            time.sleep(min(left, 0.5))

    # phases

    def search(self) -> None:
        """All phases up to the finalists, or as many as the budget allows."""
        try:
            if not self._prepared:
                self.measure_baselines()
            self.refine(self.left_s() * FIRST_SHARE)
            self.explore(self.left_s() * PLANS_SHARE / (1 - FIRST_SHARE))
            self.measure_little_fusion(self.left_s() * LITTLE_SHARE)
            self.compose(measure=True)
            self.refine(self.left_s(), "refinement")
        except _BudgetSpent:
            pass

    def release(self) -> None:
        """Lets go of the device and of the processes that build for it, until the search goes on."""
        self.bench.runner.close()

    def search_slice(self, seconds: float) -> None:
        """Goes on with the search for about `seconds`; the baselines are measured first, whatever they take."""
        self._slice_end = time.monotonic() + seconds
        before = self.bench.counts.measured, self.plan_trials
        self.search()
        self.exhausted = self.left_s() > 0 and before == (self.bench.counts.measured, self.plan_trials)

    def measure_baselines(self) -> None:
        """A first time for every workload of the default plan, and of the plan that an earlier job chose."""
        self._enter("baselines")
        previous = self.recall()
        default = RewritingPlanner(self.graph, FusionSpace(exact=self.bench.space.fusion.exact)).plan({})
        self.add_baseline("default", default)
        for name in LITTLE_FUSION:
            self.name_baseline(name)
        self.measure_baseline("default")
        if self.bench.composed_us(default) is None:
            self._refuse_hopeless(default)
        measure_advised(self)
        if previous is not None and previous.key not in {known.key for known in self.baselines.values()}:
            self.add_baseline("previous", previous)
            self.measure_baseline("previous")
        self._prepared = True

    def recall(self) -> FusionPlan | None:
        """What an earlier job chose for this model here: it must be beaten to be replaced; its limit of tiles holds."""
        stored = self.bench.database.best_plan(self.bench.around.setting, graph_key(self.graph))
        if stored is None:
            return None
        try:
            plan = FusionPlan.from_json(stored.plan)
            check_plan(self.graph, plan)
        except PlanError:
            return None
        self.bench.limit_tiles(plan.winograd)
        plan = replace(plan, winograd=LARGEST_TILE)
        return None if self.bench.space.fusion.exact and not is_exact(plan) else plan

    def name_baseline(self, name: str) -> None:
        """Takes in a fixed plan, if this graph has it: TVM may be unable to say how it would fuse."""
        try:
            self.add_baseline(name, named_plan(self.graph, name))
        except AutofuseError:
            return

    def add_baseline(self, name: str, plan: FusionPlan) -> None:
        """Takes in a plan that may be measured whole at the end."""
        self.baselines[name] = plan
        self.bench.record_plan(plan, name)

    def measure_baseline(self, name: str, until: float = float("inf")) -> None:
        """A first time for every workload of one fixed plan, or for as many as fit before `until` (monotonic)."""
        plan = self.baselines.get(name)
        missing = self.bench.missing(plan) if plan is not None else []
        for start in range(0, len(missing), BATCH):
            if time.monotonic() > until:
                return
            self.firsts = missing
            self.bench.measure_first(missing[start : start + BATCH])
        self.firsts = []
        if plan is not None:
            self.consider(plan)

    def measure_little_fusion(self, seconds: float) -> None:
        """The groups of the plans that fuse little: what the report compares with, and what a fission may win."""
        self._enter("little fusion")
        end = time.monotonic() + seconds
        for name in LITTLE_FUSION:
            self.measure_baseline(name, end)

    def _refuse_hopeless(self, plan: FusionPlan) -> None:
        """PlanError when not one group of `plan` could be measured: there is nothing to go on with."""
        searches = self.bench.of(plan)
        if searches and all(search.best_us is None for search in searches):
            raise PlanError(f"no group of the model could be built and checked: {failures_of(searches)}")

    def consider(self, plan: FusionPlan) -> bool:
        """Makes `plan` the best when its groups are faster together; the search goes on from there.

        Sums flatter plans with many kernels: each is timed alone, with its inputs in the cache. So the two plans that
        fuse little or nothing lead the search only when they are clearly ahead (they are finalists in any case).
        """
        time_us, best_us = self.bench.composed_us(plan), self.best_us()
        little = [self.baselines[name].key for name in LITTLE_FUSION if name in self.baselines]
        share = CLEARLY if plan.key in little else 1.0
        if time_us is not None and (best_us is None or time_us < best_us * share):
            self.best = plan
            return True
        return False

    def refine(self, seconds: float, phase: str = "schedules") -> None:
        """Searches schedules, each candidate where it promises most for the best plan."""
        self._enter(phase)
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

    def explore(self, seconds: float) -> None:
        """Searches plans; groups that no plan had before are measured."""
        self._enter("plans")
        end = time.monotonic() + seconds
        if self._plan_search is None:
            planner = RewritingPlanner(self.graph, self.bench.space.fusion)
            self._plan_search = PlanSearch(planner, self.bench.seed, self.bench.second_objective, self.bench.guide)
        if PAPER not in self.baselines and not self.bench.space.fusion.exact:  # it folds every BatchNormalization
            self.name_baseline(PAPER)
            self.measure_baseline(PAPER)
        search, idle = self._plan_search, 0
        while time.monotonic() < end and (idle < IDLE_TRIALS or search.open_flips):
            asked = search.ask_flips(PLANS_AT_ONCE)
            if not asked:
                trial = search.ask()
                if trial is None:
                    return
                asked = [trial]
            missing = {found.key: found for _, _, plan in asked for found in self.bench.missing(plan)}
            self.bench.measure_first(list(missing.values()))
            for number, answers, first in asked:
                plan = search.buildable(answers, first, self.bench)
                self.plan_trials += 1
                time_us = self.bench.composed_us(plan)
                search.tell(answers, plan, time_us)
                self.record(number, answers, plan, time_us)
                idle = 0 if self.consider(plan) else idle + 1

    def record(self, number: int, answers: Mapping[str, str], plan: FusionPlan, time_us: float | None) -> None:
        """Stores a plan trial."""
        self.bench.record_plan(plan, "search")
        state = "complete" if time_us is not None else "fail"
        trial = Trial(number=number, answers=dict(answers), state=state, plan_key=plan.key, composed_us=time_us)
        self.bench.database.record_trial(self.bench.run_id, trial)

    def compose(self, measure: bool) -> None:
        """The best plan of all groups that have a time, whichever plans they stood in; a finalist of its own.

        Recorded as a plan, and the search goes on from it when it is clearly ahead (see `consider`).
        """
        own = self.composed.keys if self.composed is not None else frozenset()
        times = (self.bench.composed_us(plan) for plan, _ in self.bench.known_plans() if plan.key not in own)
        composed = compose_measured(self.bench, min((us for us in times if us is not None), default=None), measure)
        if composed is None:
            return
        self.composed = replace(composed, keys=composed.keys | own)
        plan = composed.plan
        self.bench.record_plan(plan, "composed")
        best_us = self.best_us()
        if best_us is None or composed.us < best_us * CLEARLY:
            self.best = plan

    # the end

    def _untried(self, name: str, plan: FusionPlan) -> bool:
        """Whether a plan that is always measured whole merely lacks times, and none of its groups failed."""
        return name in LITTLE_FUSION and not any(s.failures for s in self.bench.of(plan) if s.best_us is None)

    def conclude(self, seconds: float) -> TuneResult:
        """Builds the finalists, measures them whole in about `seconds`, and records the choice."""
        self.state = "failed"
        try:
            self.ends_at = time.monotonic() + self.builds_s() + seconds
            self.compose(measure=False)
            finalists, model, started = self.finalists(), Model(self.model, self.shapes), time.monotonic()
            self.bench.assure(list(finalists.values()), int(seconds / SECONDS_AGAIN))
            seconds = max(seconds / 2, seconds - (time.monotonic() - started))
            attempt = partial(conclude, self.bench, model=model, folder=self.folder, seconds=seconds, tell=self.tell)
            plans, chosen = right_as_a_whole(self.bench, finalists, attempt, self.tell)
        except KeyboardInterrupt:
            self.state = "interrupted"
            raise
        self.state = "finished"
        return self._result(plans, chosen)

    def finalists(self) -> dict[str, FusionPlan]:
        """The plans that may be finalists, by name; the search's own best is "search"."""
        timed = {name: plan for name, plan in self.baselines.items() if self.bench.composed_us(plan) is not None}
        if not timed and self.best is None:
            failed = [search for search in self.bench.searches.values() if search.best_us is None]
            raise PlanError(
                f"no plan has a time for all its groups; {len(failed)} of {len(self.bench.searches)} could not be "
                f"built and checked: {failures_of(failed)}"
            )
        self._enter("confirming")
        found = {name: plan for name, plan in self.baselines.items() if name in timed or self._untried(name, plan)}
        if self.best is not None and self.best.key not in {plan.key for plan in found.values()}:
            found = {"search": self.best, **found}
        if self.composed is not None and self.composed.plan.key not in {plan.key for plan in found.values()}:
            found = {"composed": self.composed.plan, **found}
        return found

    def _result(self, plans: Mapping[str, PlanTime], chosen: tuple[str, FusionPlan]) -> TuneResult:
        counts, around = self.bench.counts, self.bench.around
        return TuneResult(
            self.model.stem, self.name, self.bench.run_id, str(self.bench.database.location.text),
            around.profile.name, around.setting.threads, self.state, self.elapsed_s(), counts.measured,
            counts.failed, counts.hits, self.plan_trials, chosen[0], chosen[1].key, plans[chosen[0]].kernels, plans,
            self.warning(plans), self.composed.report if self.composed is not None else None,
            tuple(self.bench.untrusted_winners(chosen[1])),
        )  # fmt: skip

    def summary(self) -> dict[str, Json]:
        """What the run says at its end, for the database."""
        found: dict[str, Json] = {"composition": asdict(self.composed.report)} if self.composed is not None else {}
        return found | self.bench.notes(self.best)

    def warning(self, plans: Mapping[str, PlanTime]) -> str:
        """What the reader must know about the answer; "" when there is nothing."""
        absent = [name for name in LITTLE_FUSION if name not in plans and self._lacks_time(name)]
        worst = max((time.max_rel_error or 0.0 for time in plans.values() if not time.problem), default=0.0)
        notes = (uncompared(absent), limited(self.bench.winograd), loosely_held(worst) if worst > WHOLE_LIMIT else "")
        return "; ".join(filter(None, notes))

    def _lacks_time(self, name: str) -> bool:
        """Whether a fixed plan is unmeasured for want of time (and not because it cannot be built)."""
        return bool(self.bench.missing(self.baselines[name])) if name in self.baselines else not self._prepared
