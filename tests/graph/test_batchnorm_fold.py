"""Folding BatchNormalization: the same numbers, and every reason not to."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from autofuse.errors import PlanError
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from autofuse.graph.transform.fold import fold, fold_refusal, fold_sites
from tests.graph.norms import NORM, statistics, weight

CONV = f"f (float[1,4,6,6] x) => (float[1,6,4,4] y) {{ c = Conv(x, w) n = {NORM.format('c')} y = Relu(n) }}"
WEIGHTS = {"w": weight(6, 4, 3, 3), **statistics(6)}


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        (CONV, WEIGHTS),
        (
            f"f (float[1,4,6,6] x) => (float[1,6,4,4] y) {{ c = Conv<group=2>(x, w, b) y = {NORM.format('c')} }}",
            {"w": weight(6, 2, 3, 3), "b": weight(6), **statistics(6)},
        ),
        (
            f"f (float[2,4,9] x) => (float[2,6,7] y) {{ c = Conv(x, w) y = {NORM.format('c')} }}",
            {"w": weight(6, 4, 3), **statistics(6)},
        ),
        (
            f"""f (float[1,4,5,5] x) => (float[1,6,10,10] y) {{
            c = ConvTranspose<strides=[2,2]>(x, w) y = {NORM.format("c")} }}""",
            {"w": weight(4, 6, 2, 2), **statistics(6)},
        ),
        (
            f"""f (float[1,4,5,5] x) => (float[1,6,7,7] y) {{
            c = ConvTranspose<group=2>(x, w, b) y = {NORM.format("c")} }}""",
            {"w": weight(4, 3, 3, 3), "b": weight(6), **statistics(6)},
        ),
        (
            f"f (float[3,5] x) => (float[3,6] y) {{ c = Gemm<alpha=0.5, beta=2.0>(x, w, b) y = {NORM.format('c')} }}",
            {"w": weight(5, 6), "b": weight(6), **statistics(6)},
        ),
        (
            f"f (float[5,3] x) => (float[3,6] y) {{ c = Gemm<transA=1, transB=1>(x, w, b) y = {NORM.format('c')} }}",
            {"w": weight(6, 5), "b": weight(3, 6), **statistics(6)},
        ),
        (
            f"f (float[3,5] x) => (float[3,6] y) {{ c = Gemm(x, w) y = {NORM.format('c')} }}",
            {"w": weight(5, 6), **statistics(6)},
        ),
    ],
    ids=[
        "conv",
        "grouped",
        "1d",
        "transposed",
        "grouped transposed",
        "gemm",
        "gemm with a matrix",
        "gemm without bias",
    ],
)
def test_a_folded_graph_computes_the_same(graph_of, run, text, weights):
    graph = graph_of(text, weights=weights)
    (site,) = fold_sites(graph)
    folded = fold(graph, [site])
    assert [op.op_type for op in folded.operators] == [
        op.op_type for op in graph.operators if op.op_type != "BatchNormalization"
    ]
    assert not [name for name in folded.constants if name in ("w", "b", "gamma", "beta", "mean", "var")]
    feeds = {"x": np.random.default_rng(1).standard_normal(graph.tensors["x"].shape).astype(np.float32)}
    for before, after in zip(run(to_model(graph), feeds), run(to_model(folded), feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-4)
    assert from_model(to_model(folded), "again").operators == folded.operators


def test_the_producer_keeps_its_name_and_takes_over_the_result(graph_of):
    graph = graph_of(CONV, weights=WEIGHTS)
    folded = fold(graph, fold_sites(graph))
    conv = folded.by_name["Conv_0"]
    assert conv.outputs == ("n",)
    assert conv.inputs == ("x", "Conv_0/folded_weight", "Conv_0/folded_bias")
    assert conv.attributes == graph.by_name["Conv_0"].attributes
    assert "c" not in folded.tensors
    assert set(folded.constants) == {"Conv_0/folded_weight", "Conv_0/folded_bias"}


def test_shared_weights_fold_apart(graph_of, run):
    text = f"""f (float[1,4,6,6] x) => (float[1,6,4,4] y, float[1,6,4,4] z) {{
        c = Conv(x, w) d = Conv(x, w) y = {NORM.format("c")} z = Relu(d) }}"""
    graph = graph_of(text, weights=WEIGHTS)
    folded = fold(graph, fold_sites(graph))
    feeds = {"x": weight(1, 4, 6, 6)}
    for before, after in zip(run(to_model(graph), feeds), run(to_model(folded), feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-4)


def test_only_the_named_sites_are_folded(graph_of):
    text = f"""f (float[1,4,6,6] x) => (float[1,6,4,4] y, float[1,6,4,4] z) {{
        c = Conv(x, w) d = Conv(x, w) y = {NORM.format("c")} z = {NORM.format("d")} }}"""
    graph = graph_of(text, weights=WEIGHTS)
    assert fold_sites(graph) == ("BatchNormalization_2", "BatchNormalization_3")
    folded = fold(graph, ["BatchNormalization_3"])
    assert fold_sites(folded) == ("BatchNormalization_2",)
    assert fold(graph, []) is graph


@pytest.mark.parametrize(
    ("text", "changes", "reason"),
    [
        (CONV, {"var": [1, 1, -1, 1, 1, 1]}, "variance is negative"),
        (CONV, {"gamma": [1, 1, np.nan, 1, 1, 1]}, "not finite"),
        (CONV, {"mean": [1, 1, np.inf, 1, 1, 1]}, "not finite"),
        (
            f"""f (float[1,4,6,6] x) => (float[1,6,4,4] y, float[1,6,4,4] z) {{
            c = Conv(x, w) y = {NORM.format("c")} z = Relu(c) }}""",
            {},
            "c is also read by Relu_2",
        ),
        (
            f"f (float[1,4,6,6] x) => (float[1,6,4,4] y, float[1,6,4,4] c) {{ c = Conv(x, w) y = {NORM.format('c')} }}",
            {},
            "c is an output of the graph",
        ),
        (f"f (float[1,6,4,4] x) => (float[1,6,4,4] y) {{ y = {NORM.format('x')} }}", {}, "an input of the graph"),
        (
            f"f (float[1,6,4,4] x) => (float[1,6,4,4] y) {{ c = Relu(x) y = {NORM.format('c')} }}",
            {},
            r"comes from Relu_0 \(Relu\)",
        ),
        (
            f"f (float[1,4,6,6] x, float[6,4,3,3] v) => (float[1,6,4,4] y) {{ c = Conv(x, v) y = {NORM.format('c')} }}",
            {},
            "v is not constant",
        ),
        (
            """f (float[1,4,6,6] x, float[6] g) => (float[1,6,4,4] y) {
            c = Conv(x, w) y = BatchNormalization(c, g, beta, mean, var) }""",
            {},
            "g is not constant",
        ),
    ],
)
def test_what_cannot_be_folded_is_refused_with_its_reason(graph_of, text, changes, reason):
    weights = {"w": weight(6, 4, 3, 3), **statistics(6, **changes)}
    graph = graph_of(text, weights=weights)
    (norm,) = (op.name for op in graph.operators if op.op_type == "BatchNormalization")
    assert fold_sites(graph) == ()
    with pytest.raises(PlanError, match=f"cannot fold {norm}: .*{reason}"):
        fold(graph, [norm])


def test_other_operators_and_unknown_names_are_refused(graph_of):
    graph = graph_of(CONV, weights=WEIGHTS)
    assert fold_refusal(graph, "Relu_2") == "it is Relu, not BatchNormalization"
    with pytest.raises(PlanError, match="no such operator"):
        fold(graph, ["ghost"])


def test_a_negative_variance_saved_by_epsilon_is_still_no_site(graph_of):
    graph = graph_of(CONV, weights={**WEIGHTS, "var": np.full(6, -0.001, np.float32)})
    assert fold_sites(graph) == ()


@settings(max_examples=25, deadline=None)
@given(
    groups=st.integers(1, 3),
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    transposed=st.booleans(),
    bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_any_grouped_convolution_folds_right(groups, rows, columns, transposed, bias, seed):
    """Against numpy: the folded bias and weights applied by the definition."""
    generator = np.random.default_rng(seed)
    inputs, outputs = groups * rows, groups * columns
    shape = (inputs, columns, 1) if transposed else (outputs, rows, 1)
    arrays = {"w": generator.standard_normal(shape).astype(np.float32), **statistics(outputs, seed)}
    if bias:
        arrays["b"] = generator.standard_normal(outputs).astype(np.float32)
    nodes = [
        helper.make_node(
            "ConvTranspose" if transposed else "Conv", ["x", "w", *(["b"] if bias else [])], ["c"], "conv", group=groups
        ),
        helper.make_node("BatchNormalization", ["c", "gamma", "beta", "mean", "var"], ["y"], "norm"),
    ]
    values = [helper.make_tensor_value_info(name, 1, [1, size, 1]) for name, size in (("x", inputs), ("y", outputs))]
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    body = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    graph = from_model(helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)]), "m")
    folded = fold(graph, fold_sites(graph))
    new, offset = (folded.constants[name].astype(np.float64) for name in folded.by_name["conv"].inputs[1:])
    scale = arrays["gamma"] / np.sqrt(arrays["var"].astype(np.float64) + 1e-5)
    for group in range(groups):
        for column in range(columns):
            channel = group * columns + column
            for row in range(rows):
                place = (group * rows + row, column, 0) if transposed else (channel, row, 0)
                np.testing.assert_allclose(new[place], arrays["w"][place] * scale[channel], rtol=1e-5)
            plain = float(arrays["b"][channel]) if bias else 0.0
            expected = (plain - arrays["mean"][channel]) * scale[channel] + arrays["beta"][channel]
            np.testing.assert_allclose(offset[channel], expected, rtol=1e-4, atol=1e-5)


def test_fifty_large_sites_fold_in_a_moment(graph_of):
    lines = ["a0 = Relu(x)"]
    for index in range(50):
        lines.append(f"c{index} = Conv<pads=[1,1,1,1]>(a{index}, w) a{index + 1} = {NORM.format(f'c{index}')}")
    text = f"f (float[1,128,4,4] x) => (float[1,128,4,4] y) {{ {' '.join(lines)} y = Relu(a50) }}"
    graph = graph_of(text, weights={"w": weight(128, 128, 3, 3), **statistics(128)})
    start = time.process_time()
    folded = fold(graph, fold_sites(graph))
    assert time.process_time() - start < 20, "it takes a tenth of a second; a slow machine is given time"
    assert len(folded.operators) == 52
