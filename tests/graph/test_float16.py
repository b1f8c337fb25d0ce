"""float16 is storage: operators compute in float32 between what widens and what narrows."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

RNG = np.random.default_rng(16)
ONE = {
    "Conv": ("float16[1,3,6,6] x, float16[4,3,3,3] w, float16[4] b", "y = Conv(x, w, b)"),
    "MatMul": ("float16[3,5] x, float16[5,4] w", "y = MatMul(x, w)"),
    "Gemm": ("float16[3,5] x, float16[4,5] w, float16[4] b", "y = Gemm<transB=1, alpha=0.5>(x, w, b)"),
    "Softmax": ("float16[3,5] x", "y = Softmax(x)"),
    "LayerNormalization": ("float16[3,5] x, float16[5] s", "y = LayerNormalization(x, s)"),
    "Concat": ("float16[3,5] x, float16[3,2] z", "y = Concat<axis=1>(x, z)"),
    "MaxPool": ("float16[1,2,6,6] x", "y = MaxPool<kernel_shape=[2,2]>(x)"),
    "AveragePool": ("float16[1,2,6,6] x", "y = AveragePool<kernel_shape=[3,3]>(x)"),
    "ReduceSum": ("float16[3,40] x", "y = ReduceSum(x)"),
    "Where": ("bool[3,5] c, float16[3,5] x, float16[5] z", "y = Where(c, x, z)"),
    "Swish": ("float16[3,5] x", "s = Sigmoid(x) y = Mul(x, s)"),
    "ConvTranspose": ("float16[1,3,4,4] x, float16[3,2,2,2] w", "y = ConvTranspose<strides=[2,2]>(x, w)"),
    "Pow": ("float16[3,5] x, float[5] z", "a = Abs(x) y = Pow(a, z)"),
}


def drawn(text):
    """Inputs of a signature such as "float16[3,5] x, bool[5] c"."""
    found = {}
    for dtype, shape, name in re.findall(r"(\w+)\[([\d,]+)\] (\w+)", text):
        sizes = tuple(int(size) for size in shape.split(","))
        values = RNG.uniform(-1, 1, sizes)
        found[name] = values > 0 if dtype == "bool" else values.astype({"float": "float32"}.get(dtype, dtype))
    return found


def casts(graph):
    return [operator for operator in graph.operators if operator.op_type == "Cast"]


def computing_in_half(graph):
    """Operators other than casts and look-ups that read or write float16."""
    touched = [op for op in graph.operators if op.op_type not in ("Cast", "Gather")]
    names = {op.name: [*op.inputs, *op.outputs] for op in touched}
    return [name for name, all_ in names.items() if any(n and graph.tensors[n].dtype == "float16" for n in all_)]


@pytest.mark.parametrize("name", ONE)
def test_an_operator_on_float16_computes_in_float32_and_is_right(name, model, graph_of, run):
    inputs, body = ONE[name]
    text = f"f ({inputs}) => (float16 y) {{ {body} }}"
    feeds = drawn(inputs)
    graph = graph_of(text)
    assert computing_in_half(graph) == []
    assert without_kernel(graph) == {}
    (wanted,), (got,) = run(model(text), feeds), run(to_model(graph), feeds)
    assert got.dtype == wanted.dtype == np.float16
    np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), rtol=4e-3, atol=2e-3)


def test_between_two_operators_nothing_is_rounded(graph_of):
    graph = graph_of("f (float16[4] x) => (float16[4] y) { a = Exp(x) b = Sin(a) y = Neg(b) }")
    assert [operator.op_type for operator in graph.operators] == ["Cast", "Exp", "Sin", "Neg", "Cast"]


def test_a_cast_that_the_model_asks_for_keeps_rounding(model, graph_of, run):
    text = "f (float[8] x) => (float[8] y) { h = Cast<to=10>(x) e = Exp(h) y = Cast<to=1>(e) }"
    graph = graph_of(text)
    assert [operator.op_type for operator in graph.operators] == ["Cast", "Cast", "Exp"]
    x = RNG.uniform(-1, 1, 8).astype(np.float32)
    (got,) = run(to_model(graph), {"x": x})
    np.testing.assert_allclose(got, np.exp(x.astype(np.float16).astype(np.float32)), rtol=1e-6)


def test_a_table_that_is_only_gathered_from_stays_narrow(graph_of):
    table = RNG.uniform(-1, 1, (50, 4)).astype(np.float16)
    text = "f (int64[3] i) => (float16[3,4] y) { a = Gather(t, i) y = Neg(a) }"
    graph = graph_of(text, weights={"t": table})
    assert graph.constants["t"].dtype == np.float16
    assert [operator.op_type for operator in graph.operators] == ["Gather", "Cast", "Neg", "Cast"]


def test_a_weight_is_widened_once_and_the_narrow_one_is_gone(graph_of):
    weight = RNG.uniform(-1, 1, (4, 4)).astype(np.float16)
    text = "f (float16[2,4] x) => (float16[2,4] y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, w) }"
    graph = graph_of(text, weights={"w": weight})
    (found,) = (value for value in graph.constants.values() if value.size == weight.size)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, weight.astype(np.float32))


def test_results_of_other_types_are_left_alone(model, graph_of, run):
    text = "f (float16[6] x, float16[6] z) => (bool[6] y, int64[1] i) { y = Less(x, z) i = ArgMax(x) }"
    feeds = drawn("float16[6] x, float16[6] z")
    graph = graph_of(text)
    assert len(casts(graph)) == 2
    for wanted, got in zip(run(model(text), feeds), run(to_model(graph), feeds), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_an_output_that_another_operator_reads_is_rounded_for_the_caller_only(graph_of):
    graph = graph_of("f (float16[4] x) => (float16[4] y, float16[4] z) { y = Exp(x) z = Neg(y) }")
    (negated,) = (operator for operator in graph.operators if operator.op_type == "Neg")
    assert graph.tensors[negated.inputs[0]].dtype == "float32"


def test_a_model_of_float32_is_as_it_was(graph_of):
    graph = graph_of("f (float[4] x) => (float[4] y) { a = Exp(x) y = Neg(a) }")
    assert [operator.op_type for operator in graph.operators] == ["Exp", "Neg"]


def test_attention_of_float16_is_a_softmax_of_float32(model, graph_of, run):
    inputs = "float16[1,4,3,8] q, float16[1,2,5,8] k, float16[1,2,5,8] v"
    text = f"f ({inputs}) => (float16 y) {{ y = Attention<is_causal=1>(q, k, v) }}"
    graph, feeds = graph_of(text, 23), drawn(inputs)
    assert computing_in_half(graph) == [] and without_kernel(graph) == {}
    assert [operator.op_type for operator in graph.operators].count("Softmax") == 1
    (wanted,), (got,) = run(model(text, 23), feeds), run(to_model(graph), feeds)
    np.testing.assert_allclose(got.astype(np.float32), wanted.astype(np.float32), rtol=4e-3, atol=2e-3)


def test_a_broadcast_that_only_callers_read_is_one_of_float16(model, graph_of, run):
    """Before: it was widened, sunk behind the Cast and widened again, fifty times over; `compile` ended by exit 70."""
    text = "f (float16[3,4] x, int64[3] s) => (float16[2,3,4] y) { e = Expand(x, s) a = Round(e) y = Floor(a) }"
    shape = np.array([2, 3, 4])
    graph = graph_of(text, weights={"s": shape})
    assert [operator.op_type for operator in graph.operators] == ["Cast", "Round", "Floor", "Cast", "Expand"]
    x = RNG.uniform(-3, 3, (3, 4)).astype(np.float16)
    (wanted,), (got,) = run(model(text), {"x": x, "s": shape}), run(to_model(graph), {"x": x})
    np.testing.assert_array_equal(got, wanted)


def test_a_broadcast_between_two_operators_rounds_nothing(graph_of):
    inputs, body = "float16[3,4] x, int64[3] s, float16[2,3,1] z", "e = Exp(x) b = Expand(e, s) y = Add(b, z)"
    graph = graph_of(f"f ({inputs}) => (float16[2,3,4] y) {{ {body} }}", weights={"s": np.array([2, 3, 4])})
    assert len(casts(graph)) == 3 and computing_in_half(graph) == []
