"""All workloads of a job: what is known of each, measuring what is not, composing plans from the best."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.database.ask.labels import unique_labels
from autofuse.database.ask.lookups import BY_CHANCE
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import EXACT, FAILURES, Block, Candidate, CandidateOutcome, Json
from autofuse.environment.circumstances import Circumstances
from autofuse.environment.space import SearchSpace
from autofuse.errors import DeviceError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import LARGEST_TILE, FusionPlan
from autofuse.graph.key import graph_key
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.lowering.memory import peak_bytes
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.measure.checking.reference import ReferenceStore
from autofuse.measure.measurement import Measurement, MeasureRequest
from autofuse.measure.runner import Runner
from autofuse.search.guard import Guard, Noted, worth_again
from autofuse.search.guide import Guide
from autofuse.search.schedules import Schedule, WorkloadSearch, anchor_key, schedule_text

MOST_LOSSES = 5
"""Batches in a row, each with a candidate that the device was lost under, after which the device is given up."""
AGAIN = 8
"""Doubted candidates that are measured again at once, at most."""
LINK_S = 3.0
"""Seconds of a library beyond its kernels: assembly, link, loading it to be measured."""


@dataclass
class Counts:
    """Candidates of this job: measured with and without success, and known before."""

    ok: int = 0
    failed: int = 0
    hits: int = 0

    @property
    def measured(self) -> int:
        """Candidates measured in this job."""
        return self.ok + self.failed


@dataclass
class Workbench:
    """`on_candidate` is called after each measured candidate; it may raise to stop the job.

    `guard`: watches the device (None: nobody does). `second_objective`: what plans are searched for besides time, the
    smaller the better (None: time alone). `guide`: a trained model (None: there is none).
    `untrusted`: (workload key, schedule text) of candidates whose time is not trusted. `winograd`: largest tiles of
    the model's kernels, see `FusionPlan`.
    """

    graph: Graph
    space: SearchSpace
    around: Circumstances
    database: ProfilingDatabase
    runner: Runner
    reference: ReferenceStore
    run_id: int
    seed: int
    on_candidate: Callable[[WorkloadSearch], None]
    searches: dict[str, WorkloadSearch] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    anchors: dict[str, dict[str, int | str]] = field(default_factory=dict)
    guard: Guard | None = None
    guide: Guide | None = None
    second_objective: Callable[[FusionPlan], int] | None = None
    untrusted: set[tuple[str, str]] = field(default_factory=set)
    winograd: int = LARGEST_TILE
    _losses: int = 0
    lowered: dict[str, tuple[FusionPlan, Lowered]] = field(default_factory=dict)
    lowering: Lowering = field(init=False)

    def __post_init__(self) -> None:
        self.lowering = Lowering(self.graph, self.around.target)

    def admit(self, plan: FusionPlan) -> Lowered:
        """Lowers a plan and makes its workloads known, with everything the database has on them."""
        if plan.key not in self.lowered:
            self.lowered[plan.key] = plan, self.lowering.lower(plan)
        lowered = self.lowered[plan.key][1]
        for bound in lowered.kernels:
            if bound.workload.key not in self.searches:
                self.searches[bound.workload.key] = self._known(bound, lowered.graph)
        return lowered

    def _known(self, bound: BoundWorkload, graph: Graph) -> WorkloadSearch:
        search = WorkloadSearch.create(
            bound, graph, self.around.target, self.space.schedule, self.seed, self.around.setting.threads
        )
        for stored in self.database.measured_schedules(self.around.setting, bound.workload.key):
            lasting = stored.state in FAILURES and stored.state not in BY_CHANCE
            if stored.tier == EXACT and (stored.median_us is not None or lasting):
                self.counts.hits += 1
                if stored.trusted is False:
                    self.untrusted.add((search.key, schedule_text(json.loads(stored.schedule))))
                search.learn(json.loads(stored.schedule), stored.median_us, stored.failure or "")
        if self.winograd != LARGEST_TILE:
            search.limit_tiles(self.winograd)
        if search.best is None and anchor_key(bound.workload) in self.anchors:
            search.suggest(self.anchors[anchor_key(bound.workload)])
        return search

    def record_plan(self, plan: FusionPlan, origin: str) -> None:
        """Stores a plan of the model; `origin`: who made it."""
        self.database.record_plan(graph_key(self.graph), plan.key, plan.to_json(), origin)

    def limit_tiles(self, winograd: int) -> None:
        """No kernel of the model has tiles of Winograd's algorithm larger than `winograd` from now on."""
        if winograd != self.winograd:
            self.winograd = winograd
            for search in self.searches.values():
                search.limit_tiles(winograd)

    def known_plans(self) -> list[tuple[FusionPlan, Lowered]]:
        """Every plan of this job, with its workloads."""
        return list(self.lowered.values())

    def of(self, plan: FusionPlan) -> list[WorkloadSearch]:
        """The workloads of a plan, each once."""
        keys = dict.fromkeys(bound.workload.key for bound in self.admit(plan).kernels)
        return [self.searches[key] for key in keys]

    def missing(self, plan: FusionPlan) -> list[WorkloadSearch]:
        """Workloads of a plan that have no time yet and still have something to try."""
        return [search for search in self.of(plan) if search.best_us is None and not search.complete]

    def unbuildable(self, plan: FusionPlan) -> list[tuple[str, ...]]:
        """Groups of several operators of which every candidate failed; their failures are rows of the database."""
        return [
            group.operators
            for group, bound in zip(plan.groups, self.admit(plan).groups, strict=True)
            if len(group.operators) > 1
            and (search := self.searches.get(bound.workload.key)) is not None
            and search.best_us is None
            and search.complete
        ]

    def weights(self, plan: FusionPlan) -> dict[str, float]:
        """Microseconds that each workload takes in a plan."""
        uses = Counter(bound.workload.key for bound in self.admit(plan).kernels)
        return {key: count * (self.searches[key].best_us or 0.0) for key, count in uses.items()}

    def composed_us(self, plan: FusionPlan) -> float | None:
        """Sum of the best times of a plan's groups; None when one has no time."""
        total = 0.0
        for bound in self.admit(plan).kernels:
            best = self.searches[bound.workload.key].best_us
            if best is None:
                return None
            total += best + LAUNCH_US
        return total

    def peak_bytes(self, plan: FusionPlan) -> int:
        """Most memory that the tensors between a plan's kernels need at once."""
        return peak_bytes(self.admit(plan))

    def build_estimate_s(self, plan: FusionPlan) -> float:
        """Seconds that building a plan's library takes: its kernels as they took so far, the others as the average."""
        known = [search.build_s for search in self.searches.values() if search.build_s]
        average = sum(known) / len(known) if known else 0.0
        return LINK_S + sum(search.build_s or average for search in self.of(plan))

    def schedules(self, plan: FusionPlan) -> dict[str, Schedule]:
        """Best schedule of each workload of a plan; of one without a time, its relatives' best or the first guess."""
        keys = {bound.workload.key for bound in self.admit(plan).kernels}
        return {key: self.searches[key].likely for key in keys}

    def measure_first(self, searches: Sequence[WorkloadSearch]) -> None:
        """Tries candidates of each search until it has a time: the rules' guesses come first."""
        waiting = list(searches)
        while waiting:
            self.measure(waiting)
            waiting = [search for search in waiting if search.best_us is None and not search.complete]

    def measure(self, searches: Sequence[WorkloadSearch]) -> int:
        """Measures one new candidate of each search (a search may stand there several times); how many."""
        asked: list[tuple[WorkloadSearch, dict[str, int | str]]] = []
        for search in searches:
            schedule = search.ask()
            if schedule is not None:
                asked.append((search, schedule))
        requests = [self._request(search, schedule) for search, schedule in asked]
        lost: list[str] = []
        for index, measurement in self.runner.stream(requests):
            search, schedule = asked[index]
            if measurement.failure is not None and measurement.failure.kind == "device_lost":
                lost.append(measurement.failure.message)
                self._give_back(search, schedule, measurement)
            else:
                self._take(search, requests[index], measurement)
        self._losses = self._losses + 1 if lost else 0
        if lost and (len(lost) == len(asked) or self._losses >= MOST_LOSSES):
            raise DeviceError(f"nothing can be measured any more: {lost[0]}; run `autofuse doctor`")
        self._watch()
        return len(asked)

    def _watch(self) -> None:
        """Asks the guard whether the device is as fast as it was; measures again what it should not have measured."""
        if self.guard is None or not self.guard.due:
            return
        finding = self.guard.inspect()
        if not finding.doubted:
            return
        self.database.doubt([noted.uid for noted in finding.doubted], finding.reason)
        self.untrusted |= {(noted.search.key, schedule_text(noted.schedule)) for noted in finding.doubted}
        if finding.recovered:
            again = worth_again(finding.doubted, finding.ratio, AGAIN)
            self.remeasure([(noted.search, noted.schedule) for noted in again])

    def remeasure(self, known: Sequence[tuple[WorkloadSearch, Schedule]]) -> None:
        """Measures candidates again, to the end; what all their measurements say together counts from now on."""
        requests = [replace(self._request(search, schedule), best_us=None) for search, schedule in known]
        for index, measurement in self.runner.stream(requests):
            search, schedule = known[index]
            if measurement.failure is not None and measurement.failure.kind == "device_lost":
                continue
            self.database.record_candidate(
                self.around.setting, outcome_of(search.bound, schedule, measurement), self.run_id
            )
            stored = {
                found.schedule: found
                for found in self.database.measured_schedules(self.around.setting, search.key)
                if found.tier == EXACT
            }
            verdict = stored.get(schedule_text(schedule))
            search.correct(schedule, verdict.median_us if verdict else None)
            if verdict is not None and verdict.trusted:
                self.untrusted.discard((search.key, schedule_text(schedule)))
            self.on_candidate(search)

    def assure(self, plans: Sequence[FusionPlan], most: int) -> None:
        """Measures the winners of these plans again that are not trusted, the weightiest first."""
        weights: dict[str, float] = {}
        for plan in plans:
            for key, us in self.weights(plan).items():
                weights[key] = max(weights.get(key, 0.0), us)
        doubtful = []
        for key in by_weight(weights):
            search = self.searches[key]
            if search.best is not None and self._doubts(search, search.best):
                doubtful.append((search, search.best))
        if doubtful:
            self.remeasure(doubtful[:most])

    def untrusted_winners(self, plan: FusionPlan) -> list[str]:
        """Labels of a plan's workloads whose best time is not trusted."""
        doubted = [search for search in self.of(plan) if search.best is not None and self._doubts(search, search.best)]
        own = {search.key: search.bound.workload.label for search in self.of(plan)}
        with self.database.reading() as sql:
            labels = unique_labels(sql, own)
        return [labels[search.key] for search in doubted]

    def notes(self, best: FusionPlan | None) -> dict[str, Json]:
        """What the run's summary says of the device and of the trained model; `best`: the best plan so far."""
        found: dict[str, Json] = {}
        if self.guide is not None:
            found["model"] = self.guide.summary()
        if self.guard is not None and self.guard.checks:
            found["sentinel"] = self.guard.summary()
            found["untrusted_winners"] = self.untrusted_winners(best) if best is not None else []
        return found

    def _doubts(self, search: WorkloadSearch, schedule: Schedule) -> bool:
        return (search.key, schedule_text(schedule)) in self.untrusted

    def _give_back(self, search: WorkloadSearch, schedule: Schedule, measurement: Measurement) -> None:
        """A lost device says nothing about its candidate: the loss is recorded, and the candidate comes again."""
        outcome = outcome_of(search.bound, schedule, measurement)
        self.database.record_candidate(self.around.setting, outcome, self.run_id)
        search.give_back(schedule)

    def _request(self, search: WorkloadSearch, schedule: Schedule) -> MeasureRequest:
        self.reference.complete(search.graph, (*search.bound.inputs, *search.bound.outputs))
        return MeasureRequest(
            search.bound.workload,
            schedule,
            (self.reference.case(search.bound),),
            self.reference.constants(search.graph, search.bound),
            search.best_us,
        )

    def _take(self, search: WorkloadSearch, request: MeasureRequest, measurement: Measurement) -> None:
        schedule = request.schedule
        outcome = replace(outcome_of(search.bound, schedule, measurement), uid=uuid.uuid4().hex)
        self.database.record_candidate(self.around.setting, outcome, self.run_id)
        if outcome.trusted is False:
            self.untrusted.add((search.key, schedule_text(schedule)))
        if self.guard is not None and outcome.median_us is not None:
            noted = Noted(search, schedule, outcome.uid, outcome.median_us)
            self.guard.note(request, measurement, noted)
        failure = measurement.failure.message if measurement.failure else ""
        search.build_s = measurement.build_s or search.build_s
        if search.learn(schedule, measurement.median_us, failure):
            self._share(search, schedule)
        self.counts.ok += measurement.timing is not None
        self.counts.failed += measurement.failure is not None
        self.on_candidate(search)

    def _share(self, search: WorkloadSearch, schedule: Schedule) -> None:
        """A new best is a good guess for workloads with the same anchor."""
        anchor = anchor_key(search.bound.workload)
        self.anchors[anchor] = dict(schedule)
        for other in self.searches.values():
            if other is not search and anchor_key(other.bound.workload) == anchor:
                other.suggest(schedule)


