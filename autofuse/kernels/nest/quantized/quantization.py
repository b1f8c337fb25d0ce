"""QuantizeLinear and DequantizeLinear of one element, as ONNX Runtime computes them, and which have no definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from autofuse.kernels.nest.scalar_rules import Call, cast, ratio
from autofuse.kernels.tir.math import Expr
from autofuse.kernels.tir.quotients import quotient_factors
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

LEVELS = frozenset({"int8", "uint8", "int16", "uint16"})
"""Element types of what QuantizeLinear makes."""
TAKEN: Mapping[str, frozenset[str]] = {"QuantizeLinear": frozenset({"float32"}), "DequantizeLinear": LEVELS | {"int32"}}
"""Element types of the first input."""
PARAMETERS = 2
"""A scale and a zero point: the inputs behind the first, which stand for a whole tensor or for an axis each."""

_TO_INTEGER, _BITS = 12582912.0, 0x4B400000
"""1.5 * 2^23, and its bits: in a sum with it the last bit of a number is worth 1, rounded half to even."""


def quantize(call: Call) -> Expr:
    """saturate(round(x / scale) + zero point), half to even.

    The bounds come before the rounding: integers, they commute with it. Between a product and the sum that rounds it
    they keep LLVM from joining the two, which would skip the product's own rounding. What is no number is the lowest
    level, as it is in ONNX Runtime: a maximum is its second operand then.
    """
    x, scale = call.args[:2]
    zero = _zero(call)
    low, high = (_bound(limit, zero) for limit in _limits(call))
    one = isinstance(scale, tirx.FloatImm) and scale.value == 1.0
    scaled = x if one else ratio(x, scale)
    return _level(call, tirx.min(tirx.max(scaled, low), high), zero)


def quantize_by_factors(call: Call) -> Expr:
    """As `quantize`, to the bit, for a CPU that multiplies and adds in one step: a number meets the two parts of the
    reciprocal of a constant scale, since dividing takes many times as long.

    The bounds come before, or the sum of two infinities would be no number.
    """
    x, scale = call.args[:2]
    zero = _zero(call)
    known = isinstance(scale, tirx.FloatImm) and isinstance(zero, tirx.IntImm)
    low, high = (limit - int(zero.value) for limit in _limits(call)) if known else (0, 0)
    parts = quotient_factors(float(scale.value), low, high) if known else None
    if parts is None:
        return quantize(call)
    first, last = (tirx.const(float(np.float32(level * scale.value)), "float32") for level in (low, high))
    large, small = (tirx.const(part, "float32") for part in parts)
    cut = call.bind(tirx.min(tirx.max(x, first), last))
    return _level(call, tirx.call_llvm_pure_intrin("float32", "llvm.fma", cut, large, cut * small), zero)


def _limits(call: Call) -> tuple[int, int]:
    limits = np.iinfo(call.out_dtype)
    return int(limits.min), int(limits.max)


def _level(call: Call, cut: Expr, zero: Expr) -> Expr:
    """A number within the bounds, rounded to a level."""
    bits = tirx.reinterpret("int32", cut + tirx.const(_TO_INTEGER, "float32"))
    return tirx.Cast(call.out_dtype, bits + (zero - tirx.const(_BITS, "int32")))


def dequantize(call: Call) -> Expr:
    """(x - zero point) * scale; of a level that this kernel rounds to, without going through its byte."""
    zero = _zero(call)
    rounded = _rounded_to(call.args[0], zero)
    whole = tirx.Cast("float32", cast(call.args[0], "int32") - zero) if rounded is None else rounded
    return whole * call.args[1]


def _rounded_to(levels: Expr, zero: Expr) -> Expr | None:
    """Of what `quantize` makes with that zero point: the whole number less the zero point, as float32; else None.

    Within the bounds of the levels a sum with 1.5 * 2^23, less that, is the number rounded half to even.
    """
    found = _rounding_sum(levels)
    if found is None or not isinstance(zero, tirx.IntImm) or found[1] != int(zero.value):
        return None
    # as bits in between, since TVM would take the sum and the difference for the number itself
    return tirx.reinterpret("float32", found[0]) - tirx.const(_TO_INTEGER, "float32")


def _rounding_sum(levels: Expr) -> tuple[Any, int] | None:
    """The bits of the sum that rounds, and the zero point, of what `quantize` makes with a known one; else None."""
    bits = levels.value.a if isinstance(levels, tirx.Cast) and isinstance(levels.value, tirx.Add) else None
    if not isinstance(bits, tvm.ir.Call) or bits.op.name != "tirx.reinterpret":
        return None
    offset, total = levels.value.b, bits.args[0]
    magic = isinstance(total, tirx.Add) and isinstance(total.b, tirx.FloatImm) and total.b.value == _TO_INTEGER
    return (bits, int(offset.value) + _BITS) if magic and isinstance(offset, tirx.IntImm) else None


@dataclass(frozen=True)
class Level:
    """A level before it is one: saturate(round(`number`) + `zero`), half to even, of a type of so many bits.

    `high`: what the number may be too large beyond, and then is that; None: it is within the bounds of the levels.
    """

    number: Expr
    zero: int
    dtype: str
    high: float | None


def level_of(value: Expr) -> Level | None:
    """What `quantize` made with a known zero point, else None."""
    found = _rounding_sum(value)
    if found is None:
        return None
    (bits, zero), dtype = found, str(value.ty.dtype)
    number, limits = bits.args[0].a, np.iinfo(dtype)
    if isinstance(number, tirx.Min) and isinstance(number.a, tirx.Max):
        bounds = (number.a.b, number.b)
        if all(isinstance(bound, tirx.FloatImm) for bound in bounds):
            low, high = (float(bound.value) for bound in bounds)
            if (low, high) == (limits.min - zero, limits.max - zero):
                return Level(number.a.a, zero, dtype, high)
    return Level(number, zero, dtype, None)


def quantization_refusal(operator: WorkloadOperator, workload: Workload) -> str | None:
    """Why a QuantizeLinear or DequantizeLinear has no definition here (None: it has)."""
    kind = operator.op_type
    x, scale = (workload.values[value] for value in operator.inputs[:2])
    result = workload.values[operator.outputs[0]].dtype
    real, levels = (x.dtype, result) if kind == "QuantizeLinear" else (result, x.dtype)
    if real != "float32" or scale.dtype != "float32":
        return f"{kind}: scales or numbers that are not float32"
    if x.dtype not in TAKEN[kind] or levels not in LEVELS | {"int32"}:
        return f"{kind}: element type {levels}"
    if operator.attribute("block_size", 0) or any(
        len(workload.values[value].shape) > 1 for value in operator.inputs[1:] if value >= 0
    ):
        return f"{kind}: scales in blocks"
    return None


def _zero(call: Call) -> Expr:
    """The zero point as int32."""
    given = call.args[PARAMETERS] if len(call.args) > PARAMETERS else None
    if given is None:
        return tirx.const(0, "int32")
    if isinstance(given, tirx.IntImm):
        return tirx.const(int(given.value), "int32")
    return call.bind(tirx.Cast("int32", given))


def _bound(limit: int, zero: Expr) -> Expr:
    """A limit of the result, less the zero point, as a number."""
    if isinstance(zero, tirx.IntImm):
        return tirx.const(float(limit - int(zero.value)), "float32")
    return tirx.Cast("float32", tirx.const(limit, "int32") - zero)
