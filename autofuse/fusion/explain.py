"""Why each edge is fused or not, how two plans differ, and a plan in readable lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from autofuse.fusion.edges import planning_type
from autofuse.fusion.legality import Legality, Refusal
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.relation import Relation, combined, relation
from autofuse.fusion.skeleton import folded_into, skeleton
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph

_REMARKS = {
    Relation.THROUGH: "legal, and green in the table; the plan keeps them apart",
    Relation.DEPEND: "legal, to be measured; the plan keeps them apart",
    Relation.BREAK: "legal, but red in the table; the plan keeps them apart",
}


@dataclass(frozen=True)
class EdgeReason:
    """What a plan does with `tensor` between two operators of the model, and why.

    `relation`: the table's word for the two operators when they are fused, for their groups when not.
    `code`: "folded", the code under which the plan was chosen, or a `Refusal` code.
    """

    producer: str
    consumer: str
    tensor: str
    fused: bool
    relation: Relation
    code: str
    text: str


@dataclass(frozen=True)
class PlanDiff:
    """Folds and groups (operator names) that stand in one of two plans only."""

    folds_only_a: tuple[str, ...]
    folds_only_b: tuple[str, ...]
    groups_only_a: tuple[tuple[str, ...], ...]
    groups_only_b: tuple[tuple[str, ...], ...]

    @property
    def same(self) -> bool:
        """Whether the plans are equal."""
        return not (self.folds_only_a or self.folds_only_b or self.groups_only_a or self.groups_only_b)


def explain(graph: Graph, plan: FusionPlan, chosen: str = "chosen_rule") -> tuple[EdgeReason, ...]:
    """One row for each tensor between two operators of the model (before folding).

    `chosen`: reason code of what the plan was free to choose, such as "chosen_measured".
    """
    return _Explainer(graph, plan, chosen).rows()


def plan_diff(a: FusionPlan, b: FusionPlan) -> PlanDiff:
    """What differs between two plans of one graph."""
    first, second = ({group.operators for group in plan.groups} for plan in (a, b))
    return PlanDiff(
        tuple(sorted(set(a.folds) - set(b.folds))),
        tuple(sorted(set(b.folds) - set(a.folds))),
        tuple(group.operators for group in a.groups if group.operators not in second),
        tuple(group.operators for group in b.groups if group.operators not in first),
    )


def describe(graph: Graph, plan: FusionPlan) -> str:
    """The plan as text: a count, then one line a kernel (operator types, anchor or kind, what it writes)."""
    realised = skeleton(graph, plan.folds)
    folded = f", {len(plan.folds)} folded" if plan.folds else ""
    lines = [f"{len(plan.groups)} kernels for {len(graph.operators)} operators{folded}"]
    width = len(str(len(plan.groups)))
    for number, group in enumerate(plan.groups, 1):
        operators = [realised.by_name[name] for name in group.operators]
        _, writes = realised.boundary(group.operators)
        shapes = ", ".join("x".join(map(str, realised.tensors[name].shape)) or "scalar" for name in writes)
        anchors = [op.name for op in operators if planning_type(realised, op) == MappingType.MANY_TO_MANY]
        role = f"anchor {', '.join(anchors)}" if anchors else _group_type(realised, group.operators).value
        lines.append(f"{number:>{width}}  {'+'.join(op.op_type for op in operators)} -> {shapes}  ({role})")
    return "\n".join(lines) + "\n"


class _Explainer:
    def __init__(self, graph: Graph, plan: FusionPlan, chosen: str) -> None:
        self.graph, self.chosen = graph, chosen
        self.owners = folded_into(graph, plan.folds)
        self.realised = skeleton(graph, plan.folds)
        self.groups: Mapping[str, tuple[str, ...]] = {
            name: group.operators for group in plan.groups for name in group.operators
        }
        self.legality = Legality(self.realised)
        self.settled = Legality(self.realised)
        for group in plan.groups:
            self.settled.settle(self.settled.reach.mask(group.operators))
        self._apart: dict[tuple[str, str], tuple[Relation, str, str]] = {}

    def rows(self) -> tuple[EdgeReason, ...]:
        found = []
        for consumer in self.graph.operators:
            for tensor in dict.fromkeys(consumer.inputs):
                producer = self.graph.producers.get(tensor)
                if producer is not None:
                    fused, colour, code, text = self._reason(producer.name, consumer.name)
                    found.append(EdgeReason(producer.name, consumer.name, tensor, fused, colour, code, text))
        return tuple(found)

    def _reason(self, producer: str, consumer: str) -> tuple[bool, Relation, str, str]:
        if consumer in self.owners:
            return True, Relation.THROUGH, "folded", f"{consumer} is folded into {self.owners[consumer]}"
        above = self.groups[self.owners.get(producer, producer)]
        below = self.groups[consumer]
        if above == below:
            kinds = [planning_type(self.graph, self.graph.by_name[name]) for name in (producer, consumer)]
            colour = relation(kinds[0], kinds[1])
            return True, colour, self.chosen, f"one kernel: {kinds[0].value} before {kinds[1].value}"
        key = above[0], below[0]
        if key not in self._apart:
            self._apart[key] = self._separate(above, below)
        return False, *self._apart[key]

    def _separate(self, above: tuple[str, ...], below: tuple[str, ...]) -> tuple[Relation, str, str]:
        kinds = _group_type(self.realised, above), _group_type(self.realised, below)
        colour = relation(*kinds)
        refused = self.legality.refusal((*above, *below)) or self._cycle(above, below)
        if refused is not None:
            return colour, refused.code, refused.message
        return colour, self.chosen, f"{kinds[0].value} before {kinds[1].value}: {_REMARKS[colour]}"

    def _cycle(self, above: tuple[str, ...], below: tuple[str, ...]) -> Refusal | None:
        """Why two groups cannot become one beside the plan's other groups."""
        between = self.settled.reach.between(self.settled.reach.mask((*above, *below)))
        if not between:
            return None
        first = self.realised.operators[(between & -between).bit_length() - 1].name
        kernel = "+".join(self.groups[first])
        pair = f"{'+'.join(above)} with {'+'.join(below)}"
        return Refusal("illegal_cycle", f"cannot fuse {pair}: the kernel {kernel} needs one and feeds the other")


def _group_type(graph: Graph, operators: tuple[str, ...]) -> MappingType:
    return reduce(combined, (planning_type(graph, graph.by_name[name]) for name in operators))
