"""Explanations: why each edge is fused or not, how two plans differ, and a plan in readable lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import reduce

from autofuse.fusion.edges import planning_type
from autofuse.fusion.evidence import Comparison, Evidence, GroupTime
from autofuse.fusion.legality import Legality, Refusal
from autofuse.fusion.plan import NO_LIMITS, FusionPlan, ScheduleLimits
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.fusion.skeleton import folded_into, realise, settled
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy
from autofuse.rewrite.driver import replay
from autofuse.values.names import counted

_REMARKS = {
    Relation.THROUGH: "legal, and green in the table; the plan keeps them apart",
    Relation.DEPEND: "legal, to be measured; the plan keeps them apart",
    Relation.BREAK: "legal, but red in the table; the plan keeps them apart",
}


@dataclass(frozen=True)
class EdgeReason:
    """The verdict on one edge: what a plan does with `tensor` between two operators of the model, and why.

    `relation`: the table's word for the two operators when they are fused, for their groups when not.
    `code`: "folded"; a `Refusal` code when fusing is not legal; what measurements say ("chosen_measured",
    "measured_slower", "within_noise", or how building the fused kernel failed); else, without a time of both forms,
    what kept the edge apart ("output_of_graph", "multi_consumer", "not_tried_budget") or the code under which the plan
    was chosen ("chosen_rule"). `fused_us`, `apart_us`: times of the kernels around the edge in one kernel and in two.
    """

    producer: str
    consumer: str
    tensor: str
    fused: bool
    relation: Relation
    code: str
    text: str
    fused_us: GroupTime | None = None
    apart_us: GroupTime | None = None

    @property
    def gain_us(self) -> float | None:
        """What fusing saves; None when one of the two was never measured."""
        return None if self.fused_us is None or self.apart_us is None else self.apart_us.us - self.fused_us.us


@dataclass(frozen=True)
class PlanDiff:
    """The difference of two plans: rewrites, folds and groups (operator names) that stand in one of them only."""

    rewrites_only_a: tuple[str, ...]
    rewrites_only_b: tuple[str, ...]
    folds_only_a: tuple[str, ...]
    folds_only_b: tuple[str, ...]
    groups_only_a: tuple[tuple[str, ...], ...]
    groups_only_b: tuple[tuple[str, ...], ...]
    algorithms_only_a: tuple[str, ...] = ()
    algorithms_only_b: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the plans are equal."""
        return not any(getattr(self, part.name) for part in fields(self))


def explain(
    graph: Graph, plan: FusionPlan, chosen: str = "chosen_rule", evidence: Evidence | None = None
) -> tuple[EdgeReason, ...]:
    """One row for each tensor between two operators of the model as the plan rewrites it (before folding).

    Edges of the model that rewriting takes away come last, with the code "rewritten"; one whose operators keep their
    names and are still joined is none of these. `chosen`: reason code of what
    the plan was free to choose, such as "chosen_measured". `evidence`: times of groups of this graph, of this plan
    and others; what it decides has a code of its own.
    """
    base, own = settled(graph, plan)
    rows = _Explainer(base, own, chosen, evidence or Evidence(base, ())).rows()
    stay = {(row.producer, row.consumer) for row in rows}
    gone = () if base is graph else _rewritten_away(graph, plan)
    return (*rows, *(row for row in gone if (row.producer, row.consumer) not in stay))


def plan_diff(
    a: FusionPlan, b: FusionPlan, limits: tuple[ScheduleLimits, ScheduleLimits] = (NO_LIMITS, NO_LIMITS)
) -> PlanDiff:
    """What differs between two plans of one graph, and between the limits of their schedules."""
    first, second = ({group.operators for group in plan.groups} for plan in (a, b))
    return PlanDiff(
        tuple(step for step in a.rewrites if step not in b.rewrites),
        tuple(step for step in b.rewrites if step not in a.rewrites),
        tuple(sorted(set(a.folds) - set(b.folds))),
        tuple(sorted(set(b.folds) - set(a.folds))),
        tuple(group.operators for group in a.groups if group.operators not in second),
        tuple(group.operators for group in b.groups if group.operators not in first),
        *((one.algorithms,) if limits[0].algorithms != limits[1].algorithms else () for one in limits),
    )


