"""Files of ONNX Runtime's optimiser whose images have their channels innermost: nothing is turned between operators."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

from autofuse.graph.loading.load import load
from autofuse.graph.loading.simplify.microsoft.nchwc import with_plain_layout
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

HEAD = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
RNG = np.random.default_rng(9)
S = "s, zero"
CONV = "com.microsoft.QLinearConv <channels_last=1, kernel_shape=[{k},{k}], pads=[{p},{p},{p},{p}]>"


def model_of(body: str, outputs: str = "float[1,8,h,w] y"):
    model = parser.parse_model(f"{HEAD} net (float[1,3,12,12] x) => ({outputs}) {{ {body} }}")
    weights = {
        "s": np.float32(0.05), "zero": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0),
        "w3": RNG.integers(-90, 90, (8, 3, 3, 3)).astype(np.int8),
        "w8": RNG.integers(-90, 90, (8, 8, 1, 1)).astype(np.int8),
        "per_channel": np.linspace(0.5, 1, 8, dtype=np.float32),
    }  # fmt: skip
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return model


START = f"""
    q = QuantizeLinear (x, {S})  t = Transpose <perm=[0,2,3,1]> (q)
    a = {CONV.format(k=3, p=1)} (t, {S}, w3, ws, wz, {S})
"""
BODIES = {
    "pools and sums": START + f"""
        p = com.microsoft.NhwcMaxPool <kernel_shape=[2,2], strides=[2,2]> (a)
        b = {CONV.format(k=1, p=0)} (p, {S}, w8, ws, wz, {S})
        c = com.microsoft.QLinearAdd (b, {S}, p, {S}, {S})
        d = com.microsoft.QLinearAveragePool <kernel_shape=[2,2], channels_last=1> (c, {S}, {S})
        r = DequantizeLinear (d, {S})  y = Transpose <perm=[0,3,1,2]> (r)""",
    "joined": START + f"""
        b = {CONV.format(k=1, p=0)} (a, {S}, w8, ws, wz, {S})
        c = com.microsoft.QLinearConcat <axis=3> ({S}, a, {S}, b, {S})
        g = com.microsoft.QLinearGlobalAveragePool <channels_last=1> (c, {S}, {S})
        r = DequantizeLinear (g, {S})  y = Transpose <perm=[0,3,1,2]> (r)""",
    "joined along a side": START + f"""
        c = com.microsoft.QLinearConcat <axis=-2> ({S}, a, {S}, a, {S})
        r = DequantizeLinear (c, {S})  y = Transpose <perm=[0,3,1,2]> (r)""",
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_nothing_is_turned(run, body, tmp_path):
    model = model_of(BODIES[body])
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    loaded = load(tmp_path / "net.onnx")
    assert "Transpose" not in {operator.op_type for operator in loaded.operators}
    assert without_kernel(loaded) == {}
    _same(run, model, to_model(loaded))


READERS = {
    "by another axis": "r = DequantizeLinear (a, s, zero) y = Softmax <axis=-1> (r)",
    "by a vector of channels": "r = DequantizeLinear (a, s, zero) y = Mul (r, per_channel)",
    "as a result": "y = DequantizeLinear (a, s, zero)",
    "in two ways": """r = DequantizeLinear (a, s, zero) t1 = Transpose <perm=[0,3,1,2]> (r)
        u = Reshape (t1, shape) v = Reshape (r, shape) y = Add (u, v)""",
}


@pytest.mark.parametrize("reader", READERS)
def test_who_knows_of_no_other_layout_reads_the_value_itself(run, reader, tmp_path):
    model = model_of(START + READERS[reader], "float[d,e,f,g] y" if reader != "in two ways" else "float[n] y")
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "shape"))
    _same(run, model, with_plain_layout(model))


def _same(run, model, other):
    feeds = {"x": RNG.uniform(-3, 3, (1, 3, 12, 12)).astype(np.float32)}
    for wanted, got in zip(run(model, feeds), run(other, feeds), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, atol=0.0501)  # one step of the quantiser, where a half is rounded
        assert np.mean(np.abs(got - wanted) > 1e-5) < 0.2
