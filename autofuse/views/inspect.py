"""The summary of a model for a search: operators, costs, open decisions, what cannot be tuned and why."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.environment.alone import WhoRuns
from autofuse.fusion.context import group_signature
from autofuse.fusion.legality import Legality
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import none_plan
from autofuse.fusion.planner.planner import Decision
from autofuse.fusion.planner.regions import regions
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.fusion.skeleton import realise
from autofuse.fusion.space import FusionSpace
from autofuse.graph.cost import group_cost, intermediate_bytes, operator_cost
from autofuse.graph.mapping import MappingType, mapping_type
from autofuse.graph.model import Graph
from autofuse.graph.transform.quantize.certificate import Certificate, certificate_of
from autofuse.rewrite.rule import Match

WIDE, PRODUCTS = frozenset({"int16", "uint16"}), frozenset({"Conv", "MatMul", "Gemm"})
"""Levels of 16 bits, and the operators that multiply them."""


@dataclass(frozen=True)
class OperatorSummary:
    """A summary of one operator: mapping type, FLOPs, bytes of its results.

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
class RewriteSummary:
    """A summary of all matches of one rewrite rule. FLOPs and bytes: what it saves at them, each operator run alone.

    `exact`: it keeps every bit. `default`: how many of the places the first trial rewrites.
    """

    rule: str
    text: str
    sites: int
    default: int
    exact: bool
    flops_saved: int
    bytes_saved: int


@dataclass(frozen=True)
class GraphSummary:
    """A summary of a graph. `log10_plans`: decimal logarithm of the product of the decisions' choices, an upper bound
    of the plans.

    `intermediate_bytes`: of all results between operators, and `intermediate_bytes_default` of those left
    between the kernels of the default plan. `workloads`: distinct kernels among the default plan's and
    those of no fusion at all, the work a search starts with. `sites`: places where something is open; equal ones
    share a decision. `regions`: see `autofuse.fusion.planner.regions`, of
    which `distinct_regions` differ in more than names and weights. `rewrites`: the rules that apply, those met
    once others were applied too. `runs`: who runs the whole model (None: nobody asked). `wide_levels`: names of
    products and convolutions whose levels have 16 bits, which are computed in float32. `certificate`: what a model that
    `quantize` wrote may lose.
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
    sites: int
    regions: int
    distinct_regions: int
    rewrites: tuple[RewriteSummary, ...] = ()
    runs: WhoRuns | None = None
    wide_levels: tuple[str, ...] = ()
    certificate: Certificate | None = None

    @property
    def untunable(self) -> tuple[OperatorSummary, ...]:
        """Operators that always run alone."""
        return tuple(operator for operator in self.operators if operator.untunable)


def inspect(graph: Graph, space: FusionSpace | None = None, runs: WhoRuns | None = None) -> GraphSummary:
    """Summary of `graph` as loaded (nothing folded yet); `runs`: who runs it."""
    planner = RewritingPlanner(graph, space)
    legality = Legality(graph)
    rows = []
    for operator in graph.operators:
        cost = operator_cost(graph, operator)
        fault = legality.fault(operator.name)
        shape = next((graph.tensors[name].shape for name in operator.outputs if name), ())
        mapping = mapping_type(graph, operator)
        reason = fault.message if fault else ""
        row = OperatorSummary(operator.name, operator.op_type, mapping, shape, cost.flops, cost.bytes_written, reason)
        rows.append(row)
    plan = planner.plan({})
    signatures = _signatures(graph, plan) | _signatures(graph, none_plan(graph))
    parts = regions(graph)
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
        sites=sum(max(1, len(decision.sites)) for decision in planner.decisions),
        regions=len(parts),
        distinct_regions=len({part.signature for part in parts}),
        rewrites=_rewrites(planner.matches),
        runs=runs,
        wide_levels=_wide_levels(graph),
        certificate=certificate_of(graph.origin),
    )


def _wide_levels(graph: Graph) -> tuple[str, ...]:
    """See GraphSummary."""
    wide = {
        operator.outputs[0]
        for operator in graph.operators
        if operator.op_type == "DequantizeLinear" and graph.tensors[operator.inputs[0]].dtype in WIDE
    }
    products = [operator for operator in graph.operators if operator.op_type in PRODUCTS]
    return tuple(operator.name for operator in products if wide & set(operator.inputs))


def bytes_moved(graph: Graph, plan: FusionPlan) -> int:
    """Bytes that the kernels of a plan read and write, each tensor once a kernel (see `autofuse.graph.cost`)."""
    realised = realise(graph, plan)
    costs = [group_cost(realised, group.operators) for group in plan.groups]
    return sum(cost.bytes_read + cost.bytes_written for cost in costs)


def _rewrites(matches: tuple[Match, ...]) -> tuple[RewriteSummary, ...]:
    by_rule: dict[str, list[Match]] = {}
    for one in matches:
        by_rule.setdefault(one.rule.name, []).append(one)
    return tuple(
        RewriteSummary(
            name, found[0].rule.text, len(found), sum(site.pays for site in found), found[0].rule.exact,
            sum(site.flops_saved for site in found), sum(site.bytes_saved for site in found),
        )
        for name, found in by_rule.items()
    )  # fmt: skip


def _signatures(graph: Graph, plan: FusionPlan) -> set[str]:
    realised = realise(graph, plan)
    return {group_signature(realised, group.operators) for group in plan.groups}


def _between_kernels(graph: Graph, plan: FusionPlan) -> int:
    realised = realise(graph, plan)
    results = set(realised.outputs)
    written = {name for group in plan.groups for name in realised.boundary(group.operators)[1]}
    return sum(realised.tensors[name].size_bytes for name in written - results)
