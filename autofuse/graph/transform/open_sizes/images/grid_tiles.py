"""The static graph of one tile of a group: its operators on so many places, and the window that its head looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph, retargeted
from autofuse.graph.transform.open_sizes.images.grid_rules import GridGroup, GridOperators
from autofuse.graph.transform.open_sizes.images.grid_windows import Look

Places = Mapping[int, int]
"""Places of a tile along each open size."""


@dataclass(frozen=True)
class TileGraph:
    """`graph`: that of the tile; `operators`: names of those of the group in it."""

    graph: Graph
    operators: tuple[str, ...]


def tile_graph(known: GridOperators, group: GridGroup, places: Places) -> TileGraph:
    """The graph of a tile with so many `places` of a group's results; elsewhere it is that of the open graph."""
    opened = known.opened
    graph = opened.graph
    head = graph.by_name[group.head] if group.head else None
    look = None if head is None else known.look(head)
    operators = [graph.by_name[name] for name in group.operators]
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    for operator in operators:
        for name in (*operator.inputs, *operator.outputs):
            if opened.has(name):
                tensors[name] = _sized(opened, name, places)
    if head is not None and look is not None:
        tensors[head.inputs[0]] = _seen(opened, head.inputs[0], look, places)
    made: list[Operator] = []
    for operator in operators:
        is_head = head is not None and operator.name == head.name
        copied = look.operator if look is not None and is_head else operator
        targets = {name: opened.targets[name] for name in operator.inputs if name in opened.targets}
        for name, elements in targets.items():
            values = {place: places[extent.size] for place, extent in elements.items()}
            own_name = f"{name}@{operator.name}"
            _give(own_name, retargeted(graph.constants[name], values), tensors, constants)
            copied = replace(copied, inputs=tuple(own_name if one == name else one for one in copied.inputs))
        if look is not None and is_head:
            for name, array in look.constants.items():
                _give(name, array, tensors, constants)
            made += _cropped(opened, copied, look, places, tensors, constants)
        else:
            made.append(copied)
    inside = {operator.name: operator for operator in made}
    order = [one for old in graph.operators for one in _of(old, group, inside, made)]
    return TileGraph(replace(graph, operators=tuple(order), tensors=tensors, constants=constants), tuple(inside))


def _of(old: Operator, group: GridGroup, inside: Mapping[str, Operator], made: list[Operator]) -> list[Operator]:
    """What stands in the tile's graph for an operator of the open graph."""
    if old.name not in group.operators:
        return [old]
    return [inside[old.name], *(one for one in made if one.name == f"{old.name}@crop")]


def _sized(opened: GridGraph, name: str, places: Places) -> Tensor:
    axes, tensor = opened.axes[name], opened.graph.tensors[name]
    shape = tuple(places[axes[axis].size] if axis in axes else extent for axis, extent in enumerate(tensor.shape))
    return replace(tensor, shape=shape)


def _seen(opened: GridGraph, name: str, look: Look, places: Places) -> Tensor:
    seen = {size: look.slides[size].seen(count) for size, count in places.items() if size in look.slides}
    return _sized(opened, name, seen)


def _give(name: str, array: np.ndarray, tensors: dict[str, Tensor], constants: dict[str, np.ndarray]) -> None:
    tensors[name], constants[name] = Tensor(name, array.shape, str(array.dtype)), array


def _cropped(
    opened: GridGraph,
    operator: Operator,
    look: Look,
    places: Places,
    tensors: dict[str, Tensor],
    constants: dict[str, np.ndarray],
) -> list[Operator]:
    """The head on its window, and where it makes more results than the tile has, what cuts them off."""
    if not look.crop:
        return [operator]
    result = operator.outputs[0]
    axes = {extent.size: axis for axis, extent in opened.axes[result].items()}
    shape = list(tensors[result].shape)
    for size, more in look.crop.items():
        shape[axes[size]] += 2 * more
    whole = f"{result}@whole"
    tensors[whole] = replace(tensors[result], name=whole, shape=tuple(shape))
    operator = _resized(operator, shape, tensors, constants)
    cut = sorted(look.crop)
    ends = [look.crop[size] + places[size] for size in cut]
    given = [[look.crop[size] for size in cut], ends, [axes[size] for size in cut]]
    names = [f"{result}@{what}" for what in ("starts", "ends", "axes")]
    for name, values in zip(names, given, strict=True):
        _give(name, np.array(values, np.int64), tensors, constants)
    crop = Operator(f"{operator.name}@crop", "Slice", (whole, *names), (result,))
    return [replace(operator, outputs=(whole,)), crop]


def _resized(
    operator: Operator, shape: list[int], tensors: dict[str, Tensor], constants: dict[str, np.ndarray]
) -> Operator:
    """A resizing operator that is told the sizes of its result with the sizes of the whole one."""
    if operator.op_type != "Resize" or len(operator.inputs) < 4 or not operator.inputs[3]:
        return operator
    name = f"{operator.inputs[3]}@whole"
    axes = operator.attributes.get("axes")
    kept = shape if not isinstance(axes, tuple) else [shape[int(axis)] for axis in axes]
    _give(name, np.array(kept, np.int64), tensors, constants)
    return replace(operator, inputs=(*operator.inputs[:3], name))