def describe(graph: Graph, plan: FusionPlan, limits: ScheduleLimits = NO_LIMITS) -> str:
    """The plan as text: a count, then one line a kernel (operator types, anchor or kind, what it writes)."""
    realised = realise(graph, plan)
    folded = f", {len(plan.folds)} folded" if plan.folds else ""
    changed = f", {counted(len(plan.rewrites), 'rewrite')}" if plan.rewrites else ""
    limited = f", {limits.algorithms}" if limits != NO_LIMITS else ""
    sizes = counted(len(plan.groups), "kernel"), counted(len(graph.operators), "operator")
    lines = [f"{' for '.join(sizes)}{changed}{folded}{limited}"]
    width = len(str(len(plan.groups)))
    for number, group in enumerate(plan.groups, 1):
        operators = [realised.by_name[name] for name in group.operators]
        _, writes = realised.boundary(group.operators)
        shapes = ", ".join("x".join(map(str, realised.tensors[name].shape)) or "scalar" for name in writes)
        anchors = [op.name for op in operators if planning_type(realised, op) == MappingType.MANY_TO_MANY]
        role = f"anchor {', '.join(anchors)}" if anchors else _group_type(realised, group.operators).value
        lines.append(f"{number:>{width}}  {'+'.join(op.op_type for op in operators)} -> {shapes}  ({role})")
    return "\n".join(lines) + "\n"


def _rewritten_away(graph: Graph, plan: FusionPlan) -> tuple[EdgeReason, ...]:
    """Rows of the model's edges at operators that a rewrite replaces."""
    gone: dict[str, str] = {}
    for site in replay(graph, plan.rewrites).applied:
        gone.update((name, f"{site.rule.name} at {site.root}: {site.rule.text}") for name in site.change.removed)
    rows = []
    for consumer in graph.operators:
        for tensor in dict.fromkeys(consumer.inputs):
            producer = graph.producers.get(tensor)
            text = gone.get(consumer.name) or (gone.get(producer.name) if producer is not None else None)
            if producer is not None and text is not None:
                names = producer.name, consumer.name, tensor
                rows.append(EdgeReason(*names, True, Relation.THROUGH, "rewritten", text))
    return tuple(rows)


