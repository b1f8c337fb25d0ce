"""Operators that widen what they read (DequantizeLinear): between kernels stands what is narrow.

Where a group ends in one and another group reads its result element by element, the other one takes it over: a byte
is written and read in place of a float32, which each reader makes of it in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.fusion.edges import Edges
from autofuse.fusion.legality import Legality
from autofuse.graph.cost import EXPENSIVE, written_bytes
from autofuse.graph.mapping import MappingType


def handed_over(groups: Sequence[tuple[str, ...]], edges: Edges, legality: Legality) -> list[tuple[str, ...]]:
    """The groups, in which an operator that widens stands with its reader.

    That is always legal where the reader's group may be so large: the two groups depend on one another as before.
    """
    owner = {name: number for number, group in enumerate(groups) for name in group}
    members = [list(group) for group in groups]
    for operator in edges.graph.operators:
        name = operator.name
        reader = _reader(edges, owner, name) if name in owner else None
        if reader is None or not legality.may_grow(members[reader], name):
            continue
        members[owner[name]].remove(name)
        members[reader].append(name)
        owner[name] = reader
    position = edges.graph.position
    return [tuple(sorted(group, key=position.__getitem__)) for group in members]


def _reader(edges: Edges, owner: dict[str, int], name: str) -> int | None:
    """The one other group that reads a group's last operator element by element, which widens; else None."""
    graph, made, read = edges.graph, edges.into[name], edges.out[name]
    operator = graph.by_name[name]
    if operator.op_type in EXPENSIVE or len(graph.activations(operator)) != 1:
        return None
    if (
        len(made) != 1
        or made[0].kind != MappingType.ONE_TO_ONE
        or owner.get(made[0].producer) != owner[name]
        or set(operator.outputs) & set(graph.outputs)
    ):
        return None
    readers = {owner.get(edge.consumer) for edge in read}
    if len(readers) != 1 or readers & {None, owner[name]} or any(e.kind != MappingType.ONE_TO_ONE for e in read):
        return None
    wide = written_bytes(graph, operator)
    narrow = sum(graph.tensors[source].size_bytes for source in graph.activations(operator))
    return readers.pop() if wide > narrow else None
