"""Groups that wait for one another: found as shortest cycles, so that a cut forbids as little as possible."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.model import Graph


def cycles(graph: Graph, groups: Sequence[frozenset[str]]) -> list[list[int]]:
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
    stuck = _between_cycles(feeds)
    found: dict[frozenset[int], list[int]] = {}
    for start in sorted(stuck):
        loop = [index for index in _shortest_loop(feeds, start, stuck) if index < len(groups)]
        if loop:
            found.setdefault(frozenset(loop), loop)
    return list(found.values())


def _between_cycles(feeds: Sequence[set[int]]) -> set[int]:
    """Nodes that stand in a cycle, or on a way from one to another."""
    above: list[set[int]] = [set() for _ in feeds]
    for index, others in enumerate(feeds):
        for other in others:
            above[other].add(index)
    left = set(range(len(feeds)))
    for before, after in ((above, feeds), (feeds, above)):
        waiting = {index: len(before[index] & left) for index in left}
        ready = [index for index, count in waiting.items() if not count]
        while ready:
            done = ready.pop()
            left.discard(done)
            for other in after[done] & left:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
    return left


def _shortest_loop(feeds: Sequence[set[int]], start: int, inside: set[int]) -> list[int]:
    """A shortest way from a node back to itself; empty when there is none."""
    came: dict[int, int] = {}
    layer = [start]
    while layer:
        following = []
        for index in layer:
            for other in sorted(feeds[index] & inside):
                if other == start:
                    loop = [index]
                    while loop[-1] != start:
                        loop.append(came[loop[-1]])
                    return loop
                if other not in came:
                    came[other] = index
                    following.append(other)
        layer = following
    return []
