"""DFT and STFT as products with constant matrices: they compute what ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.coverage import without_kernel

RNG = np.random.default_rng(3)


def check(run, node, x, constants, opset, left=False):
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    loaded = from_model(model, "one")
    kinds = {operator.op_type for operator in loaded.operators}
    assert (node.op_type in kinds) is left
    if not left:
        assert "MatMul" in kinds and without_kernel(loaded) == {}
        (wanted,), (got,) = run(model, {"x": x}), run(to_model(loaded), {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("length", [None, 5, 12])
def test_whole_transforms(run, parts, inverse, axis, length):
    x = RNG.standard_normal((2, 8, 6, parts)).astype(np.float32)
    constants = {} if length is None else {"n": np.int64(length)}
    node = helper.make_node("DFT", ["x", *constants], ["y"], axis=axis, inverse=inverse)
    check(run, node, x, constants, 17)


@pytest.mark.parametrize("opset", [17, 20])
def test_transforms_from_one_side(run, opset):
    x = RNG.standard_normal((3, 16, 1)).astype(np.float32)
    constants = {"axis": np.int64(1)} if opset == 20 else {}
    options = {} if opset == 20 else {"axis": 1}
    node = helper.make_node("DFT", ["x", *(["", "axis"] if constants else [])], ["y"], onesided=1, **options)
    check(run, node, x, constants, opset)


def test_a_long_transform_stays():
    x = np.zeros((1, 4096, 1), np.float32)
    check(None, helper.make_node("DFT", ["x"], ["y"], axis=1), x, {}, 17, left=True)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize(("step", "length"), [(4, 16), (5, 12)])
def test_short_time_transforms(run, onesided, window, step, length):
    x = RNG.standard_normal((2, 50, 1)).astype(np.float32)
    constants = {"step": np.int64(step)}
    if window:
        constants["window"] = np.hanning(length).astype(np.float32)
    constants["length"] = np.int64(length)
    read = ["x", "step", "window" if window else "", "length"]
    check(run, helper.make_node("STFT", read, ["y"], onesided=onesided), x, constants, 17)


def test_an_stft_without_its_sides_has_one(run):
    x = RNG.standard_normal((2, 50, 1)).astype(np.float32)
    constants = {"step": np.int64(4), "length": np.int64(16)}
    check(run, helper.make_node("STFT", ["x", "step", "", "length"], ["y"]), x, constants, 17)
