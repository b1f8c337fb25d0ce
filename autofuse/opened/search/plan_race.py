"""The race of the best plans of a search over open sizes with the one that stays: whole libraries, at a small, a middle
and a large size, each of which stands for the section of the range that may have a plan of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from autofuse.opened.search.plan_search import OpenPlanSearch, Planned
from autofuse.opened.search.sections import Section
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import SizeRatio
from autofuse.values.arguments import Given
from autofuse.values.ratios import FASTER, SAME, SLOWER, UNDECIDED, compare, verdict_of

STAYS, BEST, PARTS = "stays", "best", "parts"
"""The contenders: what stays, the best single plan, and the best plan of each section of the sizes."""
RACE_SHARE, LONGEST_S, SHORTEST_S = 0.15, 60.0, 6.0
"""Part of the budget for timing at all sizes together, the most seconds, and the least (without a budget, too)."""
LATE_S = 10.0
"""A race whose libraries took longer to build than was expected ends so many seconds late at most."""
LINKED = 1.5
"""What a library takes to build, over what its tiles took one by one."""


def timing_seconds(budget_s: float | None) -> float:
    """Seconds of timing in a search of so many seconds (None: without an end)."""
    return min(LONGEST_S, max(SHORTEST_S, RACE_SHARE * (budget_s or 0.0)))


def linking_seconds(tiles_s: float) -> float:
    """Seconds that libraries take to build whose tiles took so many one by one."""
    return LINKED * tiles_s / usable_threads()


Contenders = Mapping[str, Planned]
"""The plans that are raced, by name: `STAYS`, and at least one of the others."""


@dataclass(frozen=True)
class RaceVerdict:
    """What a race said: the time of what stays over that of the best single plan, or of the plans of several parts
    where they are taken, over all calls, with its interval.

    `verdict`: one of `VERDICTS`. `problem`: why there is no ratio; `wrong`: whether the best one failed, or that of the
    sections where it raced alone. `chosen`: what is taken then, by section; `sections`: of those whose plan is not the
    one of all others, the time of that one over its. `failed`: which contenders were wrong, and how.
    """

    chosen: Planned
    at: tuple[SizeRatio, ...] = ()
    verdict: str = UNDECIDED
    ratio: float | None = None
    lo: float | None = None
    hi: float | None = None
    problem: str = ""
    wrong: bool = False
    sections: tuple[SizeRatio, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    def turned(self) -> RaceVerdict:
        """The same, said of what stays: the time of the best single plan over its, over all calls and at each size."""
        turned = {FASTER: SLOWER, SLOWER: FASTER}.get(self.verdict, self.verdict)
        found = replace(self, at=tuple(one.turned() for one in self.at), verdict=turned)
        if self.ratio is None or self.lo is None or self.hi is None:
            return found
        return replace(found, ratio=1 / self.ratio, lo=1 / self.hi, hi=1 / self.lo)


@dataclass(frozen=True)
class PlanRace:
    """A race of plans of a model. `folder`: of their libraries; `timing_s`: seconds of timing at all sizes."""

    plans: OpenPlanSearch
    path: Path
    sizes: Sequence[OpenSize]
    given: Given
    runner: Runner
    folder: Path
    timing_s: float
    tell: Callable[[str], None]

    def contenders(self) -> Contenders:
        """What is raced by the times of tiles that are known: what stays alone where nothing else is faster."""
        stays, best = self.plans.stays, self.plans.all_of(self.plans.best)
        found = {STAYS: stays}
        if best != stays and self.plans.promises(best, stays):
            found[BEST] = best
        single = found.get(BEST, stays)
        parts = self.plans.best_of_sections(single)
        return found if parts == single else {**found, PARTS: parts}

    def needed_s(self, contenders: Contenders) -> float:
        """Seconds that the whole race is expected to take; 0 where there is none."""
        return sum(map(self.build_s, contenders.values())) + self.timing_s if len(contenders) > 1 else 0.0

    def least_s(self, contenders: Contenders) -> float:
        """The same of the shortest race."""
        return replace(self, timing_s=min(SHORTEST_S, self.timing_s)).needed_s(contenders)

    def build_s(self, planned: Planned) -> float:
        """Seconds that building a library of these plans is expected to take."""
        searches = self.plans.search.evidence.searches
        known = [one.build_s for one in searches.values() if one.build_s]
        mean_s = sum(known) / len(known) if known else 0.0
        tiles = [searches[key].build_s or mean_s for one in dict.fromkeys(planned) for key in one.runs]
        return linking_seconds(sum(tiles))

    def run(self, contenders: Contenders, budget: Budget) -> RaceVerdict:
        """Builds all libraries, checks them against ONNX Runtime and times them in turn at a size of each section."""
        stays, failed = contenders[STAYS], dict[str, str]()
        libraries = self._built(contenders, failed, budget)
        shares, found = self._shares(), list[Results]()
        timed = budget if budget.left() >= LATE_S else Budget.lasting(LATE_S, budget.stop)
        timing_s = max(SHORTEST_S, min(self.timing_s, timed.left())) / len(self.plans.sections)
        for section, share in zip(self.plans.sections, shares, strict=True):
            if STAYS not in libraries or len(libraries) < 2:
                break
            results = self._at(libraries, section.middle, timing_s, timed)
            found.append((self._blank(section, share), results))
            for name in [one for one in libraries if one != STAYS]:
                wrong = found[-1][1][name].wrong or found[-1][1][name].error
                if wrong:
                    failed[name] = f"at {found[-1][0].size}: {wrong}"
                    del libraries[name]
        if len(libraries) < 2 or STAYS not in libraries:
            reason = next(iter(failed.values()), "")
            return RaceVerdict(stays, problem=reason, wrong=STAYS not in failed, failed=failed)
        single = _together_of(found, contenders) if BEST in libraries else RaceVerdict(stays, verdict=SAME)
        winner = BEST if single.verdict == FASTER else STAYS
        rival = PARTS if PARTS in libraries else BEST
        return replace(_by_sections(single, found, contenders, winner, rival), failed=failed)

    def _built(self, contenders: Contenders, failed: dict[str, str], budget: Budget) -> dict[str, Path]:
        """The libraries of all contenders but those that `failed`, or for which nobody waits any more."""
        self.tell("building the best plan and the one that stays")
        libraries = {}
        for name, planned in contenders.items():
            path = self.folder / f"{name}.so"
            if budget.stopped():
                break
            try:
                self.plans.model.write(self.plans.ranged(planned), path)
                libraries[name] = path
            except Exception as error:  # noqa: BLE001  # a schedule or TVM may raise anything
                failed[name] = f"its library was not built: {error}"
        return libraries

    def _shares(self) -> list[float]:
        """The part of all calls' time that goes to the sizes of each section, under what stays."""
        found = [self.plans.sections_us(one)[place] for place, one in enumerate(self.plans.stays)]
        return [us / sum(found) for us in found]

    def _blank(self, section: Section, share: float) -> SizeRatio:
        return SizeRatio("x".join(map(str, section.middle)), share)

    def _at(
        self, libraries: Mapping[str, Path], point: Point, timing_s: float, budget: Budget
    ) -> Mapping[str, ContenderResult]:
        """What all libraries take at one size, timed for so many seconds."""
        named = {size.name: value for size, value in zip(open_ones(self.sizes), point, strict=True)}
        self.tell(f"racing the best plan at {'x'.join(map(str, point))}")
        graph = load(self.path, form_of(self.path, self.sizes, named, self.given))
        inputs = generate_inputs(graph, self.plans.search.evidence.seed)
        expected = run_reference(graph, inputs)
        contenders = [Contender(name, "autofuse", library) for name, library in libraries.items()]
        outputs = [expected[name] for name in graph.outputs]
        results = self.runner.race(contenders, inputs, timing_s, expected=outputs, left=budget.left)
        return judged(results, graph, inputs)


