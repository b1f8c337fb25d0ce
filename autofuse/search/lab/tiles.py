"""The search of the tiles of kernels over an open size: each tile is a workload of its own, and a plan is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.graph.inputs import generate_inputs
from autofuse.graph.model import Graph
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.measure.checking.reference import capture
from autofuse.measure.runner import Runner
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import BATCH
from autofuse.search.lab.drift_sentinel import DriftSentinel
from autofuse.search.lab.lab import NO_RUN, Lab
from autofuse.search.progress import TileTime
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.prospects import Stake, next_candidates
from autofuse.search.schedules.schedule_search import WorkloadSearch

LEAST = 0.5
"""Candidates of a batch that are expected to save less than this part of the first are left for the next one."""


@dataclass(frozen=True)
class WeightedTile:
    """A tile of `rows` (0: the kernel has no open size), of which a call runs so many on the average.

    `places`: what it computes of an image, such as "8x32". `graph`: number of the graph that it is part of.
    `first`: key of the workload as whose schedules some of its own should pack their weights; "" where none is.
    """

    rows: int
    bound: BoundWorkload
    runs: float
    graph: int
    places: str = ""
    first: str = ""


class TileSearch:
    """Searches schedules of tiles: a first time for each, then what is expected to save most per call.

    `graphs`: by number; `folder`: for what ONNX Runtime computes there. `tell`: called after
    each candidate with what it was.
    """

    def __init__(
        self,
        tiles: Sequence[WeightedTile],
        graphs: dict[int, Graph],
        evidence: SearchEvidence,
        runner: Runner,
        folder: Path,
        tell: Callable[[str], None],
    ) -> None:
        self.evidence = evidence
        self.tiles: dict[str, WeightedTile] = {}
        self.runs: dict[str, float] = {}
        for tile in tiles:
            search = evidence.admit_workload(tile.bound, graphs[tile.graph])
            self.tiles.setdefault(search.key, tile)
            self.runs[search.key] = self.runs.get(search.key, 0.0) + tile.runs
        self.labs = {
            number: self._lab(graph, own, runner, folder / str(number), tell)
            for number, graph in graphs.items()
            if (own := [tile for tile in self.tiles.values() if tile.graph == number])
        }

    def _lab(
        self, graph: Graph, tiles: Sequence[WeightedTile], runner: Runner, folder: Path, tell: Callable[[str], None]
    ) -> Lab:
        wanted = {name for tile in tiles for name in (*tile.bound.inputs, *tile.bound.outputs)} - {*graph.inputs}
        store = capture(graph, generate_inputs(graph, self.evidence.seed), folder, sorted(wanted))
        sentinel = DriftSentinel(runner, self.evidence.environment.profile.cool_down_s)
        return Lab(self.evidence, runner, store, NO_RUN, tell, sentinel)

    @property
    def searches(self) -> list[WorkloadSearch]:
        """The search of each distinct tile, the one that takes most time a call first (without a time: before all)."""
        return sorted((self.evidence.searches[key] for key in self.tiles), key=lambda one: -self._us(one))

    def _us(self, search: WorkloadSearch) -> float:
        return float("inf") if search.best_us is None else self.runs[search.key] * search.best_us

    def advance(self, budget: Budget, trials: int | None) -> None:
        """Searches until the budget, or the number of candidates, is used up, or nothing is left to try."""
        counts = self.evidence.counts

        def room() -> int:
            """Candidates of the next batch: what is built is timed, so that no more than are left may begin."""
            return BATCH if trials is None else max(0, min(BATCH, trials - counts.measured))

        counted = budget.until(lambda: not room())
        for number, lab in self.labs.items():
            missing = [one for one in self.searches if self._is_missing(one, number)]
            for start in range(0, len(missing), BATCH):
                lab.measure_first(missing[start : start + BATCH][: room()], counted)
        while not counted.spent():
            self._suggest_packings()
            known = [one for one in self.searches if one.best_us is not None]
            stakes = {one.key: [Stake(self._us(one))] for one in known}
            chosen, _ = next_candidates(known, stakes, room(), LEAST)
            if not sum(lab.measure(self._of(number, chosen), counted) for number, lab in self.labs.items()):
                return

    def _suggest_packings(self) -> None:
        """Lets each tile try to read the weights as the best schedule of its kernel's first tile packs them."""
        for key, tile in self.tiles.items():
            first = self.evidence.searches.get(tile.first)
            if first is not None and first.best is not None:
                self.evidence.searches[key].suggest_packing(first.best)

    def _is_missing(self, search: WorkloadSearch, graph: int) -> bool:
        return self.tiles[search.key].graph == graph and search.best_us is None and not search.complete

    def _of(self, graph: int, searches: Sequence[WorkloadSearch]) -> list[WorkloadSearch]:
        return [one for one in searches if self.tiles[one.key].graph == graph]

    def times(self) -> tuple[TileTime, ...]:
        """What is known of each tile."""
        return tuple(
            TileTime(
                one.bound.workload.label, self.tiles[one.key].rows, self.runs[one.key], one.best_us, one.rule_us,
                len(one.tried), self.tiles[one.key].places,
            )
            for one in self.searches
        )  # fmt: skip
