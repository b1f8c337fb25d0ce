"""Which edges are open questions, what can be answered there, and what a good compiler would answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.fusion.edges import EXPENSIVE, MOVES, Edge, Edges, reads_once
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph

KEEP, FUSE, MERGE = "keep", "fuse", "merge"
"""Answers on an edge: apart; together unless the table breaks them; together even then (two anchors)."""

LATER, EARLIER, BOTH = "later", "earlier", "both"
"""Answers at an operator that several anchors could take as their epilogue."""

_FREE = frozenset({MappingType.REORGANIZE, MappingType.SHUFFLE})
_ANCHOR = MappingType.MANY_TO_MANY


@dataclass(frozen=True)
class Question:
    """An open choice at one place; `choices[0]` is the default."""

    kind: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Questions:
    """`edges`: by (producer, consumer). `joins`: by operator, with its rival producers in topological order.

    `anchored`: operators that the default answers put into the group of a many-to-many operator above them.
    """

    edges: Mapping[tuple[str, str], Question]
    joins: Mapping[str, tuple[str, ...]]
    anchored: frozenset[str]


def questions(edges: Edges) -> Questions:
    """All open edges and joins of a graph, judged from local facts and from what can stand above an edge."""
    asked: dict[tuple[str, str], Question] = {}
    joins: dict[str, tuple[str, ...]] = {}
    types: dict[str, frozenset[MappingType]] = {}
    anchors: dict[str, int] = {}
    costly = _costly(edges)
    for operator in edges.graph.operators:
        name = operator.name
        own = edges.own[name]
        above = {own}
        taken = edges.reach.mask((name,)) if own == _ANCHOR else 0
        rivals: dict[str, int] = {}
        for edge in edges.into[name]:
            if edge.blocked or MappingType.OPAQUE in (own, edges.own[edge.producer]):
                continue
            standing = anchors[edge.producer]
            question = _question(edges, edge, types[edge.producer], bool(standing), costly)
            if question is not None:
                asked[edge.producer, name] = question
            above |= {combined(kind, own) for kind in types[edge.producer] if _fusible(kind, edge.kind)}
            if own != _ANCHOR and (question is None or question.choices[0] != KEEP):
                taken |= standing
                if standing and edge.kind != MappingType.ONE_TO_MANY:
                    rivals[edge.producer] = standing
        types[name] = frozenset(above)
        anchors[name] = taken
        rivals = _rivals(edges, rivals)
        if len(rivals) > 1:
            joins[name] = tuple(sorted(rivals, key=edges.graph.position.__getitem__))
    return Questions(asked, joins, frozenset(name for name, above in anchors.items() if above))


def _rivals(edges: Edges, producers: dict[str, int]) -> dict[str, int]:
    """Producers (with the anchors above them) that compete: none is above another, their anchors differ."""
    reach = edges.reach
    everyone = reach.mask(producers)
    found: dict[str, int] = {}
    for name, anchors in producers.items():
        if not reach.descendants[reach.position[name]] & everyone and anchors not in found.values():
            found[name] = anchors
    return found


def _fusible(producer: MappingType, consumer: MappingType) -> bool:
    return relation(producer, consumer) != Relation.BREAK


def _question(
    edges: Edges, edge: Edge, above: frozenset[MappingType], anchored: bool, costly: frozenset[str]
) -> Question | None:
    """The question on one edge, or None when the table says "through" and nothing can be lost.

    `above`: types that a group ending in the producer can have; `anchored`: whether by default it holds an anchor.
    """
    if edge.kind == MappingType.OPAQUE:
        return None
    if edge.kind == _ANCHOR:
        return _prologue(edges, edge, above, anchored)
    single = len(edges.out[edge.producer]) == 1
    if any(relation(kind, edge.kind) == Relation.DEPEND for kind in above):
        fuse = _fuse_dependent(edges.graph, edge, anchored, edge.producer in costly, single)
        return Question("depend", (FUSE, KEEP) if fuse else (KEEP, FUSE))
    if edge.kind == MappingType.ONE_TO_MANY:
        fuse = single and edge.producer not in costly
        return Question("recompute", (FUSE, KEEP) if fuse else (KEEP, FUSE))
    return None


def _fuse_dependent(graph: Graph, edge: Edge, anchored: bool, costly: bool, single: bool) -> bool:
    """Default on a yellow edge into an operator that is no anchor."""
    if edge.kind == MappingType.ONE_TO_MANY:
        return single and not anchored and not costly
    if graph.by_name[edge.consumer].op_type in MOVES:
        return not anchored
    return True


def _prologue(edges: Edges, edge: Edge, above: frozenset[MappingType], anchored: bool) -> Question:
    """The question on an edge into an anchor.

    Default: apart when an anchor above can take the producer as its epilogue, or when the consumer reads
    elements often (each read would compute the prologue again), or when the producer gathers from several
    places (a Concat inlined is a chain of conditions). A Pad costs nothing and joins even a convolution.
    """
    own = edges.own[edge.producer]
    merge = any(relation(kind, _ANCHOR) == Relation.BREAK for kind in above)
    if relation(own, _ANCHOR) == Relation.BREAK:
        return Question("break", (KEEP, MERGE))
    graph = edges.graph
    consumer, producer = graph.by_name[edge.consumer], graph.by_name[edge.producer]
    private = len(edges.out[edge.producer]) == 1
    moves = producer.op_type in MOVES
    cheap = (private and producer.op_type == "Pad") if moves else reads_once(consumer)
    choices = (FUSE, KEEP) if cheap and not anchored else (KEEP, FUSE)
    kind = "depend" if own in _FREE else "prologue"
    return Question(kind, (*choices, MERGE) if merge else choices)


def _costly(edges: Edges) -> frozenset[str]:
    """Operators whose result takes an expensive pointwise operator to recompute."""
    found: set[str] = set()
    for operator in edges.graph.operators:
        own = edges.own[operator.name]
        if operator.op_type in EXPENSIVE or (
            own != _ANCHOR and any(edge.producer in found for edge in edges.into[operator.name])
        ):
            found.add(operator.name)
    return frozenset(found)
