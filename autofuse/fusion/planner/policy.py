"""What a search's answers want to join, as the growth of groups asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from autofuse.fusion.edges import Edge, Edges
from autofuse.fusion.planner.growth import GrowingGroup
from autofuse.fusion.planner.questions import BOTH, EARLIER, FUSE, KEEP, LATER, MERGE
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.graph.mapping import MappingType

_ANCHOR = MappingType.MANY_TO_MANY


class AnsweredQuestions(Protocol):
    """The questions of a planner, as a set of answers settles them."""

    def edge_answer(self, answers: Mapping[str, str], producer: str, consumer: str) -> str: ...

    def join_answer(self, answers: Mapping[str, str], operator: str) -> str: ...

    def rivals(self, operator: str, edges: Edges) -> Sequence[str]: ...

    def anchored(self, operator: str) -> bool: ...

    def costly(self, operator: str) -> bool: ...


class AnsweredPolicy:
    """The policy that follows a set of answers, see `growth.Policy`. `originals`: what each copy is a copy of."""

    repeats = True

    def __init__(
        self, planner: AnsweredQuestions, edges: Edges, originals: Mapping[str, str], answers: Mapping[str, str]
    ) -> None:
        self.planner, self.edges, self.originals, self.answers = planner, edges, originals, answers
        self.position = edges.graph.position

    def own(self, name: str) -> MappingType:
        return self.edges.own[name]

    def below(self, group: GrowingGroup, edge: Edge) -> MappingType | None:
        if edge.producer in self.originals:
            return combined(group.kind, edge.kind)
        answer = self._answer(edge)
        if answer == KEEP or (relation(group.kind, edge.kind) == Relation.BREAK and answer != MERGE):
            return None
        again = edge.kind == MappingType.ONE_TO_MANY or (edge.kind == _ANCHOR and answer == MERGE)
        if again and self._unfinished(group, edge.producer):
            return None
        kind = combined(group.kind, edge.kind)
        promised = self.own(edge.consumer) != _ANCHOR and self._wanted_below(edge.consumer, group.free)
        if promised and (kind == _ANCHOR or any(map(self._anchored, group.members))):
            return None
        return None if self._deferred(group, edge.consumer) else kind

    def above(self, group: GrowingGroup, edge: Edge) -> MappingType | None:
        if edge.producer in self.originals:  # what a copy is made for
            return combined(self.own(edge.producer), group.kind)
        answer = self._answer(edge)
        if answer == KEEP:
            return None
        own = self.own(edge.producer)
        forced = self._merging(edge) or self._merged_below(group, edge.consumer)
        widened = edge.kind == MappingType.ONE_TO_MANY and group.kind != _ANCHOR
        kind = MappingType.ONE_TO_MANY if widened else group.kind
        if relation(own, kind) == Relation.BREAK and not forced:
            return None
        # An operator that has an anchor of its own above it would be torn from that anchor.
        if kind == _ANCHOR and _ANCHOR not in (own, self.own(edge.consumer)) and not forced:
            return None if self._anchored(edge.producer) else combined(own, kind)
        return combined(own, kind)

    def climbing(self, edges: Sequence[Edge]) -> Iterable[Edge]:
        later = not edges or self._join(edges[0].consumer) != EARLIER
        return sorted(edges, key=lambda edge: self.position[edge.producer], reverse=later)

    def _merging(self, edge: Edge) -> bool:
        """Whether anchors on both sides of the edge are welcome."""
        if self._answer(edge) == MERGE:
            return True
        both = self._join(edge.consumer) == BOTH
        return both and edge.producer in self.planner.rivals(edge.consumer, self.edges)

    def _merged_below(self, group: GrowingGroup, name: str) -> bool:
        """Whether the group's anchors below a member that is none itself were all reached by merging edges."""
        if self.own(name) == _ANCHOR:
            return False
        links = [edge for edge in self.edges.out[name] if edge.consumer in group.members]
        inner = [edge for edge in links if not self._merging(edge)]
        return bool(links) and all(self._merged_below(group, edge.consumer) for edge in inner)

    def _answer(self, edge: Edge) -> str:
        return self.planner.edge_answer(self.answers, self._original(edge.producer), self._original(edge.consumer))

    def _join(self, operator: str) -> str:
        return self.planner.join_answer(self.answers, self._original(operator))

    def _anchored(self, operator: str) -> bool:
        return self.planner.anchored(self._original(operator))

    def _unfinished(self, group: GrowingGroup, name: str) -> bool:
        """Whether a group would compute a costly member of it anew at every place that it is broadcast to, or for
        every window of an anchor below.

        An anchor above it in the group finishes it first; without that anchor, which may join yet, it would not be.
        """
        if not self._anchored(name) or not self.planner.costly(self._original(name)):
            return False
        above = self.edges.reach.ancestors[self.position[name]]
        return not above & self.edges.reach.mask(member for member in group.members if self.own(member) == _ANCHOR)

    def _original(self, operator: str) -> str:
        return self.originals.get(operator, operator)

    def _wanted_below(self, name: str, free: set[str]) -> bool:
        """Whether an operator was promised to an anchor below it, as its prologue."""
        return any(
            edge.kind == _ANCHOR and edge.consumer in free and self._answer(edge) == FUSE
            for edge in self.edges.out[name]
        )

    def _deferred(self, group: GrowingGroup, name: str) -> bool:
        """Whether an operator waits for another anchor that the join's answer prefers."""
        answer = self._join(name)
        rivals = self.planner.rivals(name, self.edges)
        mine = [self.position[rival] for rival in rivals if rival in group.members]
        if not mine or answer == BOTH:
            return False
        others = [self.position[rival] for rival in rivals if rival in group.free]
        if answer == LATER:
            return any(other > max(mine) for other in others)
        return any(other < min(mine) for other in others)
