"""What a search of tiles measures: of a model of images each tile as a small graph of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path

from autofuse.backend.compile.open_sizes.grid_program import BuiltGroup
from autofuse.compiler import Context
from autofuse.compiler.open_sizes.plans import OpenForm, RangedPlan
from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.graph.loading.given.trace import Point
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.images.grid_rules import GridOperators
from autofuse.graph.transform.open_sizes.images.grid_tiles import tile_graph
from autofuse.kernels.open_sizes.images.grid_tiles import stands_in
from autofuse.kernels.open_sizes.images.whole_grid import sample_for
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.opened.grid_job import form_of_images, grid_plan, write_grid
from autofuse.opened.kinds import GridModel
from autofuse.opened.tiled import Tiled
from autofuse.search.lab.tiles import WeightedTile, on_average


@dataclass(frozen=True, eq=False)
class ImageModel:
    """A model of images whose plans are searched; see `OpenedModel`. `happening`: the part of all calls that has such
    sizes."""

    context: Context
    read: GridModel
    happening: Mapping[Point, float]

    @property
    def form(self) -> OpenForm:
        """What plans are looked up for."""
        return form_of_images(self.context, self.read)

    def tiled(self, chosen: FoundPlan) -> Tiled:
        """The tiles of a plan, each in a small graph of its own."""
        planned = grid_plan(self.context, self.read, chosen)
        opened, known = planned.opened, GridOperators(planned.opened)
        tiles: list[WeightedTile] = []
        graphs: dict[str, Graph] = {}
        for group in planned.groups:
            for lengths, tile in group.tiles.items() if group.group.in_tiles else ():
                graph = opened.graph
                if group.form is not None:
                    places = dict(zip(group.form.sizes, lengths, strict=True))
                    graph = tile_graph(known, group.group, places).graph
                counts = tuple(_runs(opened, group, lengths, point) for point in self.happening)
                runs = on_average(counts, self.happening.values())
                number, shown = tile.bound.workload.key, "x".join(map(str, lengths))
                graphs.setdefault(number, _alone(graph, tile.bound))
                tiles.append(WeightedTile(0, tile.bound, group.group.operators, counts, runs, number, shown))
        whole = Counter(group.bound.workload.key for group in planned.groups if not group.group.in_tiles)
        kernels = sum(bool(group.tiles) for group in planned.groups)
        return Tiled(opened.graph, planned.chosen, kernels, tiles, graphs, whole)

    def write(self, chosen: Sequence[RangedPlan], output: Path) -> None:
        """Writes the library of a plan, or of one for each part of the range."""
        write_grid(self.context, self.read, chosen, output)


def _runs(opened: GridGraph, group: BuiltGroup, lengths: tuple[int, ...], point: Point) -> float:
    """How many tiles of such lengths a call of these sizes computes; of a sample, how often it would fill the image."""
    if group.form is None:
        return 1.0
    grid, splits = opened.grid(group.bound.outputs[0]), group.form.splits
    extents = [grid[size].at(point) for size in group.form.sizes]
    if group.form.bounds:
        return prod(extents) / prod(lengths) if sample_for(group.form, [*group.tiles], extents) == lengths else 0.0
    along = [
        dict(zip(split.lengths, split.counts(extent), strict=True))
        for extent, split in zip(group.form.parted(extents), splits, strict=True)
    ]
    standing = (one for one in product(*along) if stands_in(one, splits) == lengths)
    return float(sum(prod(counts[length] for counts, length in zip(along, one, strict=True)) for one in standing))


def _alone(graph: Graph, bound: BoundWorkload) -> Graph:
    """The graph of what computes the outputs of a tile, whose inputs are given."""
    wanted = list(bound.outputs)
    taken: dict[str, None] = {}
    while wanted:
        name = wanted.pop()
        if name not in bound.inputs and name in graph.producers:
            operator = graph.producers[name]
            taken[operator.name] = None
            wanted += [one for one in operator.inputs if one]
    operators = tuple(operator for operator in graph.operators if operator.name in taken)
    touched = {name for one in operators for name in (*one.inputs, *one.outputs) if name} | {*bound.inputs}
    return replace(
        graph, operators=operators, inputs=bound.inputs, outputs=bound.outputs,
        tensors={name: tensor for name, tensor in graph.tensors.items() if name in touched},
        constants={name: array for name, array in graph.constants.items() if name in touched},
    )  # fmt: skip
