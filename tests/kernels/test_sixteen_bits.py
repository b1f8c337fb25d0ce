"""Activations of 16 bits: sums in float32, in one kernel with their levels before and behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own
from tests.kernels.conftest import Bench, Small, parsed

WIDE, NARROW = ("int16", "uint16"), ("int8", "uint8", "int16")
MOST_APART = 0.02
"""Part of the results that may be the neighbouring level: their sums lie halfway between two as good as exactly."""


def levels(dtype: str, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    limits = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def contraction(op: str, left: str, right: str, columns: int, depth: int, seed: int, relu: bool) -> Small:
    """y = Q(Relu(op(DQ(x), DQ(w)))), with zero points of the whole range, and a scale for each column."""
    rng = np.random.default_rng([seed, columns, depth])
    x, w = ((7, depth), (depth, columns)) if op == "MatMul" else ((1, depth, 6, 5), (columns, depth, 3, 3))
    constants: dict[str, Any] = {
        "w": levels(right, *w, seed=seed), "sw": rng.uniform(1e-3, 2e-3, columns).astype("float32"),
        "zw": np.full(columns, 128 if right == "uint8" else 0, right), "sx": np.float32(1e-4),
        "zx": levels(left, seed=seed), "sy": np.float32(1e-3), "zy": levels(left, seed=seed + 1),
    }  # fmt: skip
    axis, pads = (1, "") if op == "MatMul" else (0, " <pads=[1, 1, 1, 1]>")
    real = f"a = DequantizeLinear (x, sx, zx); b = DequantizeLinear <axis={axis}> (w, sw, zw); c = {op}{pads} (a, b); "
    last = "r = Relu (c); y = QuantizeLinear (r, sy, zy)" if relu else "y = QuantizeLinear (c, sy, zy)"
    constants = {name: np.asarray(array) for name, array in constants.items()}
    return Small(parsed(real + last), {"x": levels(left, *x, seed=seed)}, ["y"], constants, opset=21)


def neighbours(small: Small, lanes: int) -> None:
    """The model is one kernel of our own, whose levels are ONNX Runtime's, or beside them here and there."""
    bench = Bench()
    bound, target = bench.bind(small), bench.target(lanes)
    assert is_own(bound.workload), bound.workload.label
    found = bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"]
    apart = np.abs(found.astype(int) - small.reference()["y"].astype(int))
    assert apart.max() <= 1 and (apart > 0).mean() <= MOST_APART


@pytest.mark.parametrize("op", ["MatMul", "Conv"])
@pytest.mark.parametrize("left", WIDE)
@pytest.mark.parametrize("right", NARROW)
def test_all_types(op: str, left: str, right: str) -> None:
    for lanes in (8, 16):
        neighbours(contraction(op, left, right, 24, 40, 3, relu=True), lanes)


def optimised(small: Small, folder: Path) -> set[str]:
    """Operators of a model as ONNX Runtime runs it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.optimized_model_filepath = 4, str(folder / "optimised.onnx")
    onnxruntime.InferenceSession(small.model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in onnx.load(folder / "optimised.onnx").graph.node}


@pytest.mark.parametrize("op", ["MatMul", "Conv"])
@pytest.mark.parametrize(("left", "right"), [(left, right) for left in WIDE for right in NARROW])
def test_onnx_runtime_multiplies_them_in_float32_too(op: str, left: str, right: str, tmp_path: Path) -> None:
    """Were that otherwise, its integers would be what ours are held to."""
    found = optimised(contraction(op, left, right, 24, 40, 3, relu=False), tmp_path)
    real = {op, f"Fused{op}"} | ({"MatMulNBits"} if (op, right) != ("MatMul", "int16") else set())
    assert found & real and not any("QLinear" in kind or "Integer" in kind for kind in found)


@pytest.mark.parametrize("op", ["MatMul", "Conv"])
def test_bytes_it_multiplies_as_integers(op: str, tmp_path: Path) -> None:
    assert f"QLinear{op}" in optimised(contraction(op, "uint8", "int8", 24, 40, 3, relu=False), tmp_path)


@given(
    st.sampled_from(["MatMul", "Conv"]), st.sampled_from(WIDE), st.sampled_from(NARROW), st.integers(1, 50),
    st.integers(1, 70), st.integers(0, 99), st.booleans(), st.sampled_from([8, 16]),
)  # fmt: skip
@settings(max_examples=12, deadline=None, derandomize=True)
def test_any_size(op: str, left: str, right: str, columns: int, depth: int, seed: int, relu: bool, lanes: int) -> None:
    neighbours(contraction(op, left, right, columns, depth, seed, relu), lanes)
