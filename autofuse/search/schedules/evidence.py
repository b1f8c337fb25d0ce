"""The evidence of a search: every workload of every plan that it met, what was measured of each, what plans cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from autofuse.database.ask.labels import unique_labels
from autofuse.database.ask.lookups import BY_CHANCE
from autofuse.database.ask.transfers import any_shared, elsewhere
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import DOUBT, FAILURES
from autofuse.device.rates import CoreRates
from autofuse.environment.environment import Environment
from autofuse.environment.rates import core_rates
from autofuse.environment.space import SearchSpace, load_space
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import NO_LIMITS, FusionPlan, ScheduleLimits
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.lowering.memory import peak_bytes
from autofuse.kernels.schedule.knobs import declared_names
from autofuse.kernels.schedule.transfer import schedule_fault
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.search.schedules.beyond_sums import BeyondSums, Summed, kind_of
from autofuse.search.schedules.lessons import Lessons
from autofuse.search.schedules.schedule_search import Schedule, WorkloadSearch, anchor_key, schedule_text

HINTS = 2
"""Schedules of a workload that others shared and that are measured here, at most."""


def searched_space(asked: str | None, environment: Environment, exact: bool) -> SearchSpace:
    """The search space `asked` for (see `load_space`); `exact`: without rewrites that change what is computed."""
    found = load_space(asked, environment.target.isa, declared_names())
    return replace(found, fusion=replace(found.fusion, exact=True)) if exact else found


@dataclass
class Counts:
    """Counts of a job's candidates: measured with and without success, and known before."""

    ok: int = 0
    failed: int = 0
    hits: int = 0

    @property
    def measured(self) -> int:
        """Candidates measured in this job."""
        return self.ok + self.failed


ENOUGH_TO_TELL = 5
"""Candidates of which it is asked how many times are doubted."""


