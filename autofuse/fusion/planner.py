"""From decisions to a fusion plan: folds, seeds, successors, predecessors, a partition.

The rules give every operator of the model a group; where they leave a real choice, a `Decision` stands.
A search answers decisions, `plan_from` turns answers into a plan, always the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from autofuse.errors import InputError
from autofuse.fusion.context import contexts, digest
from autofuse.fusion.edges import Edge, Edges
from autofuse.fusion.growth import Draft, partition
from autofuse.fusion.legality import Legality, ordered_groups
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.questions import BOTH, EARLIER, FUSE, KEEP, LATER, MERGE, questions
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.fusion.skeleton import folded_into, skeleton
from autofuse.fusion.space import FusionSpace
from autofuse.graph.fold import fold_sites
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph, Operator

SMALLEST, ANCHORS = "smallest", "anchors"
"""Seed rules: the paper's (the one-to-one operator with the smallest result first), or many-to-many operators first."""

Site = tuple[str, ...]
"""Where a decision holds: () the seed rule, (operator,) a fold, (producer, consumer) an edge, (operator, "") a join."""

Named = tuple[str, str, tuple[str, ...]]
"""Name, kind and choices of a decision."""

_ANCHOR = MappingType.MANY_TO_MANY


@dataclass(frozen=True)
class Decision:
    """One open choice; `choices[0]` is the default.

    `kind` says what is asked:
    - "fold": fold this BatchNormalization into the convolution before it (fold, keep).
    - "depend": a yellow pair of the paper's table (fuse, keep; "merge" even when both sides hold an anchor).
    - "break": a red pair (keep, merge).
    - "prologue": a one-to-one producer before an anchor (keep, fuse, merge).
    - "recompute": a green pair whose producer would be computed again below a broadcast (fuse, keep).
    - "join": which of several anchors takes an operator as its epilogue (later, earlier, both).
    - "seed": with which operators groups begin (smallest, anchors).
    `name`: derived from content, so equal subgraphs, also of other models, share the decision.
    `sites`: operators (fold, join) or `producer -> consumer` edges that it governs.
    """

    name: str
    kind: str
    choices: tuple[str, ...]
    sites: tuple[str, ...] = ()

    @property
    def default(self) -> str:
        """What holds when nothing else is answered."""
        return self.choices[0]


