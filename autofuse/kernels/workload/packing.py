"""Between a tensor and how its layout stores it: in blocks, or as the 16 bits of bfloat16 (pure numpy)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.own.rounding import bits_of, numbers_of
from autofuse.kernels.workload.workload import Value


def to_physical(array: NDArray[np.generic], value: Value) -> NDArray[np.generic]:
    """`array` (shape `value.shape`) as stored: axis 1 split by the block, the block innermost.

    Plain layouts come back as they are (contiguous). InputError when the shape is not the value's, or the
    block does not divide the channels.
    """
    _expect(array, value.shape, "logical")
    array = as_stored(array, value)
    block = value.block
    if not block:
        return np.asarray(array, order="C")
    if len(value.shape) < 2 or value.shape[1] % block:
        raise InputError(f"layout {value.layout!r} does not fit a tensor of shape {value.shape}")
    head, channels, *tail = value.shape
    split = array.reshape(head, channels // block, block, *tail)
    return np.ascontiguousarray(np.moveaxis(split, 2, -1))


def to_logical(array: NDArray[np.generic], value: Value) -> NDArray[np.generic]:
    """The inverse of `to_physical`: the stored `array` in the order of `value.shape`."""
    _expect(array, value.physical_shape, "stored")
    array = as_numbers(array, value)
    if not value.block:
        return np.asarray(array, order="C")
    return np.ascontiguousarray(np.moveaxis(array, -1, 2)).reshape(value.shape)


def as_stored(array: NDArray[np.generic], value: Value) -> NDArray[np.generic]:
    """The elements of an array as its layout stores them, in the order that they have."""
    return bits_of(array) if value.is_half else array


def as_numbers(array: NDArray[np.generic], value: Value) -> NDArray[np.generic]:
    """The inverse of `as_stored`."""
    return numbers_of(array) if value.is_half else array


def _expect(array: NDArray[np.generic], shape: tuple[int, ...], which: str) -> None:
    if tuple(array.shape) != tuple(shape):
        raise InputError(f"{which} array has shape {tuple(array.shape)}; its value says {tuple(shape)}")
