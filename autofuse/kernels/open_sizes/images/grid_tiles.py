"""How many places a tile of an image has: the lengths of tiles along each open size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.open_sizes.open_rows import WEIGHTED
from autofuse.kernels.schedule.covers import cheapest, said, stepped, taken_for
from autofuse.kernels.tir.emit import Expr
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
SHORTER = 32
"""The same for what is left of an image whose places are one row."""
COVERING = (16, 12, 8)
"""Lengths of tiles that read many weights, where the smallest image has fewer places than the shortest tile; else the
first and the last: each is a kernel to be compiled."""
FEWEST = 4
"""The shortest one, where the smallest image has no more places: a tile of 8x8 computes four times as many."""
OBLONG = 2
"""Times that such a tile is as long along one size as along another, at most: longer ones stand in for others."""
READING = 10
"""Places along a size that a tile could compute while it reads many weights."""
STARTING = 4
"""Places along a size that a tile of few weights could compute while it starts."""
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


@dataclass(frozen=True)
class Split:
    """How an extent is parted into tiles of some `lengths`, the longest first.

    `extra`: what a tile costs beside its places, in places; `costs`: what each takes, where that was measured. `cut`: a
    tile may reach beyond the image, which has fewer places than it; where it may not, the shortest one fits the
    smallest extent.
    """

    lengths: tuple[int, ...]
    extra: int = 0
    cut: bool = False
    costs: tuple[float, ...] = ()

    def counts(self, extent: int) -> tuple[int, ...]:
        """How many tiles of each length compute an extent: as many of the longest as fit, and the cheapest ones for the
        rest, of which the last is moved back."""
        whole, rest = divmod(extent, self.lengths[0])
        fitting = [length for length in self.lengths if self.cut or length <= extent] or self.lengths[-1:]
        costs = self.costs or tuple(length + self.extra for length in self.lengths)
        taken = cheapest(rest, {one: cost for one, cost in zip(self.lengths, costs, strict=True) if one in fitting})
        return (whole + taken.count(self.lengths[0]), *(taken.count(length) for length in self.lengths[1:]))

    def emitted(self, extent: Expr) -> list[Expr]:
        """`counts` of an extent that is known when the kernel runs."""
        return counted(self.counts, self.lengths, extent)


def counted(counts: Callable[[int], Sequence[int]], lengths: Sequence[int], extent: Expr) -> list[Expr]:
    """How many tiles of each length, the longest first, compute an extent that is known when the kernel runs.

    `counts`: the same of a known extent, where a whole longest tile more adds one of these alone.
    """
    longest = lengths[0]
    rest = builder.bind(extent % longest)
    few, many = ([counts(more + whole) for more in range(longest)] for whole in (0, longest))
    found = []
    for number in range(len(lengths)):
        short = stepped([one[number] for one in few], rest)
        long = stepped([one[number] - (number == 0) for one in many], rest)
        more = extent // longest if number == 0 else 0
        found.append(builder.bind(tirx.Select(extent < longest, short, long + more)))
    return found


def widths(pixels: int, most: int) -> Sequence[int]:
    """Tiles whose sums are in registers together: as many as fit, one less, and half of them, for what is left."""
    widest = min(pixels, most)
    return sorted({widest, max(widest - 1, 1), max(widest // 2, 1)}, reverse=True)


def stands_in(lengths: Sequence[int], splits: Sequence[Split]) -> tuple[int, ...]:
    """The lengths of the tile that is computed in the place of one: of those that reach beyond the image, none is much
    longer along one size than along another."""
    cut = [length for length, split in zip(lengths, splits, strict=True) if split.cut]
    least = max(cut, default=0) / OBLONG
    return tuple(
        min(one for one in split.lengths if one >= max(length, least)) if split.cut else length
        for length, split in zip(lengths, splits, strict=True)
    )


def all_tiles(splits: Sequence[Split]) -> list[tuple[int, ...]]:
    """The lengths of all tiles that are computed, the longest first."""
    return list(dict.fromkeys(stands_in(one, splits) for one in product(*(split.lengths for split in splits))))


def timed_splits(splits: Sequence[Split], times: Mapping[tuple[int, ...], float]) -> tuple[Split, ...]:
    """Splits whose tiles cost what they take beside the longest of the other sizes. `times`: of all tiles, by their
    lengths along each size."""
    longest = [split.lengths[0] for split in splits]

    def costs(number: int) -> tuple[float, ...]:
        before, behind = longest[:number], longest[number + 1 :]
        return tuple(times[stands_in((*before, length, *behind), splits)] for length in splits[number].lengths)

    return tuple(replace(split, costs=costs(number)) for number, split in enumerate(splits))


def splits_text(splits: Sequence[Split]) -> str:
    """Which tiles are taken for how many places; "" where there is no choice."""
    if all(len(split.lengths) == 1 for split in splits):
        return ""
    along = []
    for split in splits:
        longest = split.lengths[0]
        rest = [split.counts(longest + left) for left in range(longest)]
        along.append(taken_for(split.lengths, [(first - 1, *others) for first, *others in rest]))
    return f"tiles of {' by '.join(along)} places, {said(any(split.costs for split in splits))}"


def tile_splits(workload: Workload, ranges: Sequence[Range], copied: bool) -> tuple[Split, ...]:
    """How each size is parted into tiles. `copied`: each tile works on a copy of its window.

    Few weights are read again for each tile, so that one length that divides all extents is better than two, of which
    each is a kernel to be compiled.
    """
    weights = _weights(workload)
    *outer, last = ranges
    if not outer:
        return (_split(LONG, last),)
    if not weights and not copied:
        return (*(_split(1, one) for one in outer), _split(LINE, last))
    if not weights or max(prod(workload.values[index].shape) for index in weights) <= FEW_WEIGHTS:
        columns = FLAT_COLUMNS if weights else LINE
        return (*(_dividing(one) or _split(FLAT_ROWS, one) for one in outer), _split(columns, last))
    return tuple(_covering(one) for one in ranges)


def _weights(workload: Workload) -> list[int]:
    """The values that are weights, which all results share."""
    return [op.inputs[1] for op in workload.operators if op.op_type in WEIGHTED]


def row_split(workload: Workload, high: Range, wide: Range) -> Split:
    """How the places of an image with such sides are parted, where they are one row."""
    longest = LONG if _weights(workload) else LINE
    if high.unit * wide.unit % longest == 0:
        return Split((longest,))
    low, most = high.low * wide.low, high.high * wide.high
    lengths = dict.fromkeys(min(length, most) for length in (longest, SHORTER, min(SMALLEST, low)))
    return Split(tuple(lengths), STARTING)


def _dividing(one: Range) -> Split | None:
    """A length that divides all extents; none where only short ones do."""
    found = gcd(one.unit, FLAT_ROWS)
    return Split((found,)) if found >= SMALLEST // 2 and found % one.aligned == 0 else None


def _covering(one: Range) -> Split:
    """Lengths of which the shortest that is long enough computes all that is left: each tile reads many weights."""
    if one.unit % SQUARE == 0:
        return Split((SQUARE,))
    wished = COVERING if one.low < SMALLEST else (SQUARE, SMALLEST)
    wished = (*wished, FEWEST) if one.low <= FEWEST else wished
    lengths = tuple(length for length in wished if length % one.aligned == 0)
    if not lengths:
        return _split(SQUARE, one)
    return Split(lengths, READING, one.low < SMALLEST)


def _split(wished: int, one: Range) -> Split:
    """One length where it divides every extent; else a long one, and a shorter one for what is left."""
    unit = one.aligned
    longest = max(unit, min(wished, one.high) // unit * unit)
    if one.unit % longest == 0 or longest == unit:
        return Split((longest,))
    fitting = range(unit, min(one.low, longest // 2) + 1, unit)
    dividing = [length for length in fitting if one.unit % length == 0 and length >= SMALLEST]
    small = [length for length in fitting if length <= SMALLEST]
    return Split((longest, max(dividing or small or [unit])), STARTING)
