"""What a search of tiles measures of a model of rows: tiles of a few numbers of rows, each as part of the model at that
size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.compiler import Context
from autofuse.compiler.open_sizes.job import OpenPlan, form_of_rows, open_plan, write_open
from autofuse.compiler.open_sizes.plans import OpenForm, RangedPlan
from autofuse.compiler.open_sizes.reading import OpenModel
from autofuse.compiler.open_sizes.tiles import sharing
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
        tiles = weighted(planned, {self._ordered(point): part for point, part in self.happening.items()})
        firsts = {other.key: first.key for other, first in sharing(planned.kernels, self.context.environment.target)}
        tiles = [replace(tile, first=firsts.get(tile.bound.workload.key, "")) for tile in tiles]
        graphs = {str(rows): planned.opened.at(rows or planned.opened.size) for rows in {tile.rows for tile in tiles}}
        kernels = sum(bool(own) for _, _, own in planned.groups)
        whole = Counter(bound.workload.key for group, bound, _ in planned.groups if not group.in_tiles)
        return Tiled(planned.opened.graph, planned.chosen, kernels, tiles, graphs, whole)

    def write(self, chosen: Sequence[RangedPlan], output: Path) -> None:
        """Writes the library of a plan, or of one for each part of the range."""
        write_open(self.context, self.read, chosen, output)

    def _ordered(self, point: Point) -> tuple[int, int]:
        """The size of one sequence, and how many there are."""
        values = {size.name: value for size, value in zip(self.ranges, point, strict=True)}
        return values[self.read.size.name], 1 if self.read.repeats is None else values[self.read.repeats.size.name]


def weighted(planned: OpenPlan, happening: Mapping[tuple[int, int], float]) -> list[WeightedTile]:
    """Every tile, with how often a call runs it; `happening`: the part of all calls that has a size, and a number of
    sequences."""
    found = []
    for group, whole, tiles in planned.groups:
        if not group.in_tiles:
            continue
        rows = [count for count, _ in tiles]
        once = group.picked is not None or rows == [0]
        counts = []
        for size, sequences in happening:
            joined, times = planned.of_call(group, whole, size, sequences)
            runs_of = [1] * len(rows) if once else tile_counts(rows, joined)
            counts.append([times * runs for runs in runs_of])
        for place, (count, bound) in enumerate(tiles):
            own = tuple(float(one[place]) for one in counts)
            runs = on_average(own, happening.values())
            found.append(WeightedTile(count, bound, group.operators, own, runs, str(count)))
    return found
