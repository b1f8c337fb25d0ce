"""Products of an attention over places in the order in which they are known: scores times values.

An image has its channels in front of its places, so that some models multiply values [channels, places] by turned
scores. The same sums are made by scores times turned values, whose result is turned. That is done to the static graph
of each size.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, VIEWS
from autofuse.graph.transform.open_sizes.open_graph import with_used


def with_scores_first(graph: Graph) -> Graph:
    """The same graph, in which no product has turned scores of a softmax behind values."""
    tensors, operators = dict(graph.tensors), list[Operator]()
    for operator in graph.operators:
        scores = _turned_scores(graph, operator)
        if not scores:
            operators.append(operator)
            continue
        values, (made,) = operator.inputs[0], operator.outputs
        behind, product = f"{operator.name}@values", f"{operator.name}@product"
        for name, whole in ((behind, values), (product, made)):
            *lead, rows, columns = graph.tensors[whole].shape
            tensors[name] = Tensor(name, (*lead, columns, rows), graph.tensors[whole].dtype)
        operators += [
            _turn(graph, behind, values, behind),
            replace(operator, inputs=(scores, behind), outputs=(product,)),
            _turn(graph, f"{operator.name}@result", product, made, len(graph.tensors[made].shape)),
        ]
    if len(operators) == len(graph.operators):
        return graph
    used = {name for operator in operators for name in operator.inputs} | set(graph.outputs)
    kept = [one for one in operators if one.op_type != "Transpose" or not used.isdisjoint(one.outputs)]
    return with_used(graph, kept, tensors, graph.constants)


def _turn(graph: Graph, name: str, read: str, made: str, rank: int = 0) -> Operator:
    """A Transpose of the last two axes."""
    return Operator(name, "Transpose", (read,), (made,), {"perm": _turned(rank or len(graph.tensors[read].shape))})


def _turned(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _turned_scores(graph: Graph, operator: Operator) -> str:
    """The scores whose turned form a product has behind its values; "" where it has no such."""
    if operator.op_type != "MatMul" or operator.domain:
        return ""
    turn = graph.producers.get(operator.inputs[1])
    if turn is None or turn.op_type != "Transpose" or turn.domain:
        return ""
    shapes = [graph.tensors[name].shape for name in (*operator.inputs, *operator.outputs)]
    alike = shapes[0][:-2] == shapes[1][:-2] == shapes[2][:-2] and len(shapes[0]) > 1
    if not alike or turn.attributes.get("perm") != _turned(len(shapes[1])):
        return ""
    return turn.inputs[0] if _is_softmax(graph, turn.inputs[0]) else ""


def _is_softmax(graph: Graph, name: str) -> bool:
    """Whether a tensor is a softmax, or what is made of each of its elements."""
    operator = graph.producers.get(name)
    while operator is not None and not operator.domain and operator.op_type in ELEMENTWISE | VIEWS:
        operator = graph.producers.get(operator.inputs[0])
    return operator is not None and operator.op_type == "Softmax" and not operator.domain
