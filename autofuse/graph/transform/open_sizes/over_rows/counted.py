"""What depends on how many rows, or places, there are: numbers that a model makes of it, and the first or last place.

A deviation over time divides by one less than the number of steps, a sum over tokens by their number: such a constant
is N, and so much more or less, of the N places that a reduction before it goes over. A classifier of signals takes the
last step. Both are written in ones, one for each place: their sum is N, and the last place is the one that none
follows. That is done to the static graph of each size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import TensorProto

from autofuse.errors import InputError
from autofuse.graph.mapping import names
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.open_graph import ADVICE, constant_integers, with_used
from autofuse.graph.transform.open_sizes.over_rows.writer import Writer

_MEANS = names("ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum ReduceSumSquare")
_NEAR = 12
"""Operators back from a number to the reduction that it belongs to."""
_SIGNAL = 3
"""Axes of a signal: [N, channels, places]."""


@dataclass(frozen=True)
class _Number:
    """The input `place` of an operator is the number of places that the reduction `of` goes over, and `more`."""

    place: int
    of: str
    more: int


@dataclass(frozen=True)
class Counted:
    """`numbers`: of operators by name. `ends`: names of those that pick the first or the last place of a signal."""

    numbers: Mapping[str, _Number]
    ends: frozenset[str] = frozenset()


def numbers_counted(graphs: Sequence[Graph]) -> Counted:
    """The numbers of places among the constants of a model at several sizes."""
    found: dict[str, _Number] = {}
    for operator in graphs[0].operators if graphs else ():
        number = _number(graphs, operator)
        if number is not None:
            found[operator.name] = number
    return Counted(found)


def places_counted(graphs: Sequence[Graph]) -> Counted:
    """These, and the ends of signals that are picked."""
    ends = frozenset(one.name for one in graphs[0].operators if _picks_end(graphs, one))
    return Counted(numbers_counted(graphs).numbers, ends)


def with_counts_written_out(graph: Graph, counted: Counted) -> Graph:
    """The same graph, with what is `counted` in other operators. InputError where a number is another one here."""
    writer = Writer(graph)
    for operator in graph.operators:
        number = counted.numbers.get(operator.name)
        if operator.name in counted.ends:
            _write_end(writer, operator)
        elif number is not None:
            _write_number(graph, writer, operator, number)
        else:
            writer.operators.append(operator)
    if len(writer.operators) == len(graph.operators):
        return graph
    return with_used(graph, writer.operators, writer.tensors, writer.constants)


def _number(graphs: Sequence[Graph], operator: Operator) -> _Number | None:
    if operator.op_type not in ("Add", "Div", "Mul", "Sub") or operator.domain or len(operator.inputs) != 2:
        return None
    twins = [graph.by_name.get(operator.name) for graph in graphs]
    if any(twin is None or len(twin.inputs) != len(operator.inputs) for twin in twins):
        return None
    for place, other in ((0, 1), (1, 0)):
        values = [graph.constants.get(twin.inputs[place]) for graph, twin in zip(graphs, twins, strict=True) if twin]
        if any(one is None or one.size != 1 or one.dtype != np.float32 for one in values):
            continue
        given = [float(one.reshape(-1)[0]) for one in values if one is not None]
        if len(set(given)) == 1:
            continue
        reduction = _reduction_before(graphs, operator.inputs[other])
        if reduction is None:
            continue
        more = {value - _reduced(graph, graph.by_name[reduction]) for value, graph in zip(given, graphs, strict=True)}
        (first, *others) = more
        if not others and first == int(first) and abs(first) <= 1:
            return _Number(place, reduction, int(first))
    return None


def _reduction_before(graphs: Sequence[Graph], name: str) -> str | None:
    """The nearest reduction, back from a tensor, over an axis that has other extents at each size."""
    wanted, seen = [name], set[str]()
    while wanted and len(seen) < _NEAR:
        operator = graphs[0].producers.get(wanted.pop(0))
        if operator is None or operator.name in seen:
            continue
        seen.add(operator.name)
        known = operator.op_type in _MEANS and all(operator.name in graph.by_name for graph in graphs)
        if known and len({_reduced(graph, graph.by_name[operator.name]) for graph in graphs}) > 1:
            return operator.name
        wanted += operator.inputs
    return None


def _axes(graph: Graph, reduction: Operator) -> tuple[int, ...]:
    rank = len(graph.tensors[reduction.inputs[0]].shape)
    return tuple(sorted(axis % rank for axis in constant_integers(graph, reduction, 1) or ()))


def _reduced(graph: Graph, reduction: Operator) -> int:
    """The places that a reduction goes over; 0 where it does not say them."""
    shape, axes = graph.tensors[reduction.inputs[0]].shape, _axes(graph, reduction)
    return prod(shape[axis] for axis in axes) if axes else 0


def _write_number(graph: Graph, writer: Writer, operator: Operator, number: _Number) -> None:
    """The operator on a sum of ones in place of its constant."""
    reduction, where = graph.by_name.get(number.of), f"{operator.op_type} {operator.name!r}"
    value = graph.constants.get(operator.inputs[number.place])
    if reduction is None or value is None or value.size != 1 or value != _reduced(graph, reduction) + number.more:
        raise InputError(f"--sizes: a number that {where} reads follows the open size at some sizes only; {ADVICE}")
    writer.root, data, axes = operator.name, reduction.inputs[0], _axes(graph, reduction)
    other = writer.tensors[operator.inputs[1 - number.place]].shape
    rank, shape = len(writer.tensors[data].shape), writer.tensors[data].shape
    ones = _ones(writer, data, tuple(axis for axis in range(1, rank) if axis not in axes))
    one_shape = writer.tensors[ones].shape
    keep = int(len(other) == len(shape))
    made = tuple(1 if axis in axes else extent for axis, extent in enumerate(one_shape) if keep or axis not in axes)
    if len(made) != len(other):
        raise InputError(f"--sizes: {where} reads how many places there are beside another shape; {ADVICE}")
    many = writer.op("ReduceSum", "many", (ones, writer.integers("axes", axes)), (made, "float32"), keepdims=keep)
    if number.more:
        more = writer.constant("more", np.asarray(number.more, np.float32))
        many = writer.op("Add", "more_or_less", (many, more), (made, "float32"))
    inputs = (operator.inputs[0], many) if number.place else (many, operator.inputs[1])
    writer.add(operator.name, operator.op_type, inputs, operator.outputs[0])


def _ones(writer: Writer, data: str, single: Sequence[int]) -> str:
    """A one for each place of a tensor, of one place along some axes: of numbers, and of what is none."""
    shape = writer.tensors[data].shape
    first = tuple(1 if axis in single else extent for axis, extent in enumerate(shape))
    if first != shape:
        zeros, ends = writer.integers("starts", [0] * len(single)), writer.integers("ends", [1] * len(single))
        data = writer.op("Slice", "first", (data, zeros, ends, writer.integers("along", single)), (first, "float32"))
    nothing = writer.op("IsNaN", "is_nan", (data,), (first, "bool"))
    number = writer.op("Not", "is_number", (nothing,), (first, "bool"))
    to = int(TensorProto.FLOAT)
    casts = [writer.op("Cast", f"{name}@real", (name,), (first, "float32"), to=to) for name in (nothing, number)]
    return writer.op("Max", "ones", casts, (first, "float32"))


def _picks_end(graphs: Sequence[Graph], operator: Operator) -> bool:
    """Whether an operator picks the first or the last place of a signal."""
    if operator.op_type != "Gather" or operator.domain:
        return False
    shapes, numbers = set(), set()
    for graph in graphs:
        twin = graph.by_name.get(operator.name)
        given = None if twin is None else constant_integers(graph, twin, 1)
        if twin is None or twin.inputs[0] in graph.constants or given is None:
            return False
        tensor = graph.tensors[twin.inputs[0]]
        axis = twin.attributes.get("axis", 0)
        if len(tensor.shape) != _SIGNAL or axis not in (2, -1) or tensor.dtype != "float32":
            return False
        shapes.add(tensor.shape[2])
        numbers.add(given)
    return len(shapes) > 1 and numbers in ({(-1,)}, {(0,)})


def _write_end(writer: Writer, operator: Operator) -> None:
    """The sum over all places of what stands at the first or the last one, and 0 elsewhere."""
    writer.root, (data, index), (made,) = operator.name, operator.inputs, operator.outputs
    shape, last = writer.tensors[data].shape, int(writer.constants[index].reshape(-1)[0]) < 0
    ones = _ones(writer, data, (1,))
    single = writer.tensors[ones].shape
    beside = writer.constant("beside", np.asarray([[[0, 0, 1] if last else [1, 0, 0]]], np.float32))
    following = writer.op("Conv", "following", (ones, beside), (single, "float32"), pads=(1, 1), kernel_shape=(3,))
    half = writer.constant("half", np.asarray(0.5, np.float32))
    chosen = writer.op("Less", "chosen", (following, half), (single, "bool"))
    kept = writer.op(
        "Where", "kept", (chosen, data, writer.constant("nothing", np.zeros((), np.float32))), (shape, "float32")
    )
    keep = int(len(writer.tensors[made].shape) == len(shape))
    writer.add(operator.name, "ReduceSum", (kept, writer.integers("places", (2,))), made, keepdims=keep)
