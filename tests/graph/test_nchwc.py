"""Files of ONNX Runtime's optimiser whose channels lie in blocks: read, they are as if nobody had optimised them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser

from autofuse.graph.loading.load import load
from autofuse.graph.loading.simplify.microsoft.nchwc import DOMAIN, with_plain_layout
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft.nchwc": 1]>'
RNG = np.random.default_rng(5)


def drawn(*shape):
    return (0.3 * RNG.standard_normal(shape)).astype(np.float32)


BLOCKS = """net (float[1,3,32,32] x) => (float[1,21,16,16] y, float[1,32,32,24] z, float[1,24,1,1] q) {
    a = Conv <kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]> (x, w1, b1)  r = Relu (a)
    d = Conv <kernel_shape=[3,3], pads=[1,1,1,1], group=24> (r, w2)  c = Clip (d, zero, six)
    e = Conv <kernel_shape=[1,1]> (c, w3, b1)
    g = GlobalAveragePool (e)
    g1 = Conv <kernel_shape=[1,1]> (g, w4)  g2 = Relu (g1)
    g3 = Conv <kernel_shape=[1,1]> (g2, w5)  g4 = Sigmoid (g3)
    m = Mul (e, g4)  s = Add (m, r)
    p = MaxPool <kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]> (s)
    y = Conv <kernel_shape=[1,1]> (p, w6)
    h = Conv <kernel_shape=[1,1]> (s, w7)  h2 = Relu (h)
    l = Conv <kernel_shape=[3,3], pads=[1,1,1,1], group=2> (h2, w8)
    j = Concat <axis=1> (h2, l)
    k = Conv <kernel_shape=[1,1]> (j, w9)  k2 = Add (k, r)  k3 = Relu (k2)
    u = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"> (k3, , twice)
    v = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1], count_include_pad=1> (u)
    v2 = Conv <kernel_shape=[1,1]> (v, w3)  z = Transpose <perm=[0,2,3,1]> (v2)
    q = GlobalMaxPool (k3)
}"""
WEIGHTS = {
    "w1": drawn(24, 3, 3, 3), "b1": drawn(24), "w2": drawn(24, 1, 3, 3), "w3": drawn(24, 24, 1, 1),
    "w4": drawn(8, 24, 1, 1), "w5": drawn(24, 8, 1, 1), "w6": drawn(21, 24, 1, 1), "w7": drawn(32, 24, 1, 1),
    "w8": drawn(32, 16, 3, 3), "w9": drawn(24, 64, 1, 1), "twice": np.array([1, 1, 2, 2], np.float32),
    "zero": np.float32(0), "six": np.float32(6),
}  # fmt: skip


def model_of(text: str, **weights: np.ndarray) -> ModelProto:
    model = parser.parse_model(HEAD + text)
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return model


def optimised(model: ModelProto, folder: Path) -> Path:
    """The file that ONNX Runtime writes of a model, with all of its optimisations."""
    path = folder / "optimised.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, str(path)
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    if not any(node.domain == DOMAIN for node in onnx.load(path).graph.node):
        pytest.skip("ONNX Runtime has no layout of its own on this CPU")
    return path


def test_a_file_of_onnx_runtimes_optimiser_is_read_as_its_model(run, tmp_path):
    model = model_of(BLOCKS, **WEIGHTS)
    loaded = load(optimised(model, tmp_path))
    assert not {operator.domain for operator in loaded.operators} - {""}
    assert without_kernel(loaded) == {}
    feeds = {"x": drawn(1, 3, 32, 32)}
    for wanted, got in zip(run(model, feeds), run(to_model(loaded), feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)


def test_what_was_filled_up_is_gone(tmp_path):
    loaded = load(optimised(model_of(BLOCKS, **WEIGHTS), tmp_path))
    given = sorted(array.shape for array in WEIGHTS.values() if array.ndim == 4)
    kept = [loaded.constants[one.inputs[1]].shape for one in loaded.operators if one.op_type == "Conv"]
    assert sorted(set(kept)) == sorted(set(given))


def blocked(filters: np.ndarray, block: int, columns: bool) -> np.ndarray:
    """Filters as ONNX Runtime orders them; `columns`: those that it reads are in blocks, too."""
    rows = -(-len(filters) // block) * block
    wide = -(-filters.shape[1] // block) * block if columns else filters.shape[1]
    full = np.zeros((rows, wide, *filters.shape[2:]), np.float32)
    full[: len(filters), : filters.shape[1]] = filters
    if not columns:
        return np.ascontiguousarray(full.reshape(-1, block, wide, *full.shape[2:]).transpose(0, 2, 3, 4, 1)).reshape(
            full.shape
        )
    cut = full.reshape(rows // block, block, wide // block, block, *full.shape[2:])
    return np.ascontiguousarray(cut.transpose(0, 2, 4, 5, 3, 1)).reshape(full.shape)


def filled(bias: np.ndarray, block: int) -> np.ndarray:
    return np.concatenate([bias, np.zeros(-len(bias) % block, np.float32)])


SMALL = """net (float[1,20,6,6] x) => (float[1,{channels},6,6] y, float[1,6,6,{channels}] z) {{
    a = com.microsoft.nchwc.ReorderInput (x)
    b = com.microsoft.nchwc.Conv <kernel_shape=[3,3], pads=[1,1,1,1], activation="Relu"> (a, w, bias)
    c = com.microsoft.nchwc.Conv <kernel_shape=[1,1], activation="HardSigmoid", activation_params=[0.3, 0.4]>
        (b, v, , b)
    y = com.microsoft.nchwc.ReorderOutput <channels={channels}> (c)
    z = com.microsoft.nchwc.ReorderOutput <channels={channels}, channels_last=1> (c)
}}"""
PLAIN = """net (float[1,20,6,6] x) => (float[1,{channels},6,6] y, float[1,6,6,{channels}] z) {{
    b1 = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (x, w, bias)  b = Relu (b1)
    c1 = Conv <kernel_shape=[1,1]> (b, v)  c2 = Add (c1, b)  y = HardSigmoid <alpha=0.3, beta=0.4> (c2)
    z = Transpose <perm=[0,2,3,1]> (y)
}}"""


@pytest.mark.parametrize(("block", "channels"), [(16, 20), (8, 20), (16, 36), (8, 21)])
def test_a_file_for_another_cpu_is_read_where_its_sizes_show_the_block(run, block, channels):
    w, bias, v = drawn(channels, 20, 3, 3), drawn(channels), drawn(channels, channels, 1, 1)
    in_blocks = {"w": blocked(w, block, True), "bias": filled(bias, block), "v": blocked(v, block, True)}
    model = model_of(SMALL.format(channels=channels), **in_blocks)
    feeds = {"x": drawn(1, 20, 6, 6)}
    expected = run(model_of(PLAIN.format(channels=channels), w=w, bias=bias, v=v), feeds)
    for wanted, got in zip(expected, run(with_plain_layout(model), feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_another_model_is_left_as_it_is():
    model = model_of(PLAIN.format(channels=4), w=drawn(4, 20, 3, 3), bias=drawn(4), v=drawn(4, 4, 1, 1))
    assert with_plain_layout(model) is model


def test_a_layout_that_is_not_understood_stays():
    text = """net (float[1,16,6,6] x) => (float[1,16,6,6] y) {
        a = com.microsoft.nchwc.ReorderInput (x)
        b = Softmax <axis=1> (a)
        y = com.microsoft.nchwc.ReorderOutput <channels=16> (b)
    }"""
    model = model_of(text)
    assert with_plain_layout(model) is model
