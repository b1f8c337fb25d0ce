"""Row-major offsets of indices, and back. What was cut into an index is put together again as it was.

TVM's simplifier turns (x + 16) % 12 into (x + 4) % 12 and does not see any more that it belongs to (x + 16) // 12: read
by such an index, neighbours in memory look like anything, and each is loaded by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.sym.analyzer import Analyzer

Expr = Any  # a TIR expression or a Python integer; TVM's own classes are untyped
Index = tuple[Expr, ...]


def linear(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """Row-major offset of `index` in `shape`."""
    parts: list[tuple[Expr, int]] = []
    for low, extent in reversed(list(zip(index, shape, strict=True))):
        whole = _joined(low, *parts[-1]) if parts else None
        if whole is None:
            parts.append((low, extent))
        else:
            parts[-1] = whole, extent * parts[-1][1]
    offset: Expr = 0
    for position, extent in reversed(parts):
        offset = offset * extent + position
    return offset


def delinear(offset: Expr, shape: Sequence[int]) -> Index:
    """Index in `shape` of a row-major offset; the inverse of `linear`."""
    index: list[Expr] = []
    for extent in reversed(shape[1:]):
        index.append(offset % extent if not isinstance(offset, int) or extent else 0)
        offset = offset // extent
    return (offset, *reversed(index)) if shape else ()


def _joined(high: Expr, low: Expr, extent: int) -> Expr | None:
    """`high * extent + low`, where they are quotient and rest of one number; None where that is not seen.

    The rest may be written of a number that differs by a multiple of `extent`, and the quotient be a rest itself, or
    have a constant added.
    """
    if not isinstance(low, tirx.FloorMod) or _constant(low.b) != extent:
        return None
    if isinstance(high, tirx.FloorDiv) and _constant(high.b) == extent:
        return high.a if _differ_by_multiple(high.a, low.a, extent) else None
    if isinstance(high, tirx.Add) and (more := _constant(high.b)) is not None:
        whole = _joined(high.a, low, extent)
        return None if whole is None else whole + more * extent
    if isinstance(high, tirx.FloorMod) and (count := _constant(high.b)) is not None:
        whole = _joined(high.a, low, extent)
        return None if whole is None else whole % (count * extent)
    return None


def _differ_by_multiple(one: Expr, other: Expr, extent: int) -> bool:
    """Whether two numbers leave the same rest; for one that is a rest itself stands what it is the rest of."""
    if isinstance(one, tirx.FloorMod) and (wider := _constant(one.b)) is not None and wider % extent == 0:
        return _differ_by_multiple(one.a, other, extent)
    apart = _constant(Analyzer().simplify(one - other))
    return apart is not None and apart % extent == 0


def _constant(expression: Expr) -> int | None:
    return int(expression.value) if isinstance(expression, tirx.IntImm) else None
