"""Copies of operators: a reader gets one of its own, so that both can share a kernel.

a -> b, a -> c   becomes   a -> c, a@b -> b    with the copy (a, b)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autofuse.errors import PlanError
from autofuse.graph.model import Graph, Operator

Copy = tuple[str, str]
"""(operator, reader): the reader, an operator or itself a copy, reads a copy of the operator."""


def copy_name(copy: Copy) -> str:
    """Name of the operator that a copy becomes; `original` undoes it."""
    return f"{copy[0]}@{copy[1]}"


def with_copies(graph: Graph, copies: Sequence[Copy]) -> Graph:
    """The graph in which each copy stands before its reader; an operator that nobody reads any more is gone.

    Tensors of a copy are those of its operator with `@reader` behind their names. PlanError for a reader that does
    not read the operator, and for a name that is taken.
    """
    for copy in copies:
        graph = _copied(graph, copy)
    return graph


def _copied(graph: Graph, copy: Copy) -> Graph:
    producer, reader = (graph.by_name.get(name) for name in copy)
    if producer is None or reader is None or producer not in graph.predecessors(reader):
        raise PlanError(f"plan copies {copy[0]!r} for {copy[1]!r}, which does not read it")
    name = copy_name(copy)
    renamed = {out: f"{out}@{reader.name}" for out in producer.outputs if out}
    taken = [text for text in renamed.values() if text in graph.tensors] or ([name] if name in graph.by_name else [])
    if taken:
        raise PlanError(f"plan copies {copy[0]!r} for {copy[1]!r}, but {taken[0]!r} exists already")
    own = replace(producer, name=name, outputs=tuple(renamed.get(out, "") for out in producer.outputs))
    moved = replace(reader, inputs=tuple(renamed.get(text, text) for text in reader.inputs))
    operators: list[Operator] = []
    for operator in graph.operators:
        operators += [own, moved] if operator.name == reader.name else [operator]
    tensors = dict(graph.tensors) | {
        new: replace(graph.tensors[old], name=new) for old, new in renamed.items() if old in graph.tensors
    }
    copied = replace(graph, operators=tuple(operators), tensors=tensors)
    needed = set(graph.outputs).union(*(operator.inputs for operator in operators))
    if needed.isdisjoint(out for out in producer.outputs if out):
        gone = set(producer.outputs)
        return replace(
            copied,
            operators=tuple(op for op in operators if op.name != producer.name),
            tensors={text: tensor for text, tensor in tensors.items() if text not in gone},
        )
    return copied
