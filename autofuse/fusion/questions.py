"""Which edges are open questions, what can be answered there, and what a good compiler would answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.fusion.edges import EXPENSIVE, MOVES, Edge, Edges, reads_once
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.graph.mapping import MappingType

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
    local = _Local(edges)
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
            question = _question(edges, edge, types[edge.producer], standing, local)
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


class _Local:
    """Facts that decide defaults. `costly`: operators whose result takes an expensive pointwise operator to recompute.

    `reductions`: bit set of the anchors that read each element once.
    """

    def __init__(self, edges: Edges) -> None:
        anchors = (operator for operator in edges.graph.operators if edges.own[operator.name] == _ANCHOR)
        self.reductions = edges.reach.mask(operator.name for operator in anchors if reads_once(operator))
        self.costly: set[str] = set()
        for operator in edges.graph.operators:
            inherits = edges.own[operator.name] != _ANCHOR
            if operator.op_type in EXPENSIVE or (
                inherits and any(edge.producer in self.costly for edge in edges.into[operator.name])
            ):
                self.costly.add(operator.name)


def _question(edges: Edges, edge: Edge, above: frozenset[MappingType], anchors: int, local: _Local) -> Question | None:
    """The question on one edge, or None when the table says "through" and nothing can be lost.

    `above`: types that a group ending in the producer can have; `anchors`: bit set of those that by default
    stand above the producer in its group.
    """
    if edge.kind == MappingType.OPAQUE:
        return None
    if edge.kind == _ANCHOR:
        return _prologue(edges, edge, above, bool(anchors))
    if any(relation(kind, edge.kind) == Relation.DEPEND for kind in above):
        fuse = _fuse_dependent(edges, edge, anchors, local)
        return Question("depend", (FUSE, KEEP) if fuse else (KEEP, FUSE))
    if edge.kind == MappingType.ONE_TO_MANY:
        fuse = len(edges.out[edge.producer]) == 1 and edge.producer not in local.costly
        return Question("recompute", (FUSE, KEEP) if fuse else (KEEP, FUSE))
    return None


def _fuse_dependent(edges: Edges, edge: Edge, anchors: int, local: _Local) -> bool:
    """Default on a yellow edge into an operator that is no anchor.

    The result of a reduction that is broadcast over its own rows (the mean in a layer normalisation
    written out) joins: the kernel finishes a row before it needs the result.
    """
    if edge.kind == MappingType.ONE_TO_MANY:
        if anchors:
            return not anchors & ~local.reductions
        return len(edges.out[edge.producer]) == 1 and edge.producer not in local.costly
    if edges.graph.by_name[edge.consumer].op_type in MOVES:
        return not anchors
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
