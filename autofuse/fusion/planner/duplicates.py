"""Operators that may be computed again for each reader: cheap ones, and those that only move data.

A copy of its own lets every reader take the operator into its kernel. For an operator that moves data (Reshape,
Transpose, Slice, Concat, Expand ...) the copies are index changes: its result is never in memory, it is eliminated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from autofuse.fusion.edges import MOVES, Edges
from autofuse.graph.cost import EXPENSIVE, written_bytes
from autofuse.graph.mapping import POINTWISE, MappingType
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.copies import Copy, with_copies

MOST_READERS = 8
"""Readers up to which an operator may be copied to each."""
COPY, ELIMINATE = "copy", "eliminate"
"""Answers, and kinds of decision: compute a cheap operator for each reader; never write what an operator moves."""

_MOVING = frozenset({MappingType.REORGANIZE, MappingType.SHUFFLE})
_SPREADS = frozenset({"Expand", "Tile"})


def copy_sites(edges: Edges, anchored: Collection[str]) -> Mapping[str, str]:
    """Operators that several others read and that may be copied to each of them: operator -> kind.

    `anchored`: operators that are the epilogue of an anchor anyway, where computing them costs nothing; such a one is
    copied only when it moves data.
    """
    found = {}
    for operator in edges.graph.operators:
        kind = _kind(edges, operator)
        if kind == COPY and operator.name in anchored:
            continue
        readers = edges.out[operator.name]
        if kind and 2 <= len(readers) <= MOST_READERS and not any(_closed(edges, edge.consumer) for edge in readers):
            found[operator.name] = kind
    return found


def _kind(edges: Edges, operator: Operator) -> str:
    graph = edges.graph
    moves = edges.own[operator.name] in _MOVING or operator.op_type in MOVES | _SPREADS
    if moves:
        return ELIMINATE
    if operator.op_type not in POINTWISE or operator.op_type in EXPENSIVE:
        return ""
    written = written_bytes(graph, operator)
    read = sum(graph.tensors[name].size_bytes for name in graph.activations(operator))
    return COPY if graph.activations(operator) and read <= 2 * written else ""


def _closed(edges: Edges, name: str) -> bool:
    return edges.own[name] == MappingType.OPAQUE


def copies_of(graph: Graph, operators: Collection[str]) -> tuple[tuple[Copy, ...], dict[str, str]]:
    """Copies of each operator for each of its readers, in an order in which they can be made.

    Readers of a copy's operator are asked first, so that chains of copies come out whole. Also: name of each copy ->
    the operator that it is a copy of.
    """
    copies: list[Copy] = []
    originals: dict[str, str] = {}
    for name in sorted(operators, key=graph.position.__getitem__, reverse=True):
        made = tuple(Copy(name, reader.name) for reader in graph.successors(graph.by_name[name]))
        graph = with_copies(graph, made)
        copies += made
        originals.update((copy.name, name) for copy in made)
    return tuple(copies), originals
