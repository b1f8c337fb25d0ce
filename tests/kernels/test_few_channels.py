"""Maps of few channels: rows of taps as one run, positions woven from the rows of each channel, exact at every edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.graph.own.rounding import rounded
from autofuse.kernels.build import build_kernel
from tests.kernels.conftest import Array, Bench, Small, parsed, real
from tests.kernels.kernel_sample import ROUNDED

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "seven taps of three": ((1, 3, 15, 40), (24, 3, 7, 7), "strides=[2, 2], pads=[3, 3, 3, 3]"),
    "three taps of three": ((2, 3, 9, 33), (20, 3, 3, 3), "pads=[1, 1, 1, 1]"),
    "five taps of one": ((1, 1, 12, 20), (17, 1, 5, 5), "pads=[2, 2, 2, 2]"),
    "less padding behind": ((1, 3, 16, 16), (16, 3, 3, 3), "strides=[2, 2], pads=[0, 0, 1, 1]"),
    "no padding, ends unread": ((1, 3, 16, 18), (16, 3, 3, 3), "strides=[3, 3]"),
    "a row without rows": ((1, 3, 37), (16, 3, 5), "pads=[2, 2]"),
    "taps apart": ((1, 3, 12, 20), (16, 3, 3, 3), "dilations=[1, 2], pads=[1, 2, 1, 2]"),
}


def integers(name: str, zero: int = 7, dtype: str = "uint8") -> tuple[Small, Array]:
    """(a convolution of bytes, what it is: float32 holds all sums here)."""
    shape, weights, attributes = SHAPES[name]
    rng = np.random.default_rng(len(name))
    x, w = rng.integers(0, 256, shape).astype(dtype), rng.integers(-127, 128, weights).astype("int8")
    text = parsed(f"y = ConvInteger <{attributes}> (x, w, z)")
    small = Small(text, {"x": x}, ["y"], {"w": w, "z": np.array(zero, dtype)})
    wide = Small(
        parsed(f"y = Conv <{attributes}> (x, w)"),
        {"x": x.astype("float32") - zero},
        ["y"],
        {"w": w.astype("float32")},
    )
    return small, wide.reference()["y"]


@pytest.mark.parametrize(("lanes", "algorithm"), [(16, "quads"), (8, "quads"), (8, "pairs"), (4, "single")])
@pytest.mark.parametrize("name", SHAPES)
def test_sums_of_bytes_are_exact(bench: Bench, name: str, lanes: int, algorithm: str) -> None:
    small, wanted = integers(name)
    target, bound = bench.target(lanes), bench.bind(small)
    schedule: dict[str, Any] = {"integer.algorithm": algorithm, "integer.vectors": 1, "integer.pixels": 4}
    found = bench.run(small, bound, build_kernel(bound.workload, schedule, target), target)["y"]
    np.testing.assert_array_equal(found, wanted.astype("int64"))


@pytest.mark.parametrize("zero", [0, -128, 5])
def test_signed_bytes_are_exact_at_their_ends(bench: Bench, zero: int) -> None:
    shape, weights, attributes = SHAPES["seven taps of three"]
    rng = np.random.default_rng(1)
    x, w = (rng.choice([-128, -127, 127], size).astype("int8") for size in (shape, weights))
    small = Small(
        parsed(f"y = ConvInteger <{attributes}> (x, w, z)"), {"x": x}, ["y"], {"w": w, "z": np.array(zero, "int8")}
    )
    wide = Small(
        parsed(f"y = Conv <{attributes}> (x, w)"), {"x": x.astype("float32") - zero}, ["y"], {"w": w.astype("float32")}
    )
    target, bound = bench.target(16), bench.bind(small)
    found = bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"]
    np.testing.assert_array_equal(found, wide.reference()["y"].astype("int64"))


@pytest.mark.parametrize(("lanes", "algorithm"), [(16, "dots"), (8, "widened")])
@pytest.mark.parametrize("name", SHAPES)
def test_an_infinite_pixel_reaches_only_the_windows_that_read_it(
    bench: Bench, name: str, lanes: int, algorithm: str
) -> None:
    """A row of an odd number of numbers is read with one of the next position, or of the next row."""
    shape, weights, attributes = SHAPES[name]
    x = real(*shape)
    x[:, :, ..., shape[-1] // 2 :: 13] = np.inf
    small = Small(
        parsed(ROUNDED + f"y = Conv <{attributes}> (r, w)"), {"x": x}, ["y"], {"w": rounded(np.abs(real(*weights)))}
    )
    target, bound = bench.target(lanes), bench.bind(small)
    schedule: dict[str, Any] = {"bfloat16.algorithm": algorithm, "bfloat16.vectors": 1, "bfloat16.pixels": 4}
    found = bench.run(small, bound, build_kernel(bound.workload, schedule, target), target)["y"]
    wanted = small.reference()["y"]
    assert 0 < np.isfinite(wanted).mean() < 1
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
    finite = np.isfinite(wanted)
    assert np.abs(found[finite] - wanted[finite]).max() <= 1e-6 * np.abs(wanted[finite]).max()


def test_what_is_computed_of_a_pixel_is_woven_too(bench: Bench) -> None:
    """The first layer of a quantised model: levels of the image, then bytes."""
    w = np.random.default_rng(2).integers(-127, 128, (16, 3, 7, 7)).astype("int8")
    text = "q = QuantizeLinear (x, s, z); y = ConvInteger <strides=[2, 2], pads=[3, 3, 3, 3]> (q, w, z)"
    small = Small(parsed(text), {"x": real(1, 3, 20, 45)}, ["y"],
                  {"s": np.float32(0.01), "z": np.uint8(100), "w": w})  # fmt: skip
    for lanes in (4, 16):
        target, bound = bench.target(lanes), bench.bind(small)
        found = bench.run(small, bound, build_kernel(bound.workload, {}, target), target)["y"]
        np.testing.assert_array_equal(found, small.reference()["y"])
