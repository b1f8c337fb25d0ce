"""Models of bfloat16 tensors: float32 in the graph, rounded where memory or a contraction takes it, 16 bits outside."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from autofuse.errors import UncoveredError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.own.bfloat16 import in_float32
from autofuse.graph.own.rounding import is_rounded
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel
from autofuse.kernels.lowering.halves import half_tensors
from autofuse.values.names import numpy_dtype

BFLOAT16 = numpy_dtype("bfloat16")
ROUND, PRODUCT = "RoundToBfloat16", "Bfloat16MatMul"


def loaded(text, opset=21):
    """The graph of a model, and what ONNX Runtime makes of it as a model of float32."""
    header = f'<ir_version: 10, opset_import: ["": {opset}]>'
    return from_model(parser.parse_model(f"{header} f {text}"), "test")


def kinds(graph):
    return [operator.op_type for operator in graph.operators]


def results(run, graph):
    assert without_kernel(graph) == {}
    assert graph.halves <= half_tensors(graph) | set(graph.inputs) | set(graph.constants)
    feeds = generate_inputs(graph, 0)
    assert all(is_rounded(feeds[name]) for name in graph.halves.intersection(feeds))
    return run(to_model(graph), feeds), run(to_model(in_float32(graph)), feeds)


MODELS = {
    "a product, its bias and its activation, rounded once": (
        "(bfloat16[3,8] x, bfloat16[8,4] w, bfloat16[4] b) => (bfloat16[3,4] y)"
        "{ a = MatMul(x, w) c = Add(a, b) y = Relu(c) }",
        [PRODUCT, "Add", "Relu", ROUND],
    ),
    "feature maps and their pool": (
        "(bfloat16[1,8,6,6] x, bfloat16[8,8,3,3] w) => (bfloat16[1,8,1,1] y)"
        "{ a = Conv<pads=[1,1,1,1]>(x, w) c = Add(a, x) r = Relu(c) p = MaxPool<kernel_shape=[2,2]>(r)"
        " y = GlobalAveragePool(p) }",
        ["Bfloat16Conv", "Add", "Relu", ROUND, "MaxPool", "GlobalAveragePool", ROUND],
    ),
    "products of what is moved": (
        "(bfloat16[4,8] x, bfloat16[8,8] w) => (bfloat16[4,4] y)"
        "{ a = MatMul(x, w) t = Transpose(a) s = MatMul(a, t) y = Softmax(s) }",
        [PRODUCT, ROUND, "Transpose", PRODUCT, ROUND, "Softmax", ROUND],
    ),
    "a result that two read": (
        "(bfloat16[4] x) => (bfloat16[4] y) { a = Exp(x) b = Sin(a) y = Add(a, b) }",
        ["Exp", ROUND, "Sin", "Add", ROUND],
    ),
    "Casts from and to float32": (
        "(float[3,8] x, bfloat16[8,4] w) => (float[3,4] y) { h = Cast<to=16>(x) a = MatMul(h, w) y = Cast<to=1>(a) }",
        [PRODUCT, ROUND],
    ),
    "integers that become bfloat16": (
        "(int64[4] x) => (bfloat16[4] y) { h = Cast<to=16>(x) n = Shape(h)"
        " o = ConstantOfShape<value=bfloat16[1]{3}>(n) l = CastLike(x, o) y = Sub(o, l) }",
        ["Cast", ROUND, "Sub", ROUND],
    ),
    "numbers that are compared": (
        "(bfloat16[4] x, bfloat16[4] z) => (bool[4] y) { a = Add(x, z) y = Less(a, z) }",
        ["Add", ROUND, "Less"],
    ),
    "attention": (
        "(bfloat16[1,2,4,8] q, bfloat16[1,2,4,8] k, bfloat16[1,2,4,8] v) => (bfloat16[1,2,4,8] y)"
        "{ y = Attention(q, k, v) }",
        ["Transpose", PRODUCT, "Mul", "Softmax", "MatMul", ROUND],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_bfloat16_has_kernels_and_rounds_where_it_matters(run, name):
    text, expected = MODELS[name]
    graph = loaded(text, 23)
    assert kinds(graph) == expected
    assert graph.widened
    for rounded, exact in zip(*results(run, graph), strict=True):
        np.testing.assert_allclose(rounded, exact, atol=2e-2 * max(1, np.abs(exact).max()))


def test_callers_have_what_the_model_declares():
    graph = loaded("(bfloat16[4] x, float[4] z) => (bfloat16[4] y, float[4] u) { y = Neg(x) u = Exp(z) }")
    assert [graph.dtype_for_callers(name) for name in "xzyu"] == ["bfloat16", "float32", "bfloat16", "float32"]
    assert {tensor.dtype for tensor in graph.tensors.values()} == {"float32"}
    assert kinds(graph) == ["Neg", "Exp"]


def test_a_model_that_only_casts_computes_in_float32():
    graph = loaded("(float[4] x) => (float[4] y) { h = Cast<to=16>(x) r = Cast<to=1>(h) y = Exp(r) }")
    assert kinds(graph) == [ROUND, "Exp"] and not graph.widened


def test_levels_of_weights_stay_as_they_are(model):
    text = """f (bfloat16[3,32] x) => (bfloat16[3,8] y)
        { d = DequantizeLinear<axis=0, block_size=32>(w, s) y = MatMul(x, d) }"""
    weights = {"w": np.arange(-128, 128, dtype=np.int8).reshape(32, 8), "s": np.full((1, 8), 0.5, BFLOAT16)}
    graph = from_model(model(text, 21, weights), "test")
    assert kinds(graph) == ["WeightOnlyMatMul", ROUND]


def test_bodies_on_bfloat16_are_refused():
    text = """(bool c, bfloat16[4] x) => (bfloat16[4] y) { y = If(c)
        <then_branch = t () => (bfloat16[4] a) { a = Exp(x) },
        else_branch = e () => (bfloat16[4] a) { a = Neg(x) }> }"""
    with pytest.raises(UncoveredError, match="has a body on bfloat16"):
        loaded(text)
