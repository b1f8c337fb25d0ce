"""Groups that wait for one another: found as shortest cycles, so that a cut forbids as little as possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from autofuse.graph.model import Graph


def cycles_among(graph: Graph, groups: Sequence[frozenset[str]]) -> list[list[int]]:
    """Cycles among `groups` (by position): a shortest one through each group that stands in one, each cycle once.

    What stands in no group is looked through: an operator between two groups makes one wait for the other.
    """
    covered = {name for group in groups for name in group}
    nodes = [*groups, *(frozenset((op.name,)) for op in graph.operators if op.name not in covered)]
    owner = {name: index for index, node in enumerate(nodes) for name in node}
    feeds: list[set[int]] = [set() for _ in nodes]
    for operator in graph.operators:
        for producer in graph.predecessors(operator):
            if owner[producer.name] != owner[operator.name]:
                feeds[owner[producer.name]].add(owner[operator.name])
    edges = _matrix(feeds)
    _, component = connected_components(edges, connection="strong")
    in_cycles = np.flatnonzero(np.bincount(component)[component] > 1)
    found: dict[frozenset[int], list[int]] = {}
    for start in map(int, in_cycles):
        loop = [index for index in _shortest_loop(edges, feeds, start) if index < len(groups)]
        if loop:
            found.setdefault(frozenset(loop), loop)
    return list(found.values())


def _matrix(feeds: Sequence[set[int]]) -> csr_array:
    """The edges as an adjacency matrix."""
    ends = [sorted(others) for others in feeds]
    starts = np.cumsum([0, *map(len, ends)])
    columns = np.array([end for others in ends for end in others], dtype=np.int32)
    return csr_array((np.ones(len(columns)), columns, starts), shape=(len(feeds), len(feeds)))


def _shortest_loop(edges: csr_array, feeds: Sequence[set[int]], start: int) -> list[int]:
    """A shortest way from a node that stands in a cycle back to itself, its last step first."""
    order, before = breadth_first_order(edges, start)
    loop = [next(int(index) for index in order if start in feeds[index])]
    while loop[-1] != start:
        loop.append(int(before[loop[-1]]))
    return loop
