"""Extents of the axes of images whose sizes are open: so many parts of a size, products of these, and sums of such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod


@dataclass(frozen=True)
class Extent:
    """`factor` times a `per`-th of open size number `size` and `shift`, which is less than `per`; and `more`, which may
    be negative. `times`: the extent of another size that all of this is multiplied by, where the places of both stand
    in one axis, as tokens of an image do."""

    size: int
    factor: int
    per: int = 1
    more: int = 0
    shift: int = 0
    times: Extent | None = None

    def at(self, values: Sequence[int]) -> int:
        """The extent where the sizes have such values."""
        once = (values[self.size] + self.shift) // self.per * self.factor + self.more
        return once if self.times is None else once * self.times.at(values)

    @property
    def parts(self) -> tuple[Extent, ...]:
        """The extents of one size each that it is the product of."""
        return (self,) if self.times is None else (replace(self, times=None), *self.times.parts)


@dataclass(frozen=True)
class Joined:
    """An extent of several sizes, along which the places of maps stand one behind the other.

    `terms`: for each map how many rows a place has, and the extents whose product says how many places there are.
    """

    terms: tuple[tuple[int, tuple[Extent, ...]], ...]

    def at(self, values: Sequence[int]) -> int:
        """The extent where the sizes have such values."""
        return sum(rows * prod(extent.at(values) for extent in extents) for rows, extents in self.terms)


Point = tuple[int, ...]
"""A value for each open size."""


Runs = Iterable[tuple[Extent, ...]]
"""Extents that stand one behind the other; see `neighbours`."""


def neighbours(grids: Iterable[Mapping[int, Extent]]) -> list[tuple[Extent, ...]]:
    """Extents of two or three sizes that stand one behind the other in a tensor, so that a view may put all of them
    into one axis."""
    found: dict[tuple[Extent, ...], None] = {}
    for axes in grids:
        ordered = [axes[axis] for axis in sorted(axes)]
        for count in (2, 3):
            for first in range(len(ordered) - count + 1):
                run = tuple(part for one in ordered[first : first + count] for part in one.parts)
                if len({part.size for part in run}) == len(run):
                    found[run] = None
    return list(found)


def product_extent(runs: Runs, seen: Sequence[int], read: Sequence[Point]) -> Extent | None:
    """So many times the product of some extents, if an axis is one that was `seen` so at points that were `read`."""
    for run in runs:
        products = [prod(one.at(point) for one in run) for point in read]
        often = seen[0] // max(1, products[0])
        if often and all(often * product == extent for product, extent in zip(products, seen, strict=True)):
            first, *others = run
            behind = None
            for one in reversed(others):
                behind = replace(one, times=behind)
            return replace(first, factor=first.factor * often, more=first.more * often, times=behind)
    return None
