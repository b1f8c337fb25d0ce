"""The static graph of a model of images at one point, with merged places of maps apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, VIEWS
from autofuse.graph.transform.open_sizes.images.scales.parts import Scales, StuckError
from autofuse.graph.transform.open_sizes.images.scales.rules import RULES
from autofuse.graph.transform.open_sizes.images.scales.sides import joins_sizes
from autofuse.graph.transform.open_sizes.open_graph import with_names_of

Array = NDArray[np.generic]


def with_scales_apart(symbol: str, graphs: Sequence[Graph]) -> Graph:
    """The last of some graphs, which are one model at several points, with merged places apart; as it is where none
    are, or something needs them merged. Which axes follow a size is what differs between the graphs."""
    *others, graph = graphs
    try:
        scales = Scales(_narrowed([*(with_names_of(symbol, graph, other) for other in others), graph]))
    except (InputError, ValueError):  # another model at each point, which whoever compares them says
        return graph
    try:
        for operator in scales.given.operators:
            _add(scales, operator)
        return scales.finish() if scales.parted else graph
    except StuckError:
        return graph


def _add(scales: Scales, operator: Operator) -> None:
    """Writes an operator, on maps where it can."""
    scales.root = operator.name
    rule = RULES.get(operator.op_type) if not operator.domain else None
    begins = operator.op_type in VIEWS or joins_sizes(scales, operator)
    count = len(scales.operators)
    if rule is not None and (begins or any(map(scales.is_merged, operator.inputs))) and rule(scales, operator):
        return
    del scales.operators[count:]
    inputs = tuple(scales.put_together(name) if name else "" for name in operator.inputs)
    scales.operators.append(replace(operator, inputs=inputs))


def _narrowed(graphs: Sequence[Graph]) -> list[Graph]:
    """Graphs of one model in which a constant that is the same all along an axis, at all points, has one place there.

    The loader writes out the copies of a constant at some sizes, and not at others.
    """
    graph = graphs[-1]
    found = list(graphs)
    for name in graph.constants:
        readers = graph.consumers.get(name, ())
        arrays = [one.constants[name] for one in graphs]
        alike = len({array.shape for array in arrays}) == 1
        if alike or name in graph.returned or not all(one.op_type in ELEMENTWISE for one in readers):
            continue
        narrow = _narrow(arrays)
        found = [_with_constant(one, name, array) for one, array in zip(found, narrow, strict=True)]
    return found


def _narrow(arrays: Sequence[Array]) -> list[Array]:
    """Arrays that broadcast as before, of one rank, and of one place along each axis where none of them differs; the
    first axes are left out where they have no more."""
    rank = max(array.ndim for array in arrays)
    found = [array.reshape((1,) * (rank - array.ndim) + array.shape) for array in arrays]
    for axis in range(rank):
        firsts = [array.take([0], axis) for array in found]
        if all(
            np.array_equal(array, np.broadcast_to(one, array.shape)) for array, one in zip(found, firsts, strict=True)
        ):
            found = firsts
    while found[0].ndim > 1 and all(array.shape[0] == 1 for array in found):
        found = [array[0] for array in found]
    return found


def _with_constant(graph: Graph, name: str, array: Array) -> Graph:
    """A graph in which a constant has other elements."""
    tensor = replace(graph.tensors[name], shape=array.shape)
    return replace(graph, tensors={**graph.tensors, name: tensor}, constants={**graph.constants, name: array})
