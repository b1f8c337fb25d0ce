"""What may be fused. Whether it pays is asked elsewhere; a plan that passes here computes the right thing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError

from autofuse.errors import PlanError
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.fusion.reach import Reach, bits
from autofuse.fusion.skeleton import realise, settled
from autofuse.graph.mapping import MappingType, mapping_type
from autofuse.graph.model import Graph, Operator, topological_order
from autofuse.graph.transform.fold import fold_refusal

CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

_SHOWN = 6


@dataclass(frozen=True)
class Refusal:
    """A reason why operators may not become one kernel.

    `code`: "illegal_cycle", "unsupported_operator", "dynamic_shape", "not_connected", "group_too_large"
    or "unknown_operator". `message`: one sentence that names the operators.
    """

    code: str
    message: str


class Legality:
    """The legality of groups of one graph: may these become one kernel? Build it once when asking often.

    `max_group_operators`: None when any size will do. `refused`: groups that may not be made in `may_join` and
    `may_merge`, since they turned out to have no kernel. A group of one operator is always legal: what has
    no fusible kernel then runs alone.
    """

    def __init__(
        self, graph: Graph, max_group_operators: int | None = None, refused: Collection[frozenset[str]] = ()
    ) -> None:
        self.graph = graph
        self.limit = max_group_operators
        self.reach = Reach(graph)
        self._refused = {self.reach.mask(group) for group in refused if all(name in graph.by_name for name in group)}
        self._faults: dict[str, Refusal | None] = {}

    def refusal(self, operators: Collection[str], connected: bool = True) -> Refusal | None:
        """The first rule that the group breaks, or None.

        `connected=False` lets siblings without a data dependence share a kernel (horizontal fusion).
        """
        graph = self.graph
        unknown = [name for name in operators if name not in graph.by_name]
        if unknown:
            return Refusal("unknown_operator", f"{unknown[0]!r} is no operator of {graph.name or 'the graph'}")
        ordered = sorted(set(operators), key=graph.position.__getitem__)
        if len(ordered) < 2:
            return None
        title = f"cannot fuse {_title(ordered)}"
        if self.limit is not None and len(ordered) > self.limit:
            return Refusal("group_too_large", f"{title}: {len(ordered)} operators, at most {self.limit} are allowed")
        for name in ordered:
            fault = self.fault(name)
            if fault is not None:
                return Refusal(fault.code, f"{title}: {fault.message}")
        if connected:
            apart = _unconnected(graph, ordered)
            if apart is not None:
                return Refusal("not_connected", f"{title}: {apart} exchanges no tensor with {ordered[0]}")
        mask = self.reach.mask(ordered)
        between = self.reach.between(mask)
        if between:
            return Refusal("illegal_cycle", f"{title}: {self._witness(set(ordered), between)}")
        return None

    def fault(self, name: str) -> Refusal | None:
        """Why one operator can share a kernel with no other, or None."""
        if name not in self._faults:
            self._faults[name] = _fault(self.graph, self.graph.by_name[name])
        return self._faults[name]

    def may_join(self, mask: int, index: int) -> bool:
        """Whether the operator at position `index` may join the legal group `mask` beside it.

        Sees groups that were handed to `settle` as single nodes.
        """
        if self.limit is not None and mask.bit_count() >= self.limit:
            return False
        joined = mask | 1 << index
        return joined not in self._refused and not joined & self._faulty and not self.reach.between(joined)

    def may_grow(self, group: Collection[str], name: str) -> bool:
        """Whether a legal group may take an operator that only it reads, out of one that it reads already."""
        mask = self.reach.mask((*group, name))
        return (self.limit is None or len(group) < self.limit) and mask not in self._refused and not mask & self._faulty

    def may_merge(self, first: int, second: int) -> bool:
        """Whether two legal groups may become one, connected or not, beside the groups handed to `settle`."""
        joined = first | second
        if self.limit is not None and joined.bit_count() > self.limit:
            return False
        return joined not in self._refused and not joined & self._faulty and not self.reach.between(joined)

    @cached_property
    def _faulty(self) -> int:
        return self.reach.mask(operator.name for operator in self.graph.operators if self.fault(operator.name))

    def settle(self, mask: int) -> None:
        """Declare a group finished, so that later groups cannot close a cycle through it."""
        if mask.bit_count() > 1:
            self.reach.contract(mask)

    def _witness(self, inside: set[str], between: int) -> str:
        """`norm is outside the group, depends on it and feeds add`."""
        graph = self.graph
        for index in bits(between):
            operator = graph.operators[index]
            fed = [user.name for user in graph.successors(operator) if user.name in inside]
            if fed:
                return f"{operator.name} is outside the group, depends on it and feeds {fed[0]}"
        raise AssertionError("an operator between members feeds a member")


def refusal(graph: Graph, operators: Collection[str], max_group_operators: int | None = None) -> Refusal | None:
    """Why `operators` of `graph` may not become one kernel, or None. See `Legality`."""
    return Legality(graph, max_group_operators).refusal(operators)


def check_plan(graph: Graph, plan: FusionPlan, max_group_operators: int | None = None) -> None:
    """PlanError unless `plan` covers the graph, rewritten, folded and copied, exactly once by legal groups.

    Its rewrites must apply where it says, and its groups be able to run. `graph`: the model as loaded. Groups need not
    be connected (horizontal fusion); a copy of an operator has to stand in the group of its reader, since nobody else
    may read it.
    """
    graph, plan = settled(graph, plan)
    for name in plan.folds:
        reason = fold_refusal(graph, name)
        if reason is not None:
            raise PlanError(f"plan folds {name!r}: {reason}")
    realised = realise(graph, plan)
    _check_cover(graph, realised, plan)
    legality = Legality(realised, max_group_operators)
    for group in plan.groups:
        refused = legality.refusal(group.operators, connected=False)
        if refused is not None:
            raise PlanError(refused.message)
    owner = {name: group for group in plan.groups for name in group.operators}
    for copy in plan.copies:
        if owner[copy.name] != owner.get(copy.reader):
            raise PlanError(f"plan copies {copy.operator!r} for {copy.reader!r}, which stands in another group")
    ordered_groups(realised, [group.operators for group in plan.groups])


def _check_cover(graph: Graph, realised: Graph, plan: FusionPlan) -> None:
    """PlanError unless the groups hold every operator of `realised` exactly once."""
    seen: set[str] = set()
    for group in plan.groups:
        if not group.operators:
            raise PlanError("plan holds an empty group")
        for name in group.operators:
            if name not in realised.by_name:
                kind = "folds and groups" if name in graph.by_name else "groups an unknown operator,"
                raise PlanError(f"plan {kind} {name!r}")
            if name in seen:
                raise PlanError(f"plan covers {name!r} twice")
            seen.add(name)
    missing = [operator.name for operator in realised.operators if operator.name not in seen]
    if missing:
        raise PlanError(f"plan leaves out {_listed(missing)}")


def ordered_groups(graph: Graph, groups: Iterable[Collection[str]]) -> tuple[Group, ...]:
    """The groups in an order in which they can run, their operators in topological order.

    Among groups that are ready the one whose last operator comes first in the model runs first.
    PlanError when groups wait for one another.
    """
    position = graph.position
    members = [tuple(sorted(group, key=position.__getitem__)) for group in groups]
    owner = {name: index for index, group in enumerate(members) for name in group}
    waits: dict[int, set[int]] = {index: set() for index in range(len(members))}
    for operator in graph.operators:
        after = owner[operator.name]
        waits[after] |= {owner[producer.name] for producer in graph.predecessors(operator)} - {after}
    try:
        done = topological_order(waits, rank=lambda index: position[members[index][-1]])
    except CycleError as error:
        stuck = [_title(members[index]) for index in sorted(set(error.args[1]))]
        raise PlanError(f"groups wait for one another: {_listed(stuck)}") from error
    return tuple(Group(members[index]) for index in done)


def _fault(graph: Graph, operator: Operator) -> Refusal | None:
    label = f"{operator.name} ({operator.op_type})"
    if operator.op_type in CONTROL_FLOW:
        return Refusal("unsupported_operator", f"{label} runs a graph of its own")
    for name in (*operator.inputs, *operator.outputs):
        if not name:
            continue
        tensor = graph.tensors.get(name)
        if tensor is None or any(size < 0 for size in tensor.shape):
            return Refusal("dynamic_shape", f"the shape of {name} at {label} is not known")
        if name in operator.outputs and not _numeric(tensor.dtype):
            return Refusal("unsupported_operator", f"{label} makes {tensor.dtype}, which no kernel computes with")
    if mapping_type(graph, operator) == MappingType.OPAQUE:
        return Refusal("unsupported_operator", f"{label} is opaque")
    return None


def _numeric(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "int", "uint", "bool"))


def _unconnected(graph: Graph, ordered: Sequence[str]) -> str | None:
    """A member that no path inside the group, either way, links to the first one."""
    inside = set(ordered)
    reached = {ordered[0]}
    waiting = [ordered[0]]
    while waiting:
        operator = graph.by_name[waiting.pop()]
        for other in (*graph.predecessors(operator), *graph.successors(operator)):
            if other.name in inside and other.name not in reached:
                reached.add(other.name)
                waiting.append(other.name)
    return next((name for name in ordered if name not in reached), None)


def _title(operators: Sequence[str]) -> str:
    if len(operators) <= _SHOWN:
        return "+".join(operators)
    return "+".join(operators[: _SHOWN - 1]) + f"+{len(operators) - _SHOWN + 1} more"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
