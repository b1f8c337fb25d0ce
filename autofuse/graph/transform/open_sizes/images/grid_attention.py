"""Attention over places of a model whose other operators look around each: encoders of speech, U-Nets of diffusion.

Between convolutions along a size, or along height and width, stands attention over all places. It is found as that of
an open number of tokens is, in the graph as if nothing else were open. What it reads and makes may stand behind
channels, as images do. Keys may be places of another map, as behind a strided convolution: then it is found as that of
two lengths is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.open_sizes.attention import COLUMNS, ROWS, Attention, attention_around
from autofuse.graph.transform.open_sizes.extents import Extent, Point
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph, retargeted
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, row_axis
from autofuse.graph.transform.open_sizes.rows import keeps_rows


def grid_attentions(opened: GridGraph) -> dict[str, Attention]:
    """Every attention over places, by its softmax. InputError that names the operator by which one is none."""
    found = {}
    for operator in opened.graph.operators:
        if operator.op_type == "Softmax" and not operator.domain and opened.is_square(operator.inputs[0]):
            found[operator.name] = _found(of_one_line(opened, operator), operator)
    return found


def line_of(opened: GridGraph, softmax: Operator) -> Extent | None:
    """The extent that stands in front of all else in the scores of an attention along one side of an image: how many
    lines there are, each with an attention of its own. None where there is one attention."""
    own, rank = opened.axes.get(softmax.outputs[0], {}), len(opened.graph.tensors[softmax.outputs[0]].shape)
    others = own.keys() - {rank + ROWS, rank + COLUMNS}
    axis = min(others, default=-1)
    single = prod(opened.graph.tensors[softmax.outputs[0]].shape[: max(axis, 0)]) == 1
    return own[axis] if len(others) == 1 and single else None


def of_one_line(opened: GridGraph, softmax: Operator) -> GridGraph:
    """The open graph as the attention of a softmax sees it, of which each line has its own: of one of them. It is so of
    what has the lines in front; what has them elsewhere stays as it is, and belongs to no such attention."""
    line = line_of(opened, softmax)
    if line is None:
        return opened
    places = {name: axis for name in opened.axes if (axis := line_axis(opened, softmax, name)) is not None}
    tensors = {
        name: _single(tensor, places[name]) if name in places else tensor
        for name, tensor in opened.graph.tensors.items()
    }
    axes = {name: {at: one for at, one in own.items() if at != places.get(name)} for name, own in opened.axes.items()}
    targets, constants = dict(opened.targets), dict(opened.graph.constants)
    for name, wanted in opened.targets.items():
        targets[name] = {place: one for place, one in wanted.items() if one != line}
        constants[name] = retargeted(constants[name], {place: 1 for place, one in wanted.items() if one == line})
    graph = replace(opened.graph, tensors=tensors, constants=constants)
    return replace(opened, graph=graph, axes={name: own for name, own in axes.items() if own}, targets=targets)


def _single(tensor: Tensor, axis: int) -> Tensor:
    """A tensor with one place along an axis."""
    return replace(tensor, shape=(*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :]))


def line_axis(opened: GridGraph, softmax: Operator, name: str) -> int | None:
    """The axis of a tensor of which each line has its own: it stands in front of all others of more than one place.
    None for another tensor."""
    line, own = line_of(opened, softmax), opened.axes.get(name, {})
    axis = next((at for at, one in own.items() if one == line), None)
    if axis is None or any(at < axis for at in own) or prod(opened.graph.tensors[name].shape[:axis]) != 1:
        return None
    return axis


def keeps_lines(opened: GridGraph, softmax: Operator, operator: Operator) -> bool:
    """Whether an operator of an attention keeps the lines apart, of which each has its own."""
    line = line_of(opened, softmax)
    if line is None:
        return True
    places = {name: line_axis(opened, softmax, name) for name in opened.axes}
    axes = {name: OpenAxis(axis) for name, axis in places.items() if axis is not None}
    touched = [name for name in (*operator.inputs, *operator.outputs) if name in axes]
    view = OpenGraph(opened.graph, opened.sizes[line.size].name, line.at(opened.point), axes, {})
    return not touched or (all(name in axes for name in operator.outputs if name) and bool(keeps_rows(view, operator)))


def _found(opened: GridGraph, softmax: Operator) -> Attention:
    extents, graph = extents_of(opened, softmax), opened.graph
    views = [rows_along(opened, extent, extents) for extent in extents]
    stops = _behind_others(opened, views, extents)
    while True:
        attention = _around(views, softmax, stops)
        shared = _shared(graph, attention)
        further = {name for name in shared if any(view.place(name) is not None for view in views)} - stops
        if not further:
            break
        stops |= further
    for name in attention.operators:
        operator = graph.by_name[name]
        for touched in (*operator.inputs, *operator.outputs):
            if set(opened.axes.get(touched, {}).values()) - extents.keys():
                raise opened.refused(operator, f"{touched!r} has another extent than the tokens of its attention")
        if not shared.isdisjoint(operator.outputs):
            raise opened.refused(operator, "something beside its attention reads what it makes")
    return attention


def extents_of(opened: GridGraph, softmax: Operator) -> dict[Extent, int]:
    """The extents of the queries and of the keys of an attention, one where both have the same, with a number for each.
    InputError where its scores have others."""
    own, rank = opened.axes[softmax.outputs[0]], len(opened.graph.tensors[softmax.outputs[0]].shape)
    both = [own[rank + place] for place in (ROWS, COLUMNS) if rank + place in own]
    if len(both) != len(own) or len(both) < 2:
        raise opened.refused(softmax, "its scores have other extents than those of queries and keys")
    return {one: number for number, one in enumerate(dict.fromkeys(both))}


def _around(views: Sequence[OpenGraph], softmax: Operator, stops: Collection[str]) -> Attention:
    """The attention of a softmax whose queries and keys have the extents of these views: the same one, or two."""
    found = [attention_around(view, softmax, stops) for view in views]
    if len(found) == 1:
        return found[0]
    (queries, keys), graph = found, views[0].graph
    own = {
        name
        for view, one in zip(views, found, strict=True)
        for name in one.operators
        if any(map(view.has, (*graph.by_name[name].inputs, *graph.by_name[name].outputs)))
    }
    assert keys.keys is not None
    ordered = tuple(sorted(own, key=graph.position.__getitem__))
    return replace(queries, operators=ordered, keys=replace(keys.keys, size=1))


def _behind_others(opened: GridGraph, views: Sequence[OpenGraph], extents: Collection[Extent]) -> set[str]:
    """The tensors of some views that are made of others with the same places, which are in none of these."""
    places = {part.size for extent in extents for part in extent.parts}
    known = {name for name in opened.axes if any(view.has(name) for view in views)}
    others = {name for name, own in opened.axes.items() if places & _sizes(own.values())} - known
    makers = (operator for operator in opened.graph.operators if not others.isdisjoint(operator.inputs))
    return {name for operator in makers for name in operator.outputs if name in known}


def _sizes(extents: Iterable[Extent]) -> set[int]:
    return {part.size for extent in extents for part in extent.parts}


def _shared(graph: Graph, attention: Attention) -> set[str]:
    """What operators of an attention make, beside its result, that others read."""
    own = set(attention.operators)
    made = {name for operator in own for name in graph.by_name[operator].outputs if name != attention.result}
    others = {name for name in made if any(reader.name not in own for reader in graph.consumers.get(name, ()))}
    return others | (made & set(graph.returned))


def size_of_images(opened: GridGraph) -> int | None:
    """The number of the open size that says how many images, or signals, there are: in front of all else in each tensor
    that has it, but for inputs and outputs, or in a product with others. None where there is none, or no other size."""
    outside = {*opened.graph.inputs, *opened.graph.outputs}
    for number in range(len(opened.sizes)) if len(opened.sizes) > 1 else ():
        placed = [
            (axis, extent.per, extent.more)
            for name, axes in opened.axes.items()
            if name not in outside
            for axis, extent in axes.items()
            if extent.size == number and extent.times is None
        ]
        if placed and set(placed) == {(0, 1, 0)}:
            return number
    return None


def of_one_image(opened: GridGraph) -> GridGraph:
    """The open graph where there is one image, whose number is open no longer; as it is where none is."""
    number = size_of_images(opened)
    if number is None:
        return opened

    def others(known: Mapping[str, Mapping[int, Extent]]) -> dict[str, dict[int, Extent]]:
        kept = {
            name: {at: one for at, one in own.items() if one.size != number or one.times is not None}
            for name, own in known.items()
        }
        return {name: own for name, own in kept.items() if own}

    point: Point = (*opened.point[:number], 1, *opened.point[number + 1 :])
    one = replace(opened.sizes[number], low=1, high=1)
    sizes = (*opened.sizes[:number], one, *opened.sizes[number + 1 :])
    axes, targets = others(opened.axes), others(opened.targets)
    return replace(opened, graph=opened.at(point), sizes=sizes, point=point, axes=axes, targets=targets)


def rows_along(opened: GridGraph, extent: Extent, beside: Collection[Extent] = ()) -> OpenGraph:
    """The graph as if places of one extent alone were open, as rows. `beside`: extents that tensors with such places
    may have, too."""
    axes: dict[str, OpenAxis] = {}
    grids: dict[str, tuple[int, ...]] = {}
    for name, own in opened.axes.items():
        places = set(own.values())
        if extent in places and places <= {extent, *beside}:
            tensor = opened.graph.tensors[name]
            factors = tuple(int(own.get(axis) == extent) for axis in range(len(tensor.shape)))
            where = row_axis(tensor, factors) if len(places) == 1 else None
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
