"""The race of the best plan of a search over open sizes with the one that stays: whole libraries, at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from autofuse.backend.library.threads import usable_threads
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.given.buckets import form_of
from autofuse.graph.loading.given.sizes import OpenSize, open_ones
from autofuse.graph.loading.given.trace import Point
from autofuse.graph.loading.load import load
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.measure.networks.judgement import judged
from autofuse.measure.runner import Runner
from autofuse.opened.plan_search import Candidate, OpenPlanSearch, sums_at
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import SizeRatio
from autofuse.values.arguments import Given
from autofuse.values.ratios import UNDECIDED, compare, verdict_of

RACED = 3
"""Sizes at which plans are raced: of the small ones, of the middle ones, and of the large ones."""
STAYS, BEST = "stays", "best"
"""The contenders."""
RACE_SHARE, LONGEST_S, SHORTEST_S = 0.15, 60.0, 6.0
"""Part of the budget for timing at all sizes together, the most seconds, and the least (without a budget, too)."""
LINKED = 1.5
"""What a library takes to build, over what its tiles took one by one."""


@dataclass(frozen=True)
class RaceVerdict:
    """What a race said: the time of the plan that stays over that of the best one, over all calls, with its interval.

    `verdict`: one of `VERDICTS`. `problem`: why there is no ratio; `wrong`: whether the best one failed.
    """

    at: tuple[SizeRatio, ...] = ()
    verdict: str = UNDECIDED
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    problem: str = ""
    wrong: bool = False


@dataclass(frozen=True)
class PlanRace:
    """A race of two plans of a model. `folder`: of their libraries."""

    plans: OpenPlanSearch
    path: Path
    sizes: Sequence[OpenSize]
    given: Given
    runner: Runner
    folder: Path
    budget_s: float | None
    tell: Callable[[str], None]

    @property
    def timing_s(self) -> float:
        """Seconds of timing at all sizes."""
        return min(LONGEST_S, max(SHORTEST_S, RACE_SHARE * (self.budget_s or 0.0)))

    def needed_s(self, best: Candidate) -> float:
        """Seconds that the whole race is expected to take; 0 where the best plan is the one that stays."""
        stays = self.plans.default
        if best is stays:
            return 0.0
        searches = self.plans.search.evidence.searches
        known = [one.build_s for one in searches.values() if one.build_s]
        mean_s = sum(known) / len(known) if known else 0.0
        tiles = [searches[key].build_s or mean_s for one in (stays, best) for key in one.runs]
        return LINKED * sum(tiles) / usable_threads() + self.timing_s

    def run(self, best: Candidate, budget: Budget) -> RaceVerdict:
        """Builds both libraries, checks them against ONNX Runtime and times them in turn at each of the sizes."""
        stays = self.plans.default
        libraries = {}
        self.tell("building the best plan and the one that stays")
        try:
            for name, one in ((STAYS, stays), (BEST, best)):
                libraries[name] = self.folder / f"{name}.so"
                self.plans.model.write(one.tiled.chosen, libraries[name])
        except Exception as error:  # noqa: BLE001  # a schedule or TVM may raise anything
            return RaceVerdict(problem=f"its library was not built: {error}", wrong=name == BEST)
        found = []
        for point, share in self._points(stays):
            here, wrong = self._at(libraries, point, share, budget)
            if wrong:
                return RaceVerdict(problem=f"at {here.size}: {wrong}", wrong=True)
            found.append(here)
        return together(found)

    def _points(self, stays: Candidate) -> Iterator[tuple[Point, float]]:
        """A size of each part of those that happen, and the part of all calls' time that goes to this part."""
        happening = self.plans.model.happening
        sums = sums_at(stays, self.plans.search, len(happening))
        times = {point: part * us for (point, part), us in zip(happening.items(), sums, strict=True)}
        ordered = sorted(times, key=lambda point: (prod(size + 1 for size in point), point))
        count = min(RACED, len(ordered))
        for number in range(count):
            own = ordered[number * len(ordered) // count : (number + 1) * len(ordered) // count]
            yield own[len(own) // 2], sum(times[point] for point in own) / sum(times.values())

    def _at(self, libraries: Mapping[str, Path], point: Point, share: float, budget: Budget) -> tuple[SizeRatio, str]:
        """The ratio at one size, and how the best plan is wrong there."""
        named = {size.name: value for size, value in zip(open_ones(self.sizes), point, strict=True)}
        self.tell(f"racing the best plan at {'x'.join(map(str, point))}")
        graph = load(self.path, form_of(self.path, self.sizes, named, self.given))
        inputs = generate_inputs(graph, self.plans.search.evidence.seed)
        expected = run_reference(graph, inputs)
        contenders = [Contender(name, "autofuse", library) for name, library in libraries.items()]
        outputs = [expected[name] for name in graph.outputs]
        results = self.runner.race(contenders, inputs, self.timing_s / RACED, expected=outputs, left=budget.left)
        results = judged(results, graph, inputs)
        blank = SizeRatio("x".join(map(str, point)), share)
        return ratio_at(blank, results), results[BEST].wrong or results[BEST].error


def ratio_at(blank: SizeRatio, results: Mapping[str, ContenderResult]) -> SizeRatio:
    """What a race of both said at a size."""
    stays, best = results[STAYS], results[BEST]
    problem = stays.wrong or stays.error or best.wrong or best.error
    if problem or stays.timed is None or best.timed is None:
        return replace(blank, problem=problem or stays.reason or best.reason or "no time was left")
    found = compare(stays.timed, best.timed)
    if found.value is None or found.lo is None or found.hi is None:
        return replace(blank, problem=found.verdict)
    return replace(blank, ratio=found.value, lo=found.lo, hi=found.hi)


def together(at: Sequence[SizeRatio]) -> RaceVerdict:
    """The ratio over all calls: each size stands for its share of their time."""
    problem = next((f"at {one.size}: {one.problem}" for one in at if one.ratio is None), "")
    if problem:
        return RaceVerdict(tuple(at), problem=problem)
    value, low, high = (1 / sum(one.share / each(one) for one in at) for each in (_value, _low, _high))
    return RaceVerdict(tuple(at), verdict_of(low, high), value, low, high)


def _value(one: SizeRatio) -> float:
    return one.ratio or 1.0


def _low(one: SizeRatio) -> float:
    return one.lo or 1.0


def _high(one: SizeRatio) -> float:
    return one.hi or 1.0
