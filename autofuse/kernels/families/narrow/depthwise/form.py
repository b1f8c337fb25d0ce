"""What a depthwise convolution of bytes computes, and its constants as a kernel reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.kernels.families.narrow.instructions import BYTES, SIGN
from autofuse.kernels.families.windows import convolution_windows
from autofuse.kernels.nest.tiles import Window
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

QUAD = 4
"""Neighbouring pixels that one instruction multiplies."""
MOST_TAPS = 64
"""Taps that are written out in the code. So few products of bytes are exact in float32, too."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Depthwise:
    """out[image, channel, row, column] = sum over the window of (x - its zero point) * w; padding holds the zero point.

    `x`, `w`: value indices; `zero`: the zero point of x; `signed`: whether x is.
    """

    x: int
    w: int
    zero: int
    signed: bool
    images: int
    channels: int
    height: Window
    width: Window

    @property
    def shifts(self) -> int:
        """Places in a quad at which windows begin: two neighbours share the quads of a stride of 1."""
        return 2 if self.width.stride == 1 else 1

    @property
    def quads(self) -> int:
        """Quads that a row of the window lies in."""
        return -(-(self.width.taps + self.shifts - 1) // QUAD)

    @property
    def pairs(self) -> int:
        """Quads of a row; they begin at every second position."""
        first = self.width.outputs - 1
        first = first // 2 if self.width.stride == 1 else first
        return first + 2 * (self.quads - 1) + 1

    @property
    def positions(self) -> int:
        """Positions of a row, padding among them, that quads are made of."""
        return 2 * (self.pairs - 1) + QUAD

    def first_quad(self, output: int) -> int:
        """Of an output: the first quad of a row that it reads, the next one but one is its second."""
        return output // 2 if self.width.stride == 1 else output

    def shift(self, output: int) -> int:
        """Where in its first quad the window of an output begins."""
        return output % 2 if self.width.stride == 1 else 0

    def in_quads(self, weights: Array, lanes: int) -> Array:
        """Weights [channel, 1, row, tap] as [block, row, shift, quad, lane, place], zero where a quad has no tap."""
        blocks = -(-self.channels // lanes)
        found = np.zeros((blocks * lanes, self.height.taps, self.shifts, self.quads * QUAD), np.int8)
        for shift in range(self.shifts):
            found[: self.channels, :, shift, shift : shift + self.width.taps] = weights[:, 0]
        parts = found.reshape(blocks, lanes, self.height.taps, self.shifts, self.quads, QUAD)
        return np.ascontiguousarray(parts.transpose(0, 2, 3, 4, 1, 5))

    def in_lanes(self, weights: Array, lanes: int) -> Array:
        """Weights as float32 [block, tap, lane]."""
        blocks = -(-self.channels // lanes)
        found = np.zeros((blocks * lanes, self.height.taps * self.width.taps), np.float32)
        found[: self.channels] = weights.reshape(self.channels, -1)
        return np.ascontiguousarray(found.reshape(blocks, lanes, -1).transpose(0, 2, 1))

    def begins(self, weights: Array, bias: Array | None, zero: int, lanes: int) -> Array:
        """Of each channel the sum before its products: the bias, less a zero point times its weights; int32."""
        found = np.zeros(-(-self.channels // lanes) * lanes, np.int32)
        found[: self.channels] = -zero * weights.reshape(self.channels, -1).sum(axis=1, dtype=np.int32)
        if bias is not None:
            found[: self.channels] += bias.reshape(-1)  # sums of int32 wrap, in any order
        return found


def depthwise_form(workload: Workload, operator: WorkloadOperator) -> Depthwise:
    """The form of an operator that `depthwise_refusal` lets pass."""
    x, w, zero = (*operator.inputs, -1)[:3]
    value = workload.values[x]
    height, width = convolution_windows(workload, operator)
    return Depthwise(x, w, zero, value.dtype == "int8", value.shape[0], value.shape[1], height, width)


def depthwise_refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    """Why the lanes of a ConvInteger cannot run over its channels (None: they may)."""
    values = [workload.values[value] if value >= 0 else None for value in (*operator.inputs, -1, -1)][:4]
    x, w, zero, w_zero = values
    assert x is not None and w is not None
    if operator.op_type != "ConvInteger" or len(x.shape) != 4 or {x.dtype, w.dtype} - BYTES:
        return "it is no convolution of maps of bytes"
    if operator.attribute("group", 1) != x.shape[1] or w.shape[0] != x.shape[1] or x.shape[1] == 1:
        return "it has other groups than one channel in and one out"
    if w.kind not in ("constant", "literal") or w.dtype != "int8" or w_zero is not None:
        return "its weights are computed, or have a zero point"
    if zero is not None and (zero.kind != "literal" or zero.literal_array().size != 1):
        return "the zero point of its input is computed, or several"
    windows = convolution_windows(workload, operator)
    if any(type(window) is not Window or window.dilation > 1 or window.stride > 2 for window in windows):
        return "its windows are dilated, or move by more than two"
    if any(window.taps < window.stride for window in windows) or windows[0].taps * windows[1].taps > MOST_TAPS:
        return "its windows are small, or large"
    return None


def zero_point(workload: Workload, form: Depthwise) -> int:
    """The zero point of x."""
    return 0 if form.zero < 0 else int(workload.values[form.zero].literal_array().reshape(-1)[0])


def unsigned(form: Depthwise, zero: int) -> int:
    """A zero point of x as that of unsigned bytes."""
    return zero + (SIGN if form.signed else 0)
