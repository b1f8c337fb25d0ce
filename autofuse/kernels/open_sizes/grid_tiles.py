"""How many places a tile of an image has: the lengths of tiles along each open size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from autofuse.kernels.open_sizes.open_rows import WEIGHTED
from autofuse.kernels.workload.workload import Workload

SQUARE = 16
"""Places of a tile along each size where results share weights: as many as 16 tiles of Winograd's."""
FLAT_ROWS, FLAT_COLUMNS = 8, 32
"""Places of a tile where the weights are few: as many, but read in longer rows (Zen 5: squares of maps whose rows are
pages apart take up to a third longer)."""
FEW_WEIGHTS = 1 << 16
"""Weights that stay in the second cache from tile to tile."""
LINE = 64
"""Places of a tile along the last size where nothing is shared; along the others one, or `FLAT_ROWS` where a tile works
on a copy of its window."""
LONG = 128
"""Places of a tile along the only size."""
SMALLEST = 8
"""Places of a shorter tile, where the range lets it: of fewer, each reads weights for little."""


@dataclass(frozen=True)
class Range:
    """Extents of results along a size: from `low` to `high`, all of them multiples of `unit`, and of what tiles have to
    be multiples of, `aligned`."""

    low: int
    high: int
    unit: int = 1
    aligned: int = 1


def tile_lengths(workload: Workload, ranges: Sequence[Range], copied: bool) -> tuple[tuple[int, ...], ...]:
    """The lengths of tiles along each size, the longest first; the shortest tile fits the smallest extent.

    `copied`: each tile works on a copy of its window. Few weights are read again for each tile, so that one length that
    divides all extents is better than two, of which each is a kernel to be compiled.
    """
    weights = [op.inputs[1] for op in workload.operators if op.op_type in WEIGHTED]
    *outer, last = ranges
    if not outer:
        return (_lengths(LONG, last),)
    if not weights and not copied:
        return (*(_lengths(1, one) for one in outer), _lengths(LINE, last))
    if not weights or max(prod(workload.values[index].shape) for index in weights) <= FEW_WEIGHTS:
        columns = FLAT_COLUMNS if weights else LINE
        return (*(_dividing(one) or _lengths(FLAT_ROWS, one) for one in outer), _lengths(columns, last))
    return tuple(_lengths(SQUARE, one) for one in ranges)


def _dividing(one: Range) -> tuple[int, ...]:
    """A length that divides all extents; none where only short ones do."""
    found = gcd(one.unit, FLAT_ROWS)
    return (found,) if found >= SMALLEST // 2 and found % one.aligned == 0 else ()


def _lengths(wished: int, one: Range) -> tuple[int, ...]:
    """One length where it divides every extent; else a long one, and a shorter one for what is left."""
    unit = one.aligned
    longest = max(unit, min(wished, one.high) // unit * unit)
    if one.unit % longest == 0 or longest == unit:
        return (longest,)
    fitting = range(unit, min(one.low, longest // 2) + 1, unit)
    dividing = [length for length in fitting if one.unit % length == 0 and length >= SMALLEST]
    small = [length for length in fitting if length <= SMALLEST]
    return longest, max(dividing or small or [unit])
