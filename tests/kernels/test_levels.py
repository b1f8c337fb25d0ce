"""Which results stand behind a rounding that has no one right answer."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.kernels.workload.levels import ambiguous_outputs
from tests.kernels.conftest import Bench, Small, parsed, real

SCALE, ZERO = np.array(0.1, "float32"), np.array(7, "uint8")
CONSTANTS = {"s": SCALE, "z": ZERO, "w": np.ones((8, 4), "int8"), "b": real(8, 4),
             "o": np.ones((4, 3), "float32"), "p": np.ones((8, 3), "float32")}  # fmt: skip
LEVELS = np.arange(32, dtype="uint8").reshape(4, 8)
ONE_ANSWER = {
    "numbers that are given": ("y = QuantizeLinear (x, s, z)", real(4, 8)),
    "sums of integers": (
        "t = MatMulInteger (x, w, z); d = DequantizeLinear (t, s); y = QuantizeLinear (d, s, z)", LEVELS
    ),
    "bounds and movements": (
        "d = DequantizeLinear (x, s, z); r = Relu (d); t = Transpose (r); y = QuantizeLinear (t, s, z)", LEVELS
    ),
    "numbers that are rounded to bfloat16": ("h = Cast <to=16> (x); r = Cast <to=1> (h); y = Neg (r)", real(4, 8)),
    "a product in bfloat16": ("h = Cast <to=16> (x); r = Cast <to=1> (h); y = MatMul (r, p)", real(4, 8)),
    "sums of numbers that stay numbers": ("y = MatMul (x, b)", real(4, 8)),
}  # fmt: skip
TWO_ANSWERS = {
    "a sum of numbers": ("m = MatMul (x, b); y = QuantizeLinear (m, s, z)", real(4, 8)),
    "what is read of it": (
        "m = MatMul (x, b); q = QuantizeLinear (m, s, z); d = DequantizeLinear (q, s, z); y = Relu (d)", real(4, 8)
    ),
    "a sum that is rounded to bfloat16": (
        "m = MatMul (x, b); h = Cast <to=16> (m); r = Cast <to=1> (h); y = Neg (r)", real(4, 8)
    ),
    "a product of sums in bfloat16": (
        "m = MatMul (x, b); h = Cast <to=16> (m); r = Cast <to=1> (h); y = MatMul (r, o)", real(4, 8)
    ),
    "two products that may be joined": (
        "d = DequantizeLinear (x, s, z); a = Mul (d, d); y = QuantizeLinear (a, s, z)", LEVELS
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*ONE_ANSWER, *TWO_ANSWERS])
def test_a_rounding_is_ambiguous_where_its_operand_is(bench: Bench, name: str) -> None:
    text, x = (ONE_ANSWER | TWO_ANSWERS)[name]
    named = {key: value for key, value in CONSTANTS.items() if f" {key}" in text or f"({key}" in text}
    workload = bench.bind(Small(parsed(text), {"x": x}, ["y"], named)).workload
    assert bool(ambiguous_outputs(workload)) == (name in TWO_ANSWERS)
