"""Softmax over rows that is no attention, and products that sum over rows: written out in operators that have kernels.

Attention pooling weighs each token by its share, softmax(scores) over tokens, and adds them up. Shares are exponentials
divided by their sum, and a product of a few rows of shares with tokens is a sum over all tokens of what each gives.
"""

from __future__ import annotations

from math import prod

from autofuse.errors import InputError
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.attention import attention_around
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph, open_graph, with_used
from autofuse.graph.transform.open_sizes.over_rows.writer import Writer

_SHARES = frozenset(("LogSoftmax", "Softmax"))
MOST_PRODUCTS = 1 << 12
"""Numbers that a row gives to a sum of products: more would be written to memory for each row."""


def with_shares_written_out(opened: OpenGraph, second: int, largest: int) -> OpenGraph | None:
    """The same open graph, with what goes over its rows written out; None where there is nothing of that.

    `second`, `largest`: other sizes at which it is written, to know where the size stands in what is new.
    """
    wanted = frozenset(_over_rows(opened))
    if not wanted or opened.more:
        return None
    graphs = [_written(opened.at(size), wanted) for size in (opened.size, second, largest)]
    return open_graph(opened.symbol, opened.size, graphs[0], second, *graphs[1:])


def _over_rows(opened: OpenGraph) -> list[str]:
    """The names of operators that go over the rows, and are not of an attention."""
    attending, found = set[str](), []
    for operator in opened.graph.operators:
        if _is_share(opened, operator):
            try:
                attending.update(attention_around(opened, operator).operators)
            except InputError:
                found.append(operator.name)
    products = [one.name for one in opened.graph.operators if one.name not in attending and _sums(opened, one)]
    return found + products


def _is_share(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator is a softmax along the one axis of a tensor that has the open size."""
    if operator.op_type not in _SHARES or operator.domain or opened.graph.opset < 13:
        return False
    where, tensor = opened.place(operator.inputs[0]), opened.graph.tensors[operator.inputs[0]]
    return where is not None and where.axis == _along(operator, len(tensor.shape)) and tensor.dtype == "float32"


def _sums(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator is a product of two tensors with rows that sums over these."""
    if operator.op_type != "MatMul" or operator.domain or opened.has(operator.outputs[0]):
        return False
    places = [opened.place(name) for name in operator.inputs]
    shapes = [opened.graph.tensors[name].shape for name in operator.inputs]
    if min(map(len, shapes)) < 2 or opened.graph.tensors[operator.outputs[0]].dtype != "float32":
        return False
    axes = [None if place is None else place.axis - len(shape) for place, shape in zip(places, shapes, strict=True)]
    return axes == [-1, -2] and prod(opened.graph.tensors[operator.outputs[0]].shape) <= MOST_PRODUCTS


def _along(operator: Operator, rank: int) -> int:
    axis = operator.attributes.get("axis", -1)
    assert isinstance(axis, int)
    return axis % rank


def _written(graph: Graph, wanted: frozenset[str]) -> Graph:
    writer = Writer(graph)
    for operator in graph.operators:
        if operator.name not in wanted:
            writer.operators.append(operator)
        elif operator.op_type == "MatMul":
            _product(writer, operator)
        else:
            _shares(writer, operator)
    return with_used(graph, writer.operators, writer.tensors, writer.constants)


def _shares(writer: Writer, operator: Operator) -> None:
    """Exponentials of what is below the largest, divided by their sum; their logarithms."""
    writer.root, (data,), (made,) = operator.name, operator.inputs, operator.outputs
    shape, dtype = writer.tensors[data].shape, writer.tensors[data].dtype
    axis = _along(operator, len(shape))
    one, along = (*shape[:axis], 1, *shape[axis + 1 :]), writer.integers("axis", (axis,))
    largest = writer.op("ReduceMax", "largest", (data, along), (one, dtype), keepdims=1)
    below = writer.op("Sub", "below", (data, largest), (shape, dtype))
    powers = writer.op("Exp", "powers", (below,), (shape, dtype))
    total = writer.op("ReduceSum", "total", (powers, along), (one, dtype), keepdims=1)
    if operator.op_type == "Softmax":
        writer.add(operator.name, "Div", (powers, total), made)
        return
    logarithm = writer.op("Log", "logarithm", (total,), (one, dtype))
    writer.add(operator.name, "Sub", (below, logarithm), made)


def _product(writer: Writer, operator: Operator) -> None:
    """The sum over all rows of the products of what both factors have of each."""
    writer.root, (left, right), (made,) = operator.name, operator.inputs, operator.outputs
    (*outer, few, rows), dtype = writer.tensors[left].shape, writer.tensors[left].dtype
    shape, result = writer.tensors[right].shape, writer.tensors[made].shape
    if few == 1:
        column = writer.view(left, (*outer, rows, 1), "column")
        each = writer.op("Mul", "each", (column, right), ((*result[:-2], rows, result[-1]), dtype))
        writer.add(operator.name, "ReduceSum", (each, writer.integers("rows", (len(result) - 2,))), made, keepdims=1)
        return
    order = (*range(len(outer)), len(outer) + 1, len(outer))
    turned = writer.op("Transpose", "turned", (left,), ((*outer, rows, few), dtype), perm=order)
    columns = writer.view(turned, (*outer, rows, few, 1), "columns")
    beside = writer.view(right, (*shape[:-1], 1, shape[-1]), "beside")
    each = writer.op("Mul", "each", (columns, beside), ((*result[:-2], rows, *result[-2:]), dtype))
    writer.add(operator.name, "ReduceSum", (each, writer.integers("rows", (len(result) - 2,))), made, keepdims=0)
