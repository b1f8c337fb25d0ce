"""QuantizeLinear and DequantizeLinear have the bits of ONNX Runtime: half to even, cut at the limits, by axis."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.device.target import Target
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.registry import is_own, refusal
from autofuse.kernels.tir.digest import code_text
from autofuse.kernels.tir.quotients import multiply_add, quotient_factors
from tests.kernels.conftest import Array, Bench, Small, parsed, real

LEVELS = ("int8", "uint8", "int16", "uint16")


def halves(scale: float, reach: int) -> Array:
    """Multiples of half a quantum, beyond both limits: every rounding that ties, and what is cut."""
    return (np.arange(-2 * reach, 2 * reach, dtype="float32") * np.float32(scale / 2)).reshape(4, -1)


def exact(bench: Bench, small: Small, **layouts: str) -> None:
    bound = bench.bind(small, layouts)
    assert is_own(bound.workload), bound.workload.label
    target = bench.target(16)
    found = bench.run(small, bound, build_kernel(bound.workload, {}, target), target)
    for name, array in small.reference().items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("dtype", LEVELS)
@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0371])
def test_ties_go_to_even_and_limits_cut(bench: Bench, dtype: str, scale: float) -> None:
    limits = np.iinfo(dtype)
    zero = np.array((limits.min + limits.max) // 3, dtype)
    constants = {"s": np.array(scale, "float32"), "z": zero}
    reach = min(2 * limits.max, 70000)
    exact(bench, Small(parsed("y = QuantizeLinear (x, s, z)"), {"x": halves(scale, reach)}, ["y"], constants, 21))


def test_infinities_are_cut(bench: Bench) -> None:
    x = np.array([[np.inf, -np.inf, 3e38, -3e38, 0.0, -0.0, 1e-40, 127.5]], "float32")
    constants = {"s": np.array(0.5, "float32"), "z": np.array(-3, "int8")}
    exact(bench, Small(parsed("y = QuantizeLinear (x, s, z)"), {"x": x}, ["y"], constants))


@pytest.mark.parametrize("dtype", LEVELS)
def test_what_is_no_number_becomes_the_lowest_level(bench: Bench, dtype: str) -> None:
    x = np.array([[np.nan, 1.0, -np.nan] * 11], "float32")
    constants = {"s": np.array(0.5, "float32"), "z": np.array(7, dtype)}
    exact(bench, Small(parsed("y = QuantizeLinear (x, s, z)"), {"x": x}, ["y"], constants, 21))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scale_for_each_of_an_axis(bench: Bench, axis: int) -> None:
    x = real(20, 20, seed=3) * 90
    constants = {"s": np.abs(real(20)) + np.float32(0.1), "z": np.arange(20, dtype="uint8") * 12}
    both = f"q = QuantizeLinear <axis={axis}> (x, s, z); y = DequantizeLinear <axis={axis}> (q, s, z)"
    exact(bench, Small(parsed(both), {"x": x}, ["q", "y"], constants))


def test_scales_that_are_computed(bench: Bench) -> None:
    inputs = {"x": real(9, 17) * 70, "s": np.array(0.31, "float32"), "z": np.array(77, "uint8")}
    exact(bench, Small(parsed("y = QuantizeLinear (x, s, z)"), inputs, ["y"]))


@pytest.mark.parametrize("dtype", [*LEVELS, "int32"])
def test_every_integer_becomes_a_number(bench: Bench, dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.linspace(limits.min, limits.max, 1024).astype(dtype).reshape(4, 256)
    text = "y = DequantizeLinear (x, s)"
    constants: dict[str, Array] = {"s": np.array(0.0371, "float32")}
    if dtype != "int32":
        text, constants = "y = DequantizeLinear (x, s, z)", {**constants, "z": np.array(5, dtype)}
    exact(bench, Small(parsed(text), {"x": x}, ["y"], constants, 21))


def test_a_product_is_rounded_before_it_is_quantised(bench: Bench) -> None:
    """A sum joined with the product before it (FMA) would round ties of the exact product elsewhere."""
    x = np.arange(-40000, 40000, dtype="int32").reshape(8, -1)
    constants = {
        "s": np.float32(1) / np.array(3 * 7, "float32"),
        "one": np.array(1, "float32"),
        "z": np.array(0, "uint8"),
    }
    text = "d = DequantizeLinear (x, s); y = QuantizeLinear (d, one, z)"
    exact(bench, Small(parsed(text), {"x": x}, ["y"], constants))


@pytest.mark.parametrize("dtype", LEVELS)
@pytest.mark.parametrize("scale", [0.25, 0.0371])
def test_levels_that_the_same_kernel_reads_are_never_bytes(bench: Bench, dtype: str, scale: float) -> None:
    """Bit for bit what the bytes would give: ties, both limits, infinities, what is no number."""
    limits = np.iinfo(dtype)
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38, -3e38, 0.0] * 2, "float32")
    x = np.concatenate([halves(scale, min(2 * limits.max, 70000)).reshape(-1), special])
    zero = np.array((limits.min + limits.max) // 3, dtype)
    text = "q = QuantizeLinear (x, s, z); y = DequantizeLinear (q, s, z)"
    small = Small(parsed(text), {"x": x}, ["y"], {"s": np.array(scale, "float32"), "z": zero}, 21)
    code = code_text(build_kernel(bench.bind(small).workload, {}, bench.target(16)).function)
    assert f'Cast("{dtype}"' not in code
    exact(bench, small)


def test_levels_of_another_zero_point_go_through_their_byte(bench: Bench) -> None:
    """Where a byte is read with another zero point than it was made with."""
    text = "q = QuantizeLinear (x, s, a); y = DequantizeLinear (q, s, b)"
    constants = {"s": np.array(0.5, "float32"), "a": np.array(3, "uint8"), "b": np.array(9, "uint8")}
    exact(bench, Small(parsed(text), {"x": halves(0.5, 300)}, ["y"], constants))


def test_maps_in_blocks_join_their_channels_scales(bench: Bench) -> None:
    constants = {"s": np.abs(real(32)) + np.float32(0.1), "z": np.zeros(32, "int8")}
    small = Small(parsed("y = QuantizeLinear (x, s, z)"), {"x": real(1, 32, 5, 6) * 40}, ["y"], constants)
    exact(bench, small, x="c16", y="c16")


def test_what_has_no_definition_says_why(bench: Bench) -> None:
    x, scale = real(4, 8), np.full((2, 8), 0.1, "float32")
    blocks = Small(parsed("y = QuantizeLinear <axis=0, block_size=2> (x, s, z)"), {"x": x}, ["y"],
                   {"s": scale, "z": np.zeros((2, 8), "uint8")}, 21)  # fmt: skip
    workload = bench.bind(blocks).workload
    said = [refusal(workload, operator) for operator in workload.operators]
    assert any("scales in blocks" in text for text in said if text), said


@pytest.mark.parametrize("seed", range(4))
def test_a_constant_scale_is_met_by_its_reciprocal_in_two_parts(bench: Bench, seed: int) -> None:
    """Around every threshold, and beyond both limits, the level is that of the division."""
    draw = np.random.default_rng(seed)
    scale, zero = np.float32(10 ** draw.uniform(-5, 3)), np.uint8(draw.integers(256))
    thresholds = ((np.arange(-300, 300) + 0.5) * np.float64(scale)).astype(np.float32)
    near = thresholds.view(np.int32)[:, None] + np.arange(-6, 7, dtype=np.int32)
    special = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38, -3e38] + [0.0] * 6], "float32")
    constants = {"s": np.array(scale), "z": np.array(zero)}
    small = Small(
        parsed("y = QuantizeLinear (x, s, z)"),
        {"x": np.concatenate([near.view(np.float32), special])},
        ["y"],
        constants,
    )
    workload = bench.bind(small).workload
    assert "llvm.fma" in code_text(build_kernel(workload, {}, bench.target(16)).function)
    assert "llvm.fma" not in code_text(build_kernel(workload, {}, Target("x86-64", 4, 16, 2, 32768, 262144)).function)
    exact(bench, small)


@given(st.floats(np.float32(1e-4), 100, width=32), st.floats(-1000, 1000, width=32), st.floats(-1, 1, width=32))
def test_a_product_and_a_sum_are_rounded_once(factor: float, x: float, more: float) -> None:
    found = multiply_add(np.array([x], "float32"), np.float32(factor), np.array([more], "float32"))
    exact_sum = Fraction(x) * Fraction(factor) + Fraction(more)
    others = (np.nextafter(found, np.float32(way)) for way in (-np.inf, np.inf))
    off = abs(Fraction(float(found[0])) - exact_sum)
    assert all(off <= abs(Fraction(float(other[0])) - exact_sum) for other in others)


@pytest.mark.parametrize("divisor", [1e-30, 1e30, 0.0, -0.5, 0.25])
def test_some_divisors_have_no_factors(divisor: float) -> None:
    assert quotient_factors(divisor, 0, 255) is None
