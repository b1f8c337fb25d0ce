"""Parts of a graph that can be searched apart: cut at operators that never fuse, and where a single tensor passes."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.fusion.context import group_signature
from autofuse.fusion.legality import Legality
from autofuse.graph.model import Graph

SMALLEST, LARGE = 6, 24
"""Operators that a region holds before it is cut where the data flow forks, and before it is cut anywhere."""


LONG = 96
"""A tensor that is still read so many operators later (an attention mask) counts as an input of the later ones."""


@dataclass(frozen=True)
class Region:
    """A region: operators (names, in topological order). `signature`: equal where only names and weights differ."""

    operators: tuple[str, ...]
    signature: str


def regions(graph: Graph, smallest: int = SMALLEST, large: int = LARGE) -> tuple[Region, ...]:
    """The graph in regions: every operator in one, in topological order of their first operators.

    An operator that shares a kernel with no other is a region of its own. What is left falls into connected parts; a
    part is cut where one tensor is all that its later operators need of its earlier ones (an articulation point): as
    soon as the region before the cut has `smallest` operators if several operators read that tensor (blocks of a
    network begin there, so that equal blocks become equal regions), else when it has `large`. Groups of two regions
    may still wait for one another through operators that never fuse: what regions make has to be checked as a whole.
    """
    legality = Legality(graph)
    closed = {operator.name for operator in graph.operators if legality.fault(operator.name)}
    parts: list[list[str]] = [[name] for name in closed]
    for part in _connected(graph, closed):
        parts += _cut(graph, part, smallest, large)
    parts.sort(key=lambda names: graph.position[names[0]])
    return tuple(Region(tuple(names), group_signature(graph, tuple(names))) for names in parts)


def _connected(graph: Graph, closed: set[str]) -> list[list[str]]:
    """Operators that tensors link, without those that never fuse."""
    found: list[list[str]] = []
    seen = set(closed)
    for start in graph.operators:
        if start.name in seen:
            continue
        part, waiting = [], [start.name]
        seen.add(start.name)
        while waiting:
            name = waiting.pop()
            part.append(name)
            operator = graph.by_name[name]
            for other in (*graph.predecessors(operator), *graph.successors(operator)):
                if other.name not in seen:
                    seen.add(other.name)
                    waiting.append(other.name)
        found.append(sorted(part, key=graph.position.__getitem__))
    return found


def _cut(graph: Graph, part: list[str], smallest: int, large: int) -> list[list[str]]:
    """A connected part, cut where the operators before a place hand on one tensor."""
    inside = set(part)
    last: dict[str, int] = {}
    for index, name in enumerate(part):
        for tensor in graph.by_name[name].inputs:
            producer = graph.producers.get(tensor)
            if producer is not None and producer.name in inside:
                last[tensor] = index
    result: list[list[str]] = []
    current: list[str] = []
    passing: set[str] = set()
    for index, name in enumerate(part):
        current.append(name)
        passing.update(out for out in graph.by_name[name].outputs if index < last.get(out, -1) <= index + LONG)
        passing = {tensor for tensor in passing if last[tensor] > index}
        forks = sum(len(graph.consumers[tensor]) for tensor in passing) > 1
        if len(passing) == 1 and len(current) >= (smallest if forks else large):
            result.append(current)
            current = []
    if current:
        if result and len(current) < smallest:
            result[-1] += current
        else:
            result.append(current)
    return result
