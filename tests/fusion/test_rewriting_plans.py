"""Rewrites as decisions of a plan: greedy by default, each class of sites open, checked again on reuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofuse.errors import PlanError
from autofuse.fusion.explain import describe, explain, plan_diff
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import default_plan, plan_of_rows
from autofuse.fusion.planner.planner import Planner
from autofuse.fusion.planner.rewriting import ALL, RewritingPlanner, is_exact
from autofuse.fusion.skeleton import settled
from autofuse.fusion.space import FusionSpace
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.views.inspect import inspect

Zoo = Mapping[str, Callable[[], Graph]]


@pytest.fixture
def norm(zoo: Zoo) -> Graph:
    return zoo["decomposed_layernorm"]()


def test_the_default_plan_is_the_greedy_choice(norm: Graph) -> None:
    plan = RewritingPlanner(norm).plan({})
    assert any(step.startswith("layer_normalization@") for step in plan.rewrites)
    assert "LayerNormalization" in {operator.op_type for operator in settled(norm, plan)[0].operators}
    check_plan(norm, plan)


def test_without_rewrites_a_plan_is_that_of_the_planner(norm: Graph) -> None:
    assert RewritingPlanner(norm).plan({ALL: "keep"}) == Planner(norm).plan({})


def test_every_flip_of_a_rewrite_makes_a_legal_plan(network: Graph) -> None:
    planner = RewritingPlanner(network)
    for decision in planner.decisions:
        if decision.kind == "rewrite":
            check_plan(network, planner.plan({decision.name: decision.choices[1]}))


def test_a_plan_with_rewrites_survives_json_and_keeps_old_keys(norm: Graph) -> None:
    plan = RewritingPlanner(norm).plan({})
    assert FusionPlan.from_json(plan.to_json()) == plan
    assert "rewrites" not in json.loads(replace(plan, rewrites=()).to_json())
    assert replace(plan, rewrites=()).key != plan.key


def test_a_stored_rewrite_that_does_not_apply_is_refused(norm: Graph) -> None:
    plan = RewritingPlanner(norm).plan({})
    for step, message in (("layer_normalization@dense", "does not apply"), ("nonsense@sub", "no rule")):
        with pytest.raises(PlanError, match=message):
            check_plan(norm, replace(plan, rewrites=(step,)))


def test_exact_spaces_change_no_rounding(network: Graph) -> None:
    planner = RewritingPlanner(network, FusionSpace(exact=True))
    assert is_exact(planner.plan({}))
    assert not any(decision.kind == "fold" for decision in planner.decisions)


def test_an_edge_whose_operators_keep_their_names_is_told_once(onnx_builder: Any, tmp_path: Path) -> None:
    b = onnx_builder()
    product = b.op("MatMul", "product", "x", b.weights(8, 8))
    swish = b.op("Mul", "swish", product, b.op("Sigmoid", "sigmoid", product))
    graph = load(b.save(tmp_path / "net.onnx", {"x": [4, 8]}, [b.op("Softmax", "last", swish)]))
    plan = RewritingPlanner(graph).plan({})
    assert [step.partition("@")[0] for step in plan.rewrites] == ["swish"]
    codes = {(row.producer, row.consumer): row.code for row in explain(graph, plan)}
    assert len(explain(graph, plan)) == len(codes) == 4
    assert {edge for edge, code in codes.items() if code == "rewritten"} == {
        ("product", "sigmoid"),
        ("sigmoid", "swish"),
    }


def test_explain_diff_describe_and_inspect_know_rewrites(norm: Graph) -> None:
    planner = RewritingPlanner(norm)
    plan, plain = planner.plan({}), planner.plan({ALL: "keep"})
    rows = explain(norm, plan)
    assert {("sub", "pow"), ("mean", "sub")} <= {(r.producer, r.consumer) for r in rows if r.code == "rewritten"}
    assert plan_diff(plan, plain).rewrites_only_a == plan.rewrites
    assert f", {len(plan.rewrites)} rewrite" in describe(norm, plan)
    assert {"layer_normalization"} <= {row.rule for row in inspect(norm).rewrites}


def test_rows_that_stay_open_keep_products_of_large_weights_apart(zoo: Zoo) -> None:
    """One product of queries, keys and values is split behind, some rows at a time."""
    graph = zoo["transformer"]()
    merges = [step for step in default_plan(graph).rewrites if step.startswith("matmuls_merged@")]
    assert merges
    assert plan_of_rows(graph, FusionSpace(), 1 << 30) == default_plan(graph)
    apart = plan_of_rows(graph, FusionSpace(), 1)
    assert not [step for step in apart.rewrites if step.startswith("matmuls_merged@")]
    check_plan(graph, apart)
