"""Tables of bytes: every byte is looked up right, by each kind of instruction, alone and behind integer products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.nest.quantized.byte_tables import packed_table, table_bytes, table_instruction
from autofuse.kernels.tir.digest import code_text
from tests.kernels.conftest import Array, Bench, Small, parsed
from tests.kernels.kernel_sample import TARGETS

CPUS = {"vpermi2": ("icelake-server", 16), "avx512.pshuf": ("skylake-avx512", 16), "avx2.pshuf": ("haswell", 8),
        "ssse3.pshuf": ("x86-64-v2", 4), "": ("x86-64", 4)}  # fmt: skip
"""What stands in the code of a CPU with vectors of so many lanes."""
SWISH = (
    "d = DequantizeLinear (x, s, z); g = Sigmoid (d); h = QuantizeLinear (g, t, o); "
    "k = DequantizeLinear (h, t, o); m = Mul (d, k); y = QuantizeLinear (m, s, z)"
)


def levels(dtype: str, zero: int = 30) -> dict[str, Any]:
    return {"s": np.float32(0.04), "z": np.array(zero, dtype), "t": np.float32(1 / 256), "o": np.array(0, dtype)}


def looked(x: Array) -> Small:
    return Small(parsed(SWISH), {"x": x}, ["y"], levels(x.dtype.name))


def exact(bench: Bench, small: Small, target: Target, block: str = "", outputs: tuple[str, ...] = ("y",)) -> str:
    """The code, once its results are those of ONNX Runtime to the bit."""
    bound = bench.bind(small, {"x": block, "y": block} if block else {})
    assert is_own(bound.workload), bound.workload.label
    assert "ByteLookup" in [operator.op_type for operator in bound.workload.operators]
    kernel = build_kernel(bound.workload, {}, target)
    found, expected = bench.run(small, bound, kernel, target), small.reference()
    for name in outputs:
        np.testing.assert_array_equal(found[name], expected[name])
    return code_text(kernel.function)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("instruction", CPUS)
def test_every_byte_is_looked_up(bench: Bench, instruction: str, dtype: str) -> None:
    mcpu, lanes = CPUS[instruction]
    every = np.random.default_rng(3).permutation(np.arange(1024) % 256).astype("uint8").view(dtype).reshape(4, 256)
    assert instruction in exact(bench, looked(every), bench.target(lanes, mcpu=mcpu))


@pytest.mark.parametrize("size", [1, 31, 64, 255, 256, 257, 1000, 4096, 40000])
@pytest.mark.parametrize("lanes", [8, 16])
def test_bytes_that_fill_no_vectors(bench: Bench, size: int, lanes: int) -> None:
    x = np.random.default_rng(size).integers(0, 256, (1, size)).astype("uint8")
    exact(bench, looked(x), bench.target(lanes))


def test_maps_in_blocks(bench: Bench) -> None:
    x = np.random.default_rng(1).integers(0, 256, (2, 32, 5, 7)).astype("uint8")
    exact(bench, looked(x), bench.target(16), "c16")


def test_what_follows_a_table_is_computed_in_its_kernel(bench: Bench) -> None:
    x = np.random.default_rng(1).integers(0, 256, (3, 5, 37)).astype("uint8")
    text = SWISH.replace("y =", "q =") + "; r = DequantizeLinear (q, s, z); y = Mul (r, v)"
    small = Small(parsed(text), {"x": x, "v": np.ones((5, 1), "float32") * 3}, ["y"], levels("uint8"))
    for lanes in (4, 8, 16):
        assert ("vpermi2var.d" in exact(bench, small, bench.target(lanes))) == (lanes > CPUS["avx2.pshuf"][1])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_numbers_are_computed_with_every_entry(bench: Bench, dtype: str) -> None:
    every = np.random.default_rng(3).permutation(np.arange(1024) % 256).astype("uint8").view(dtype).reshape(4, 256)
    text = SWISH.replace("y =", "q =") + "; y = DequantizeLinear (q, s, z)"
    small = Small(parsed(text), {"x": every}, ["y"], levels(dtype))
    assert "vpermi2var.d" in exact(bench, small, bench.target(16))


@pytest.mark.parametrize("way", ["avx2.pshuf", "avx512.pshuf", "vpermi2", "ssse3.pshuf"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("group", "kernel", "columns"), [(1, 1, 80), (1, 3, 32), (32, 3, 32)])
def test_behind_a_convolution(bench: Bench, way: str, dtype: str, group: int, kernel: int, columns: int) -> None:
    mcpu, lanes = CPUS[way]
    rng = np.random.default_rng(columns)
    pads = ", ".join([str(kernel // 2)] * 4)
    constants: dict[str, Any] = {
        "sx": np.float32(0.02), "zx": np.array(13, dtype), "sw": np.linspace(0.005, 0.02, columns, dtype="float32"),
        "w": rng.integers(-127, 128, (columns, 32 // group, kernel, kernel)).astype("int8"),
        "zw": np.zeros(columns, "int8"), "sy": np.float32(0.04), "zy": np.array(30, dtype), **levels(dtype),
        "b": rng.integers(-3000, 3000, columns).astype("int32"),
    }  # fmt: skip
    text = f"q = QLinearConv <group={group}, pads=[{pads}]> (x, sx, zx, w, sw, zw, sy, zy, b); "
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, (1, 32, 9, 11), endpoint=True).astype(dtype)
    small = Small(parsed(text + SWISH.replace("(x,", "(q,")), {"x": x}, ["y"], constants)
    code = exact(bench, small, bench.target(lanes, mcpu=mcpu), f"c{lanes}")
    assert (way in code) == (lanes > CPUS["ssse3.pshuf"][1])


def test_arm_looks_up_sixteen_bytes_by_four_instructions(bench: Bench) -> None:
    bound = bench.bind(looked(np.zeros((4, 256), "uint8")))
    code = code_text(build_kernel(bound.workload, {}, TARGETS["neon"]).function)
    assert "tbl4" in code and "tbx4" in code


@pytest.mark.parametrize("name", CPUS)
def test_a_table_is_held_as_long_as_it_is_declared(name: str) -> None:
    mcpu, lanes = CPUS[name]
    target = Target(mcpu, lanes, 16, 2, 32768, 262144)
    table = np.random.default_rng(0).integers(0, 256, 256).astype("uint8")
    held = packed_table(table, target)
    assert held.size == table_bytes(target)
    np.testing.assert_array_equal(held[:256], table)
    assert (table_instruction(target) is None) == (name == "")
