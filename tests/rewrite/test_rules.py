"""Every rule, on random shapes and values: the rewritten graph computes what the graph computed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import checker, shape_inference
from onnx.reference import ReferenceEvaluator

from autofuse.graph.model import Graph
from autofuse.graph.submodel import to_model
from autofuse.rewrite.driver import apply, matches
from autofuse.rewrite.rule import Rule
from autofuse.rewrite.rules.catalogue import BY_NAME, RULES
from tests.rewrite.rule_samples.catalogue import graph_for
from tests.rewrite.samples import values

SUMS = {"AveragePool", "Conv", "Gemm", "GlobalAveragePool", "LayerNormalization", "MatMul", "Softmax"}
"""What the reference sums up in an order that depends on shapes."""

FEW = settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def run(graph: Graph, feeds: dict[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    model = to_model(graph)
    with np.errstate(all="ignore"):
        return [np.asarray(item) for item in ReferenceEvaluator(model).run(None, feeds)]


def close(got: NDArray[np.generic], wanted: NDArray[np.generic], exact: bool) -> None:
    assert got.dtype == wanted.dtype
    if exact:
        assert np.array_equal(got, wanted, equal_nan=wanted.dtype.kind == "f")
        return
    finite = np.isfinite(wanted)
    largest = float(np.max(np.abs(wanted[finite]), initial=1e-3))
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5 * max(largest, 1.0), equal_nan=True)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@FEW
@given(seed=st.integers(0, 2**32 - 1))
def test_a_rewritten_graph_computes_the_same(rule: Rule, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = graph_for(rule, rng)
    site = next((site for site in matches(graph) if site.rule is rule), None)
    assert site is not None, f"{rule.text}\n{[(op.op_type, op.inputs, op.outputs) for op in graph.operators]}"
    rewritten = apply(graph, [site])
    assert {op.name for op in site.change.added} <= set(rewritten.by_name)
    checker.check_model(shape_inference.infer_shapes(to_model(rewritten), strict_mode=True), full_check=True)
    feeds = values(graph, rng)
    exact = rule.exact and not any(operator.op_type in SUMS for operator in graph.operators)
    for got, wanted in zip(run(rewritten, feeds), run(graph, feeds), strict=True):
        close(got, wanted, exact)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_what_it_does(rule: Rule) -> None:
    assert " -> " in rule.text
    assert BY_NAME[rule.name] is rule
    assert rule.roots
