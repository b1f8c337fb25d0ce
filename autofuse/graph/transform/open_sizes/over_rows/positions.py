"""Positions that a decoder counts from the length of its cache: `past`, `past + 1`, ...

The loader leaves a Range, and a part of a table, that begin at a number which follows the open size. They are written
as so much more than the extent of an input, which a kernel reads when the library runs. That is done to the static
graph of each size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from autofuse.errors import InputError
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.open_graph import ADVICE, constant_integers, with_used
from autofuse.graph.transform.open_sizes.over_rows.writer import Writer

_KINDS = "Range", "Slice"


@dataclass(frozen=True)
class _Counted:
    """What begins at the extent of the input `source` along `axis`, and `more`."""

    source: str
    axis: int
    more: int


Positions = Mapping[str, _Counted]
"""Operators by name."""


def has_positions(graph: Graph) -> bool:
    """Whether the loader left positions in a graph."""
    return any(_start(graph, operator.name) is not None for operator in graph.operators)


def positions_counted(graphs: Sequence[Graph]) -> dict[str, _Counted]:
    """The positions that begin at other numbers in a model at several sizes, and what these follow."""
    found: dict[str, _Counted] = {}
    for operator in graphs[0].operators if graphs else ():
        starts = [_start(graph, operator.name) for graph in graphs]
        known = [start for start in starts if start is not None]
        if len(known) == len(graphs) and len(set(known)) > 1:
            source = _followed(graphs, known)
            if source is not None:
                found[operator.name] = source
    return found


def with_positions_written_out(graph: Graph, positions: Positions) -> Graph:
    """The same graph with these positions counted from the extent of an input, and others, which follow no size, as
    constants. InputError where one of them begins elsewhere here."""
    if not has_positions(graph):
        return graph
    writer = Writer(graph)
    for operator in graph.operators:
        start = _start(graph, operator.name)
        if start is None:
            writer.operators.append(operator)
        elif operator.name in positions:
            _write(graph, writer, operator, positions[operator.name], start)
        elif operator.outputs[0] in graph.returned:
            raise InputError(f"--sizes: the output {operator.outputs[0]!r} is a constant; {ADVICE}")
        else:
            writer.constants[operator.outputs[0]] = _value(graph, operator, start)
    return with_used(graph, writer.operators, writer.tensors, writer.constants)


def _start(graph: Graph, name: str) -> int | None:
    """Where positions begin that an operator makes of constants; None where it makes none."""
    operator = graph.by_name.get(name)
    if operator is None or operator.op_type not in _KINDS or operator.domain:
        return None
    if operator.op_type == "Range":
        start, step = (graph.constants.get(operator.inputs[place]) for place in (0, 2))
        if start is None or step is None or int(step.reshape(-1)[0]) != 1 or not _is_integer(graph, operator):
            return None
        return int(start.reshape(-1)[0])
    if operator.inputs[0] not in graph.constants:
        return None
    starts, axes = (constant_integers(graph, operator, place) for place in (1, 3))
    steps = constant_integers(graph, operator, 4)
    single = starts is not None and len(starts) == 1 and steps in (None, (1,)) and axes is not None and len(axes) == 1
    return starts[0] if single and starts is not None and starts[0] >= 0 else None


def _is_integer(graph: Graph, operator: Operator) -> bool:
    return graph.tensors[operator.outputs[0]].dtype in ("int32", "int64")


def _followed(graphs: Sequence[Graph], starts: Sequence[int]) -> _Counted | None:
    """The smallest input of which an axis is longer by as much as the number is larger."""
    first = graphs[0]
    found = []
    for name in first.inputs:
        shapes = [graph.tensors[name].shape for graph in graphs]
        for axis in range(len(shapes[0])):
            more = {start - shape[axis] for start, shape in zip(starts, shapes, strict=True)}
            if len(more) == 1:
                found.append((first.tensors[name].elements, _Counted(name, axis, more.pop())))
    return min(found, key=lambda one: one[0])[1] if found else None


def _value(graph: Graph, operator: Operator, start: int) -> np.ndarray:
    """Positions that follow no size."""
    tensor = graph.tensors[operator.outputs[0]]
    if operator.op_type == "Range":
        return np.arange(start, start + tensor.elements, dtype=tensor.dtype)
    axis = (constant_integers(graph, operator, 3) or (0,))[0]
    data = graph.constants[operator.inputs[0]]
    return np.ascontiguousarray(np.take(data, range(start, start + tensor.shape[axis]), axis))


def _write(graph: Graph, writer: Writer, operator: Operator, counted: _Counted, start: int) -> None:
    """The positions, or the rows of a table at these, as so much more than an extent."""
    tensor, axis = graph.tensors[operator.outputs[0]], 0
    if operator.op_type == "Slice":
        axis = (constant_integers(graph, operator, 3) or (0,))[0] % len(tensor.shape)
    many = tensor.shape[axis]
    if start != graph.tensors[counted.source].shape[counted.axis] + counted.more:
        where = f"{operator.op_type} {operator.name!r}"
        raise InputError(f"--sizes: the positions of {where} follow the open size at some sizes only; {ADVICE}")
    writer.root = operator.name
    extent = writer.op(
        "Shape", "extent", (counted.source,), ((1,), "int64"), start=counted.axis, end=counted.axis + 1
    )  # fmt: skip
    more = writer.constant("more", np.arange(counted.more, counted.more + many, dtype=np.int64))
    if operator.op_type == "Slice":
        places = writer.op("Add", "places", (extent, more), ((many,), "int64"))
        writer.add(operator.name, "Gather", (operator.inputs[0], places), operator.outputs[0], axis=axis)
    elif tensor.dtype == "int64":
        writer.add(operator.name, "Add", (extent, more), operator.outputs[0])
    else:
        places = writer.op("Add", "places", (extent, more), ((many,), "int64"))
        writer.add(operator.name, "Cast", (places,), operator.outputs[0], to=int(TensorProto.INT32))
