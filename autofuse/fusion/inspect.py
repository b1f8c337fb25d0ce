"""What a model offers to a search: operators, costs, open decisions, what cannot be tuned and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.fusion.baselines import none_plan
from autofuse.fusion.context import group_signature
from autofuse.fusion.legality import Legality
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner import Decision, Planner
from autofuse.fusion.skeleton import skeleton
from autofuse.fusion.space import FusionSpace
from autofuse.graph.cost import intermediate_bytes, operator_cost
from autofuse.graph.mapping import MappingType, mapping_type
from autofuse.graph.model import Graph


@dataclass(frozen=True)
class OperatorSummary:
    """One operator: mapping type, FLOPs, bytes of its results.

    `untunable`: why it shares a kernel with no other operator; empty when it may.
    """

    name: str
    op_type: str
    mapping: MappingType
    shape: tuple[int, ...]
    flops: int
    output_bytes: int
    untunable: str = ""


@dataclass(frozen=True)
class GraphSummary:
    """`log10_plans`: decimal logarithm of the product of the decisions' choices, an upper bound of the plans.

    `intermediate_bytes`: of all results between operators, and `intermediate_bytes_default` of those left
    between the kernels of the default plan. `workloads`: distinct kernels among the default plan's and
    those of no fusion at all, the work a search starts with.
    """

    name: str
    operators: tuple[OperatorSummary, ...]
    flops: int
    intermediate_bytes: int
    intermediate_bytes_default: int
    decisions: tuple[Decision, ...]
    log10_plans: float
    kernels_default: int
    workloads: int

    @property
    def untunable(self) -> tuple[OperatorSummary, ...]:
        """Operators that always run alone."""
        return tuple(operator for operator in self.operators if operator.untunable)


def inspect(
    graph: Graph, space: FusionSpace | None = None, without_kernel: Mapping[str, str] | None = None
) -> GraphSummary:
    """Summary of `graph` as loaded (nothing folded yet).

    `without_kernel`: operator name -> why no kernel can be made of it (see `autofuse.kernels.coverage`).
    """
    planner = Planner(graph, space)
    legality = Legality(graph)
    rows = []
    for operator in graph.operators:
        cost = operator_cost(graph, operator)
        fault = legality.fault(operator.name)
        shape = next((graph.tensors[name].shape for name in operator.outputs if name), ())
        mapping = mapping_type(graph, operator)
        missing = (without_kernel or {}).get(operator.name)
        reason = f"no kernel, so the model cannot be compiled: {missing}" if missing else fault.message if fault else ""
        row = OperatorSummary(operator.name, operator.op_type, mapping, shape, cost.flops, cost.bytes_written, reason)
        rows.append(row)
    plan = planner.plan({})
    signatures = _signatures(graph, plan) | _signatures(graph, none_plan(graph))
    return GraphSummary(
        name=graph.name,
        operators=tuple(rows),
        flops=sum(row.flops for row in rows),
        intermediate_bytes=intermediate_bytes(graph),
        intermediate_bytes_default=_between_kernels(graph, plan),
        decisions=planner.decisions,
        log10_plans=sum(math.log10(len(decision.choices)) for decision in planner.decisions),
        kernels_default=len(plan.groups),
        workloads=len(signatures),
    )


def _signatures(graph: Graph, plan: FusionPlan) -> set[str]:
    realised = skeleton(graph, plan.folds)
    return {group_signature(realised, group.operators) for group in plan.groups}


def _between_kernels(graph: Graph, plan: FusionPlan) -> int:
    realised = skeleton(graph, plan.folds)
    results = set(realised.outputs)
    written = {name for group in plan.groups for name in realised.boundary(group.operators)[1]}
    return sum(realised.tensors[name].size_bytes for name in written - results)
