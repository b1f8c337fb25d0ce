"""What a search of tiles measures: of a model of images each tile as a small graph of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from autofuse.backend.compile.open_sizes.grid_program import BuiltGroup
from autofuse.compiler import Context
from autofuse.compiler.plan_ladder import FoundPlan, find_open_plan
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.loading.given.trace import Point
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.grid_rules import GridOperators
from autofuse.graph.transform.open_sizes.grid_tiles import tile_graph
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.opened.grid_job import grid_plan, read_images
from autofuse.search.lab.tiles import WeightedTile
from autofuse.values.arguments import Given


@dataclass(frozen=True, eq=False)
class Tiled:
    """The tiles of a plan: `graph` is the one that the plan leaves, `graphs` those that the tiles are part of."""

    graph: Graph
    chosen: FoundPlan
    kernels: int
    tiles: Sequence[WeightedTile]
    graphs: dict[int, Graph]


def image_tiles(
    context: Context, model: Path, given: Given, sizes: Sequence[OpenSize], happening: Mapping[Point, float]
) -> Tiled:
    """The tiles of a model of images under the plan that `compile` takes; `happening`: the part of all calls that has
    such sizes."""
    read = read_images(model, given, sizes)
    planned = grid_plan(context, read, find_open_plan(context, read.opened.graph, read.sha256, None))
    opened, known = planned.opened, GridOperators(planned.opened)
    tiles: list[WeightedTile] = []
    graphs: dict[int, Graph] = {}
    for group in planned.groups:
        if group.group.reduces:
            continue
        for lengths, tile in group.tiles.items():
            graph = opened.graph
            if group.form is not None:
                places = dict(zip(group.form.sizes, lengths, strict=True))
                graph = tile_graph(known, group.group, places).graph
            runs = sum(part * _runs(opened, group, lengths, point) for point, part in happening.items())
            number, shown = len(graphs), "x".join(map(str, lengths))
            graphs[number] = _alone(graph, tile.bound)
            tiles.append(WeightedTile(0, tile.bound, runs, number, shown))
    return Tiled(opened.graph, planned.chosen, sum(bool(group.tiles) for group in planned.groups), tiles, graphs)


def _runs(opened: GridGraph, group: BuiltGroup, lengths: tuple[int, ...], point: Point) -> int:
    """How many tiles of such lengths a call of these sizes computes."""
    if group.form is None:
        return 1
    grid = opened.grid(group.bound.outputs[0])
    found = []
    for size, split, length in zip(group.form.sizes, group.form.splits, lengths, strict=True):
        found.append(split.counts(grid[size].at(point))[split.lengths.index(length)])
    return prod(found)


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
