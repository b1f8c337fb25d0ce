"""Levels: which real numbers the bytes of a tensor stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOP, MOST = 255, 127
"""The greatest unsigned byte, which activations have; the greatest weight, so that its negative is one, too."""
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
