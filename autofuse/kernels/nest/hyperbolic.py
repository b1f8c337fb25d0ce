"""Hyperbolic functions and their inverses, in float64: series where the formula cancels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import tirx

from autofuse.kernels.nest.scalar_rules import Call, cast
from autofuse.kernels.tir.math import Expr


def _wide(call: Call) -> tuple[Expr, Callable[[float], Expr]]:
    """The operand in float64, named, and a maker of float64 constants."""
    return call.bind(cast(call.args[0], "float64")), lambda value: tirx.const(value, "float64")


def sinh(call: Call) -> Expr:
    """(e^x - e^-x) / 2 in float64, and Taylor's series to x^11 below 0.3, where the difference cancels."""
    x, f64 = _wide(call)
    half = call.bind(tirx.exp(tirx.abs(x) * f64(0.5)))  # e^(|x|/2) does not overflow before the result
    large = (f64(0.5) * half) * half - f64(0.5) / (half * half)
    z = call.bind(x * x)
    small = _series(x, z, [1.0 / math.factorial(k) for k in (1, 3, 5, 7, 9, 11)])
    signed = tirx.Select(x < f64(0.0), large * f64(-1.0), large)
    return cast(tirx.Select(z < f64(0.09), small, signed), call.dtype)


def cosh(call: Call) -> Expr:
    """(e^x + e^-x) / 2 in float64."""
    x, f64 = _wide(call)
    half = call.bind(tirx.exp(tirx.abs(x) * f64(0.5)))
    return cast((f64(0.5) * half) * half + f64(0.5) / (half * half), call.dtype)


def _series(x: Expr, z: Expr, coefficients: Sequence[float]) -> Expr:
    """x (c0 + c1 z + c2 z^2 + ...) in float64."""
    series = tirx.const(coefficients[-1], "float64")
    for coefficient in reversed(coefficients[:-1]):
        series = series * z + tirx.const(coefficient, "float64")
    return x * series


def atanh(call: Call) -> Expr:
    """log((1 + x) / (1 - x)) / 2 in float64, and the series to x^13 below 0.06, where the logarithm cancels."""
    x, f64 = _wide(call)
    z = call.bind(x * x)
    small = _series(x, z, [1.0 / k for k in (1, 3, 5, 7, 9, 11, 13)])
    large = tirx.log((f64(1.0) + x) / (f64(1.0) - x)) * f64(0.5)
    return cast(tirx.Select(z < f64(0.0036), small, large), call.dtype)


def asinh(call: Call) -> Expr:
    """log(|x| + sqrt(x^2 + 1)) with the sign of x in float64, and the series to x^11 below 0.06."""
    x, f64 = _wide(call)
    z = call.bind(x * x)
    small = _series(x, z, [1.0, -1 / 6, 3 / 40, -15 / 336, 105 / 3456, -945 / 42240])
    large = tirx.log(tirx.abs(x) + tirx.sqrt(z + f64(1.0)))
    signed = tirx.Select(x < f64(0.0), large * f64(-1.0), large)
    return cast(tirx.Select(z < f64(0.0036), small, signed), call.dtype)


def acosh(call: Call) -> Expr:
    """log(x + sqrt(x^2 - 1)) in float64; NaN below 1, where the sum of two large numbers would be 0."""
    x, f64 = _wide(call)
    inside = tirx.Select(x < f64(1.0), f64(math.nan), x)
    return cast(tirx.log(inside + tirx.sqrt((x - f64(1.0)) * (x + f64(1.0)))), call.dtype)
