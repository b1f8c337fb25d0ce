"""Where Resize and Upsample sample their input: integer formulas for each axis, checked when compiling.

A sampling position is a * i + b (rational) for output i. ONNX Runtime computes it in float32 and rounds; nearest
neighbours are therefore taken from a table made the same way, and an integer formula (a * i + b) // c is fitted that
gives exactly that table. Linear weights come from the exact rational position.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from autofuse.kernels.tir.math import Bind, Expr
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

_MODES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
_FLOATS = ("float32", "float64")
_LARGEST_DENOMINATOR = 4096
_WHOLE = 1e-6
"""What part of a size it may be from a whole number, for scales are float32."""


@dataclass(frozen=True)
class Sampler:
    """Positions on one input axis of `extent` elements: n = a * i + b over the denominator c.

    `cut`: whether n // c must be cut to [0, extent). `linear`: two neighbours are mixed; `cubic`: four are, with this
    coefficient (Keys, "Cubic convolution interpolation", 1981); else one is taken.
    """

    extent: int
    a: int = 1
    b: int = 0
    c: int = 1
    cut: bool = False
    linear: bool = False
    cubic: float | None = None

    def _numerator(self, position: Expr) -> Expr:
        numerator = position * self.a + self.b
        if not self.cut:
            return numerator
        last = (self.extent - 1) * self.c
        if isinstance(numerator, int):
            return min(max(numerator, 0), last)
        return tirx.min(tirx.max(numerator, tirx.const(0, "int32")), tirx.const(last, "int32"))

    def mixed(self, position: Expr, dtype: str, bind: Bind) -> list[tuple[Expr, Expr | None]]:
        """The elements that output `position` is made of, with their weights (None: one)."""
        low = self.low(position)
        if not self.linear and self.cubic is None:
            return [(low, None)]
        share = self.share(position)
        weight = tirx.const(share, dtype) if isinstance(share, float) else bind(tirx.Cast(dtype, share))
        one = tirx.const(1.0, dtype)
        if self.cubic is None:
            return [(low, one - weight), (self.high(position), weight)]
        two = tirx.const(2.0, dtype)
        distances = ((weight + one, False), (weight, True), (one - weight, True), (two - weight, False))
        weights = [bind(self._keys(distance, near, dtype)) for distance, near in distances]
        return list(zip([self._inside(low + offset) for offset in range(-1, 3)], weights, strict=True))

    def _keys(self, distance: Expr, near: bool, dtype: str) -> Expr:
        """The weight of an element at a `distance` of at most 1 (`near`) or from 1 to 2, by Horner's scheme."""
        a = self.cubic or 0.0
        first, *rest = (a + 2.0, -(a + 3.0), 0.0, 1.0) if near else (a, -5.0 * a, 8.0 * a, -4.0 * a)
        total: Expr = tirx.const(first, dtype)
        for coefficient in rest:
            total = total * distance + tirx.const(coefficient, dtype)
        return total

    def _inside(self, place: Expr) -> Expr:
        """A place cut to the axis."""
        last = self.extent - 1
        if isinstance(place, int):
            return min(max(place, 0), last)
        return tirx.min(tirx.max(place, tirx.const(0, "int32")), tirx.const(last, "int32"))

    def stretches(self, longest: int) -> tuple[int, int] | None:
        """(first, size) of the stretches of outputs that take the same elements, from the first whole one on; None
        where they are of several sizes, of one or of more than the `longest`."""
        size, rest = divmod(self.c, self.a) if self.a > 0 else (0, 0)
        if rest or not 1 < size <= longest:
            return None
        return -(self.b // self.a) % size, size

    def low(self, position: Expr) -> Expr:
        """The (lower) element that output `position` takes."""
        return self._numerator(position) // self.c

    def high(self, position: Expr) -> Expr:
        """The upper element that output `position` mixes in."""
        after = self.low(position) + 1
        last = self.extent - 1
        return min(after, last) if isinstance(after, int) else tirx.min(after, tirx.const(last, "int32"))

    def share(self, position: Expr) -> Expr:
        """The weight of the upper element: a Python float, or a float32 expression."""
        rest = self._numerator(position) % self.c
        if isinstance(rest, int):
            return rest / self.c
        return tirx.Cast("float32", rest) * tirx.const(1.0 / self.c, "float32")


def samplers(operator: WorkloadOperator, workload: Workload) -> list[Sampler] | str:
    """The sampler of each axis, or why this variant has no index function."""
    kind = operator.op_type
    source = workload.values[operator.inputs[0]]
    target = workload.values[operator.outputs[0]].shape
    mode = _text(operator, "mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "cubic"):
        return f"{kind}: mode = {mode!r} (known: nearest, linear, cubic)"
    if mode != "nearest" and source.dtype not in _FLOATS:
        return f"{kind}: mode = {mode!r} on {source.dtype} (known: {', '.join(_FLOATS)})"
    for refused in ("antialias", "exclude_outside"):
        if operator.attribute(refused, 0):
            return f"{kind}: {refused}"
    old = kind == "Upsample" or workload.opset < 11
    coordinates = "asymmetric" if old else _text(operator, "coordinate_transformation_mode", "half_pixel")
    if coordinates not in _MODES:
        return f"{kind}: coordinate_transformation_mode = {coordinates!r} (known: {', '.join(_MODES)})"
    rounding = "simple" if old else _text(operator, "nearest_mode", "round_prefer_floor")
    if rounding not in _NEAREST:
        return f"{kind}: nearest_mode = {rounding!r} (known: {', '.join(_NEAREST[:4])})"
    scales = _scales(operator, workload, old)
    if isinstance(scales, str):
        return scales
    if coordinates == "align_corners" and any(_fractional(*pair) for pair in zip(source.shape, scales, strict=True)):
        # ONNX aligns the corners of the fractional size, ONNX Runtime those of the whole one.
        return f"{kind}: corners aligned by scales that make no whole number of elements"
    cubic = float(operator.attribute("cubic_coeff_a", -0.75) or 0.0) if mode == "cubic" else None  # type: ignore
    found = []
    for extent, out, scale in zip(source.shape, target, scales, strict=True):
        axis = _Axis(extent, out, scale, coordinates)
        sampler = axis.nearest(rounding) if mode == "nearest" else axis.mixed(cubic)
        if sampler is None:
            return f"{kind}: no integer formula for {extent} -> {out} elements at scale {scale:g} ({coordinates})"
        found.append(sampler)
    return found


def _fractional(extent: int, scale: float) -> bool:
    made = extent * scale
    return abs(made - round(made)) > _WHOLE * max(1.0, made)


def _text(operator: WorkloadOperator, name: str, default: str) -> str:
    value = operator.attribute(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _scales(operator: WorkloadOperator, workload: Workload, old: bool) -> list[float] | str:
    """The factor of each axis: as given, else what the output's shape implies."""
    source = workload.values[operator.inputs[0]].shape
    target = workload.values[operator.outputs[0]].shape
    inputs = [*operator.inputs, -1, -1, -1, -1][:4]
    place = 1 if old else 2
    attribute: Any = operator.attribute("scales")
    axes: Any = operator.attribute("axes") or tuple(range(len(source)))
    scales = [1.0] * len(source)
    if attribute is not None:
        return [float(value) for value in attribute]
    if inputs[place] >= 0 and 0 not in workload.values[inputs[place]].shape:
        value = workload.values[inputs[place]]
        if value.kind != "literal":
            return f"{operator.op_type}: input {place} (scales) is not known when compiling"
        given = value.literal_array().reshape(-1).astype(np.float32).tolist()
    elif _text(operator, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return f"{operator.op_type}: keep_aspect_ratio_policy other than 'stretch'"
    else:
        given = [target[axis] / source[axis] for axis in axes]
    for axis, scale in zip(axes, given, strict=True):
        scales[axis] = scale
    return scales


@dataclass(frozen=True)
class _Axis:
    extent: int
    out: int
    scale: float
    mode: str

    def mixed(self, cubic: float | None) -> Sampler | None:
        if self.extent == self.out and self.scale == 1.0:
            return Sampler(self.extent)
        slope, start = self._line()
        if slope is None:
            return None
        c = np.lcm(slope.denominator, start.denominator).item()
        a, b = int(slope * c), int(start * c)
        if max(abs(a) * self.out + abs(b), c * self.extent) >= 2**31:
            return None
        return Sampler(self.extent, a, b, c, cut=cubic is None, linear=cubic is None, cubic=cubic)

    def _line(self) -> tuple[Fraction | None, Fraction]:
        """(slope, start) of the exact sampling position; None where the scale is no small fraction."""
        inverse = Fraction(self.extent, self.out)
        if abs(float(inverse) * self.scale - 1.0) > 1e-6:
            inverse = (1 / Fraction(self.scale)).limit_denominator(_LARGEST_DENOMINATOR)
            if abs(float(inverse) * self.scale - 1.0) > 1e-6:
                return None, inverse
        half = Fraction(1, 2)
        if self.mode == "asymmetric":
            return inverse, Fraction(0)
        if self.mode == "align_corners":
            return (Fraction(self.extent - 1, self.out - 1) if self.out > 1 else Fraction(0)), Fraction(0)
        if self.mode == "tf_half_pixel_for_nn":
            return inverse, half * inverse
        if self.mode == "pytorch_half_pixel" and self.out == 1:
            return Fraction(0), Fraction(0)
        shift = Fraction(0)
        if self.mode == "half_pixel_symmetric":
            shift = Fraction(self.extent, 2) * (1 - self.out * inverse / self.extent)
        return inverse, half * inverse - half + shift

    def nearest(self, rounding: str) -> Sampler | None:
        if self.extent == self.out and self.scale == 1.0:
            return Sampler(self.extent)
        slope, _ = self._line()
        if slope is None:
            return None
        raw = _rounded(self._positions(), rounding, self.scale)
        for table, cut in ((np.clip(raw, 0, self.extent - 1), False), (raw, True)):
            fitted = _fit(table, slope)
            if fitted is not None:
                return Sampler(self.extent, *fitted, cut=cut)
        return None

    def _positions(self) -> NDArray[np.float32]:
        """Sampling positions in float32, operation by operation as ONNX Runtime computes them."""
        one = np.float32
        i, scale = np.arange(self.out, dtype=np.float32), one(self.scale)
        if self.mode == "asymmetric":
            return i / scale
        if self.mode == "align_corners":
            return i * one(self.extent - 1) / one(self.out - 1) if self.out > 1 else i * one(0)
        if self.mode == "tf_half_pixel_for_nn":
            return (i + one(0.5)) / scale
        if self.mode == "pytorch_half_pixel" and self.out == 1:
            return i * one(0)
        shift = one(0)
        if self.mode == "half_pixel_symmetric":
            adjustment = one(self.out) / (scale * one(self.extent))
            shift = one(self.extent / 2) * (one(1) - adjustment)
        return shift + (i + one(0.5)) / scale - one(0.5)


def _rounded(positions: NDArray[np.float32], rounding: str, scale: float) -> NDArray[np.int64]:
    half = np.float32(0.5)
    if rounding == "simple":  # Upsample, and Resize before opset 11
        rounded = np.ceil(positions) if scale < 1.0 else np.floor(positions)
    elif rounding == "round_prefer_floor":
        rounded = np.ceil(positions - half)
    elif rounding == "round_prefer_ceil":
        rounded = np.floor(positions + half)
    else:
        rounded = np.floor(positions) if rounding == "floor" else np.ceil(positions)
    return rounded.astype(np.int64)


def _fit(table: NDArray[np.int64], slope: Fraction) -> tuple[int, int, int] | None:
    """(a, b, c) with (a * i + b) // c == table[i] for every i and a / c = slope; None where there is none."""
    i = np.arange(table.size)
    a, c = 2 * slope.numerator, 2 * slope.denominator
    low = int((table * c - a * i).max())
    high = int((table * c + c - 1 - a * i).min())
    if low > high or (abs(a) * table.size + abs(low)) >= 2**31:
        return None
    b = 0 if low <= 0 <= high else low if low > 0 else high
    if b % 2 and low <= b + 1 <= high:
        b += 1
    shared = gcd(a, b, c)
    return a // shared, b // shared, c // shared
