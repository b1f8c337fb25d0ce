"""Operators that are written out by the body of their schema: what is left has kernels, and computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from autofuse.graph.loading.load import from_model
from autofuse.graph.loading.simplify.bodies import WRITTEN_OUT
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

RNG = np.random.default_rng(7)


def drawn(*shape, low=-1.0, high=1.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def check(run, node, feeds, outputs, opset, without=()):
    """Loads a model of one node and holds its results to ONNX Runtime's of the node itself."""
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "one", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    loaded = from_model(model, "one")
    assert not (WRITTEN_OUT | set(without)) & {operator.op_type for operator in loaded.operators}
    assert without_kernel(loaded) == {}
    for wanted, got in zip(run(model, feeds), run(to_model(loaded), feeds), strict=True):
        assert wanted.dtype == got.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": 1},
        {"scale": 0.3, "softcap": 2.0},
        {"qk_matmul_output_mode": 0},
        {"qk_matmul_output_mode": 3, "is_causal": 1},
    ],
)
@pytest.mark.parametrize("heads", [(4, 4), (6, 2)])
@pytest.mark.parametrize("mask", ["none", "float", "bool"])
def test_attention_with_its_options(run, options, heads, mask):
    queries, keys = heads
    feeds = {"q": drawn(2, queries, 3, 8), "k": drawn(2, keys, 5, 8), "v": drawn(2, keys, 5, 6)}
    if mask != "none":
        feeds["mask"] = drawn(3, 5) if mask == "float" else RNG.random((3, 5)) < 0.8
    read = [*feeds, *([] if mask != "none" else [""])]
    outputs = ["y", "", "", "product"] if "qk_matmul_output_mode" in options else ["y"]
    node = helper.make_node("Attention", read, outputs, **options)
    check(run, node, feeds, {name: FLOAT for name in outputs if name}, 23)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_three_dimensions_with_a_cache(run, causal):
    feeds = {"q": drawn(1, 2, 24), "k": drawn(1, 2, 12), "v": drawn(1, 2, 12)}
    feeds |= {"past_k": drawn(1, 3, 7, 4), "past_v": drawn(1, 3, 7, 4)}
    node = helper.make_node(
        "Attention", ["q", "k", "v", "", "past_k", "past_v"], ["y", "present_k", "present_v"],
        q_num_heads=6, kv_num_heads=3, is_causal=causal,
    )  # fmt: skip
    check(run, node, feeds, dict.fromkeys(node.output, FLOAT), 23)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("part", [0, 4])
@pytest.mark.parametrize("positions", [True, False])
def test_rotary_embedding_with_its_options(run, interleaved, part, positions):
    half = (part or 8) // 2
    tables = (10, half) if positions else (2, 5, half)
    feeds = {"x": drawn(2, 3, 5, 8), "cos": drawn(*tables), "sin": drawn(*tables)}
    if positions:
        feeds["at"] = RNG.integers(0, 10, (2, 5))
    options = {"rotary_embedding_dim": part} if part else {}
    node = helper.make_node("RotaryEmbedding", list(feeds), ["y"], interleaved=interleaved, **options)
    check(run, node, feeds, {"y": FLOAT}, 23)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("ignored", [None, 2])
def test_losses_with_their_options(run, reduction, weighted, ignored):
    feeds = {"x": drawn(3, 5, 4), "t": RNG.integers(0, 5, (3, 4))}
    if weighted:
        feeds["w"] = drawn(5, low=0.1)
    options = {} if ignored is None else {"ignore_index": ignored}
    node = helper.make_node("NegativeLogLikelihoodLoss", list(feeds), ["y"], reduction=reduction, **options)
    check(run, node, feeds, {"y": FLOAT}, 13)
    node = helper.make_node("SoftmaxCrossEntropyLoss", list(feeds), ["y", "log"], reduction=reduction, **options)
    check(run, node, feeds, {"y": FLOAT, "log": FLOAT}, 13)


def test_the_type_of_another_tensor_is_known_ahead(run):
    node = helper.make_node("CastLike", ["x", "like"], ["y"])
    check(run, node, {"x": drawn(2, 3), "like": np.zeros(4, np.int32)}, {"y": TensorProto.INT32}, 19)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("results", [("y", "mean", "inverse"), ("y", "", "inverse"), ("y", "mean")])
def test_statistics_of_a_layer_norm_are_computed_beside_it(run, axis, results):
    shape = (4, 6, 8)[axis % 3 :]
    feeds = {"x": drawn(4, 6, 8) + 3, "s": drawn(*shape), "b": drawn(*shape)}
    node = helper.make_node("LayerNormalization", list(feeds), results, axis=axis, epsilon=1e-3)
    check(run, node, feeds, {name: FLOAT for name in results if name}, 17)


def test_an_input_without_elements_is_a_constant(run):
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)
    check(run, node, {"x": drawn(2, 3), "axes": np.zeros(0, np.int64)}, {"y": FLOAT}, 13)


def test_an_empty_result_names_the_input_to_enlarge():
    text = "g (float[0,3] x) => (y) { y = Relu(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    with pytest.raises(Exception, match="--shape x=1,3"):
        from_model(model, "one")