class Planner:
    """Plans of one graph within one space; build it once when asking for many plans."""

    def __init__(self, graph: Graph, space: FusionSpace | None = None) -> None:
        self.graph = graph
        self.space = space or FusionSpace()
        self._sites = tuple(fold_sites(graph))
        self._owners = folded_into(graph, self._sites)
        self._folded = skeleton(graph, self._sites)
        edges = Edges(self._folded)
        self._questions = questions(edges)
        self._last = (tuple(sorted(self._sites)), edges)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Every open decision of the space: the seed rule, folds, then edges and joins in topological order."""
        gathered: dict[str, tuple[str, tuple[str, ...], list[str]]] = {}
        for site, (name, kind, choices) in self._named.items():
            gathered.setdefault(name, (kind, choices, []))[2].append(_site_text(site))
        return tuple(Decision(name, kind, choices, tuple(sites)) for name, (kind, choices, sites) in gathered.items())

    def plan(self, answers: Mapping[str, str]) -> FusionPlan:
        """The plan that the answers make; see `plan_from`."""
        for decision in self.decisions:
            answer = answers.get(decision.name, decision.default)
            if answer not in decision.choices:
                allowed = ", ".join(decision.choices)
                raise InputError(f"decision {decision.name!r}: {answer!r} is no choice; allowed: {allowed}")
        folds = tuple(sorted(site for site in self._sites if self._answer(answers, (site,)) != KEEP))
        edges = self._realised(folds)
        legality = Legality(edges.graph, self.space.max_group_operators)
        policy = _AnsweredPolicy(self, edges, answers)
        groups = partition(edges, legality, policy, _seeds(edges, self._answer(answers, ()) or SMALLEST))
        return FusionPlan(ordered_groups(edges.graph, groups), folds)

    def edge_answer(self, answers: Mapping[str, str], edge: Edge) -> str:
        """What holds on an edge of a realised graph: its question's answer, "fuse" where none is asked."""
        site = self._source(edge.producer), self._source(edge.consumer)
        question = self._questions.edges.get(site)
        return FUSE if question is None else self._answer(answers, site) or question.choices[0]

    def join_answer(self, answers: Mapping[str, str], operator: str) -> str:
        """Which rival takes an operator that several anchors could take."""
        return self._answer(answers, (operator, "")) or LATER

    def rivals(self, operator: str, edges: Edges) -> tuple[str, ...]:
        """Producers of a realised graph that compete for `operator`, in topological order."""
        rivals = self._questions.joins.get(operator, ())
        into = edges.into[operator] if rivals else ()
        found = [edge.producer for edge in into if self._source(edge.producer) in rivals]
        return tuple(sorted(found, key=edges.graph.position.__getitem__))

    def anchored(self, operator: str) -> bool:
        """Whether the default answers give the operator to an anchor above it."""
        return self._source(operator) in self._questions.anchored

    def _source(self, operator: str) -> str:
        """The operator of the fully folded graph that stands for one of a realised graph."""
        return self._owners.get(operator, operator)

    def _answer(self, answers: Mapping[str, str], site: tuple[str, ...]) -> str | None:
        named = self._named.get(site)
        return None if named is None else answers.get(named[0], named[2][0])

    def _realised(self, folds: tuple[str, ...]) -> Edges:
        if self._last[0] != folds:
            self._last = folds, Edges(skeleton(self.graph, folds))
        return self._last[1]

    @cached_property
    def _named(self) -> Mapping[Site, Named]:
        """Name, kind and choices of every open site."""
        found: dict[Site, Named] = {}
        if "seed" in self.space.decide:
            found[()] = ("seed", "seed", (SMALLEST, ANCHORS))
        if "fold" in self.space.decide and self._sites:
            found |= self._named_folds()
        around = contexts(self._folded)
        for operator in self._folded.operators:
            for producer in self._folded.predecessors(operator):
                named = self._named_edge(producer, operator, around)
                if named is not None:
                    found[producer.name, operator.name] = named
            if operator.name in self._questions.joins and "join" in self.space.decide:
                found[operator.name, ""] = self._named_join(operator, around)
        return found

    def _named_folds(self) -> dict[Site, Named]:
        around = contexts(self.graph)
        found: dict[Site, Named] = {}
        for site in self._sites:
            producer = self.graph.producers[self.graph.by_name[site].inputs[0]].name
            label = digest("fold", around[producer], around[site], length=10)
            title = self._title(self.graph, self.graph.by_name[site])
            found[site,] = (f"fold {title} {label}", "fold", ("fold", KEEP))
        return found

    def _named_edge(self, producer: Operator, consumer: Operator, around: Mapping[str, str]) -> Named | None:
        question = self._questions.edges.get((producer.name, consumer.name))
        choices = _open_choices(question.kind, question.choices, self.space.decide) if question else ()
        if question is None or len(choices) < 2:
            return None
        wires = [index for index, name in enumerate(consumer.inputs) if name and name in producer.outputs]
        label = digest(choices, around[producer.name], around[consumer.name], wires, length=10)
        title = f"{producer.op_type}>{self._title(self._folded, consumer)}"
        return f"{question.kind} {title} {label}", question.kind, choices

    def _named_join(self, operator: Operator, around: Mapping[str, str]) -> Named:
        choices = (LATER, EARLIER, BOTH) if "break" in self.space.decide else (LATER, EARLIER)
        rivals = [around[name] for name in self._questions.joins[operator.name]]
        label = digest("join", around[operator.name], rivals, length=10)
        return f"join {self._title(self._folded, operator)} {label}", "join", choices

    @staticmethod
    def _title(graph: Graph, operator: Operator) -> str:
        shape = graph.tensors[operator.outputs[0]].shape
        return f"{operator.op_type} {'x'.join(map(str, shape)) or 'scalar'}"


