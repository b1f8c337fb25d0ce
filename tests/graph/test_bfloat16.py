"""Casts to bfloat16 and back become one operator, and part of the contractions that read them; others stay."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, checker, helper, numpy_helper, parser

from autofuse.graph.loading.load import from_model
from autofuse.graph.own.rounding import is_rounded, rounded
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

RNG = np.random.default_rng(3)
PAIR = "h = Cast <to=16> (x); r = Cast <to=1> (h); "
IMAGE, ROWS = (1, 16, 9, 9), (3, 12)


def numbers(*shape):
    return RNG.standard_normal(shape).astype("float32")


W, KERNEL = rounded(numbers(12, 20)), rounded(numbers(32, 16, 3, 3))


def model_of(text, shape, constants, opset=18, **halves):
    nodes = [parser.parse_node(part.strip()) for part in text.split(";")]
    given = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    given += [
        helper.make_tensor(name, TensorProto.BFLOAT16, array.shape, array.astype("float32").ravel().tolist())
        for name, array in halves.items()
    ]
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        given,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def kinds(graph):
    return [operator.op_type for operator in graph.operators]


def same(run, model, shape):
    """The graph of a model, which computes what the model does, also as a model for others, and has kernels."""
    graph = from_model(model, "one")
    assert without_kernel(graph) == {}
    written = to_model(graph)
    checker.check_model(written)
    feeds = {"x": numbers(*shape)}
    (wanted,), (got,) = run(model, feeds), run(written, feeds)
    assert np.abs(wanted - got).max() <= 1e-6 * np.abs(wanted).max()
    assert kinds(from_model(written, "again")) == kinds(graph)
    return graph


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_a_product(run, opset):
    graph = same(run, model_of(PAIR + "y = MatMul (r, w)", ROWS, {"w": W}, opset), ROWS)
    assert kinds(graph) == ["Bfloat16MatMul"]
    assert graph.tensors["y"].shape == (3, 20)


def test_a_convolution_with_its_bias(run):
    text = PAIR + 'c = Conv <auto_pad="SAME_UPPER", strides=[2, 2]> (r, w, b); y = Relu (c)'
    graph = same(run, model_of(text, IMAGE, {"w": KERNEL, "b": numbers(32)}), IMAGE)
    assert kinds(graph) == ["Bfloat16Conv", "Relu"]


@pytest.mark.parametrize("turned", [0, 1])
def test_a_gemm(run, turned):
    w = np.ascontiguousarray(W.T) if turned else W
    text = PAIR + f"y = Gemm <transB={turned}> (r, w, b)"
    graph = same(run, model_of(text, ROWS, {"w": w, "b": numbers(20)}), ROWS)
    assert kinds(graph) == ["Bfloat16MatMul", "Add"]


def test_two_computed_operands(run):
    text = PAIR + "t = Transpose <perm=[1, 0]> (x); g = Cast <to=16> (t); u = Cast <to=1> (g); y = MatMul (r, u)"
    assert kinds(same(run, model_of(text, ROWS, {}), ROWS)) == ["Transpose", "RoundToBfloat16", "Bfloat16MatMul"]


def test_weights_that_are_rounded_here_or_come_in_16_bits(run):
    weights = numbers(12, 20)
    text = PAIR + "g = Cast <to=16> (w); u = Cast <to=1> (g); y = MatMul (r, u)"
    narrow = PAIR + "u = Cast <to=1> (w); y = MatMul (r, u)"
    for model in (model_of(text, ROWS, {"w": weights}), model_of(narrow, ROWS, {}, w=rounded(weights))):
        graph = same(run, model, ROWS)
        assert kinds(graph) == ["Bfloat16MatMul"]
        assert is_rounded(graph.constants[graph.operators[0].inputs[1]])


OTHERS = {
    "weights that are no bfloat16": (PAIR + "y = MatMul (r, w)", ROWS, {"w": numbers(12, 20)}, "MatMul"),
    "one channel a group": (
        PAIR + "y = Conv <group=16, pads=[1, 1, 1, 1]> (r, w)", IMAGE, {"w": rounded(numbers(16, 1, 3, 3))}, "Conv"
    ),
    "a scaled product": (PAIR + "y = Gemm <alpha=0.5> (r, w)", ROWS, {"w": W}, "Gemm"),
    "a vector": (PAIR + "y = MatMul (r, w)", ROWS, {"w": rounded(numbers(12))}, "MatMul"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_contractions_read_what_is_rounded(run, name):
    text, shape, constants, kind = OTHERS[name]
    assert kinds(same(run, model_of(text, shape, constants), shape)) == ["RoundToBfloat16", kind]


def test_only_a_rounding_that_others_read_stays(run):
    graph = same(run, model_of(PAIR + "m = MatMul (r, w); n = MatMul (r, v); y = Add (m, n)", ROWS,
                               {"w": W, "v": rounded(numbers(12, 20))}), ROWS)  # fmt: skip
    assert kinds(graph) == ["Bfloat16MatMul", "Bfloat16MatMul", "Add"]
    graph = same(
        run, model_of(PAIR + "m = MatMul (r, w); y = Add (m, r)", (3, 20), {"w": rounded(numbers(20, 20))}), (3, 20)
    )
    assert sorted(kinds(graph)) == ["Add", "Bfloat16MatMul", "RoundToBfloat16"]
