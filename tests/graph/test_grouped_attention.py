"""GroupQueryAttention of ONNX Runtime: what is written in its place computes what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autofuse.errors import UncoveredError
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

RNG = np.random.default_rng(7)
HEADS, SHARED = 4, 2
NAMES = ("q", "k", "v", "past_k", "past_v", "lengths", "total", "cos", "sin", "at", "bias", "sinks")


def drawn(*shape, kind="float32"):
    return RNG.uniform(-1, 1, shape).astype(kind)


def feeds_of(batch, steps, past, lengths, turned=0, places=False, packed=False, width=16, kind="float32"):
    keys = SHARED * width
    if packed:
        feeds = {"q": drawn(batch, steps, HEADS * width + 2 * keys, kind=kind)}
    else:
        feeds = {"q": drawn(batch, steps, HEADS * width, kind=kind)}
        feeds |= {name: drawn(batch, steps, keys, kind=kind) for name in "kv"}
    feeds |= {name: drawn(batch, SHARED, past, width, kind=kind) for name in ("past_k", "past_v")}
    feeds["lengths"] = np.array(lengths, np.int32)
    if turned:
        feeds |= {name: drawn(64, turned // 2, kind=kind) for name in ("cos", "sin")}
    if places:
        feeds["at"] = RNG.integers(0, 60, (batch, steps))
    return feeds


def model_of(feeds, total, constants=(), **attributes):
    read = [name if name in feeds or name == "total" else "" for name in NAMES]
    while not read[-1]:
        read.pop()
    options = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": int("cos" in feeds), **attributes}
    outputs = ["y", "keys", "values"]
    node = helper.make_node("GroupQueryAttention", read, outputs, "it", domain="com.microsoft", **options)
    kind = helper.np_dtype_to_tensor_dtype(feeds["q"].dtype)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
        if name not in constants
    ]
    weights = [helper.make_tensor("total", TensorProto.INT32, [], [total])]
    weights += [numpy_helper.from_array(feeds[name], name) for name in constants]
    results = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph([node], "g", inputs, results, weights), opset_imports=imports, ir_version=8
    )


def check(run, feeds, total, constants=(), tolerance=2e-6, **attributes):
    model = model_of(feeds, total, constants, **attributes)
    loaded = from_model(model, "one")
    assert not {operator.domain for operator in loaded.operators} - {""}
    assert without_kernel(loaded) == {}
    for wanted, got in zip(run(model, feeds), run(to_model(loaded), feeds), strict=True):
        assert wanted.dtype == got.dtype and wanted.shape == got.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=tolerance)
    return loaded


CALLS = {
    "first": (1, 5, 0, 5, [4]),
    "first, into a larger cache": (1, 5, 8, 5, [4]),
    "first, sequences of two lengths": (2, 5, 0, 5, [4, 2]),
    "one step": (1, 1, 6, 7, [6]),
    "one step, a shorter past": (1, 1, 6, 7, [4]),
    "one step, pasts of two lengths": (2, 1, 6, 7, [6, 3]),
    "one step, into a larger cache": (1, 1, 10, 7, [6]),
    "three steps": (1, 3, 6, 9, [8]),
    "three steps, a shorter past": (1, 3, 6, 9, [6]),
}


@pytest.mark.parametrize("turned", [0, 16], ids=["plain", "turned"])
@pytest.mark.parametrize("call", CALLS)
def test_calls_with_a_cache(run, call, turned):
    batch, steps, past, total, lengths = CALLS[call]
    check(run, feeds_of(batch, steps, past, lengths, turned), total)


@pytest.mark.parametrize("call", ["first", "first, sequences of two lengths", "one step", "three steps"])
@pytest.mark.parametrize("window", [2, 3, 9])
def test_windows(run, call, window):
    batch, steps, past, total, lengths = CALLS[call]
    check(run, feeds_of(batch, steps, past, lengths), total, local_window_size=window)


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({"packed": True, "turned": 16}, {}),
        ({"turned": 16}, {"rotary_interleaved": 1}),
        ({"turned": 16, "width": 32}, {}),
        ({"turned": 16, "places": True}, {}),
        ({}, {"scale": 0.3}),
    ],
)
def test_options(run, options, attributes):
    check(run, feeds_of(1, 1, 6, [6], **options), 7, **attributes)


def test_half_precision(run):
    check(run, feeds_of(1, 1, 6, [6], turned=16, kind="float16"), 7, tolerance=2e-3)


def test_known_lengths_need_no_mask(run):
    loaded = check(run, feeds_of(1, 5, 0, [4]), 5, constants=("lengths",))
    assert "Equal" not in {operator.op_type for operator in loaded.operators}


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [({"qk_output": 1}, "'qk_output'"), ({"causal": 0}, "'causal'"), ({"num_heads": 3}, "3 heads")],
)
def test_what_is_not_covered_is_refused_with_its_reason(attributes, reason):
    with pytest.raises(UncoveredError, match=f"'it' .*{reason}"):
        from_model(model_of(feeds_of(1, 1, 6, [6]), 7, **attributes), "one")


@pytest.mark.parametrize("options", [{"softcap": 1.5}, {"smooth_softmax": 1}, {"softcap": 0.7, "local_window_size": 3}])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize(
    ("batch", "steps", "past", "lengths", "total"),
    [(1, 1, 16, [9], 10), (2, 1, 16, [9, 5], 10), (2, 6, 8, [5, 3], 6), (1, 3, 16, [9], 10)],
    ids=["step", "steps of two", "prompts", "behind a past"],
)
def test_caps_and_sinks(run, options, sinks, batch, steps, past, lengths, total):
    if "local_window_size" in options:  # what ONNX Runtime makes of steps behind a sequence then has no meaning
        lengths = [lengths[0]] * batch
    feeds = feeds_of(batch, steps, past, lengths, turned=16)
    if sinks:
        feeds["sinks"] = drawn(HEADS)
    check(run, feeds, total, **options)


def test_caps_and_sinks_of_one_tensor_in_half_precision(run):
    feeds = feeds_of(1, 4, 8, [3], packed=True, kind="float16") | {"sinks": drawn(HEADS, kind="float16")}
    check(run, feeds, 4, tolerance=2e-3, softcap=1.5, scale=0.3)
