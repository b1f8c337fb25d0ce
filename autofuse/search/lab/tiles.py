"""The search of the tiles of kernels over an open size, of several plans: each tile is a workload of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autofuse.graph.inputs import generate_inputs
from autofuse.graph.model import Graph
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.measure.checking.reference import capture
from autofuse.measure.runner import Runner
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import BATCH
from autofuse.search.lab.drift_sentinel import DriftSentinel
from autofuse.search.lab.lab import Lab
from autofuse.search.progress import TileTime
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.prospects import Stake, next_candidates
from autofuse.search.schedules.schedule_search import WorkloadSearch

LEAST = 0.5
"""Candidates of a batch that are expected to save less than this part of the first are left for the next one."""

Runs = Mapping[str, float]
"""How often a call runs each tile on the average, by the key of its workload."""


@dataclass(frozen=True)
class WeightedTile:
    """A tile of `rows` (0: the kernel has no open size) of the kernel of some `operators`.

    `counts`: how often a call at each of the sizes that happen runs it; `runs`: on the average. `graph`: name of the
    graph that it is part of. `places`: what it computes of an image, such as "8x32". `first`: key of the workload as
    whose schedules some of its own should pack their weights; "" where none is.
    """

    rows: int
    bound: BoundWorkload
    operators: tuple[str, ...]
    counts: tuple[float, ...]
    runs: float
    graph: str
    places: str = ""
    first: str = ""


def on_average(counts: Sequence[float], shares: Iterable[float]) -> float:
    """How often a call runs a tile on the average. `counts`: at each of the sizes that happen; `shares`: the part of
    all calls that has it."""
    return sum(share * count for share, count in zip(shares, counts, strict=True))


@dataclass
class TileSearch:
    """Searches schedules of tiles. `run_id`: of the run that measures; `folder`: for what ONNX Runtime computes;
    `tell`: called after each candidate with what it was. `trials`: how many candidates may have been measured when it
    ends (None: any number), see `allow`.
    """

    evidence: SearchEvidence
    runner: Runner
    run_id: int
    folder: Path
    tell: Callable[[str], None]
    trials: int | None = None
    tiles: dict[str, WeightedTile] = field(default_factory=dict)
    _graphs: dict[str, Graph] = field(default_factory=dict)
    _labs: dict[str, Lab] = field(default_factory=dict)

    def admit(self, tiles: Iterable[WeightedTile], graphs: Mapping[str, Graph]) -> dict[str, float]:
        """Makes the tiles of a plan known, each part of one of these `graphs`; how often a call runs each."""
        runs: dict[str, float] = {}
        for tile in tiles:
            search = self.evidence.admit_workload(tile.bound, graphs[tile.graph])
            self.tiles.setdefault(search.key, tile)
            self._graphs.setdefault(tile.graph, graphs[tile.graph])
            runs[search.key] = runs.get(search.key, 0.0) + tile.runs
        return runs

    def _lab(self, name: str) -> Lab:
        """The lab of what is part of a graph of this name; other tensors than the first such graph has are computed
        from those."""
        if name not in self._labs:
            graph = self._graphs[name]
            own = [tile.bound for tile in self.tiles.values() if tile.graph == name]
            wanted = {one for bound in own for one in (*bound.inputs, *bound.outputs) if one in graph.tensors}
            wanted -= {*graph.inputs, *graph.constants}
            inputs = generate_inputs(graph, self.evidence.seed)
            store = capture(graph, inputs, self.folder / str(len(self._labs)), sorted(wanted))
            sentinel = DriftSentinel(self.runner, self.evidence.environment.profile.cool_down_s)
            self._labs[name] = Lab(self.evidence, self.runner, store, self.run_id, self.tell, sentinel)
        return self._labs[name]

    def room(self) -> int:
        """Candidates of the next batch: what is built is timed, so that no more than are left may begin."""
        return BATCH if self.trials is None else max(0, min(BATCH, self.trials - self.evidence.counts.measured))

    def allow(self, trials: int | None) -> None:
        """From now on so many candidates may be measured (None: any number)."""
        self.trials = None if trials is None else self.evidence.counts.measured + trials

    def limited(self, budget: Budget) -> Budget:
        """The budget, which ends when the number of candidates is used up, too."""
        return budget.until(lambda: not self.room())

    def us(self, runs: Runs) -> float | None:
        """Microseconds of a call that these tiles take together; None where one has no time."""
        known = [(count, self.evidence.searches[key].best_us) for key, count in runs.items()]
        if any(us is None for _, us in known):
            return None
        return sum(count * us for count, us in known if us is not None)

    def missing(self, runs: Runs) -> list[WorkloadSearch]:
        """Tiles that have no time yet and still have something to try."""
        found = [self.evidence.searches[key] for key in runs]
        return [one for one in found if one.best_us is None and not one.complete]

    def measure_first(self, searches: Sequence[WorkloadSearch], budget: Budget) -> None:
        """Tries candidates of each until it has a time."""
        for name, own in self._by_graph(searches).items():
            for start in range(0, len(own), BATCH):
                if not budget.spent():
                    self._lab(name).measure_first(own[start : start + BATCH][: self.room()], budget)

    def better(self, runs: Runs) -> tuple[list[WorkloadSearch], float]:
        """Tiles whose next schedules are expected to save most of a call that runs so many of each, and how many
        microseconds they save together."""
        self._suggest_packings(runs)
        searches = (self.evidence.searches[key] for key in runs)
        known = [one for one in searches if one.best_us is not None]
        stakes = {one.key: [Stake(runs[one.key] * (one.best_us or 0.0))] for one in known}
        return next_candidates(known, stakes, self.room(), LEAST)

    def measure(self, searches: Sequence[WorkloadSearch], budget: Budget) -> int:
        """Measures the next candidate of each; how many that were."""
        return sum(self._lab(name).measure(own, budget) for name, own in self._by_graph(searches).items())

    def _by_graph(self, searches: Sequence[WorkloadSearch]) -> dict[str, list[WorkloadSearch]]:
        found: dict[str, list[WorkloadSearch]] = {}
        for one in searches:
            found.setdefault(self.tiles[one.key].graph, []).append(one)
        return found

    def _suggest_packings(self, runs: Runs) -> None:
        """Lets each tile try to read the weights as the best schedule of its kernel's first tile packs them."""
        for key in runs:
            first = self.evidence.searches.get(self.tiles[key].first)
            if first is not None and first.best is not None:
                self.evidence.searches[key].suggest_packing(first.best)

    def times(self, runs: Runs) -> tuple[TileTime, ...]:
        """What is known of the tiles of a plan, the one that takes most time a call first (without a time: before
        all)."""
        found = [
            TileTime(
                one.bound.workload.label, self.tiles[one.key].rows, runs[one.key], one.best_us, one.rule_us,
                len(one.tried), self.tiles[one.key].places, one.key,
            )
            for one in (self.evidence.searches[key] for key in runs)
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda one: float("-inf") if one.us is None else -one.runs * one.us))
