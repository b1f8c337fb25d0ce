"""The search over plans of a model with open sizes, by the times of their tiles, each as often as calls run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.errors import AutofuseError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Decision
from autofuse.opened.tiled import OpenedModel, Tiled
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import BATCH, LEAST_OF_FIRST
from autofuse.search.lab.tiles import TileSearch
from autofuse.search.plans.plan_search import Answers, Flip, PlanSearch
from autofuse.search.schedules.expectations import chance, saved_by_change
from autofuse.values.ratios import TOLERANCE

COMPARED = 12
"""Changes of the plan that are compared before some of them are tried."""
TILES, PLANS = "tiles", "plans"
"""What is asked: a better schedule of a tile, or another plan."""
COMPLETE, FAILED, REFUSED = "complete", "fail", "pruned"
"""What a plan that was tried came to: a time, none because tiles failed, or the sizes cannot stay open under it."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan whose tiles are known; `runs`: how often a call runs each, by the key of its workload."""

    tiled: Tiled
    runs: Mapping[str, float]

    @property
    def plan(self) -> FusionPlan:
        """The plan, as its groups were checked."""
        return self.tiled.chosen.plan


@dataclass(frozen=True)
class Tried:
    """A plan that was tried: the `answers` that made it, its `state` and what a call takes under it. `reason`: why it
    has no time."""

    answers: Answers
    plan: FusionPlan
    state: str
    us: float | None = None
    reason: str = ""


