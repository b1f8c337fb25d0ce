"""The summary of a model before any search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from autofuse.fusion.baselines import default_plan, none_plan
from autofuse.fusion.explain import describe, plan_diff
from autofuse.fusion.inspect import inspect
from autofuse.fusion.planner import plan_from
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph

Zoo = Mapping[str, Callable[[], Graph]]


def test_operators_are_listed_with_mapping_type_flops_and_bytes(zoo: Zoo) -> None:
    summary = inspect(zoo["conv_bn_relu"]())
    assert [row.name for row in summary.operators] == ["conv", "bn", "relu"]
    assert [row.mapping for row in summary.operators] == [
        MappingType.MANY_TO_MANY,
        MappingType.ONE_TO_ONE,
        MappingType.ONE_TO_ONE,
    ]
    assert summary.operators[0].flops == 2 * 9 * 16 * 16 * 32 * 32
    assert all(row.output_bytes == 4 * 16 * 32 * 32 for row in summary.operators)
    assert summary.flops == sum(row.flops for row in summary.operators)


def test_intermediate_results_shrink_with_the_default_plan(zoo: Zoo) -> None:
    summary = inspect(zoo["conv_bn_relu"]())
    assert summary.intermediate_bytes == 2 * 4 * 16 * 32 * 32
    assert summary.intermediate_bytes_default == 0
    assert summary.kernels_default == 1


def test_the_size_of_the_search_counts_choices_and_distinct_kernels(zoo: Zoo) -> None:
    summary = inspect(zoo["transformer"]())
    product = math.prod(len(decision.choices) for decision in summary.decisions)
    assert math.isclose(10**summary.log10_plans, product, rel_tol=1e-9)
    assert summary.workloads < len(summary.operators) / 2  # the second layer adds nothing new


def test_what_cannot_be_tuned_is_named_with_its_reason(builder: Any) -> None:
    b = builder()
    top, _ = b.many("TopK", "top", (b.input("x", 4, 8), b.constant(1, dtype="int64", value=3)), ((4, 3), (4, 3)))
    summary = inspect(b.build(b.op("Exp", "exp", (top,))))
    assert [(row.name, row.untunable) for row in summary.untunable] == [("top", "top (TopK) is opaque")]


def test_two_plans_differ_in_the_named_folds_and_groups(zoo: Zoo) -> None:
    graph = zoo["conv_bn_relu"]()
    diff = plan_diff(default_plan(graph), none_plan(graph))
    assert diff.folds_only_a == ("bn",)
    assert diff.folds_only_b == ()
    assert diff.groups_only_a == (("conv", "relu"),)
    assert set(diff.groups_only_b) == {("conv",), ("bn",), ("relu",)}
    assert not diff.same
    assert plan_diff(default_plan(graph), plan_from(graph, {})).same


def test_a_plan_is_described_one_line_a_kernel(network: Graph) -> None:
    plan = default_plan(network)
    lines = describe(network, plan).splitlines()
    assert len(lines) == 1 + len(plan.groups)
    assert lines[0].startswith(f"{len(plan.groups)} kernels for {len(network.operators)} operators")
