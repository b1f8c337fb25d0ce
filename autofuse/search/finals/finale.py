"""Estimates of the time that measuring finalists whole takes, and of how many of them there is time for."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.backend.compile.objects import KernelObjects
from autofuse.errors import PlanError
from autofuse.fusion.plan import FusionPlan
from autofuse.search.budget.time_budget import (
    AGAIN,
    ALONE_S,
    CHECK_S,
    FINALISTS,
    FIXED,
    KERNEL_S,
    LEAST_RACE_S,
    LEAST_TURN_S,
    LINK_S,
    LINKED_KERNEL_S,
    LITTLE_FUSION,
    MOST_FOR_ONE,
    PRESSED,
    QUIET,
    QUIET_RACE,
    RECORD_S,
    SLACK,
    START_S,
    finals_seconds,
)
from autofuse.search.schedules.evidence import SearchEvidence, failures_of
from autofuse.search.schedules.schedule_search import Schedule, WorkloadSearch
from autofuse.search.standing.standing import Standing
from autofuse.values.names import TVM_PARTITION, UNTUNED

OBJECTS = "objects"
"""Name of the folder, among a search's temporary files, of kernels that are compiled already."""
BEFORE_UNTUNED = 2
"""The default and the best plan go before what would be compiled untuned, where there is not time for all."""
HOPELESS = 2.5
"""A plan whose composed time is so many times the best one's is not built whole (plan "none" always is)."""
UNTRIED = 4
"""A fixed plan with so many kernels without a time at most is measured whole all the same."""
NEAR = 1.1
"""So is one whose composed time is at most so many times the best one's: whole networks differ from sums by as much."""
SIMPLER = (UNTUNED, "default", TVM_PARTITION, *FIXED, "previous", "model", "search", "composed", "none")
"""Names of plans, the simplest first."""


@dataclass(frozen=True)
class Opening:
    """The opening of a search: seconds of reading the model (`load_s`) and of its run in the reference (`reference_s`).

    Both come again at the end: in the processes that build, and for the check on further inputs. `crowding`: how many
    times as long as alone a step takes on this machine (1: nothing else runs).
    """

    load_s: float
    reference_s: float
    crowding: float = 1.0


@dataclass(frozen=True)
class Finale:
    """The finalists that there is time for, in the order in which they are built, and how long that takes.

    `builds_s`: what each is expected to take. `left_out`: names of those that there is no time for. `race_s`: of
    timing them in turn. `after_s`: of what must come after the builds, with the shortest race: builds that take longer
    than expected make the race shorter. `seconds`: of the whole.
    """

    names: tuple[str, ...]
    builds_s: Mapping[str, float]
    left_out: tuple[str, ...]
    race_s: float
    after_s: float
    seconds: float


