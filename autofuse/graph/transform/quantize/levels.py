"""Levels: which real numbers the bytes of a tensor stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP, MOST = 255, 127
"""The greatest unsigned byte, which activations have; the greatest weight, so that its negative is one, too."""
BLOCK = {8: 128, 4: 32}
"""Weights with one scale where weights alone have so many bits: fewer, the rougher they are."""
_PARTS = (1.0, 0.95, 0.9, 0.85, 0.8)
"""Of the range of a block, that its integers may reach: what is beyond becomes the end."""
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Range:
    """The real numbers from `low` to `high` of a tensor, which its bytes stand for."""

    low: float
    high: float

    @property
    def levels(self) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Scale and zero point of unsigned bytes, no dimension; 0 is a level, because padding is 0."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        scale = np.float32((high - low) / TOP)
        scale = scale if np.isfinite(scale) and scale > 0 else np.float32(1.0)
        zero = int(np.clip(np.rint(-low / float(scale)), 0, TOP))
        return np.asarray(scale), np.asarray(zero, np.uint8)


@dataclass(frozen=True)
class WeightLevels:
    """Constant weights as signed bytes around 0: `integers` * `scale`; a scale for each channel of `axis`, or one."""

    integers: NDArray[np.int8]
    scale: NDArray[np.float32]
    axis: int | None

    @property
    def numbers(self) -> NDArray[np.float32]:
        """The real numbers that they stand for."""
        shape = [1] * self.integers.ndim
        if self.axis is not None:
            shape[self.axis] = self.scale.size
        return np.asarray(self.integers * self.scale.reshape(shape), np.float32)


def weight_levels(weights: NDArray[Any], axis: int | None) -> WeightLevels:
    """Levels by the greatest number of each channel of `axis` (None: of all)."""
    others = tuple(place for place in range(weights.ndim) if place != axis)
    greatest = np.abs(weights).max(axis=others if axis is not None else None, initial=0.0, keepdims=True)
    scale = np.asarray(greatest / MOST, np.float32)
    scale = np.where(scale > 0, scale, np.float32(1.0))
    integers = np.clip(np.rint(weights / scale), -MOST, MOST).astype(np.int8)
    return WeightLevels(integers, scale.reshape(-1) if axis is not None else scale.reshape(()), axis)


@dataclass(frozen=True)
class BlockLevels:
    """A matrix of constant weights as signed integers around 0, with a scale for each `block` of them along `axis`."""

    integers: NDArray[np.int8]
    scale: NDArray[np.float32]
    axis: int
    block: int

    @property
    def numbers(self) -> NDArray[np.float32]:
        """The real numbers that they stand for."""
        each = np.repeat(self.scale, self.block, self.axis)
        return np.asarray(self.integers * np.take(each, range(self.integers.shape[self.axis]), self.axis), np.float32)


def block_levels(weights: NDArray[Any], axis: int, bits: int) -> BlockLevels:
    """Integers of so many bits along the axis of a matrix that is summed over; of each block those of the least squared
    error among few scales. The greatest weight becomes the end that reaches further: a scale may be negative."""
    block, end = BLOCK[bits], -(1 << (bits - 1))
    rows = weights.T if axis == 0 else weights
    columns, depth = rows.shape
    padded = np.zeros((columns, -(-depth // block) * block), np.float32)
    padded[:, :depth] = rows
    cut = padded.reshape(columns, -1, block)
    greatest = np.take_along_axis(cut, np.abs(cut).argmax(-1, keepdims=True), -1)
    found, scale = np.zeros(cut.shape, np.int8), np.ones(greatest.shape, np.float32)
    least = np.full(greatest.shape, np.inf, np.float32)
    for part in _PARTS:
        step = np.where(greatest == 0, np.float32(1.0), greatest * np.float32(part / end))
        integers = np.clip(np.rint(cut / step), end, -end - 1)
        error = ((integers * step - cut) ** 2).sum(-1, keepdims=True)
        better = error < least
        found = np.where(better, integers, found).astype(np.int8)
        scale, least = np.where(better, step, scale), np.minimum(error, least)
    whole = found.reshape(columns, -1)[:, :depth]
    turned = (whole.T, scale[..., 0].T) if axis == 0 else (whole, scale[..., 0])
    return BlockLevels(np.ascontiguousarray(turned[0]), np.ascontiguousarray(turned[1]), axis, block)


def bias_levels(bias: NDArray[Any], scale: NDArray[np.float32]) -> NDArray[np.int32] | None:
    """A bias of sums, in steps of `scale`; None where one of its numbers is beyond int32."""
    steps = np.rint(bias.astype(np.float64) / scale.astype(np.float64))
    inside = bool(np.isfinite(steps).all()) and bool((np.abs(steps) < _INT32.max).all())
    return steps.astype(np.int32) if inside else None


def rounded(values: NDArray[Any], span: Range) -> NDArray[np.float64]:
    """What is left of real numbers as bytes of a range."""
    scale, zero = span.levels
    step, shift = float(scale), float(zero)
    return (np.clip(np.rint(values.astype(np.float64) / step) + shift, 0, TOP) - shift) * step
