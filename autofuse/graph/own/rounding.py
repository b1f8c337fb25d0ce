"""Numbers of float32 arrays rounded to bfloat16, and their 16 bits (pure numpy)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ODD_BIT, _HALF, _WHOLE, _QUIET, _INFINITY = 16, 0x7FFF, 0xFFFF0000, 0x00400000, 0x7F800000


def rounded(array: NDArray[Any]) -> NDArray[np.float32]:
    """float32 numbers as the nearest bfloat16, half to even; what is no number stays none."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    odd = (bits >> np.uint32(_ODD_BIT)) & np.uint32(1)
    nearest = (bits + (np.uint32(_HALF) + odd)) & np.uint32(_WHOLE)
    no_number = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(_INFINITY)
    found = np.where(no_number, (bits | np.uint32(_QUIET)) & np.uint32(_WHOLE), nearest)
    return found.astype(np.uint32).view(np.float32).reshape(array.shape)


def bits_of(array: NDArray[Any]) -> NDArray[np.uint16]:
    """The 16 bits of each number's nearest bfloat16."""
    found: NDArray[np.uint16] = (rounded(array).view(np.uint32) >> np.uint32(_ODD_BIT)).astype(np.uint16)
    return found


def numbers_of(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The float32 numbers that such bits stand for."""
    wide = np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << np.uint32(_ODD_BIT)
    return wide.view(np.float32).reshape(bits.shape)


def is_rounded(array: NDArray[Any]) -> bool:
    """Whether every number of a float32 array is a bfloat16."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return array.dtype == np.float32 and not bool((bits & np.uint32(0xFFFF)).any())