@dataclass
class OpenPlanSearch:
    """Searches plans and the schedules of their tiles together: whichever is expected to save more of a call for each
    candidate comes next.

    `first`: the plan that is taken where nothing is known; `plans`: changes of the rule's. `record`: called with each
    plan that was tried.
    """

    model: OpenedModel
    search: TileSearch
    first: FoundPlan
    plans: PlanSearch
    record: Callable[[Tried], None]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    whole: Counter[str] | None = None

    def __post_init__(self) -> None:
        self.default = self._candidate(self.first.plan)

    def _candidate(self, plan: FusionPlan) -> Candidate:
        """A plan with its tiles. AutofuseError for one that sizes cannot stay open under, or whose kernels are others
        where nothing is timed."""
        if plan.key not in self.candidates:
            if plan.key in self.refused:
                raise AutofuseError(self.refused[plan.key])
            try:
                tiled = self.model.tiled(replace(self.first, plan=plan))
                if self.whole is not None and tiled.whole != self.whole:
                    raise AutofuseError("it changes kernels of all rows at once, which are not timed")
            except AutofuseError as error:
                self.refused[plan.key] = str(error)
                raise
            self.whole = tiled.whole
            self.candidates[plan.key] = Candidate(tiled, self.search.admit(tiled.tiles, tiled.graphs))
        return self.candidates[plan.key]

    def us(self, candidate: Candidate) -> float | None:
        """What a call takes on the average, but for kernels that are not timed; None where a tile has no time.

        A tile of the first plan all of whose schedules failed counts as nothing: a plan that replaces it has to be
        faster without that.
        """
        searches = self.search.evidence.searches
        failed = {key for key in self.default.runs if searches[key].best_us is None and searches[key].complete}
        us = self.search.us({key: runs for key, runs in candidate.runs.items() if key not in failed})
        return None if us is None else us + LAUNCH_US * candidate.tiled.kernels

    @property
    def best(self) -> Candidate:
        """The plan of the least time; the first one, unless another is faster by more than a tie."""
        first_us = self.us(self.default)
        if first_us is None:
            return self.default
        timed = {key: us for key, one in self.candidates.items() if (us := self.us(one)) is not None}
        key = min(timed, key=lambda one: (timed[one], self.candidates[one].tiled.kernels))
        return self.candidates[key] if timed[key] * (1 + TOLERANCE) < first_us else self.default

    def advance(self, budget: Budget) -> None:
        """Searches until the budget is used up, or nothing is left to try."""
        limited = self.search.limited(budget)
        self.search.measure_first(self.search.missing(self.default.runs), limited)
        while not limited.spent():
            searches, saved_us = self.search.better(self._weights())
            wanted, rate = self._prospects(limited) if self.us(self.default) is not None else ([], 0.0)
            if wanted and rate >= saved_us / max(1, len(searches)):
                for flip in wanted:
                    self._try(flip, limited)
            elif not searches or not self.search.measure(searches, limited):
                return

    def _weights(self) -> dict[str, float]:
        """How often a call runs the tiles of the first plan and of the best one: both are searched with equal care."""
        found = dict(self.default.runs)
        for key, runs in self.best.runs.items():
            found[key] = max(runs, found.get(key, 0.0))
        return found

    def _prospects(self, budget: Budget) -> tuple[list[Flip], float]:
        """Changes of the plan that promise most for each tile that must be measured, and what the first promises."""
        self.plans.renew(self._composed)
        if self.plans.unopened:
            return self.plans.flips(1), float("inf")
        flips = self.plans.flips(COMPARED, self._weight())
        if len(self.plans.best_flips()) > 1:
            flips += self.plans.together(COMPARED, self._weight())
        rates: list[tuple[float, int, Flip]] = []
        for flip in flips:
            candidate = None if budget.spent() else self._admitted(flip)
            if candidate is None:
                continue
            count = len(self.search.missing(candidate.runs))
            if not count:
                self._measured(flip, candidate)
                continue
            rates.append((self._saved_us(flip, candidate) / count, count, flip))
        rates.sort(key=lambda one: -one[0])
        best = rates[0][0] if rates else 0.0
        taken, tiles = list[Flip](), 0
        for rate, count, flip in rates:
            if rate > 0 and rate >= LEAST_OF_FIRST * best and (not taken or tiles + count <= BATCH):
                taken.append(flip)
                tiles += count
        return taken, best

    def _saved_us(self, flip: Flip, candidate: Candidate) -> float:
        """Microseconds of a call that a change is expected to save."""
        base = self._base if len(flip.answers) < 2 else self.best
        times = self.search.evidence.searches
        gone_us = sum(
            max(0.0, runs - candidate.runs.get(key, 0.0)) * (times[key].best_us or 0.0)
            for key, runs in base.runs.items()
        )
        saved_us = saved_by_change(flip.kind, gone_us)
        if len(flip.answers) < 2:
            return saved_us
        ahead_us = (self.us(self._base) or 0.0) - (self.us(self.best) or 0.0)
        return chance(saved_us, max(0.0, ahead_us - self.plans.promised_us(flip.answers)))

    def _try(self, flip: Flip, budget: Budget) -> None:
        """Measures the tiles that a change needs."""
        candidate = self._admitted(flip)
        if candidate is None:
            return
        self.search.measure_first(self.search.missing(candidate.runs), budget)
        if not self.search.missing(candidate.runs):
            self._measured(flip, candidate)

    def _admitted(self, flip: Flip) -> Candidate | None:
        """The plan that a change makes; None, and the change is tried, where it is refused."""
        try:
            return self._candidate(flip.plan)
        except AutofuseError as error:
            self._told(flip, Tried(flip.answers, flip.plan, REFUSED, reason=str(error)))
            return None

    def _measured(self, flip: Flip, candidate: Candidate) -> None:
        us = self.us(candidate)
        failed = [one.failure for key in candidate.runs if (one := self.search.evidence.searches[key]).best_us is None]
        state = COMPLETE if us is not None else FAILED
        self._told(flip, Tried(flip.answers, candidate.plan, state, us, next(filter(None, failed), "")))

    def _told(self, flip: Flip, tried: Tried) -> None:
        """Ends the trial of a change."""
        _, answers, plan = self.plans.take(flip) if len(flip.answers) < 2 else self.plans.begin(flip)
        self.plans.tell(answers, plan, tried.us)
        self.record(tried)

    @property
    def _base(self) -> Candidate:
        """The plan that changes are made of: the rule's, or the first one where that is refused."""
        return self.candidates.get(self.plans.default.key, self.default)

    def _composed(self, plan: FusionPlan) -> float | None:
        return self.us(self.candidates[plan.key]) if plan.key in self.candidates else None

    def _weight(self) -> Callable[[Decision], float]:
        """What the kernels take that a decision is about, by the operators at its sites."""
        base, us = self._base, dict[str, float]()
        for tile in base.tiled.tiles:
            took_us = tile.runs * (self.search.evidence.searches[tile.bound.workload.key].best_us or 0.0)
            us |= {name: us.get(name, 0.0) + took_us for name in tile.operators}
        mean = sum(us.values()) / max(1, len(us))

        def weight(decision: Decision) -> float:
            known = [us[name] for site in decision.sites for name in site.operators if name in us]
            return (sum(known) if known else mean) if decision.sites else 0.0

        return weight


def sums_at(candidate: Candidate, search: TileSearch, count: int) -> Sequence[float]:
    """What a call takes under a plan at each of so many sizes that happen, of which all tiles have a time."""
    times = search.evidence.searches
    return [
        LAUNCH_US * candidate.tiled.kernels
        + sum(tile.counts[place] * (times[tile.bound.workload.key].best_us or 0.0) for tile in candidate.tiled.tiles)
        for place in range(count)
    ]
