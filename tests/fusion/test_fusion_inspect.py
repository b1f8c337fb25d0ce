"""The summary of a model before any search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from autofuse.cli.screens.parts_view import runs_facts
from autofuse.fusion.explain import describe, plan_diff
from autofuse.fusion.planner.baselines import none_plan
from autofuse.fusion.planner.planner import plan_from
from autofuse.graph.loading.load import from_model
from autofuse.graph.mapping import MappingType
from autofuse.graph.model import Graph
from autofuse.views.inspect import inspect

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
    diff = plan_diff(plan_from(graph, {}), none_plan(graph))
    assert diff.folds_only_a == ("bn",)
    assert diff.folds_only_b == ()
    assert diff.groups_only_a == (("conv", "relu"),)
    assert set(diff.groups_only_b) == {("conv",), ("bn",), ("relu",)}
    assert not diff.same
    assert plan_diff(plan_from(graph, {}), plan_from(graph, {"seed": "smallest"})).same


def test_a_plan_is_described_one_line_a_kernel(network: Graph) -> None:
    plan = plan_from(network, {})
    lines = describe(network, plan).splitlines()
    assert len(lines) == 1 + len(plan.groups)
    kernels = "1 kernel" if len(plan.groups) == 1 else f"{len(plan.groups)} kernels"
    assert lines[0].startswith(f"{kernels} for {len(network.operators)} operators")


def layered(builder: Any, layers: int) -> Graph:
    """Transformer layers written out in small operators (25 each), a mask read by all of them."""
    b = builder("layered")
    x, mask = b.input("x", 1, 16, 32), b.op("Neg", "mask", (b.input("m", 1, 1, 1, 16),))
    for layer in range(layers):
        heads = {}
        for part, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
            split = b.reshape(f"{part}{layer}_split", b.dense(f"{part}{layer}", x, 32), 1, 16, 4, 8)
            heads[part] = b.transpose(f"{part}{layer}_heads", split, *perm)
        scores = b.op("MatMul", f"scores{layer}", (heads["q"], heads["k"]), (1, 4, 16, 16))
        weights = b.op("Softmax", f"softmax{layer}", (b.op("Add", f"masked{layer}", (scores, mask)),), axis=-1)
        mixed = b.op("MatMul", f"mix{layer}", (weights, heads["v"]), (1, 4, 16, 8))
        mixed = b.reshape(f"join{layer}", b.transpose(f"unsplit{layer}", mixed, 0, 2, 1, 3), 1, 16, 32)
        x = b.layernorm(f"ln{layer}a", b.op("Add", f"residual{layer}a", (b.dense(f"out{layer}", mixed, 32), x)))
        h = b.dense(f"up{layer}", x, 64)
        e = b.op("Erf", f"erf{layer}", (b.op("Div", f"div{layer}", (h, b.constant(value=1.4))),))
        h = b.op("Mul", f"gelu{layer}", (h, b.op("Add", f"one{layer}", (e, b.constant(value=1)))))
        x = b.layernorm(f"ln{layer}b", b.op("Add", f"residual{layer}b", (b.dense(f"down{layer}", h, 32), x)))
    return b.build(x)


@pytest.mark.long
def test_five_thousand_operators_are_analysed_and_planned_in_seconds(builder: Any) -> None:
    graph = layered(builder, 5000 // 30 + 1)
    assert len(graph.operators) >= 5000
    started = time.process_time()
    summary = inspect(graph)  # which makes the default plan
    assert time.process_time() - started < 40, "it takes some five seconds; a slow machine is given time"
    assert summary.kernels_default < len(graph.operators) / 2
    assert summary.sites >= 10 * len(summary.decisions), "equal layers share their decisions"
    assert summary.distinct_regions < summary.regions / 10, "equal layers are equal regions"


@pytest.mark.parametrize(("dtype", "wide"), [("int16", 1), ("uint16", 1), ("int8", 0)])
def test_levels_of_sixteen_bits_are_named_where_they_are_multiplied(dtype: str, wide: int) -> None:
    """Products of bytes are integers; those of 16 bits are computed in float32, and the summary tells."""
    text = """<ir_version: 10, opset_import: ["": 21]> f (float[4,8] x) => (float[4,3] y) {
        q = QuantizeLinear (x, s, z)  r = DequantizeLinear (q, s, z)  u = DequantizeLinear (w, s)
        p = MatMul (r, u)  y = Relu (p) }"""
    model = onnx.parser.parse_model(text)
    weights = np.arange(24).reshape(8, 3).astype("int8")
    arrays = {"s": np.float32(0.1), "z": np.array(0, dtype), "w": weights}
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items())
    summary = inspect(from_model(model, "levels"))
    assert len(summary.wide_levels) == wide
    assert ("levels of 16 bits" in runs_facts(None, summary.wide_levels)) == bool(wide)
