"""Operators of ONNX Runtime's own domain: what is written in their place computes what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autofuse.errors import UncoveredError
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

RNG = np.random.default_rng(11)
FLOAT = TensorProto.FLOAT


def drawn(*shape, low=-1.0, high=1.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def model_of(nodes, feeds, outputs, opset=17):
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "one", inputs, results), opset_imports=imports, ir_version=8)


def check(run, kind, feeds, outputs=None, read=None, opset=17, domain="com.microsoft", **attributes):
    """Holds a model of one operator to ONNX Runtime's results of the operator itself."""
    outputs = outputs or {"y": FLOAT}
    node = helper.make_node(kind, list(feeds) if read is None else read, list(outputs), domain=domain, **attributes)
    model = model_of([node], feeds, {name: value for name, value in outputs.items() if name}, opset)
    loaded = from_model(model, "one")
    assert not {operator.domain for operator in loaded.operators} - {""}
    assert without_kernel(loaded) == {}
    for wanted, got in zip(run(model, feeds), run(to_model(loaded), feeds), strict=True):
        assert wanted.dtype == got.dtype
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("opset", [14, 17, 21])
@pytest.mark.parametrize(
    ("kind", "bias"), [("Gelu", False), ("BiasGelu", True), ("FastGelu", False), ("FastGelu", True)]
)
def test_gelus(run, kind, bias, opset):
    check(run, kind, {"x": drawn(3, 4, 8), **({"b": drawn(8)} if bias else {})}, opset=opset)


@pytest.mark.parametrize("options", [{}, {"alpha": 0.7}])
def test_quick_gelu(run, options):
    check(run, "QuickGelu", {"x": drawn(3, 8)}, **options)