@dataclass(frozen=True)
class Estimates:
    """Estimates of how long the end of a search takes, from what its beginning took. `cores`: builds side by side.
    `objects`: what is compiled already. `alone_race_s`: kept for a race with ONNX Runtime alone (0: there is none)."""

    evidence: SearchEvidence
    opening: Opening
    cores: int
    race_s: float
    objects: KernelObjects | None = None
    alone_race_s: float = 0.0

    @classmethod
    def of(
        cls,
        evidence: SearchEvidence,
        opening: Opening,
        cores: int,
        budget_s: float | None,
        folder: Path | None = None,
    ) -> Estimates:
        """The estimates for a search of `budget_s` seconds (None: without an end); `folder`: of its temporary files."""
        objects = None if folder is None else KernelObjects(folder / OBJECTS, evidence.environment.target)
        return cls(evidence, opening, cores, finals_seconds(budget_s), objects)

    def build_s(self, plan: FusionPlan, name: str = "") -> float:
        """Seconds that building a plan's library takes: its kernels as they took so far, the others as the average;
        those that are compiled already are only emitted and linked."""
        known = [search.build_s for search in self.evidence.searches.values() if search.build_s]
        average = sum(known) / len(known) if known else KERNEL_S * self.opening.crowding
        searches = self.evidence.of(plan)
        return LINK_S * self.opening.crowding + sum(
            self._kernel_s(search, search.rule if name == UNTUNED else search.best, average) for search in searches
        )

    def _kernel_s(self, search: WorkloadSearch, schedule: Schedule | None, average: float) -> float:
        needed = search.build_s or average
        if self.objects is not None and schedule is not None:
            code = self.evidence.environment.codes.seen(search.bound.workload, schedule)
            return min(needed, LINKED_KERNEL_S) if self.objects.has(code) else needed
        return needed

    def check_s(self) -> float:
        """Seconds of loading one library, running it, and comparing what it computes."""
        return CHECK_S * self.opening.crowding + self.opening.load_s

    def after_s(self, count: int) -> float:
        """Seconds after the race: further inputs through reference and library, and the records."""
        return RECORD_S * self.opening.crowding + (self.opening.reference_s + self.check_s() if count else 0.0)

    def finale(
        self, plans: Mapping[str, FusionPlan], allowed_s: float, built: Container[str] = (), pace: float = 1.0
    ) -> Finale:
        """The first of `plans` (the most important come first) that are built whole within `allowed_s` seconds.

        Where all fit they are raced as long as the budget means them to be, else in proportion to their number.
        `built`: names of those that are built already; `pace`: what part of the expected time those took, and other
        steps will.
        """
        builds = {name: 0.0 if name in built else pace * self.build_s(plan, name) for name, plan in plans.items()}
        kept, race_s = list(plans), max(self.least_race_s(len(plans)), self.expected_race_s)
        if self._seconds(list(builds.values()), race_s, pace) > allowed_s:
            kept = []
            for name in plans:
                short_s = self._short_race_s(len(kept) + 1)
                if self._seconds([builds[one] for one in [*kept, name]], short_s, pace) <= allowed_s:
                    kept.append(name)
            kept = _with_untuned(kept, plans, built)
            race_s = self._short_race_s(len(kept))
        steps_s = pace * (len(kept) * self.check_s() + self.after_s(len(kept)))
        left_out = tuple(name for name in plans if name not in kept)
        seconds = self._seconds([builds[name] for name in kept], race_s, pace)
        after_s = self.least_race_s(len(kept)) + steps_s
        return Finale(tuple(kept), builds, left_out, race_s if kept else 0.0, after_s, seconds)

    def kept(self, plans: Mapping[str, FusionPlan], allowed_s: float) -> tuple[Finale, float]:
        """The first of `plans` that a search keeps time for, as many as fit in `allowed_s`, and its seconds.

        Where not even one fits, the most important one alone, up to `MOST_FOR_ONE` times as many seconds: a plan that
        was checked as a whole is worth more than a longer search.
        """
        found, first = self.finale(plans, allowed_s), next(iter(plans), None)
        if not found.names and first is not None:
            one_s = SLACK * self.alone_s(first, plans[first])
            if 0.0 < one_s <= SLACK * MOST_FOR_ONE * allowed_s:
                left_out = tuple(name for name in found.left_out if name != first)
                return replace(found, names=(first,), left_out=left_out, seconds=one_s / SLACK), one_s
        return found, found.seconds * SLACK + self.alone_race_s

    @property
    def expected_race_s(self) -> float:
        """Seconds of timing finalists that are kept: few where nearly all times so far are trusted, for there a race is
        soon decided, and one that is not goes on while the budget lasts."""
        return self.race_s * (QUIET_RACE if self.evidence.doubted_share <= QUIET else 1.0)

    def early_s(self, plans: Mapping[str, FusionPlan], race_s: float) -> float:
        """Seconds that building, checking and timing some plans takes while the search goes on."""
        builds = [self.build_s(plan, name) for name, plan in plans.items()]
        return self.building_s(builds) + len(builds) * self.check_s() + race_s

    def again_s(self, plans: Mapping[str, FusionPlan]) -> float:
        """Seconds that measuring the most important finalists takes once more, whose race was soon decided."""
        shortly = replace(self, race_s=min(self.race_s, LEAST_RACE_S))
        return shortly.finale(dict(list(plans.items())[:AGAIN]), float("inf")).seconds

    def alone_s(self, name: str, plan: FusionPlan) -> float:
        """Seconds that building, checking and timing one finalist takes that has no rival."""
        return self._seconds([self.build_s(plan, name)], self._short_race_s(1))

    def _short_race_s(self, count: int) -> float:
        least_s = self.least_race_s(count)
        return least_s if count < 2 else max(least_s, PRESSED * self.race_s * min(count, FINALISTS) / FINALISTS)

    def least_race_s(self, count: int) -> float:
        """Seconds of the shortest race that says anything."""
        least_s = (
            ALONE_S if count < 2 else min(LEAST_RACE_S, max(ALONE_S, count * LEAST_TURN_S * self.opening.crowding))
        )
        return min(least_s, self.race_s)

    def _seconds(self, builds: Sequence[float], race_s: float, pace: float = 1.0) -> float:
        """Seconds of the whole; `builds` have their pace already."""
        if not builds:
            return pace * self.after_s(0)
        count = len(builds)
        return self.building_s(builds, pace) + pace * (count * self.check_s() + self.after_s(count)) + race_s

    def building_s(self, builds: Sequence[float], pace: float = 1.0) -> float:
        """Seconds until libraries are built that take these by themselves; their processes start at a `pace`."""
        starting_s = START_S * self.opening.crowding + self.opening.load_s
        return pace * starting_s + _side_by_side(builds, self.cores)


def _with_untuned(kept: Sequence[str], plans: Container[str], built: Container[str]) -> list[str]:
    """These finalists, among them what would be compiled untuned: a race without it may ship something slower.

    It takes the place of the default, which differs from it in schedules only, or of the least important one.
    """
    if len(kept) < 2 or UNTUNED in kept or UNTUNED not in plans:
        return list(kept)
    given_up = "default" if "default" in kept and "default" not in built else kept[-1]
    return [UNTUNED if name == given_up else name for name in kept]


