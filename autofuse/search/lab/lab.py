"""The lab builds and measures candidates, and records everything that it measures at once."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from autofuse.database.records import Candidate, CandidateOutcome, SampleBlock
from autofuse.environment.codes import Codes
from autofuse.errors import DeviceError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.key import graph_key
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.measure.checking.reference import ReferenceStore
from autofuse.measure.measurement import Measurement, MeasureRequest
from autofuse.measure.runner import Runner
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import REST_SHARE
from autofuse.search.lab.drift_sentinel import DriftSentinel, Noted, worth_again
from autofuse.search.schedules.evidence import SearchEvidence, by_weight
from autofuse.search.schedules.schedule_search import Schedule, WorkloadSearch, schedule_text

MOST_LOSSES = 5
"""Batches in a row, each with a candidate that the device was lost under, after which the device is given up."""
AGAIN = 8
"""Doubted candidates that are measured again at once, at most."""

NO_RUN = 0
"""In place of a run's number: what is measured belongs to no run."""

Asked = tuple[WorkloadSearch, Schedule]
"""A candidate that is to be measured."""


def asked_text(search: WorkloadSearch, schedule: Schedule) -> tuple[str, str]:
    """What names a candidate: the workload's key and the schedule's text."""
    return search.key, schedule_text(schedule)