def outcome_of(bound: BoundWorkload, schedule: Schedule, measurement: Measurement) -> CandidateOutcome:
    """A measurement as the row that records it."""
    workload = bound.workload
    candidate = Candidate(workload.key, workload.text, workload.label, schedule_text(schedule))
    if measurement.failure is not None:
        return CandidateOutcome(
            candidate=candidate,
            state=measurement.failure.kind,
            failure=measurement.failure.message or measurement.failure.kind,
            build_s=measurement.build_s,
            max_rel_error=measurement.max_rel_error,
        )
    timing = measurement.timing
    assert timing is not None
    return CandidateOutcome(
        candidate=candidate,
        state="ok",
        median_us=timing.us.median,
        ci_lo_us=timing.us.lo,
        ci_hi_us=timing.us.hi,
        trusted=timing.trusted,
        max_rel_error=measurement.max_rel_error,
        build_s=measurement.build_s,
        blocks=tuple(Block((part.us,), part.clock, not part.good) for part in timing.slices),
    )


def by_weight(weights: Mapping[str, float]) -> list[str]:
    """Workload keys, the one that takes most time first."""
    return sorted(weights, key=lambda key: -weights[key])


def failures_of(searches: Sequence[WorkloadSearch]) -> str:
    """What became of workloads without a time, the first few by name."""
    return "; ".join(f"{search.bound.workload.label}: {search.failure or 'not tried'}" for search in searches[:3])
