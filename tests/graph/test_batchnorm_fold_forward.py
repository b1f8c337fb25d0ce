"""Folding BatchNormalization into the operator after it: the same numbers, and no fold where padding would show."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autofuse.graph.submodel import to_model
from autofuse.graph.transform.fold import fold, fold_refusal, fold_sites, folds_forward
from autofuse.graph.transform.fold_forward import forward_refusal
from tests.graph.norms import NORM, statistics, weight

UNSHIFTED = {"beta": np.zeros(4), "mean": np.zeros(4)}


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        (
            f"f (float[1,4,6,6] x) => (float[1,6,4,4] y) {{ r = Relu(x) n = {NORM.format('r')} y = Conv(n, w) }}",
            {"w": weight(6, 4, 3, 3), **statistics(4)},
        ),
        (
            f"f (float[2,4,6,6] x) => (float[2,6,4,4] y) {{ n = {NORM.format('x')} y = Conv<group=2>(n, w, b) }}",
            {"w": weight(6, 2, 3, 3), "b": weight(6), **statistics(4)},
        ),
        (
            f"f (float[1,4,9] x) => (float[1,6,7] y) {{ n = {NORM.format('x')} y = Conv(n, w) }}",
            {"w": weight(6, 4, 3), **statistics(4)},
        ),
        (
            f"f (float[1,4,6,6] x) => (float[1,6,6,6] y) {{ n = {NORM.format('x')} y = Conv<pads=[1,1,1,1]>(n, w) }}",
            {"w": weight(6, 4, 3, 3), **statistics(4, **UNSHIFTED)},
        ),
        (
            f"f (float[3,5] x) => (float[3,6] y) {{ n = {NORM.format('x')} y = Gemm<alpha=0.5, beta=2.0>(n, w, b) }}",
            {"w": weight(5, 6), "b": weight(6), **statistics(5)},
        ),
        (
            f"f (float[3,5] x) => (float[3,6] y) {{ n = {NORM.format('x')} y = Gemm<transB=1>(n, w) }}",
            {"w": weight(6, 5), **statistics(5)},
        ),
    ],
    ids=["conv", "grouped with a bias", "1d", "padded without a shift", "gemm", "gemm transposed"],
)
def test_a_graph_folded_forward_computes_the_same(graph_of, run, text, weights):
    graph = graph_of(text, weights=weights)
    (site,) = fold_sites(graph)
    assert folds_forward(graph, site)
    folded = fold(graph, [site])
    assert not [op for op in folded.operators if op.op_type == "BatchNormalization"]
    assert not [name for name in folded.constants if name in ("w", "b", "gamma", "beta", "mean", "var")]
    feeds = {"x": np.random.default_rng(1).standard_normal(graph.tensors["x"].shape).astype(np.float32)}
    for before, after in zip(run(to_model(graph), feeds), run(to_model(folded), feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-4)


def test_one_convolution_takes_a_norm_from_each_side(graph_of, run):
    text = f"""f (float[1,4,6,6] x) => (float[1,4,4,4] y) {{
        n = {NORM.format("x")} c = Conv(n, w) y = {NORM.format("c")} }}"""
    graph = graph_of(text, weights={"w": weight(4, 4, 3, 3), **statistics(4)})
    first, second = fold_sites(graph)
    assert (folds_forward(graph, first), folds_forward(graph, second)) == (True, False)
    feeds = {"x": weight(1, 4, 6, 6)}
    expected = run(to_model(graph), feeds)
    for names, left in (((first, second), 1), ((second,), 2), ((second, first), 1)):
        folded = fold(graph, names)
        assert len(folded.operators) == left
        np.testing.assert_allclose(run(to_model(folded), feeds)[0], expected[0], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"f (float[1,4,6,6] x) => (float[1,6,6,6] y) {{ n = {NORM.format('x')} y = Conv<pads=[1,1,1,1]>(n, w) }}",
            "pads its input",
        ),
        (
            f"f (float[1,4,6,6] x) => (float[1,6,4,4] y, float[1,4,6,6] n) {{ n = {NORM.format('x')} y = Conv(n, w) }}",
            "needed by others",
        ),
        (
            f"f (float[1,4,6,6] x) => (float[1,4,6,6] y) {{ n = {NORM.format('x')} y = Relu(n) }}",
            r"its reader is Relu_1 \(Relu\)",
        ),
        (
            f"""f (float[1,4,6,6] x, float[6,4,3,3] v) => (float[1,6,4,4] y) {{
            n = {NORM.format("x")} y = Conv(n, v) }}""",
            "v is not constant",
        ),
    ],
)
def test_what_cannot_be_folded_forward_is_refused_with_its_reason(graph_of, text, reason):
    graph = graph_of(text, weights={"w": weight(6, 4, 3, 3), **statistics(4)})
    (norm,) = (op.name for op in graph.operators if op.op_type == "BatchNormalization")
    assert re.search(reason, forward_refusal(graph, norm) or "")
    assert fold_refusal(graph, norm) is not None
    assert fold_sites(graph) == ()
