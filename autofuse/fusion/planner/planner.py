"""The planner turns decisions into a fusion plan: folds, seeds, successors, predecessors, a partition.

The rules give every operator of the model a group; where they leave a real choice, a `Decision` stands.
A search answers decisions, `plan_from` turns answers into a plan, always the same one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from autofuse.errors import InputError
from autofuse.fusion.context import contexts, digest
from autofuse.fusion.edges import Edges
from autofuse.fusion.legality import Legality, ordered_groups
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.duplicates import copies_of, copy_sites
from autofuse.fusion.planner.growth import partition
from autofuse.fusion.planner.horizontal import BATCH, HORIZONTAL, JOIN, batch_sites, joined, sibling_sites
from autofuse.fusion.planner.policy import AnsweredPolicy
from autofuse.fusion.planner.questions import BOTH, EARLIER, FUSE, KEEP, LATER, MERGE, questions
from autofuse.fusion.planner.sites import CopySite, EdgeSite, FoldSite, JoinSite, SeedSite, SiblingSite, Site
from autofuse.fusion.planner.widening import handed_over
from autofuse.fusion.skeleton import folded_into, skeleton
from autofuse.fusion.space import FusionSpace
from autofuse.graph.cost import written_bytes
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.copies import Copy, with_copies
from autofuse.graph.transform.fold import fold_sites

SMALLEST, ANCHORS, LARGEST, ORDER = "smallest", "anchors", "largest", "order"
"""Seed rules: the paper's (the one-to-one operator with the smallest result first), many-to-many operators first, the
one-to-one operator with the largest result first, or the order of the model."""

Named = tuple[str, str, tuple[str, ...]]
"""Name, kind and choices of a decision."""

_ANCHOR = MappingType.MANY_TO_MANY


@dataclass(frozen=True)
class Decision:
    """One open choice; `choices[0]` is the default.

    `kind` says what is asked:
    - "fold": fold this BatchNormalization into the convolution before it, or else after it (fold, keep).
    - "depend": a yellow pair of the paper's table (fuse, keep; "merge" even when both sides hold an anchor).
    - "break": a red pair (keep, merge).
    - "prologue": a one-to-one producer before an anchor (keep, fuse, merge).
    - "recompute": a green pair whose producer would be computed again below a broadcast (fuse, keep).
    - "join": which of several anchors takes an operator as its epilogue (later, earlier, both; of a Concat of maps
      that nobody else reads, both first).
    - "seed": with which operators groups begin (smallest, anchors, largest, order).
    - "copy": compute a cheap operator again for each of its readers (keep, copy).
    - "eliminate": make an index change in each reader of an operator that moves data (keep, eliminate).
    - "rewrite": see `autofuse.fusion.planner.rewriting` (apply, keep).
    - "horizontal", "batch": siblings that read one tensor, or small equal operators, in one kernel (keep, join).
    `name`: derived from content, so equal subgraphs, also of other models, share the decision.
    `sites`: the places that it governs.
    """

    name: str
    kind: str
    choices: tuple[str, ...]
    sites: tuple[Site, ...] = ()

    @property
    def default(self) -> str:
        """What holds when nothing else is answered."""
        return self.choices[0]


class Planner:
    """A planner of one graph within one space; build it once when asking for many plans."""

    def __init__(self, graph: Graph, space: FusionSpace | None = None) -> None:
        self.graph = graph
        self.space = space or FusionSpace()
        self._foldable = () if self.space.exact else tuple(fold_sites(graph))
        self._owners = folded_into(graph, self._foldable)
        self._folded = skeleton(graph, self._foldable)
        self._edges = Edges(self._folded)
        self._questions = questions(self._edges)
        self._last = (tuple(sorted(self._foldable)), self._edges)
        self._refused: set[frozenset[str]] = set()

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Every open decision of the space: the seed rule, folds, then edges and joins in topological order."""
        gathered: dict[str, tuple[str, tuple[str, ...], list[Site]]] = {}
        for site, (name, kind, choices) in self._named.items():
            gathered.setdefault(name, (kind, choices, []))[2].append(site)
        return tuple(Decision(name, kind, choices, tuple(sites)) for name, (kind, choices, sites) in gathered.items())

    def plan(self, answers: Mapping[str, str]) -> FusionPlan:
        """The plan that the answers make; see `plan_from`."""
        for decision in self.decisions:
            answer = answers.get(decision.name, decision.default)
            if answer not in decision.choices:
                allowed = ", ".join(decision.choices)
                raise InputError(f"decision {decision.name!r}: {answer!r} is no choice; allowed: {allowed}")
        folds = tuple(sorted(name for name in self._foldable if self._answer(answers, FoldSite(name)) != KEEP))
        made = [site for site in self._named if self._answer(answers, site) != KEEP]
        chosen = [site.operator for site in made if isinstance(site, CopySite)]
        copied = {name: None for name in chosen if name in self._realised(folds).graph.by_name}
        while True:
            edges, copies, originals = self._copied(folds, tuple(copied))
            legality = Legality(edges.graph, self.space.max_group_operators, self._refused)
            policy = AnsweredPolicy(self, edges, originals, answers)
            groups = partition(edges, legality, policy, _seeds(edges, self._answer(answers, SeedSite()) or SMALLEST))
            lonely = _lonely(groups, copies)
            if not lonely:
                break
            for name in lonely:  # a copy whose reader does not take it in gains nothing
                copied.pop(originals.get(name, name), None)
        siblings = [site for site in made if isinstance(site, SiblingSite)]
        if siblings:
            groups = joined(groups, siblings, legality)
        groups = handed_over(groups, edges, legality)
        return FusionPlan(ordered_groups(edges.graph, groups), folds, copies)

    def refuse(self, operators: Collection[str]) -> None:
        """Never make this group again (of several operators): it cannot be built, or not be scheduled."""
        if len(operators) > 1:
            self._refused.add(frozenset(operators))

    def edge_answer(self, answers: Mapping[str, str], producer: str, consumer: str) -> str:
        """What holds on an edge of a realised graph: its question's answer, "fuse" where none is asked."""
        site = EdgeSite(self._source(producer), self._source(consumer))
        question = self._questions.edges.get(site)
        return FUSE if question is None else self._answer(answers, site) or question.choices[0]

    def join_answer(self, answers: Mapping[str, str], operator: str) -> str:
        """Which rival takes an operator that several anchors could take."""
        return self._answer(answers, JoinSite(operator)) or self._default_join(operator)

    def _default_join(self, operator: str) -> str:
        return BOTH if self._source(operator) in self._questions.whole else LATER

    def rivals(self, operator: str, edges: Edges) -> tuple[str, ...]:
        """Producers of a realised graph that compete for `operator`, in topological order."""
        rivals = self._questions.joins.get(operator, ())
        into = edges.into[operator] if rivals else ()
        found = [edge.producer for edge in into if self._source(edge.producer) in rivals]
        return tuple(sorted(found, key=edges.graph.position.__getitem__))

    def anchored(self, operator: str) -> bool:
        """Whether the default answers give the operator to an anchor above it."""
        return self._source(operator) in self._questions.anchored

    def costly(self, operator: str) -> bool:
        """Whether it takes an expensive pointwise operator to recompute the operator's result."""
        return self._source(operator) in self._questions.costly

    def _source(self, operator: str) -> str:
        """The operator of the fully folded graph that stands for one of a realised graph."""
        return self._owners.get(operator, operator)

    def _answer(self, answers: Mapping[str, str], site: Site) -> str | None:
        named = self._named.get(site)
        return None if named is None else answers.get(named[0], named[2][0])

    def _realised(self, folds: tuple[str, ...]) -> Edges:
        if self._last[0] != folds:
            self._last = folds, Edges(skeleton(self.graph, folds))
        return self._last[1]

    def _copied(
        self, folds: tuple[str, ...], operators: Collection[str]
    ) -> tuple[Edges, tuple[Copy, ...], dict[str, str]]:
        """Edges after folds and copies, the copies, and what each is a copy of."""
        edges = self._realised(folds)
        if not operators:
            return edges, (), {}
        copies, originals = copies_of(edges.graph, operators)
        return Edges(with_copies(edges.graph, copies)), copies, originals

    @cached_property
    def _named(self) -> Mapping[Site, Named]:
        """Name, kind and choices of every open site."""
        found: dict[Site, Named] = {}
        if "seed" in self.space.decide:
            found[SeedSite()] = ("seed", "seed", (SMALLEST, ANCHORS, LARGEST, ORDER))
        if "fold" in self.space.decide and self._foldable:
            found |= self._named_folds()
        surroundings = contexts(self._folded)
        for operator in self._folded.operators:
            for producer in self._folded.predecessors(operator):
                named = self._named_edge(producer, operator, surroundings)
                if named is not None:
                    found[EdgeSite(producer.name, operator.name)] = named
            if operator.name in self._questions.joins and "join" in self.space.decide:
                found[JoinSite(operator.name)] = self._named_join(operator, surroundings)
        return found | self._named_copies(surroundings) | self._named_together(surroundings)

    def _named_copies(self, surroundings: Mapping[str, str]) -> dict[Site, Named]:
        found: dict[Site, Named] = {}
        for name, kind in copy_sites(self._edges, self._questions.anchored).items():
            if kind in self.space.decide:
                title = self._title(self._folded, self._folded.by_name[name])
                label = digest(kind, surroundings[name], length=10)
                found[CopySite(name)] = (f"{kind} {title} {label}", kind, (KEEP, kind))
        return found

    def _named_together(self, surroundings: Mapping[str, str]) -> dict[Site, Named]:
        siblings = sibling_sites(self._edges) if {HORIZONTAL, BATCH} & set(self.space.decide) else []
        batches = batch_sites(self._edges, siblings) if BATCH in self.space.decide else []
        found: dict[Site, Named] = {}
        for kind, sites in ((HORIZONTAL, siblings), (BATCH, batches)):
            for site in sites if kind in self.space.decide else ():
                title = self._title(self._folded, self._folded.by_name[site.operators[0]])
                label = digest(kind, *(surroundings[name] for name in site.operators), length=10)
                found[site] = (f"{kind} {len(site.operators)}x {title} {label}", kind, (KEEP, JOIN))
        return found

    def _named_folds(self) -> dict[Site, Named]:
        surroundings = contexts(self.graph)
        found: dict[Site, Named] = {}
        for name in self._foldable:
            owner = self._owners[name]
            forward = ("forward",) if self.graph.position[owner] > self.graph.position[name] else ()
            label = digest("fold", *forward, surroundings[owner], surroundings[name], length=10)
            title = self._title(self.graph, self.graph.by_name[name])
            found[FoldSite(name)] = (f"fold {title} {label}", "fold", ("fold", KEEP))
        return found

    def _named_edge(self, producer: Operator, consumer: Operator, surroundings: Mapping[str, str]) -> Named | None:
        question = self._questions.edges.get(EdgeSite(producer.name, consumer.name))
        choices = _open_choices(question.kind, question.choices, self.space.decide) if question else ()
        if question is None or len(choices) < 2:
            return None
        wires = [index for index, name in enumerate(consumer.inputs) if name and name in producer.outputs]
        label = digest(choices, surroundings[producer.name], surroundings[consumer.name], wires, length=10)
        title = f"{producer.op_type}>{self._title(self._folded, consumer)}"
        return f"{question.kind} {title} {label}", question.kind, choices

    def _named_join(self, operator: Operator, surroundings: Mapping[str, str]) -> Named:
        default = self._default_join(operator.name)
        others = (LATER, EARLIER, BOTH) if "break" in self.space.decide else (LATER, EARLIER)
        choices = (default, *(choice for choice in others if choice != default))
        rivals = [surroundings[name] for name in self._questions.joins[operator.name]]
        label = digest("join", surroundings[operator.name], rivals, length=10)
        return f"join {self._title(self._folded, operator)} {label}", "join", choices

    @staticmethod
    def _title(graph: Graph, operator: Operator) -> str:
        shape = graph.tensors[operator.outputs[0]].shape
        return f"{operator.op_type} {'x'.join(map(str, shape)) or 'scalar'}"


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
    """Choices left when some kinds are closed: merging over an edge counts as a "break", unless it is the default."""
    if "break" not in open_kinds:
        choices = tuple(choice for choice in choices if choice in (choices[0], FUSE, KEEP))
    if kind not in open_kinds:
        choices = tuple(choice for choice in choices if choice in (choices[0], MERGE))
    return choices


def _seeds(edges: Edges, rule: str) -> list[str]:
    graph = edges.graph

    def rank(name: str) -> tuple[int, int, int]:
        own, place = edges.own[name], graph.position[name]
        if rule == ORDER:
            return 0, 0, place
        size = written_bytes(graph, graph.by_name[name])
        size = -size if rule == LARGEST else size
        if rule == ANCHORS and own == _ANCHOR:
            return 0, 0, place
        return (1, size, place) if own == MappingType.ONE_TO_ONE else (2, 0, place)

    return sorted(edges.own, key=rank)


def _lonely(groups: Iterable[tuple[str, ...]], copies: Iterable[Copy]) -> list[str]:
    """Copies that stand in another group than their reader."""
    owner = {name: group[0] for group in groups for name in group}
    return [copy.name for copy in copies if owner[copy.name] != owner[copy.reader]]