Results = tuple[SizeRatio, Mapping[str, ContenderResult]]
"""A size with its share, and what was measured there."""


def _together_of(found: Sequence[Results], contenders: Contenders) -> RaceVerdict:
    """What the race says of the best single plan."""
    at = [ratio_at(blank, results[STAYS], results[BEST]) for blank, results in found]
    return together(at, contenders[STAYS])


def _by_sections(
    single: RaceVerdict, found: Sequence[Results], contenders: Contenders, winner: str, rival: str
) -> RaceVerdict:
    """The plan of each section: the winner's, unless the rival's is another, and faster there beyond doubt. Where one
    is, what the race says is said of all these plans together against what stays."""
    taken, told = [winner] * len(found), list[SizeRatio]()
    for place, (blank, results) in enumerate(found):
        if rival == winner or contenders[rival][place] is contenders[winner][place]:
            continue
        old, new = results[winner].timed, results[rival].timed
        if old is not None and new is not None and compare(old, new).verdict == FASTER:
            taken[place] = rival
            told.append(ratio_at(blank, results[winner], results[rival]))
    if not told:
        return replace(single, chosen=contenders[winner])
    chosen = tuple(contenders[name][place] for place, name in enumerate(taken))
    at = [
        replace(blank, ratio=1.0, lo=1.0, hi=1.0)
        if chosen[place] is contenders[STAYS][place]
        else ratio_at(blank, results[STAYS], results[taken[place]])
        for place, (blank, results) in enumerate(found)
    ]
    return replace(together(at, chosen), sections=tuple(told))


def ratio_at(blank: SizeRatio, old: ContenderResult, new: ContenderResult) -> SizeRatio:
    """What a race of two said at a size."""
    problem = old.wrong or old.error or new.wrong or new.error
    if problem or old.timed is None or new.timed is None:
        return replace(blank, problem=problem or old.reason or new.reason or "no time was left")
    found = compare(old.timed, new.timed)
    if found.value is None or found.lo is None or found.hi is None:
        return replace(blank, problem=found.verdict)
    return replace(blank, ratio=found.value, lo=found.lo, hi=found.hi)


def together(at: Sequence[SizeRatio], stays: Planned = ()) -> RaceVerdict:
    """The ratio over all calls: each size stands for its share of their time."""
    problem = next((f"at {one.size}: {one.problem}" for one in at if one.ratio is None), "")
    if problem:
        return RaceVerdict(stays, tuple(at), problem=problem)
    value, low, high = (1 / sum(one.share / each(one) for one in at) for each in (_value, _low, _high))
    return RaceVerdict(stays, tuple(at), verdict_of(low, high), value, low, high)


def _value(one: SizeRatio) -> float:
    return one.ratio or 1.0


def _low(one: SizeRatio) -> float:
    return one.lo or 1.0


def _high(one: SizeRatio) -> float:
    return one.hi or 1.0
