"""Copies of operators: a reader gets one of its own, so that both can share a kernel.

a -> b, a -> c   becomes   a -> c, a@b -> b    with the copy (a, b)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofuse.errors import PlanError
from autofuse.graph.model import Graph, Operator


@dataclass(frozen=True, order=True)
class Copy:
    """A copy of `operator` that `reader`, an operator or itself a copy, reads in its place."""

    operator: str
    reader: str

    @property
    def name(self) -> str:
        """Name of the operator that the copy becomes."""
        return self.of(self.operator)

    def of(self, name: str) -> str:
        """What an operator or a tensor is called in the copy."""
        return f"{name}@{self.reader}"


def with_copies(graph: Graph, copies: Sequence[Copy]) -> Graph:
    """The graph in which each copy stands before its reader; an operator that nobody reads any more is gone.

    Tensors of a copy are those of its operator with `@reader` behind their names. PlanError for a reader that does
    not read the operator, and for a name that is taken.
    """
    for copy in copies:
        graph = _copied(graph, copy)
    return graph


def _copied(graph: Graph, copy: Copy) -> Graph:
    producer, reader = graph.by_name.get(copy.operator), graph.by_name.get(copy.reader)
    if producer is None or reader is None or producer not in graph.predecessors(reader):
        raise PlanError(f"plan copies {copy.operator!r} for {copy.reader!r}, which does not read it")
    name = copy.name
    renamed = {out: copy.of(out) for out in producer.outputs if out}
    taken = [text for text in renamed.values() if text in graph.tensors] or ([name] if name in graph.by_name else [])
    if taken:
        raise PlanError(f"plan copies {copy.operator!r} for {copy.reader!r}, but {taken[0]!r} exists already")
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
