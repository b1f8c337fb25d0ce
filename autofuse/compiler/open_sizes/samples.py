"""The points at which a model with open lengths is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from autofuse.graph.loading.given.sizes import OpenSize

UNLIKELY = 19, 23
"""Sizes that models hardly have anywhere else."""
UNLIKELY_TOO = 29, 37
"""The same of a second length."""

Point = tuple[int, ...]
"""A value for each open length."""


@dataclass(frozen=True)
class Samples:
    """Points at which a model is read: `first`, and for each length one of `twins`, which differs in it alone; those
    that are compared are `more`. `largest`: where all lengths are."""

    first: Point
    twins: tuple[Point, ...]
    more: tuple[Point, ...]
    largest: Point


def samples(lengths: Sequence[OpenSize]) -> Samples:
    """Points at which a model is read: those that say where the lengths stand in its tensors, and those that are
    compared.

    None of the first is 1, where the loader leaves operators out, nor smaller than a tile. `UNLIKELY` and
    `UNLIKELY_TOO` are hardly the size of something else, too.
    """
    firsts, seconds, others = zip(*map(samples_of, lengths, (UNLIKELY, UNLIKELY_TOO)[: len(lengths)]), strict=True)
    twins = tuple((*firsts[:n], second, *firsts[n + 1 :]) for n, second in enumerate(seconds))
    largest = tuple(max(size.high, second) for size, second in zip(lengths, seconds, strict=True))
    more: list[Point] = [(value,) for value in others[0]]
    if len(lengths) > 1:
        ends = [sorted({size.low, size.high}) for size in lengths]
        near = tuple(min(size.low + 1, size.high) for size in lengths)
        middle = tuple((size.low + size.high) // 2 for size in lengths)
        more = [*product(*ends), near, middle]
    compared = dict.fromkeys(point for point in more if point not in (firsts, *twins))
    return Samples(firsts, twins, tuple(compared), largest)


def samples_of(size: OpenSize, unlikely: tuple[int, int] = UNLIKELY) -> tuple[int, int, tuple[int, ...]]:
    """Two values of a length at which a model is read, and those that are compared."""
    first, second = unlikely if size.high >= max(unlikely) else (max(2, size.high), max(2, size.high) + 1)
    more = {size.low, min(size.low + 1, size.high), (size.low + size.high) // 2, size.high} - {first, second}
    return first, second, tuple(sorted(more))