@dataclass
class SearchEvidence:
    """The evidence on one model on one device. Nothing is measured here: `autofuse.search.lab.lab.Lab` does that.

    `searches`: by workload key. `untrusted`: (workload key, schedule text) of candidates whose time is not trusted.
    `limits`: of the model's schedules. `anchors`: the newest best schedule of each
    kind of anchor. `beyond`: what races of whole networks say that the times of kernels do not.
    """

    graph: Graph
    space: SearchSpace
    environment: Environment
    database: ProfilingDatabase
    seed: int
    counts: Counts = field(default_factory=Counts)
    searches: dict[str, WorkloadSearch] = field(default_factory=dict)
    untrusted: set[tuple[str, str]] = field(default_factory=set)
    limits: ScheduleLimits = NO_LIMITS
    anchors: dict[str, dict[str, int | str]] = field(default_factory=dict)
    beyond: BeyondSums = field(default_factory=BeyondSums)
    lowered: dict[str, tuple[FusionPlan, Lowered]] = field(default_factory=dict)
    lessons: Lessons = field(default_factory=Lessons)
    lowering: Lowering = field(init=False)
    _uses: dict[str, Counter[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lowering = Lowering(self.graph, self.environment.target)

    def admit(self, plan: FusionPlan) -> Lowered:
        """Lowers a plan and makes its workloads known, with everything the database has on them."""
        if plan.key not in self.lowered:
            self.lowered[plan.key] = plan, self.lowering.lower(plan)
        lowered = self.lowered[plan.key][1]
        for bound in lowered.kernels:
            self.admit_workload(bound, lowered.graph)
        return lowered

    def admit_workload(self, bound: BoundWorkload, graph: Graph) -> WorkloadSearch:
        """Makes a workload known, with everything the database has on it; `graph` holds its constants."""
        if bound.workload.key not in self.searches:
            self.searches[bound.workload.key] = self._known(bound, graph)
        return self.searches[bound.workload.key]

    def _known(self, bound: BoundWorkload, graph: Graph) -> WorkloadSearch:
        search = WorkloadSearch.create(
            bound,
            graph,
            self.environment.target,
            self.space.schedule,
            self.seed,
            self.environment.setting.threads,
            self.rates,
            self.lessons,
        )
        for stored in self.database.measured_schedules(self.environment.setting, bound.workload.key):
            lasting = stored.state in FAILURES and stored.state not in BY_CHANCE
            counts = stored.median_us is not None or lasting
            if counts and self.environment.codes.knows(bound.workload, stored):
                self.counts.hits += 1
                if stored.trusted is False:
                    self.untrusted.add((search.key, schedule_text(json.loads(stored.schedule))))
                search.learn(json.loads(stored.schedule), stored.median_us, stored.failure or "")
        if self.limits != NO_LIMITS:
            search.limit_schedules(self.limits)
        self._hint(search)
        if search.best is None and anchor_key(bound.workload) in self.anchors:
            search.suggest(self.anchors[anchor_key(bound.workload)])
        return search

    def _hint(self, search: WorkloadSearch) -> None:
        """Queues the first few schedules that others shared of a workload; none is ever taken as known."""
        if not self.anything_shared:
            return
        with self.database.reading() as sql:
            found = elsewhere(sql, self.environment.setting, [search.key], shared=True)
        texts = list(dict.fromkeys(row.schedule for row in found))[:HINTS]
        for schedule in reversed([json.loads(text) for text in texts]):
            if schedule_fault(schedule, self.environment.target) is None:
                search.hint(schedule)

    @cached_property
    def rates(self) -> CoreRates:
        """How fast a core of the device is, as far as that is known."""
        return core_rates(self.database, self.environment)

    @cached_property
    def anything_shared(self) -> bool:
        """Whether the database holds rows that others shared."""
        with self.database.reading() as sql:
            return any_shared(sql)

    def limit_schedules(self, limits: ScheduleLimits) -> None:
        """Every schedule of the model keeps to these limits too from now on."""
        if self.limits & limits != self.limits:
            self.limits &= limits
            for search in self.searches.values():
                search.limit_schedules(self.limits)

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

    def uses(self, plan: FusionPlan) -> Counter[str]:
        """How often each workload stands in a plan, by key."""
        if plan.key not in self._uses:
            self._uses[plan.key] = Counter(bound.workload.key for bound in self.admit(plan).kernels)
        return self._uses[plan.key]

    def weights(self, plan: FusionPlan) -> dict[str, float]:
        """Microseconds that each workload takes in a plan."""
        return {key: count * (self.searches[key].best_us or 0.0) for key, count in self.uses(plan).items()}

    def composed_us(self, plan: FusionPlan) -> float | None:
        """Sum of the best times of a plan's groups; None when one has no time."""
        total = 0.0
        for bound in self.admit(plan).kernels:
            best = self.searches[bound.workload.key].best_us
            if best is None:
                return None
            total += best + LAUNCH_US
        return total

    def expected_us(self, plan: FusionPlan) -> float | None:
        """The same sum, each kernel with what it is expected to take inside the network (see `beyond_sums`): by this
        plans are compared, as long as they were not raced."""
        total = 0.0
        for bound in self.admit(plan).kernels:
            us = self.kernel_us(bound.workload.key)
            if us is None:
                return None
            total += us
        return total

    def kernel_us(self, key: str) -> float | None:
        """What a workload is expected to take inside the network, with its launch; None when it has no time."""
        search = self.searches[key]
        if search.best_us is None:
            return None
        return search.best_us * self.beyond.factor(key, kind_of(search.bound.workload)) + LAUNCH_US

    def summed(self, plan: FusionPlan) -> Summed | None:
        """A plan as the sum of its kernels; None when one has no time."""
        if self.composed_us(plan) is None:
            return None
        return Summed(self.weights(plan), LAUNCH_US * len(self.admit(plan).kernels))

    def kinds(self, plan: FusionPlan) -> dict[str, str]:
        """The kind of each workload of a plan, see `beyond_sums.kind_of`."""
        return {search.key: kind_of(search.bound.workload) for search in self.of(plan)}

    def peak_bytes(self, plan: FusionPlan) -> int:
        """Most memory that the tensors between a plan's kernels need at once."""
        return peak_bytes(self.admit(plan))

    def schedules(self, plan: FusionPlan) -> dict[str, Schedule]:
        """The schedule of each workload of a plan that `compile` would take; see `taken`."""
        return {search.key: self.taken(search) for search in self.of(plan)}

    def taken(self, search: WorkloadSearch) -> Schedule:
        """The best schedule of a workload, as the database ranks them for `compile`: a time that is not trusted counts
        as `DOUBT` times as long. Of a workload without a time the rules' first guess, as it would be compiled."""
        doubts = {text: DOUBT if (search.key, text) in self.untrusted else 1.0 for text in search.tried}
        counted = {text: us * doubts[text] for text, us in search.tried.items() if us is not None}
        text = min(counted, key=lambda name: (counted[name], name), default=None)
        return search.rule if text is None else json.loads(text)

    def rule_schedules(self, plan: FusionPlan) -> dict[str, Schedule]:
        """The schedule of each workload of a plan that is compiled where nothing was measured."""
        return {search.key: search.rule for search in self.of(plan)}

    def rule_us(self, plan: FusionPlan) -> float | None:
        """Sum of the times of a plan's groups with the rules' schedules; None when one has no time."""
        times = [self.searches[bound.workload.key].rule_us for bound in self.admit(plan).kernels]
        known = [us for us in times if us is not None]
        return sum(us + LAUNCH_US for us in known) if len(known) == len(times) else None

    def is_tuned(self, plan: FusionPlan) -> bool:
        """Whether a workload of a plan has a better schedule than the rules'."""
        return any(search.best is not None and self.taken(search) != search.rule for search in self.of(plan))

    def untrusted_winners(self, plan: FusionPlan) -> list[str]:
        """Labels of a plan's workloads of which a schedule is taken whose time is not trusted."""
        searches = self.of(plan)
        timed = [search for search in searches if search.best is not None]
        doubted = [search for search in timed if self.doubts(search, self.taken(search))]
        with self.database.reading() as sql:
            labels = unique_labels(sql, {search.key: search.bound.workload.label for search in searches})
        return [labels[search.key] for search in doubted]

    def doubts(self, search: WorkloadSearch, schedule: Schedule) -> bool:
        """Whether the time of a candidate is not trusted."""
        return (search.key, schedule_text(schedule)) in self.untrusted

    @property
    def doubted_share(self) -> float:
        """Doubted times as a part of all that are known, those that the database had among them; 1 while this run has
        measured too few to tell."""
        counts = self.counts
        return len(self.untrusted) / (counts.ok + counts.hits) if counts.ok >= ENOUGH_TO_TELL else 1.0

    def share(self, search: WorkloadSearch, schedule: Schedule) -> None:
        """A new best is a good guess for workloads with the same anchor."""
        anchor = anchor_key(search.bound.workload)
        self.anchors[anchor] = dict(schedule)
        for other in self.searches.values():
            if other is not search and anchor_key(other.bound.workload) == anchor:
                other.suggest(schedule)


def by_weight(weights: Mapping[str, float]) -> list[str]:
    """Workload keys, the one that takes most time first."""
    return sorted(weights, key=lambda key: -weights[key])


def failures_of(searches: Sequence[WorkloadSearch]) -> str:
    """What became of workloads without a time, the first few by name."""
    return "; ".join(f"{search.bound.workload.label}: {search.failure or 'not tried'}" for search in searches[:3])
