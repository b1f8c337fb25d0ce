"""Attention over places of a model whose other operators look around each: encoders of speech, U-Nets of diffusion.

Between convolutions along a size, or along height and width, stands attention over all places. It is found as that of
an open number of tokens is, in the graph as if nothing else were open. What it reads and makes may stand behind
channels, as images do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.attention import Attention, attention_around
from autofuse.graph.transform.open_sizes.images.grid_graph import Extent, GridGraph, Point
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, row_axis


def grid_attentions(opened: GridGraph) -> dict[str, Attention]:
    """Every attention over places, by its softmax. InputError that names the operator by which one is none."""
    found = {}
    for operator in opened.graph.operators:
        if operator.op_type == "Softmax" and not operator.domain and opened.is_square(operator.inputs[0]):
            found[operator.name] = _found(opened, operator)
    return found


def _found(opened: GridGraph, softmax: Operator) -> Attention:
    extents = set(opened.axes[softmax.inputs[0]].values())
    if len(extents) != 1:
        raise opened.refused(softmax, "its queries and its keys have several extents")
    (extent,) = extents
    rows, graph = rows_along(opened, extent), opened.graph
    stops: set[str] = set()
    while True:
        attention = attention_around(rows, softmax, stops)
        shared = _shared(graph, attention)
        further = {name for name in shared if rows.place(name) is not None} - stops
        if not further:
            break
        stops |= further
    for name in attention.operators:
        operator = graph.by_name[name]
        for touched in (*operator.inputs, *operator.outputs):
            if set(opened.axes.get(touched, {}).values()) - extents:
                raise opened.refused(operator, f"{touched!r} has another extent than the tokens of its attention")
        if not shared.isdisjoint(operator.outputs):
            raise opened.refused(operator, "something beside its attention reads what it makes")
    return attention


def _shared(graph: Graph, attention: Attention) -> set[str]:
    """What operators of an attention make, beside its result, that others read."""
    own = set(attention.operators)
    made = {name for operator in own for name in graph.by_name[operator].outputs if name != attention.result}
    others = {name for name in made if any(reader.name not in own for reader in graph.consumers.get(name, ()))}
    return others | (made & set(graph.returned))


def size_of_images(opened: GridGraph) -> int | None:
    """The number of the open size that says how many images, or signals, there are: in front of all else in each tensor
    that has it, but for inputs and outputs. None where there is none, or no other size."""
    outside = {*opened.graph.inputs, *opened.graph.outputs}
    for number in range(len(opened.sizes)) if len(opened.sizes) > 1 else ():
        placed = [
            (axis, extent.per, extent.more, extent.times)
            for name, axes in opened.axes.items()
            if name not in outside
            for axis, extent in axes.items()
            if any(part.size == number for part in extent.parts)
        ]
        if placed and set(placed) == {(0, 1, 0, None)}:
            return number
    return None


def of_one_image(opened: GridGraph) -> GridGraph:
    """The open graph where there is one image, whose number is open no longer; as it is where none is."""
    number = size_of_images(opened)
    if number is None:
        return opened

    def others(known: Mapping[str, Mapping[int, Extent]]) -> dict[str, dict[int, Extent]]:
        kept = {name: {at: one for at, one in own.items() if one.size != number} for name, own in known.items()}
        return {name: own for name, own in kept.items() if own}

    point: Point = (*opened.point[:number], 1, *opened.point[number + 1 :])
    one = replace(opened.sizes[number], low=1, high=1)
    sizes = (*opened.sizes[:number], one, *opened.sizes[number + 1 :])
    axes, targets = others(opened.axes), others(opened.targets)
    return replace(opened, graph=opened.at(point), sizes=sizes, point=point, axes=axes, targets=targets)


def rows_along(opened: GridGraph, extent: Extent) -> OpenGraph:
    """The graph as if places of one extent alone were open, as rows."""
    axes: dict[str, OpenAxis] = {}
    grids: dict[str, tuple[int, ...]] = {}
    for name, own in opened.axes.items():
        if set(own.values()) == {extent}:
            tensor = opened.graph.tensors[name]
            factors = tuple(int(axis in own) for axis in range(len(tensor.shape)))
            where = row_axis(tensor, factors)
            if where is None:
                grids[name] = factors
            else:
                axes[name] = where
    symbol = " and ".join(opened.sizes[part.size].name for part in extent.parts)
    size = extent.at(opened.point)
    parts = {name: array for name, array in opened.parts.items() if name in axes or name in grids}
    return OpenGraph(opened.graph, symbol, size, axes, {}, grids, parts)


def lies_in_rows(opened: GridGraph, name: str) -> bool:
    """Whether all axes of a tensor before its one open axis have the extent 1."""
    axes = opened.axes[name]
    return len(axes) == 1 and prod(opened.graph.tensors[name].shape[: next(iter(axes))]) == 1


def attending(opened: GridGraph, found: Mapping[str, Attention]) -> dict[str, Attention]:
    """The attention of each operator that belongs to one. InputError where two share one."""
    owners: dict[str, Attention] = {}
    for attention in found.values():
        for name in attention.operators:
            if name in owners:
                raise opened.refused(opened.graph.by_name[name], "two attentions share what it makes")
            owners[name] = attention
    return owners