class _Explainer:
    def __init__(self, graph: Graph, plan: FusionPlan, chosen: str, evidence: Evidence) -> None:
        self.graph, self.chosen, self.evidence = graph, chosen, evidence
        self.owners = folded_into(graph, plan.folds)
        self.copies = plan.copies
        self.realised = realise(graph, plan)
        self.groups: Mapping[str, tuple[str, ...]] = {
            name: group.operators for group in plan.groups for name in group.operators
        }
        self.covers = _covers(plan, self.owners)
        self.legality = Legality(self.realised)
        self.settled = Legality(self.realised)
        for group in plan.groups:
            self.settled.settle(self.settled.reach.mask(group.operators))
        self._apart: dict[tuple[str, str], tuple[Relation, Refusal | None, str]] = {}

    def rows(self) -> tuple[EdgeReason, ...]:
        found = []
        for consumer in self.graph.operators:
            for tensor in dict.fromkeys(consumer.inputs):
                producer = self.graph.producers.get(tensor)
                if producer is not None:
                    found.append(self._row(producer.name, consumer.name, tensor))
        return tuple(found)

    def _row(self, producer: str, consumer: str, tensor: str) -> EdgeReason:
        owners = self.owners.get(producer, producer), self.owners.get(consumer, consumer)
        if owners[0] == owners[1]:
            text = f"{consumer if consumer in self.owners else producer} is folded into {owners[1]}"
            return EdgeReason(producer, consumer, tensor, True, Relation.THROUGH, "folded", text)
        above, below = self._home(owners[0], owners[1]), self._home(owners[1], "")
        if above == below:
            kinds = [planning_type(self.graph, self.graph.by_name[name]) for name in (producer, consumer)]
            copied = Copy(*owners).name in self.groups
            found = Comparison() if copied else self.evidence.edge(producer, consumer, self.covers)
            code, remark = _judged(found, True, self.chosen)
            remark += f"; {consumer} has a copy of its own" if copied else ""
            text = f"one kernel: {kinds[0].value} before {kinds[1].value}{remark}"
            return EdgeReason(producer, consumer, tensor, True, relation(*kinds), code, text, found.fused, found.apart)
        if (above[0], below[0]) not in self._apart:
            self._apart[above[0], below[0]] = self._separate(above, below)
        colour, refused, text = self._apart[above[0], below[0]]
        if refused is not None:
            return EdgeReason(producer, consumer, tensor, False, colour, refused.code, refused.message)
        found = self.evidence.edge(producer, consumer, self.covers)
        code, remark = _judged(found, False, self._untried(producer, tensor))
        return EdgeReason(producer, consumer, tensor, False, colour, code, text + remark, found.fused, found.apart)

    def _home(self, name: str, reader: str) -> tuple[str, ...]:
        """The group of an operator as `reader` sees it: of its copy for the reader, of itself, or of some copy."""
        own = self.groups.get(Copy(name, reader).name) or self.groups.get(name)
        return own or next(self.groups[copy.name] for copy in self.copies if copy.operator == name)

    def _untried(self, producer: str, tensor: str) -> str:
        """Code of an edge that the plan keeps apart and that nothing was measured of."""
        if not self.evidence:
            return self.chosen
        if tensor in self.graph.outputs:
            return "output_of_graph"
        readers = {self.covers.get(user.name) for user in self.graph.consumers[tensor]}
        return "multi_consumer" if len(readers - {self.covers.get(producer)}) > 1 else "not_tried_budget"

    def _separate(self, above: tuple[str, ...], below: tuple[str, ...]) -> tuple[Relation, Refusal | None, str]:
        kinds = _group_type(self.realised, above), _group_type(self.realised, below)
        colour = relation(*kinds)
        refused = self.legality.refusal((*above, *below), connected=False) or self._cycle(above, below)
        return colour, refused, f"{kinds[0].value} before {kinds[1].value}: {_REMARKS[colour]}"

    def _cycle(self, above: tuple[str, ...], below: tuple[str, ...]) -> Refusal | None:
        """Why two groups cannot become one beside the plan's other groups."""
        between = self.settled.reach.between(self.settled.reach.mask((*above, *below)))
        if not between:
            return None
        first = self.realised.operators[(between & -between).bit_length() - 1].name
        kernel = "+".join(self.groups[first])
        pair = f"{'+'.join(above)} with {'+'.join(below)}"
        return Refusal("illegal_cycle", f"cannot fuse {pair}: the kernel {kernel} needs one and feeds the other")


def _covers(plan: FusionPlan, owners: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Operators of the model in the kernel of each operator, folded ones too."""
    folded: dict[str, list[str]] = {}
    for name, owner in owners.items():
        folded.setdefault(owner, []).append(name)
    found: dict[str, frozenset[str]] = {}
    for group in plan.groups:
        own = frozenset(group.operators).difference(copy.name for copy in plan.copies)
        covers = own.union(*(folded.get(name, ()) for name in own))
        found.update(dict.fromkeys(covers, covers))
    return found


_FAILURES = {"wrong": "wrong_result", "build_error": "build_failed", "timeout": "timeout"}


def _judged(found: Comparison, fused: bool, otherwise: str) -> tuple[str, str]:
    """(reason code, remark) of an edge that a plan fuses or not; `otherwise`: code where too little is measured."""
    if not fused and found.fused is None and found.failure:
        return _FAILURES.get(found.failure, "build_failed"), f"; the fused kernel failed: {found.failure}"
    if found.gain_us is None:
        return otherwise, ""
    better = "faster" if found.gain_us > 0 else "slower"
    if not found.clear:
        return "within_noise", "; fused and apart take the same time within the noise"
    agrees = fused == (found.gain_us > 0)
    remark = f"; fused it is {abs(found.gain_us):.3g} us {better}"
    if not agrees:
        return "chosen_measured", f"{remark} by itself: the plan was chosen as a whole"
    return ("chosen_measured" if fused else "measured_slower"), remark


def _group_type(graph: Graph, operators: tuple[str, ...]) -> MappingType:
    return reduce(combined, (planning_type(graph, graph.by_name[name]) for name in operators))