def wishes(standing: Standing) -> dict[str, FusionPlan]:
    """The plans worth measuring whole, the most important first: what was chosen before, the default, the best by its
    kernels' times, others.

    The default stays in the race in any case, and so does what would be compiled untuned: it is taken unless another
    one is faster beyond doubt. No fusion and TVM's partition are among them, unless they cannot be built; so are, last,
    other fixed plans whose sum is near the best one, and those of which few kernels have no time: a short search may
    not have come to them. PlanError when no plan can be.
    """
    evidence, plans = standing.evidence, standing.plans()
    possible = {name: plan for name, plan in plans.items() if not _hopeless(evidence, plan)}
    composed = {name: evidence.expected_us(plan) or float("inf") for name, plan in possible.items()}
    best_us = min(composed.values(), default=float("inf"))
    timed = [name for name in possible if composed[name] <= HOPELESS * best_us < float("inf")]
    timed = sorted(timed, key=lambda name: (composed[name], complexity(name)))
    rivals = [name for name in timed if name not in LITTLE_FUSION][: FINALISTS - 1]
    leader = [name for name, plan in possible.items() if standing.best is not None and plan.key == standing.best.key]
    kept = [standing.previous] if standing.previous else []
    fixed = [name for name in FIXED if name in possible and timed]  # where nothing has a time, nothing may build
    untried = [name for name in fixed if 0 < len(evidence.missing(possible[name])) <= UNTRIED]
    near = [name for name in fixed if composed[name] <= NEAR * best_us]
    best = sorted(leader, key=complexity)[:1]
    order = dict.fromkeys([*kept, "default", *best, *rivals, *LITTLE_FUSION, *near, *untried])
    once: dict[str, str] = {}
    for name in order:
        if name in possible:
            once.setdefault(possible[name].key, name)
    if not once:
        failed = [search for search in evidence.searches.values() if search.best_us is None]
        raise PlanError(
            f"no plan has a time for all its groups; {len(failed)} of {len(evidence.searches)} could not be "
            f"built and checked: {failures_of(failed)}"
        )
    found = [(name, possible[name]) for name in once.values()]
    if "default" in possible and evidence.is_tuned(possible["default"]):
        found.insert(BEFORE_UNTUNED + len(kept), (UNTUNED, possible["default"]))
    return dict(found)


def schedules_of(evidence: SearchEvidence, name: str, plan: FusionPlan) -> Mapping[str, Schedule]:
    """The schedules that a finalist is built with, by workload key."""
    return evidence.rule_schedules(plan) if name == UNTUNED else evidence.schedules(plan)


def _hopeless(evidence: SearchEvidence, plan: FusionPlan) -> bool:
    """Whether a group of `plan` can have no time: every candidate of it failed."""
    return any(search.best_us is None and search.complete for search in evidence.of(plan))


def complexity(name: str) -> int:
    """Place of a plan among equally fast ones; a plan that only the caller knows comes before no fusion."""
    return SIMPLER.index(name) if name in SIMPLER else len(SIMPLER) - 1


def preferred(plans: Mapping[str, FusionPlan], kept: str, default: FusionPlan | None) -> list[str]:
    """Names of `plans` in the order in which they are taken while noise tells none of them apart.

    First `kept`, which an earlier run decided for ("" when there is none); then what would be compiled untuned, the
    default, and those with fewer groups that it does not have.
    """
    groups = frozenset(default.groups) if default is not None else frozenset()

    def rank(name: str) -> tuple[bool, bool, bool, int, int]:
        is_default = default is not None and plans[name].key == default.key
        return (
            name != kept,
            name != UNTUNED,
            not is_default,
            len(groups ^ frozenset(plans[name].groups)),
            complexity(name),
        )

    return sorted(plans, key=rank)


class Reserve:
    """Seconds that measuring the finalists whole will take, as far as they fit in `allowed_s`: what a search keeps, see
    `Estimates.kept`."""

    def __init__(self, standing: Standing, estimates: Estimates, allowed_s: float) -> None:
        self.standing, self.estimates, self.allowed_s = standing, estimates, allowed_s
        self._known: tuple[object, float] | None = None

    def __call__(self) -> float:
        """Estimated anew once something was measured, or a plan has come."""
        state = self.standing.evidence.counts.measured, tuple(self.standing.plans())
        if self._known is None or self._known[0] != state:
            self._known = state, self._seconds()
        return self._known[1]

    def least_s(self) -> float:
        """Seconds that the most important finalist alone will take; 0 where no plan can be built."""
        first = next(iter(self._wishes().items()), None)
        return 0.0 if first is None else SLACK * self.estimates.alone_s(*first)

    def _seconds(self) -> float:
        return self.estimates.kept(self._wishes(), self.allowed_s)[1]

    def _wishes(self) -> Mapping[str, FusionPlan]:
        try:
            return wishes(self.standing)
        except PlanError:  # none can be built so far
            return {}


def _side_by_side(seconds: Sequence[float], workers: int) -> float:
    """Seconds that jobs take which are begun in their order, so many at a time."""
    ends = [0.0] * max(1, min(workers, len(seconds)))
    for one in seconds:
        ends[ends.index(min(ends))] += one
    return max(ends)
