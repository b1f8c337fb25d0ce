"""Inputs and outputs that have the open size behind other axes: a Transpose between one of them and rows."""

from __future__ import annotations

from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph
from autofuse.graph.transform.open_sizes.over_rows.sequences import BEHIND, IN_FRONT, is_of_sequences


def turns(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator puts the open size of an input in front of all its axes, or that of an output behind others,
    and leaves the others in their order."""
    if operator.op_type != "Transpose" or operator.domain:
        return False
    read, made = operator.inputs[0], operator.outputs[0]
    given = read in opened.grids and _is_given(opened.graph, read) and read not in opened.parts
    returned = made in opened.grids and _is_returned(opened.graph, made)
    if given == returned:
        return False
    behind, front = (read, made) if given else (made, read)
    where, rank = opened.place(behind), len(opened.graph.tensors[read].shape)
    if where is None or where.more or where.factor != 1 or opened.axes.get(front) != OpenAxis(0):
        return False
    wanted = to_front(where.axis, rank) if given else from_front(where.axis, rank)
    return operator.attributes.get("perm", tuple(reversed(range(rank)))) == wanted


def _is_given(graph: Graph, name: str) -> bool:
    """Whether a tensor is an input, or one with its sequences in front."""
    maker = graph.producers.get(name)
    return name in graph.inputs or (maker is not None and is_of_sequences(maker) and maker.op_type == IN_FRONT)


def _is_returned(graph: Graph, name: str) -> bool:
    """Whether a tensor is an output and nothing else, or one with its sequences in front."""
    readers = graph.consumers.get(name, ())
    if name in graph.outputs:
        return not readers
    return len(readers) == 1 and is_of_sequences(readers[0]) and readers[0].op_type == BEHIND


def to_front(axis: int, rank: int) -> tuple[int, ...]:
    """The transposition that puts an axis in front of all others, which keep their order."""
    return (axis, *(other for other in range(rank) if other != axis))


def from_front(axis: int, rank: int) -> tuple[int, ...]:
    """The one that puts it back."""
    forth = to_front(axis, rank)
    return tuple(forth.index(other) for other in range(rank))
