"""The open graph of a model of images: read at several points, compared at others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.images.grid_graph import (
    Extent,
    GridGraph,
    Point,
    check_point,
    grid_graph,
    points,
    with_grown_given,
)
from autofuse.graph.transform.open_sizes.images.uneven import samples_of, uneven_graph
from autofuse.graph.transform.open_sizes.open_graph import ADVICE


def read_grid(sizes: tuple[OpenSize, ...], load_at: Callable[[Point], Graph]) -> GridGraph:
    """The open graph of a model, compared with what the loader makes of it at the ends of all ranges."""
    base, twins, more = points(sizes)
    try:
        largest = load_at(_largest(sizes, (base, *twins)))
        opened = grid_graph(sizes, base, load_at(base), {twin: load_at(twin) for twin in twins}, largest)
    except InputError as error:
        samples = samples_of(sizes, load_at(base))
        if not samples:
            raise
        try:
            largest = load_at(_largest(sizes, samples))
            opened = uneven_graph(sizes, {point: load_at(point) for point in samples}, largest)
        except InputError:
            raise error from None
    for size in range(len(sizes)):
        stands = any(
            extent == Extent(size, 1) for name in opened.graph.inputs for extent in opened.axes.get(name, {}).values()
        )
        if not stands:
            raise InputError(f"--sizes: no input has {sizes[size].name} as an axis: {ADVICE}")
    for point in more:
        check_point(opened, point, load_at(point))
    return with_grown_given(opened)


def _largest(sizes: tuple[OpenSize, ...], points: Iterable[Point]) -> Point:
    """The largest values of sizes, and of points, which may lie beyond the range."""
    return tuple(map(max, zip(*points, (size.high for size in sizes), strict=True)))


def changed_grid(opened: GridGraph, graph: Graph, graph_at: Callable[[Point], Graph]) -> GridGraph:
    """The open graph of what a plan makes of one: `graph` at its own point, and what `graph_at` says at others."""
    if opened.samples:
        first, *others = opened.samples
        return uneven_graph(opened.sizes, {first: graph, **{point: graph_at(point) for point in others}})
    base, twins, _ = points(opened.sizes)
    return grid_graph(opened.sizes, base, graph, {twin: graph_at(twin) for twin in twins})
