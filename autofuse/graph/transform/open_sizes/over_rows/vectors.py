"""Products with vectors as products of matrices with one row or column: of these it is known how they treat rows."""

from __future__ import annotations

from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.open_graph import with_used
from autofuse.graph.transform.open_sizes.over_rows.writer import Writer


def with_vectors_as_matrices(graph: Graph) -> Graph:
    """The same graph, in which a vector that a MatMul reads is a row, on the left, or a column."""
    if not any(_reads_vector(graph, operator) for operator in graph.operators):
        return graph
    writer = Writer(graph)
    for operator in graph.operators:
        if _reads_vector(graph, operator):
            _product(writer, operator)
        else:
            writer.operators.append(operator)
    return with_used(graph, writer.operators, writer.tensors, writer.constants)


def _reads_vector(graph: Graph, operator: Operator) -> bool:
    if operator.op_type != "MatMul" or operator.domain:
        return False
    ranks = [len(graph.tensors[name].shape) for name in operator.inputs]
    return min(ranks) == 1 < max(ranks)  # two vectors have one number as their product


def _product(writer: Writer, operator: Operator) -> None:
    writer.root, (left, right), (made,) = operator.name, operator.inputs, operator.outputs
    shape = writer.tensors[made].shape
    if len(writer.tensors[left].shape) == 1:
        left, whole = _view(writer, left, (1, -1), "row"), (*shape[:-1], 1, *shape[-1:])
    else:
        right, whole = _view(writer, right, (-1, 1), "column"), (*shape, 1)
    product = writer.op("MatMul", "product", (left, right), (whole, writer.tensors[made].dtype))
    writer.add(operator.name, "Reshape", (product, writer.integers("shape", shape)), made)


def _view(writer: Writer, name: str, shape: tuple[int, int], label: str) -> str:
    """A vector as a matrix; of a constant one."""
    (length,) = writer.tensors[name].shape
    if name in writer.constants:
        return writer.constant(label, writer.constants[name].reshape(shape))
    return writer.view(name, tuple(length if extent < 0 else extent for extent in shape), label)