@dataclass
class Lab:
    """One device, for one run of a search, or none (`NO_RUN`). What it measures goes to the database and `evidence`.

    `tell`: called after each candidate with what it was. `sentinel`: watches the device (None: nobody does).
    `next_up`: the searches whose candidates will probably be asked for next, once more for each further one.
    """

    evidence: SearchEvidence
    runner: Runner
    reference: ReferenceStore
    run_id: int
    tell: Callable[[str], None]
    sentinel: DriftSentinel | None = None
    next_up: Callable[[], Sequence[WorkloadSearch]] = tuple
    _losses: int = 0
    _spent_s: float = 0.0
    _measured: int = 0

    @property
    def candidate_s(self) -> float:
        """Seconds that a candidate has taken on the average, built and timed; 0 before the first one."""
        return self._spent_s / self._measured if self._measured else 0.0

    def record_plan(self, plan: FusionPlan, origin: str) -> None:
        """Stores a plan of the model; `origin`: who made it."""
        self.evidence.database.record_plan(graph_key(self.evidence.graph), plan.key, plan.to_json(), origin)

    def measure_first(self, searches: Sequence[WorkloadSearch], budget: Budget) -> None:
        """Tries candidates of each search until it has a time: the rules' guesses come first."""
        waiting = list(searches)
        while waiting and self.measure(waiting, budget):
            waiting = [search for search in waiting if search.best_us is None and not search.complete]

    def measure(self, searches: Sequence[WorkloadSearch], budget: Budget) -> int:
        """Measures one new candidate of each search (a search may stand there several times); how many it measured.

        Only so many are begun as the budget has time for. What it cuts off is asked for again later.
        """
        asked: list[Asked] = []
        for search in searches[: self._affordable(len(searches), budget)]:
            candidate = search.ask()
            if candidate is not None:
                asked.append((search, candidate))
        if not asked:
            return 0
        started, measured, lost = budget.now(), 0, list[str]()
        for (search, schedule), request, measurement in self._streamed(asked, budget):
            if measurement.failure is not None and measurement.failure.kind == "device_lost":
                lost.append(measurement.failure.message)
                self._give_back(search, schedule, measurement)
            else:
                measured += 1
                self._take(search, request, measurement)
        self._spent_s, self._measured = self._spent_s + budget.now() - started, self._measured + measured
        self._losses = self._losses + 1 if lost else 0
        if lost and (len(lost) == len(asked) or self._losses >= MOST_LOSSES):
            raise DeviceError(f"nothing can be measured any more: {lost[0]}; run `autofuse doctor`")
        self._watch(budget)
        return measured

    def _affordable(self, count: int, budget: Budget) -> int:
        """The number of candidates that there is time for: at least one while any time is left."""
        left_s = budget.left()
        if left_s <= 0:
            return 0
        if not self.candidate_s or left_s >= count * self.candidate_s:
            return count
        return max(1, int(left_s / self.candidate_s))

    def _streamed(self, asked: Sequence[Asked], budget: Budget) -> Iterator[tuple[Asked, MeasureRequest, Measurement]]:
        """Each candidate as it is measured; those that the budget cuts off are given back to their searches."""
        requests = [self._request(search, schedule) for search, schedule in asked]
        waiting = dict(enumerate(asked))
        for index, measurement in self.runner.stream(requests, budget.left, self._ahead):
            yield waiting.pop(index), requests[index], measurement
        for search, schedule in reversed(waiting.values()):
            search.give_back(schedule)

    def _ahead(self) -> list[MeasureRequest]:
        """What the next batch will probably ask for."""
        following = self.next_up()
        wanted, searches = Counter(search.key for search in following), {search.key: search for search in following}
        likely = ((searches[key], schedule) for key, count in wanted.items() for schedule in searches[key].peek(count))
        return [self._request(search, schedule) for search, schedule in likely]

    def _watch(self, budget: Budget) -> None:
        """Asks the sentinel whether the device is as fast as it was; measures again what it should not have."""
        if self.sentinel is None or not self.sentinel.due or budget.spent():
            return
        finding = self.sentinel.inspect(lambda seconds: self._rest(seconds, budget))
        if not finding.doubted:
            return
        evidence = self.evidence
        evidence.database.doubt([noted.uid for noted in finding.doubted], finding.reason)
        evidence.untrusted |= {(noted.search.key, schedule_text(noted.schedule)) for noted in finding.doubted}
        if finding.recovered:
            again = worth_again(finding.doubted, finding.ratio, AGAIN)
            self.remeasure([(noted.search, noted.schedule) for noted in again], budget)

    def _rest(self, seconds: float, budget: Budget) -> None:
        """Lets a device that became slow cool down, in a short budget but shortly."""
        budget.pause(
            min(seconds, budget.left() * REST_SHARE),
            lambda left_s: self.tell(f"the device is slower than it was and rests for {left_s:.0f} s"),
        )

    def remeasure(self, known: Sequence[Asked], budget: Budget) -> None:
        """Measures candidates again, to the end; what all their measurements say together counts from now on."""
        evidence = self.evidence
        requests = [
            replace(self._request(search, schedule), best_us=None, undisturbed=True) for search, schedule in known
        ]
        for index, measurement in self.runner.stream(requests, budget.left):
            search, schedule = known[index]
            if measurement.failure is not None and measurement.failure.kind == "device_lost":
                continue
            setting = evidence.environment.setting
            outcome = outcome_of(search.bound, schedule, measurement, evidence.environment.codes)
            number = evidence.database.record_candidate(setting, outcome, self.run_id or None)
            stored = evidence.database.measured_schedules(setting, search.key)
            verdict = next((found for found in stored if found.candidate_id == number), None)
            search.correct(schedule, verdict.median_us if verdict else None)
            if verdict is not None and verdict.trusted:
                evidence.untrusted.discard((search.key, schedule_text(schedule)))
            self.tell(search.bound.workload.label)

    def doubtful(self, plans: Sequence[FusionPlan]) -> list[Asked]:
        """The winners of these plans that are not trusted, the weightiest first."""
        weights: dict[str, float] = {}
        for plan in plans:
            for key, us in self.evidence.weights(plan).items():
                weights[key] = max(weights.get(key, 0.0), us)
        searches = [self.evidence.searches[key] for key in by_weight(weights)]
        winners = [(search, search.best) for search in searches if search.best is not None]
        return [(search, best) for search, best in winners if self.evidence.doubts(search, best)]

    def assure(self, plans: Sequence[FusionPlan], most: int, budget: Budget) -> None:
        """Measures the winners of these plans again that are not trusted, the weightiest first."""
        found = self.doubtful(plans)
        if found and not budget.spent():
            self.remeasure(found[:most], budget)

    def _give_back(self, search: WorkloadSearch, schedule: Schedule, measurement: Measurement) -> None:
        """A lost device says nothing about its candidate: the loss is recorded, and the candidate comes again."""
        outcome = outcome_of(search.bound, schedule, measurement, self.evidence.environment.codes)
        self.evidence.database.record_candidate(self.evidence.environment.setting, outcome, self.run_id or None)
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
        evidence, schedule = self.evidence, request.schedule
        outcome = replace(
            outcome_of(search.bound, schedule, measurement, evidence.environment.codes), uid=uuid.uuid4().hex
        )
        evidence.database.record_candidate(evidence.environment.setting, outcome, self.run_id or None)
        if outcome.trusted is False:
            evidence.untrusted.add((search.key, schedule_text(schedule)))
        if self.sentinel is not None and outcome.median_us is not None:
            noted = Noted(search, schedule, outcome.uid, outcome.median_us)
            self.sentinel.note(request, measurement, noted)
        failure = measurement.failure.message if measurement.failure else ""
        search.build_s = measurement.build_s or search.build_s
        if search.learn(schedule, measurement.median_us, failure):
            evidence.share(search, schedule)
        evidence.counts.ok += measurement.timing is not None
        evidence.counts.failed += measurement.failure is not None
        self.tell(search.bound.workload.label)


def outcome_of(bound: BoundWorkload, schedule: Schedule, measurement: Measurement, codes: Codes) -> CandidateOutcome:
    """A measurement as the row that records it."""
    workload = bound.workload
    digest = codes.measured(workload, schedule, measurement)
    candidate = Candidate(workload.key, workload.text, workload.label, schedule_text(schedule), digest)
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
        blocks=tuple(SampleBlock((part.us,), part.clock, not part.good) for part in timing.slices),
    )
