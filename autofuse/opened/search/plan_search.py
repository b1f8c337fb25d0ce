"""The search over plans of a model with open sizes, by the times of their tiles, each as often as calls run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from autofuse.compiler.open_sizes.plans import RangedPlan
from autofuse.errors import AutofuseError
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Decision
from autofuse.graph.loading.given.trace import Point
from autofuse.opened.search.sections import Section, joined, sections
from autofuse.opened.tiled import OpenedModel, Tiled
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import BATCH, LEAST_OF_FIRST
from autofuse.search.lab.tiles import TileSearch, on_average
from autofuse.search.plans.plan_search import Answers, Flip, PlanSearch
from autofuse.search.schedules.expectations import chance, saved_by_change
from autofuse.values.ratios import TOLERANCE

COMPARED = 12
"""Changes of the plan that are compared before some of them are tried."""
WORTH = 0.001
"""Part of the time of a section that a change saves there, so that it is tried together with others."""
TILES, PLANS = "tiles", "plans"
"""What is asked: a better schedule of a tile, or another plan."""
COMPLETE, FAILED, REFUSED = "complete", "fail", "pruned"
"""What a plan that was tried came to: a time, none because tiles failed, or the sizes cannot stay open under it."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan whose tiles are known; `runs`: how often a call runs each on the average, by the key of its workload;
    `of_sections`: the part of that which calls of each section add."""

    tiled: Tiled
    runs: Mapping[str, float]
    of_sections: Sequence[Mapping[str, float]]

    @property
    def plan(self) -> FusionPlan:
        """The plan, as its groups were checked."""
        return self.tiled.chosen.plan


Planned = tuple[Candidate, ...]
"""The plan of each section of the sizes that happen."""


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

    `first`: the plans that are taken where nothing is known; `plans`: changes of the rule's. `record`: called with each
    plan that was tried. `default`: the plan of the largest sizes among the first ones; `stays`: those of all sections.
    """

    model: OpenedModel
    search: TileSearch
    first: Sequence[RangedPlan]
    plans: PlanSearch
    record: Callable[[Tried], None]
    candidates: dict[str, Candidate] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    whole: Counter[str] | None = None

    def __post_init__(self) -> None:
        self.sections = sections(self.model.happening)
        self.default = self._candidate(self.first[-1].found.plan)
        self.stays: Planned = tuple(self._first_at(section) for section in self.sections)

    def _first_at(self, section: Section) -> Candidate:
        """The first plan of a section; that of the largest sizes where its own is refused."""
        product = prod(section.middle)
        one = next(one for one in self.first if one.most is None or product <= one.most)
        try:
            return self._candidate(one.found.plan)
        except AutofuseError:
            return self.default

    def _candidate(self, plan: FusionPlan) -> Candidate:
        """A plan with its tiles. AutofuseError for one that sizes cannot stay open under, or whose kernels are others
        where nothing is timed."""
        if plan.key not in self.candidates:
            if plan.key in self.refused:
                raise AutofuseError(self.refused[plan.key])
            try:
                tiled = self.model.tiled(replace(self.first[-1].found, plan=plan))
                if self.whole is not None and tiled.whole != self.whole:
                    raise AutofuseError("it changes kernels of all rows at once, which are not timed")
            except AutofuseError as error:
                self.refused[plan.key] = str(error)
                raise
            self.whole = tiled.whole
            runs = self.search.admit(tiled.tiles, tiled.graphs)
            parts = [runs_in(tiled, self.model.happening, section) for section in self.sections]
            self.candidates[plan.key] = Candidate(tiled, runs, parts)
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

    def all_of(self, candidate: Candidate) -> Planned:
        """One plan in all sections."""
        return (candidate,) * len(self.sections)

    def best_of_sections(self, base: Planned) -> Planned:
        """The plan of the least time in each section; that of `base`, unless another is faster there by more than a
        tie."""
        timed = [(one, self.sections_us(one)) for one in self.candidates.values() if self.us(one) is not None]
        known, found = dict(timed), list[Candidate]()
        for place, own in enumerate(base):
            best, us = min(timed, key=lambda one: (one[1][place], one[0].tiled.kernels), default=(own, []))
            better = own in known and us[place] * (1 + TOLERANCE) < known[own][place]
            found.append(best if better else own)
        return tuple(found)

    def promises(self, planned: Planned, stays: Planned) -> bool:
        """Whether plans take less time than what stays, by more than a tie."""
        us = [sum(self.sections_us(one)[place] for place, one in enumerate(plans)) for plans in (planned, stays)]
        return us[0] * (1 + TOLERANCE) < us[1]

    def sections_us(self, candidate: Candidate) -> list[float]:
        """What the calls of each section add to the time of a call on the average; a tile without a time counts as
        nothing."""
        times, found = self.search.evidence.searches, list[float]()
        shares = [*self.model.happening.values()]
        for section, runs in zip(self.sections, candidate.of_sections, strict=True):
            calls = sum(shares[place] for place in section.places)
            tiles_us = sum(count * (times[key].best_us or 0.0) for key, count in runs.items())
            found.append(calls * LAUNCH_US * candidate.tiled.kernels + tiles_us)
        return found

    def ranged(self, planned: Planned) -> list[RangedPlan]:
        """The plans of all sections as a library has them."""
        return [RangedPlan(one.tiled.chosen, most) for most, one in joined(self.sections, planned)]

    def advance(self, budget: Budget) -> bool:
        """Searches until the budget is used up, or the candidates; whether nothing is left to try."""
        limited = self.search.limited(budget)
        for one in dict.fromkeys((self.default, *self.stays)):
            self.search.measure_first(self.search.missing(one.runs), limited)
        while not limited.spent():
            searches, saved_us = self.search.better(self._weights())
            wanted, rate = self._prospects(limited) if self.us(self.default) is not None else ([], 0.0)
            if wanted and rate >= saved_us / max(1, len(searches)):
                for flip in wanted:
                    self._try(flip, limited)
            elif not searches or not self.search.measure(searches, limited):
                break
        return not limited.spent()

    def _weights(self) -> dict[str, float]:
        """How often a call runs the tiles of the first plans and of the best ones: all are searched with equal care."""
        found, best = dict(self.default.runs), self.best
        for one in dict.fromkeys((best, *self.stays, *self.best_of_sections(self.all_of(best)))):
            for key, runs in one.runs.items():
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
        known = {flip.plan.key for _, _, flip in rates}
        rates += [one for one in self._of_sections(budget) if one[2].plan.key not in known]
        rates.sort(key=lambda one: -one[0])
        best = rates[0][0] if rates else 0.0
        taken, tiles = list[Flip](), 0
        for rate, count, flip in rates:
            if rate > 0 and rate >= LEAST_OF_FIRST * best and (not taken or tiles + count <= BATCH):
                taken.append(flip)
                tiles += count
        return taken, best

    def _of_sections(self, budget: Budget) -> list[tuple[float, int, Flip]]:
        """The changes that paid in a section, together, with what they promise there for each tile to be measured.

        What pays in a section and not in all sizes together is left out otherwise."""
        found: dict[str, tuple[float, int, Flip]] = {}
        for gains in self._gains_of_sections():
            flip = self.plans.several({name: choice for name, (_, choice) in gains.items()}) if len(gains) > 1 else None
            candidate = None if flip is None or budget.spent() else self._admitted(flip)
            if flip is None or candidate is None:
                continue
            count, each = len(self.search.missing(candidate.runs)), [gain for gain, _ in gains.values()]
            if count:
                found.setdefault(flip.plan.key, ((sum(each) - max(each)) / count, count, flip))
            else:
                self._measured(flip, candidate)
        return list(found.values())

    def _gains_of_sections(self) -> list[dict[str, tuple[float, str]]]:
        """For each section what changes saved there by themselves, of each decision the choice that saved most."""
        base = self.sections_us(self._base)
        tried = [(answer, self.candidates.get(plan.key)) for answer, plan in self.plans.tried.items()]
        timed = [(answer, self.sections_us(one)) for answer, one in tried if one is not None and self.us(one)]
        found = [dict[str, tuple[float, str]]() for _ in base]
        for (name, choice), us in timed:
            for gains, now_us, base_us in zip(found, us, base, strict=True):
                gain = base_us - now_us
                if gain > WORTH * base_us and gain > gains.get(name, (0.0, ""))[0]:
                    gains[name] = gain, choice
        return found

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


def runs_in(tiled: Tiled, happening: Mapping[Point, float], section: Section) -> dict[str, float]:
    """How often calls of a section run each tile, of a call on the average, by the key of its workload."""
    parts, found = [*happening.values()], dict[str, float]()
    for tile in tiled.tiles:
        key = tile.bound.workload.key
        own = on_average([tile.counts[place] for place in section.places], [parts[place] for place in section.places])
        found[key] = found.get(key, 0.0) + own
    return found