def test_nothing_stands_between_the_softmax_and_the_product_behind_it(run):
    feeds = {"q": drawn(2, 3, 4, 8), "k": drawn(2, 3, 5, 8), "v": drawn(2, 3, 5, 8), "mask": RNG.random((4, 5)) < 0.5}
    feeds["mask"][1] = False  # a row of which nothing is kept: its result is 0
    node = helper.make_node("Attention", list(feeds), ["y"])
    check(run, node, feeds, {"y": FLOAT}, 23)
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    loaded = from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), "one")
    (softmax,) = (operator for operator in loaded.operators if operator.op_type == "Softmax")
    assert [operator.op_type for operator in loaded.consumers[softmax.outputs[0]]] == ["MatMul"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_decided_choice_is_what_it_takes(run, taken):
    text = "g (float[2,3] x, float[3] y) => (float[2,3] z) { w = Where(c, x, y) z = Relu(w) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full((2, 1), taken), "c"))
    feeds = {"x": drawn(2, 3), "y": drawn(3)}
    loaded = from_model(model, "one")
    assert "Where" not in {operator.op_type for operator in loaded.operators}
    np.testing.assert_array_equal(run(to_model(loaded), feeds)[0], run(model, feeds)[0])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("p", [1, 2])
def test_a_norm_of_nothing_divides_nothing(run, axis, p):
    feeds = {"x": drawn(3, 4, 5)}
    feeds["x"][:, 1, 2] = feeds["x"][0, :, 0] = feeds["x"][2, 3] = 0
    check(run, helper.make_node("LpNormalization", ["x"], ["y"], axis=axis, p=p), feeds, {"y": FLOAT}, 17,
          without=["LpNormalization"])  # fmt: skip


@pytest.mark.parametrize(("shape", "more"), [((2, 1, 40), {}), ((3, 1, 4, 5), {"epsilon": 0.01})])
def test_a_norm_of_one_channel_is_written_out(run, shape, more):
    """As torch exports a GroupNorm of one group, where scale and bias are numbers."""
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], **more)
    feeds = {"x": drawn(*shape), "s": drawn(1), "b": drawn(1)}
    check(run, node, feeds, {"y": FLOAT}, 17, without=["InstanceNormalization"])


def test_a_dropout_that_drops_nothing_has_a_whole_mask(run):
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    check(run, node, {"x": drawn(3, 4)}, {"y": FLOAT, "mask": TensorProto.BOOL}, 13, without=["Dropout"])


def attention_of(flat, heads, mask, past):
    """Inputs and attributes of an attention. `heads`: of queries, of keys. `mask`: shape, type. `past`: its steps."""
    queries, keys = heads
    q, k, v = (2, queries, 3, 8), (2, keys, 5, 8), (2, keys, 5, 6)
    if flat:
        q, k, v = ((batch, steps, count * width) for batch, count, steps, width in (q, k, v))
    feeds = {"q": drawn(*q), "k": drawn(*k), "v": drawn(*v)}
    if mask:
        shape, dtype = mask
        shape = [{"H": queries, "T": 5 + past}.get(size, size) for size in shape]
        feeds["mask"] = RNG.random(shape) < 0.7 if dtype == "bool" else drawn(*shape)
    if past:
        feeds |= {"past_k": drawn(2, keys, past, 8), "past_v": drawn(2, keys, past, 6)}
    read = [*feeds] if mask or not past else ["q", "k", "v", "", "past_k", "past_v"]
    return feeds, read, {"q_num_heads": queries, "kv_num_heads": keys} if flat else {}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize(
    "mask",
    [None, ((3, "T"), "bool"), ((2, 1, 3, "T"), "float"), ((1, "H", 3, "T"), "bool"), ((2, "H", 3, "T"), "float")],
)
def test_attention_is_a_product_a_softmax_and_a_product(run, flat, heads, causal, past, mask):
    feeds, read, options = attention_of(flat, heads, mask, past)
    outputs = {"y": FLOAT, **({"keys": FLOAT, "values": FLOAT} if past else {})}
    node = helper.make_node("Attention", read, list(outputs), is_causal=causal, **options)
    check(run, node, feeds, outputs, 23, without=("Expand",) if heads == (4, 4) or not mask else ())


@pytest.mark.parametrize("heads", [(4, 4), (6, 2)])
@pytest.mark.parametrize("mask", [(("T",), "float"), ((1, "H", 1, "T"), "bool")])
def test_a_mask_for_all_queries_is_the_same_for_each(heads, mask):
    """ONNX Runtime takes no such mask; ONNX's own reference does."""
    feeds, read, _ = attention_of(False, heads, mask, 0)
    node = helper.make_node("Attention", read, ["y"])
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    (got,) = ReferenceEvaluator(to_model(from_model(model, "one"))).run(None, feeds)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_attention_over_many_tokens_needs_no_mask_in_memory():
    shape = [1, 2, 2048, 8]
    inputs = [helper.make_tensor_value_info(name, FLOAT, shape) for name in "qkv"]
    node = helper.make_node("Attention", list("qkv"), ["y"], is_causal=1)
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", FLOAT, shape)])
    loaded = from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), "one")
    assert without_kernel(loaded) == {}
    assert max(array.size for array in loaded.constants.values()) == 2048