def test_a_product_with_gelu(run):
    feeds = {"x": drawn(3, 4), "w": drawn(4, 8), "b": drawn(8)}
    shifted = from_model(model_of([helper.make_node("GemmFastGelu", list(feeds), ["y"], domain="com.microsoft")],
                                  feeds, {"y": FLOAT}), "one")  # fmt: skip
    x = feeds["x"] @ feeds["w"] + feeds["b"]
    wanted = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(run(to_model(shifted), feeds)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("a", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("b", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("rank", [3, 4])
def test_fused_products_with_all_transpositions(run, a, b, rank):
    batch = (2, 3)[: rank - 2]

    def operand(rows, columns, turned, moved):
        shape = (*batch, columns, rows) if turned else (*batch, rows, columns)
        return drawn(shape[-2], *shape[:-2], shape[-1]) if moved else drawn(*shape)

    feeds = {"a": operand(4, 5, *a), "b": operand(5, 6, *b)}
    names = dict(zip(("transA", "transBatchA", "transB", "transBatchB"), (*a, *b), strict=True))
    check(run, "FusedMatMul", feeds, alpha=0.25, **names)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", []),
        ("Tanh", []),
        ("Sigmoid", []),
        ("LeakyRelu", [0.1]),
        ("Clip", [0.0, 0.5]),
        ("HardSigmoid", [0.3, 0.4]),
    ],
)
@pytest.mark.parametrize("added", [True, False])
def test_fused_convolutions(run, activation, parameters, added):
    feeds = {"x": drawn(1, 4, 6, 6), "w": drawn(8, 2, 3, 3), "b": drawn(8)}
    if added:
        feeds["z"] = drawn(1, 8, 6, 6)
    options = {"activation_params": parameters} if parameters else {}
    check(run, "FusedConv", feeds, activation=activation, group=2, pads=[1, 1, 1, 1], **options)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Tanh"])
def test_fused_gemms(run, activation):
    feeds = {"a": drawn(4, 5), "b": drawn(6, 5), "c": drawn(6)}
    check(run, "FusedGemm", feeds, activation=activation, activation_alpha=0.2, transB=1, alpha=0.5, beta=2.0)


@pytest.mark.parametrize("beta", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("total", [True, False])
def test_skipped_layer_norms(run, beta, bias, total):
    feeds = {"x": drawn(2, 3, 8), "skip": drawn(2, 3, 8), "s": drawn(8), "beta": drawn(8), "bias": drawn(8)}
    feeds = {k: v for k, v in feeds.items() if (k != "beta" or beta) and (k != "bias" or bias)}
    read = [name if name in feeds else "" for name in ("x", "skip", "s", "beta", "bias")]
    outputs = {"y": FLOAT, "": FLOAT, "sum": FLOAT} if total else {"y": FLOAT}
    node_outputs = ["y", "", "", "sum"] if total else ["y"]
    node = helper.make_node("SkipLayerNormalization", read, node_outputs, domain="com.microsoft", epsilon=1e-4)
    model = model_of([node], feeds, {k: v for k, v in outputs.items() if k})
    loaded = from_model(model, "one")
    assert {operator.op_type for operator in loaded.operators} == {"Add", "LayerNormalization"}
    for wanted, got in zip(run(model, feeds), run(to_model(loaded), feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_skipped_rms_norms(run, bias):
    feeds = {"x": drawn(2, 3, 8), "skip": drawn(2, 3, 8), "s": drawn(8), **({"b": drawn(8)} if bias else {})}
    check(run, "SkipSimplifiedLayerNormalization", feeds, epsilon=1e-4)


def test_rms_norms_in_the_domain_of_onnx(run):
    check(run, "SimplifiedLayerNormalization", {"x": drawn(2, 3, 8), "s": drawn(8)}, domain="", epsilon=1e-4, axis=-1)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("places", [True, False])
def test_embeddings(run, segments, places):
    feeds = {"ids": RNG.integers(0, 20, (2, 5)).astype(np.int32)}
    if segments:
        feeds["kind"] = RNG.integers(0, 2, (2, 5)).astype(np.int32)
    feeds |= {"words": drawn(20, 8), "at": drawn(9, 8)}
    if segments:
        feeds["kinds"] = drawn(2, 8)
    feeds |= {"s": drawn(8), "b": drawn(8), "mask": (np.arange(5) < [[3], [5]]).astype(np.int32)}
    if places:
        feeds["places"] = RNG.integers(0, 9, (2, 5)).astype(np.int32)
    names = ("ids", "kind", "words", "at", "kinds", "s", "b", "mask", "places")
    read = [name if name in feeds else "" for name in names]
    while not read[-1]:
        read.pop()
    outputs = {"y": FLOAT, "length": TensorProto.INT32, "sum": FLOAT}
    check(run, "EmbedLayerNormalization", feeds, outputs, read, epsilon=1e-5)


MASKS = {
    "none": None,
    "raw": (np.arange(6) < [[4], [6]]).astype(np.int32),
    "lengths": np.array([4, 6], np.int32),
    "square": (RNG.random((2, 6, 6)) < 0.8).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"mask_filter_value": -500.0}])
def test_attention_with_its_masks(run, mask, causal, options):
    feeds = {"x": drawn(2, 6, 8), "w": drawn(8, 24), "b": drawn(24)}
    if mask != "none":
        feeds["mask"] = MASKS[mask]
    check(run, "Attention", feeds, num_heads=2, unidirectional=causal, **options)


def test_attention_with_other_widths_and_a_given_bias(run):
    feeds = {"x": drawn(2, 6, 8), "w": drawn(8, 28), "b": drawn(28), "more": drawn(2, 2, 6, 6)}
    check(run, "Attention", feeds, read=["x", "w", "b", "", "", "more"], num_heads=2, qkv_hidden_sizes=[8, 8, 12])


def test_attention_with_a_past(run):
    feeds = {"x": drawn(1, 2, 8), "w": drawn(8, 24), "b": drawn(24), "past": drawn(2, 1, 2, 5, 4)}
    outputs = {"y": FLOAT, "present": FLOAT}
    check(run, "Attention", feeds, outputs, ["x", "w", "b", "", "past"], num_heads=2, unidirectional=1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention_of_many_heads(run, bias, mask, causal):
    keys = 6 if causal else 7
    feeds = {"q": drawn(2, 6, 8), "k": drawn(2, keys, 8), "v": drawn(2, keys, 12)}
    if bias:
        feeds["b"] = drawn(28)
    if mask:
        feeds["mask"] = (np.arange(keys) < [[4], [keys]]).astype(np.int32)
    read = [name if name in feeds else "" for name in ("q", "k", "v", "b", "mask")]
    while not read[-1]:
        read.pop()
    check(run, "MultiHeadAttention", feeds, read=read, num_heads=2, unidirectional=causal)


def test_attention_of_many_heads_with_a_cache_and_a_given_bias(run):
    feeds = {"q": drawn(2, 3, 8), "k": drawn(2, 3, 8), "v": drawn(2, 3, 8), "more": drawn(1, 2, 3, 8)}
    feeds |= {"past_k": drawn(2, 2, 5, 4), "past_v": drawn(2, 2, 5, 4)}
    outputs = {"y": FLOAT, "present_k": FLOAT, "present_v": FLOAT}
    read = ["q", "k", "v", "", "", "more", "past_k", "past_v"]
    check(run, "MultiHeadAttention", feeds, outputs, read, num_heads=2)


def test_attention_of_keys_whose_heads_are_apart(run):
    feeds = {"q": drawn(2, 3, 8), "k": drawn(2, 2, 5, 4), "v": drawn(2, 2, 5, 4)}
    check(run, "MultiHeadAttention", feeds, num_heads=2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embeddings(run, interleaved, first, rank):
    feeds = {"x": drawn(2, 5, 16) if rank == 3 else drawn(2, 2, 5, 8)}
    feeds["at"] = np.array([3]) if first else RNG.integers(0, 9, (2, 5))
    feeds |= {"cos": drawn(9, 4), "sin": drawn(9, 4)}
    check(run, "RotaryEmbedding", feeds, interleaved=interleaved)


def test_a_long_chain_is_replaced_at_once(run):
    feeds = {"x": drawn(2, 3, 8), "s": drawn(8), "b": drawn(8)}
    nodes = [
        helper.make_node("SkipLayerNormalization", [f"x{i}" if i else "x", "x", "s", "b"], [f"x{i + 1}"], f"n{i}",
                         domain="com.microsoft") for i in range(150)
    ]  # fmt: skip
    model = model_of(nodes, feeds, {"x150": FLOAT})
    np.testing.assert_allclose(run(to_model(from_model(model, "one")), feeds)[0], run(model, feeds)[0], atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "inputs", "attributes", "reason"),
    [
        ("MultiHeadAttention", ("x",), {"num_heads": 2}, "queries, keys and values in one tensor"),
        ("Attention", ("x", "w"), {"num_heads": 2, "do_rotary": 1}, "'do_rotary'"),
        ("Gelu", ("x",), {"more": 1}, "'more'"),
    ],
)
def test_what_is_not_covered_is_refused_with_its_reason(kind, inputs, attributes, reason):
    feeds = {"x": drawn(2, 6, 8), "w": drawn(8, 24)}
    node = helper.make_node(kind, inputs, ["y"], "it", domain="com.microsoft", **attributes)
    with pytest.raises(UncoveredError, match=f"'it' .*{reason}"):
        from_model(model_of([node], {name: feeds[name] for name in inputs}, {"y": FLOAT}), "one")


def test_an_unknown_operator_of_the_domain_is_refused():
    node = onnx.helper.make_node("BeamSearch", ["x"], ["y"], domain="com.microsoft")
    with pytest.raises(UncoveredError, match="unknown operator 'BeamSearch' of domain 'com.microsoft'"):
        from_model(model_of([node], {"x": drawn(2)}, {"y": FLOAT}), "one")


def test_a_turned_operand_is_a_transposition():
    feeds = {"a": drawn(2, 5, 4), "b": drawn(2, 5, 6)}
    node = helper.make_node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", transA=1)
    loaded = from_model(model_of([node], feeds, {"y": FLOAT}), "one")
    assert [operator.op_type for operator in loaded.operators] == ["Transpose", "MatMul"]


@pytest.mark.parametrize("equation", ["ij->j", "ii->i", "ij->ij", "ij", "...i->i..."])
def test_only_an_einsum_that_moves_axes_is_a_transposition(run, equation):
    node = helper.make_node("Einsum", ["x"], ["y"], equation=equation)
    model = model_of([node], {"x": drawn(3, 3)}, {"y": FLOAT})
    loaded = from_model(model, "one")
    feeds = {"x": drawn(3, 3)}
    np.testing.assert_array_equal(run(to_model(loaded), feeds)[0], run(model, feeds)[0])


@pytest.mark.parametrize(
    ("read", "options"),
    [
        (["x", "w", "b", "sx", "sw"], {}),
        (["x", "w", "b", "sx", "sw", "lengths", "zx", "zw"], {}),
        (["x", "w", "b", "sx", "sw", "", "zx", "zw", "past"], {"unidirectional": 1}),
        (["x", "w", "b", "sx", "sws", "kept", "zx", "zw"], {"scale": 0.3}),
    ],
    ids=["plain", "lengths", "causal behind a past", "a scale of each column"],
)
def test_attention_of_bytes(run, read, options):
    feeds = {
        "x": RNG.integers(0, 255, (2, 6, 16)).astype(np.uint8),
        "w": RNG.integers(-127, 127, (16, 48)).astype(np.int8),
        "b": drawn(48), "sx": np.float32(0.02), "sw": np.float32(0.01), "sws": drawn(48, low=0.005, high=0.02),
        "zx": np.uint8(128), "zw": np.int8(0), "lengths": np.array([6, 4], np.int32),
        "kept": RNG.integers(0, 2, (2, 6)).astype(np.int32), "past": drawn(2, 2, 4, 5, 4),
    }  # fmt: skip
    feeds = {name: np.asarray(feeds[name]) for name in read if name}
    outputs = {"y": FLOAT, "present": FLOAT} if "past" in read else None
    check(run, "QAttention", feeds, outputs, read, num_heads=4, **options)
