"""Models of old opsets compute the same after loading, in the form of opset 18."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from tests.graph.constants import constant_ints

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 6, 6)).astype(np.float32)

CASES = {
    "squeeze": (11, "f (float[2,1,4] x) => (float[2,4] y) { y = Squeeze<axes=[1]>(x) }", (2, 1, 4)),
    "squeeze without axes": (11, "f (float[2,1,4] x) => (float[2,4] y) { y = Squeeze(x) }", (2, 1, 4)),
    "unsqueeze": (11, "f (float[2,4] x) => (float[1,2,4,1] y) { y = Unsqueeze<axes=[0,-1]>(x) }", (2, 4)),
    "reduce sum": (11, "f (float[2,3,4] x) => (float[2,4] y) { y = ReduceSum<axes=[1], keepdims=0>(x) }", (2, 3, 4)),
    "reduce mean": (13, "f (float[2,3,4] x) => (float[2,3,1] y) { y = ReduceMean<axes=[-1]>(x) }", (2, 3, 4)),
    "reduce all": (17, "f (float[2,3,4] x) => (float[1,1,1] y) { y = ReduceMax(x) }", (2, 3, 4)),
    "reduce l2": (17, "f (float[2,3,4] x) => (float[1,3,1] y) { y = ReduceL2<axes=[0,2]>(x) }", (2, 3, 4)),
    "split": (11, "f (float[2,6] x) => (float[2,2] y, float[2,4] z) { y, z = Split<axis=1, split=[2,4]>(x) }", (2, 6)),
    "even split": (13, "f (float[2,6] x) => (float[2,3] y, float[2,3] z) { y, z = Split<axis=-1>(x) }", (2, 6)),
    "softmax over several axes": (9, "f (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }", (2, 3, 4)),
    "softmax over all axes": (9, "f (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis=0>(x) }", (2, 3, 4)),
    "log softmax": (11, "f (float[2,3,4] x) => (float[2,3,4] y) { y = LogSoftmax<axis=1>(x) }", (2, 3, 4)),
    "hardmax": (11, "f (float[2,3,4] x) => (float[2,3,4] y) { y = Hardmax<axis=1>(x) }", (2, 3, 4)),
    "clip": (9, "f (float[9] x) => (float[9] y) { y = Clip<min=-0.5, max=0.5>(x) }", (9,)),
    "one-sided clip": (9, "f (float[9] x) => (float[9] y) { y = Clip<min=-0.5>(x) }", (9,)),
    "pad": (9, "f (float[2,3] x) => (float[3,5] y) { y = Pad<pads=[1,0,0,2], value=1.5>(x) }", (2, 3)),
    "reflecting pad": (9, 'f (float[2,3] x) => (float[2,7] y) { y = Pad<mode="reflect", pads=[0,2,0,2]>(x) }', (2, 3)),
    "slice": (9, "f (float[4,5] x) => (float[2,3] y) { y = Slice<starts=[1,-4], ends=[3,-1]>(x) }", (4, 5)),
    "slice of an axis": (
        9,
        "f (float[4,5] x) => (float[4,3] y) { y = Slice<axes=[1], starts=[2], ends=[99]>(x) }",
        (4, 5),
    ),
    "top k": (9, "f (float[3,5] x) => (float[3,2] y, int64[3,2] i) { y, i = TopK<k=2>(x) }", (3, 5)),
    "dropout": (9, "f (float[3] x) => (float[3] y) { a = Relu(x) y = Dropout<ratio=0.3>(a) }", (3,)),
    "roi align": (
        11,
        """f (float[1,2,6,6] x) => (float[2,2,2,2] y) {
        r = Constant<value=float[2,4] {0,0,4,4,1,1,5,3}>() b = Constant<value=int64[2] {0,0}>()
        y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, b) }""",
        (1, 2, 6, 6),
    ),
    "resize up": (
        10,
        """f (float[1,2,3,3] x) => (float[1,2,6,9] y) { s = Constant<value=float[4] {1,1,2,3}>() y = Resize(x, s) }""",
        (1, 2, 3, 3),
    ),
    "resize down": (
        10,
        """f (float[1,2,7,7] x) => (float[1,2,4,3] y) {
        s = Constant<value=float[4] {1,1,0.6,0.45}>() y = Resize(x, s) }""",
        (1, 2, 7, 7),
    ),
    "linear resize": (
        10,
        """f (float[1,2,3,3] x) => (float[1,2,6,6] y) {
        s = Constant<value=float[4] {1,1,2,2}>() y = Resize<mode="linear">(x, s) }""",
        (1, 2, 3, 3),
    ),
    "upsample by attribute": (
        7,
        """f (float[1,2,3,3] x) => (float[1,2,6,6] y) { y = Upsample<scales=[1.0,1.0,2.0,2.0]>(x) }""",
        (1, 2, 3, 3),
    ),
    "upsample": (
        9,
        """f (float[1,2,3,3] x) => (float[1,2,6,6] y) {
        s = Constant<value=float[4] {1,1,2,2}>() y = Upsample<mode="linear">(x, s) }""",
        (1, 2, 3, 3),
    ),
    "scatter": (
        9,
        """f (float[3,3] x) => (float[3,3] y) {
        i = Constant<value=int64[1,2] {0,2}>() u = Constant<value=float[1,2] {5,6}>() y = Scatter<axis=1>(x, i, u) }""",
        (3, 3),
    ),
    "batch normalization": (
        9,
        """f (float[1,2,3,3] x) => (float[1,2,3,3] y) {
        a = Constant<value=float[2] {1,2}>() b = Constant<value=float[2] {0,1}>()
        m = Constant<value=float[2] {0.1,0.2}>() v = Constant<value=float[2] {1,0.5}>()
        y = BatchNormalization<epsilon=0.001>(x, a, b, m, v) }""",
        (1, 2, 3, 3),
    ),
    "inside a branch": (
        11,
        """f (float[2,1,4] x) => (float[2,4] y) { t = Relu(x) s = ReduceSum<keepdims=0>(t)
        z = Constant<value=float {-1.0}>() c = Greater(s, z)
        y = If(c) <then_branch = g () => (float[2,4] p) { p = Squeeze<axes=[1]>(t) },
                   else_branch = h () => (float[2,4] q) { r = Squeeze<axes=[1]>(t) q = Neg(r) }> }""",
        (2, 1, 4),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_old_model_computes_the_same(name, model, run):
    opset, text, shape = CASES[name]
    proto = model(text, opset)
    graph = from_model(proto, name)
    assert graph.opset == 18
    feeds = {"x": np.random.default_rng(3).standard_normal(shape).astype(np.float32)}
    for old, new in zip(run(proto, feeds), run(to_model(graph), feeds), strict=True):
        assert old.dtype == new.dtype
        np.testing.assert_allclose(new, old, rtol=1e-6, atol=1e-6)


def test_axes_have_one_form_whatever_the_opset(model):
    texts = {
        11: "f (float[2,3,4] x) => (float[2,3] y) { y = ReduceSum<axes=[-1], keepdims=0>(x) }",
        17: "f (float[2,3,4] x) => (float[2,3] y) { y = ReduceMean<axes=[2], keepdims=0>(x) }",
        18: "f (float[2,3,4] x) => (float[2,3] y) { a = Constant<value_ints=[-1]>() y = ReduceMax<keepdims=0>(x, a) }",
    }
    for opset, text in texts.items():
        graph = from_model(model(text, opset), "m")
        assert constant_ints(graph, graph.operators[0], 1) == (2,)
        assert dict(graph.operators[0].attributes) == {"keepdims": 0}


def test_a_softmax_of_the_last_axis_stays_one_operator(model):
    graph = from_model(model("f (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis=2>(x) }", 11), "m")
    assert [(op.op_type, dict(op.attributes)) for op in graph.operators] == [("Softmax", {"axis": 2})]


def test_several_outputs_of_an_old_batch_normalization_mean_training(model):
    weights = {name: np.ones(2, np.float32) for name in "abmv"}
    text = """f (float[1,2,3,3] x) => (float[1,2,3,3] y, float[2] m2) {
        y, m2, v2, s, t = BatchNormalization(x, a, b, m, v) }"""
    graph = from_model(model(text, 9, weights), "m")
    kinds = [operator.op_type for operator in graph.operators]
    assert kinds.count("ReduceMean") == 2, "mean and variance of the batch: training mode is written out"
    assert "BatchNormalization" not in kinds
    assert graph.outputs == ("y", "m2")


@pytest.mark.parametrize(
    ("opset", "text", "words"),
    [
        (
            9,
            """f (float[1,2,3,3] x) => (float[1,2,3,3] y, float[2] s) {
            y, m2, v2, s, t = BatchNormalization(x, a, b, m, v) }""",
            "saved_mean",
        ),
        (
            8,
            "f (float[1,2,3,3] x) => (float[1,2,3,3] y) { y = BatchNormalization<spatial=0>(x, a, b, m, v) }",
            "spatial=0",
        ),
        (
            11,
            """f (float[1,2,3,3] x) => (float[1,2,6,6] y) {
            y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn">(x, roi, scales) }""",
            "tf_half_pixel_for_nn",
        ),
        (10, "f (float[1,2,4,4] x) => (float[1,2,8,2] y) { y = Resize(x, mixed) }", "enlarges one axis"),
    ],
)
def test_what_opset_18_cannot_express_is_refused(opset, text, words, model):
    weights = {name: np.ones(2, np.float32) for name in "abmv"}
    weights |= {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}
    weights["mixed"] = np.array([1, 1, 2, 0.5], np.float32)
    with pytest.raises(InputError, match=words):
        from_model(model(text, opset, weights), "m")


