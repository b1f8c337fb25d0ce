"""Seeds grow to groups along successors, then predecessors: the frame of DNNFusion's Listing 1.

The frame asks a `GrowthPolicy` what should join and `Legality` what may; it knows nothing of profitability.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from autofuse.fusion.edges import Edge, Edges
from autofuse.fusion.legality import Legality
from autofuse.graph.mapping import MappingType

COMPLEXITY = (
    MappingType.ONE_TO_ONE,
    MappingType.REORGANIZE,
    MappingType.SHUFFLE,
    MappingType.ONE_TO_MANY,
    MappingType.MANY_TO_MANY,
    MappingType.OPAQUE,
)
"""Mapping types from simple to complex, in the paper's order."""


class GrowingGroup:
    """A group under construction: `members` in the order they joined, `kind` their common mapping type.

    `free`: operators that are in no group yet; shared with the growth that owns the group.
    """

    def __init__(self, seed: str, index: int, kind: MappingType, free: set[str]) -> None:
        self.free = free
        self.members: dict[str, None] = {seed: None}
        self.mask = 1 << index
        self.kind = kind

    def add(self, name: str, index: int, kind: MappingType) -> None:
        """Take in one more operator; the group's mapping type becomes `kind`."""
        self.members[name] = None
        self.mask |= 1 << index
        self.kind = kind


class GrowthPolicy(Protocol):
    """A policy of growth: what should join a group. `own`: mapping type of a seed; `repeats`: grow again from what
    joined."""

    repeats: bool

    def own(self, name: str) -> MappingType:
        """Mapping type of an operator seen from its result."""

    def below(self, group: GrowingGroup, edge: Edge) -> MappingType | None:
        """Mapping type of the group once the edge's consumer has joined; None when it should not."""

    def above(self, group: GrowingGroup, edge: Edge) -> MappingType | None:
        """Mapping type of the group once the edge's producer has joined; None when it should not."""

    def climbing(self, edges: Sequence[Edge]) -> Iterable[Edge]:
        """The edges into one operator in the order in which their producers are tried."""


def partition(edges: Edges, legality: Legality, policy: GrowthPolicy, seeds: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups that cover every operator once, each legal beside the others.

    `seeds`: every operator, in the order in which those still free become seeds.
    """
    growth = _Growth(edges, legality, policy)
    return [growth.grow(seed) for seed in seeds if seed in growth.free]


class _Growth:
    def __init__(self, edges: Edges, legality: Legality, policy: GrowthPolicy) -> None:
        self.edges, self.legality, self.policy = edges, legality, policy
        self.position = edges.graph.position
        self.free = {operator.name for operator in edges.graph.operators}

    def grow(self, seed: str) -> tuple[str, ...]:
        group = GrowingGroup(seed, self.position[seed], self.policy.own(seed), self.free)
        self.free.discard(seed)
        size = 0
        while size < len(group.members):
            size = len(group.members)
            self._descend(group)
            for name in tuple(group.members):
                self._climb(group, name)
            if not self.policy.repeats:
                break
        self.legality.settle(group.mask)
        return tuple(sorted(group.members, key=self.position.__getitem__))

    def _descend(self, group: GrowingGroup) -> None:
        """Take in successors, theirs too, of the members that no anchor of the group stands below."""
        queue = [name for name in group.members if name in self._results(group)]
        for name in queue:
            for edge in self.edges.out[name]:
                consumer = edge.consumer
                if consumer not in self.free or not self.legality.may_join(group.mask, self.position[consumer]):
                    continue
                kind = self._asked(group, [e for e in self.edges.into[consumer] if e.producer in group.members], True)
                if kind is not None:
                    self._join(group, consumer, kind)
                    queue.append(consumer)

    def _climb(self, group: GrowingGroup, name: str) -> None:
        """Take in predecessors of one member, each with its own predecessors before the next."""
        for edge in self.policy.climbing(self.edges.into[name]):
            producer = edge.producer
            if producer not in self.free or not self.legality.may_join(group.mask, self.position[producer]):
                continue
            kind = self._asked(group, [e for e in self.edges.out[producer] if e.consumer in group.members], False)
            if kind is not None:
                self._join(group, producer, kind)
                self._climb(group, producer)

    def _asked(self, group: GrowingGroup, links: Sequence[Edge], below: bool) -> MappingType | None:
        """Group type when the policy agrees to every edge between the candidate and the group."""
        ask = self.policy.below if below else self.policy.above
        kinds = []
        for edge in links:
            kind = ask(group, edge)
            if kind is None:
                return None
            kinds.append(kind)
        return max(kinds, key=COMPLEXITY.index)

    def _join(self, group: GrowingGroup, name: str, kind: MappingType) -> None:
        group.add(name, self.position[name], kind)
        self.free.discard(name)

    def _results(self, group: GrowingGroup) -> set[str]:
        """Members at or below an anchor; every member when the group has none.

        A prologue's other readers gain nothing from the group, so growth does not go on from there.
        """
        anchor = MappingType.MANY_TO_MANY
        found = {name for name in group.members if self.policy.own(name) == anchor}
        if not found:
            return set(group.members)
        for name in sorted(group.members, key=self.position.__getitem__):
            if any(edge.producer in found for edge in self.edges.into[name]):
                found.add(name)
        return found
