"""Factors that take the place of a division by a constant whose result is rounded to a whole number."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

LEAST, MOST = 1e-25, 1e25
"""Divisors between these have reciprocals whose two parts are normal numbers."""
AROUND = 4
"""Neighbours of a threshold, on either side, that both ways are compared at: they differ by less."""


@cache
def quotient_factors(divisor: float, low: int, high: int) -> tuple[float, float] | None:
    """(a, b) such that a x + (b x), the sum rounded once, and x / divisor round to the same whole number for every
    float32 x whose quotient lies between two whole numbers; None where there are none, or where one factor does.

    Both ways grow with x, so that they agree everywhere when they do around each number between `low` and `high` at
    which the whole number changes.
    """
    scale = np.float32(divisor)
    if not LEAST < scale < MOST:
        return None
    exact = 1 / np.float64(scale)
    large = np.float32(exact)
    small = np.float32(exact - np.float64(large))
    if small == 0:
        return None
    thresholds = (np.arange(low, high, dtype=np.float64) + 0.5) * np.float64(scale)
    bits = thresholds.astype(np.float32).view(np.int32)[:, None] + np.arange(-AROUND, AROUND + 1, dtype=np.int32)
    x = bits.view(np.float32)
    same = bool((np.rint(x / scale) == np.rint(multiply_add(x, large, x * small))).all())
    return (float(large), float(small)) if same else None


def multiply_add(x: NDArray[np.float32], factor: np.float32, more: NDArray[np.float32]) -> NDArray[np.float32]:
    """x * factor + more, rounded once.

    The product is exact in float64. What its sum loses there goes into the last bit, which keeps a second rounding
    from meeting a tie that is none.
    """
    product, addend = x.astype(np.float64) * np.float64(factor), more.astype(np.float64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where((lost != 0) & even, np.nextafter(total, np.copysign(np.inf, lost)), total)
    return odd.astype(np.float32)