def test_a_newer_opset_stays(model):
    proto = model("f (float[2,4] x) => (float[2,4] y) { y = Gelu(x) }", 20)
    graph = from_model(proto, "m")
    assert graph.opset == 20
    assert to_model(graph).opset_import[0] == helper.make_opsetid("", 20)


def test_reshape_and_slice_are_explicit(graph_of):
    graph = graph_of(
        """f (float[2,3,4] x) => (float[2,2,2,2] y) { s = Constant<value_ints=[-3]>() e = Constant<value_ints=[-1]>()
        a = Constant<value_ints=[-1]>() b = Slice(x, s, e, a) c = Slice(x, s1, e1) d = Slice(b, s1, e1, a1)
        t = Constant<value_ints=[0,-1,2,2]>() f = Concat<axis=1>(d, d) g = Reshape(f, t) y = Relu(g) z = Neg(c) }""",
        weights={"s1": np.array([0]), "e1": np.array([2]), "a1": np.array([1])},
    )
    first, second = (op for op in graph.operators if op.op_type == "Slice")
    assert [constant_ints(graph, first, i) for i in (1, 2, 3, 4)] == [(1,), (3,), (2,), (1,)]
    assert [constant_ints(graph, second, i) for i in (1, 2, 3, 4)] == [(0,), (2,), (1,), (1,)]
    reshape = next(op for op in graph.operators if op.op_type == "Reshape")
    assert constant_ints(graph, reshape, 1) == (2, 2, 2, 2)
