"""The open graph of a model of images: read at several points, compared at others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.extents import Extent, Point
from autofuse.graph.transform.open_sizes.images.grid_graph import (
    GridGraph,
    grid_graph,
    points,
    with_grown_given,
)
from autofuse.graph.transform.open_sizes.images.grid_rules import check_grid
from autofuse.graph.transform.open_sizes.images.uneven import samples_of, uneven_graph
from autofuse.graph.transform.open_sizes.open_graph import ADVICE, equal_arrays, reader_of, refused_at, with_names_of

Alike = Callable[[Graph, Graph], bool]
"""Whether two graphs compute the same."""


def read_grid(sizes: tuple[OpenSize, ...], load_at: Callable[[Point], Graph], alike: Alike) -> GridGraph:
    """The open graph of a model, compared with what the loader makes of it at the ends of all ranges; `alike`: where an
    axis has one place, and the loader leaves out what moves nothing then."""
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
        _check_end(opened, point, load_at(point), alike)
    return with_grown_given(opened)


def _largest(sizes: tuple[OpenSize, ...], points: Iterable[Point]) -> Point:
    """The largest values of sizes, and of points, which may lie beyond the range."""
    return tuple(map(max, zip(*points, (size.high for size in sizes), strict=True)))


def changed_grid(opened: GridGraph, graph: Graph, graph_at: Callable[[Point], Graph]) -> GridGraph:
    """The open graph of what a plan makes of one: `graph` at its own point, and what `graph_at` says at others."""
    if opened.samples:
        first, *others = opened.samples
        graphs = {first: graph, **{point: graph_at(point) for point in others}}
        return uneven_graph(opened.sizes, graphs, grown=opened.parts)
    base, twins, _ = points(opened.sizes)
    return grid_graph(opened.sizes, base, graph, {twin: graph_at(twin) for twin in twins})


def single_points(opened: GridGraph) -> tuple[Point, ...]:
    """The ends of the ranges at which an axis has one place, and more near their middle: the loader, and the rewrites
    of a plan, find an axis there that may be moved or left out."""
    ends = product(*((size.low, size.high) for size in opened.sizes))
    return tuple(point for point in ends if _has_single(opened, point))


def _has_single(opened: GridGraph, point: Point) -> bool:
    extents = {extent for axes in opened.axes.values() for extent in axes.values()}
    return any(extent.at(point) == 1 < extent.at(opened.point) for extent in extents)


def _check_end(opened: GridGraph, point: Point, loaded: Graph, alike: Alike) -> None:
    """InputError unless the open graph at a point is what the model is there, or, where an axis has one place, computes
    the same."""
    try:
        check_point(opened, point, loaded)
    except InputError:
        if not _has_single(opened, point) or not alike(opened.at(point), loaded):
            raise


def read_either(sizes: tuple[OpenSize, ...], alike: Alike, *forms: Callable[[Point], Graph]) -> GridGraph:
    """The open graph of a model in the first of some forms whose sizes may stay open. InputError of the last one."""
    for number, form in enumerate(forms, 1):
        try:
            opened = read_grid(sizes, form, alike)
            check_grid(opened)
            return opened
        except InputError:
            if number == len(forms):
                raise
    raise AssertionError("no form")


def check_point(opened: GridGraph, point: Point, loaded: Graph) -> None:
    """InputError unless the open graph at a point is what the model was `loaded` as there."""
    made = opened.at(point)
    loaded = with_names_of(opened.symbol, made, loaded)
    shown = ", ".join(f"{size.name} {value}" for size, value in zip(opened.sizes, point, strict=True))
    for name, tensor in made.tensors.items():
        if tensor != loaded.tensors[name] or (opened.has(name) and min(tensor.shape) < 1):
            raise refused_at(opened.symbol, reader_of(made, name), f"{name!r} has another shape at {shown}")
    for name, array in made.constants.items():
        if not equal_arrays(array, loaded.constants[name]):
            raise refused_at(opened.symbol, reader_of(made, name), f"its constant {name!r} is another at {shown}")
