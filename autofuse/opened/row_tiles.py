"""What a search of tiles measures of a model of rows: tiles of a few numbers of rows, each as part of the model at that
size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.compiler import Context
from autofuse.compiler.open_sizes.job import write_open
from autofuse.compiler.open_sizes.plans import OpenForm, RangedPlan
from autofuse.compiler.open_sizes.reading import OpenModel
from autofuse.compiler.open_sizes.tiles import sharing
from autofuse.compiler.open_sizes.tiling import OpenPlan, form_of_rows, open_plan
from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.loading.given.trace import Point
from autofuse.kernels.open_sizes.open_rows import tile_counts
from autofuse.opened.tiled import Tiled
from autofuse.search.lab.tiles import WeightedTile, on_average


@dataclass(frozen=True, eq=False)
class RowModel:
    """A model of rows whose plans are searched; see `OpenedModel`. `ranges`: its open sizes, in the order of those that
    are `happening`."""

    context: Context
    read: OpenModel
    ranges: Sequence[OpenSize]
    happening: Mapping[Point, float]

    @property
    def form(self) -> OpenForm:
        """What plans are looked up for."""
        return form_of_rows(self.context, self.read)

    def tiled(self, chosen: FoundPlan) -> Tiled:
        """The tiles of a plan."""
        planned = open_plan(self.context, self.read, chosen)
        tiles = weighted(planned, [(self._ordered(point), part) for point, part in self.happening.items()])
        firsts = {other.key: first.key for other, first in sharing(planned.kernels, self.context.environment.target)}
        tiles = [replace(tile, first=firsts.get(tile.bound.workload.key, "")) for tile in tiles]
        graphs = {}
        for group, bound, own in planned.groups:
            for rows, _ in own if group.in_tiles else ():
                at = {planned.length(bound): rows} if rows else {}
                graphs[_name(at)] = planned.opened.at(at)
        kernels = sum(bool(own) for _, _, own in planned.groups)
        whole = Counter(bound.workload.key for group, bound, _ in planned.groups if not group.in_tiles)
        return Tiled(planned.opened.graph, planned.chosen, kernels, tiles, graphs, whole)

    def write(self, chosen: Sequence[RangedPlan], output: Path) -> None:
        """Writes the library of a plan, or of one for each part of the range."""
        write_open(self.context, self.read, chosen, output)

    def _ordered(self, point: Point) -> Call:
        """The lengths of one sequence, and how many there are."""
        values = {size.name: value for size, value in zip(self.ranges, point, strict=True)}
        lengths = tuple(values[size.name] for size in self.read.sizes)
        return lengths, 1 if self.read.repeats is None else values[self.read.repeats.size.name]


Call = tuple[tuple[int, ...], int]
"""The lengths of the sequences of a call, and how many there are."""


def _name(at: Mapping[int, int]) -> str:
    """What the graph is called where a length, by its number, is a tile's."""
    return " ".join(f"{rows}" if not length else f"{rows} of length {length + 1}" for length, rows in at.items()) or "0"


def weighted(planned: OpenPlan, happening: Sequence[tuple[Call, float]]) -> list[WeightedTile]:
    """Every tile, with how often a call runs it; `happening`: calls, and the part of all calls that is such a one."""
    found = []
    for group, whole, tiles in planned.groups:
        if not group.in_tiles:
            continue
        rows = [count for count, _ in tiles]
        once = group.picked is not None or rows == [0]
        counts = []
        for (sizes, sequences), _ in happening:
            joined, times = planned.of_call(group, whole, sizes, sequences)
            runs_of = [1] * len(rows) if once else tile_counts(rows, joined)
            counts.append([times * runs for runs in runs_of])
        for place, (count, bound) in enumerate(tiles):
            own = tuple(float(one[place]) for one in counts)
            runs = on_average(own, [part for _, part in happening])
            graph = _name({planned.length(whole): count} if count else {})
            found.append(WeightedTile(count, bound, group.operators, own, runs, graph))
    return found