class _AnsweredPolicy:
    """What the answers want to join: see `autofuse.fusion.growth.Policy`."""

    repeats = True

    def __init__(self, planner: Planner, edges: Edges, answers: Mapping[str, str]) -> None:
        self.planner, self.edges, self.answers = planner, edges, answers
        self.position = edges.graph.position

    def own(self, name: str) -> MappingType:
        return self.edges.own[name]

    def below(self, draft: Draft, edge: Edge) -> MappingType | None:
        answer = self._answer(edge)
        if answer == KEEP or (relation(draft.kind, edge.kind) == Relation.BREAK and answer != MERGE):
            return None
        kind = combined(draft.kind, edge.kind)
        promised = self.own(edge.consumer) != _ANCHOR and self._wanted_below(edge.consumer, draft.free)
        if promised and (kind == _ANCHOR or any(map(self.planner.anchored, draft.members))):
            return None
        return None if self._deferred(draft, edge.consumer) else kind

    def above(self, draft: Draft, edge: Edge) -> MappingType | None:
        answer = self._answer(edge)
        if answer == KEEP:
            return None
        own = self.own(edge.producer)
        forced = self._merging(edge) or self._merged_below(draft, edge.consumer)
        widened = edge.kind == MappingType.ONE_TO_MANY and draft.kind != _ANCHOR
        kind = MappingType.ONE_TO_MANY if widened else draft.kind
        if relation(own, kind) == Relation.BREAK and not forced:
            return None
        # An operator that has an anchor of its own above it would be torn from that anchor.
        if kind == _ANCHOR and _ANCHOR not in (own, self.own(edge.consumer)) and not forced:
            return None if self.planner.anchored(edge.producer) else combined(own, kind)
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

    def _merged_below(self, draft: Draft, name: str) -> bool:
        """Whether the group's anchors below a member that is none itself were all reached by merging edges."""
        if self.own(name) == _ANCHOR:
            return False
        links = [edge for edge in self.edges.out[name] if edge.consumer in draft.members]
        inner = [edge for edge in links if not self._merging(edge)]
        return bool(links) and all(self._merged_below(draft, edge.consumer) for edge in inner)

    def _answer(self, edge: Edge) -> str:
        return self.planner.edge_answer(self.answers, edge)

    def _join(self, operator: str) -> str:
        return self.planner.join_answer(self.answers, operator)

    def _wanted_below(self, name: str, free: set[str]) -> bool:
        """Whether an operator was promised to an anchor below it, as its prologue."""
        return any(
            edge.kind == _ANCHOR and edge.consumer in free and self._answer(edge) == FUSE
            for edge in self.edges.out[name]
        )

    def _deferred(self, draft: Draft, name: str) -> bool:
        """Whether an operator waits for another anchor that the join's answer prefers."""
        answer = self._join(name)
        rivals = self.planner.rivals(name, self.edges)
        mine = [self.position[rival] for rival in rivals if rival in draft.members]
        if not mine or answer == BOTH:
            return False
        others = [self.position[rival] for rival in rivals if rival in draft.free]
        if answer == LATER:
            return any(other > max(mine) for other in others)
        return any(other < min(mine) for other in others)


def decisions(graph: Graph, space: FusionSpace | None = None) -> tuple[Decision, ...]:
    """Every decision that `space` leaves open on `graph`; equal contexts share one."""
    return Planner(graph, space).decisions


def plan_from(graph: Graph, answers: Mapping[str, str], space: FusionSpace | None = None) -> FusionPlan:
    """The plan that the answers (decision name -> choice) make of `graph`; defaults fill what is missing.

    Names of decisions that this graph does not have are ignored, so that answers travel between models;
    InputError on a choice that a decision does not offer. The plan is legal and always the same.
    """
    return Planner(graph, space).plan(answers)


def _open_choices(kind: str, choices: tuple[str, ...], open_kinds: Collection[str]) -> tuple[str, ...]:
    """Choices left when some kinds are closed: merging over an edge counts as a "break"."""
    if "break" not in open_kinds:
        choices = tuple(choice for choice in choices if choice != MERGE)
    if kind not in open_kinds:
        choices = tuple(choice for choice in choices if choice in (choices[0], MERGE))
    return choices


def _seeds(edges: Edges, rule: str) -> list[str]:
    graph = edges.graph

    def rank(name: str) -> tuple[int, int, int]:
        own, place = edges.own[name], graph.position[name]
        size = sum(graph.tensors[out].size_bytes for out in graph.by_name[name].outputs if out)
        if rule == ANCHORS and own == _ANCHOR:
            return 0, 0, place
        return (1, size, place) if own == MappingType.ONE_TO_ONE else (2, 0, place)

    return sorted(edges.own, key=rank)


def _site_text(site: tuple[str, ...]) -> str:
    return " -> ".join(part for part in site if part)
