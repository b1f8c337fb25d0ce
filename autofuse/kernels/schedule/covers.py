"""Covers: which tiles compute a number of rows, or of places along a size of an image.

The last tile may be moved back to the last rows, and compute some of them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.tir.emit import Expr

BITS, PLACES = 4, 16
"""Bits of a number in a table that is one integer, and how many there are."""
Counts = tuple[int, ...]
"""How many tiles of each length."""


def cheapest(rest: int, costs: Mapping[int, float]) -> list[int]:
    """The lengths of the tiles that compute so many rows at the least cost; of equal ones as few as may be.

    `costs`: of a tile, by its length.
    """
    best: list[tuple[float, list[int]]] = [(0, [])]
    for left in range(1, rest + 1):
        ways = []
        for length, cost in costs.items():
            before, taken = best[max(left - length, 0)]
            ways.append((before + cost, [*taken, length]))
        best.append(min(ways, key=lambda way: (way[0], len(way[1]))))
    return best[rest][1]


def stepped(values: Sequence[int], position: Expr) -> Expr:
    """The value at a position, which is known when the kernel runs."""
    found: Expr = tirx.const(values[0], "int32")
    for place in range(1, len(values)):
        if values[place] != values[place - 1]:
            found = tirx.Select(position >= place, tirx.const(values[place], "int32"), found)
    return found


def looked_up(values: Sequence[int], position: Expr) -> Expr:
    """The same of few small values, which lie side by side in one integer."""
    if len(values) > PLACES or min(values) < 0 or max(values) >= 1 << BITS or len(set(values)) == 1:
        return stepped(values, position)
    table = sum(value << BITS * place for place, value in enumerate(values))
    table -= (table >> 63) << 64  # as a signed integer
    bits = tirx.const(table, "int64") >> (position * BITS).astype("int64")
    return (bits & tirx.const((1 << BITS) - 1, "int64")).astype("int32")


def taken_for(lengths: Sequence[int], rest: Sequence[Sequence[int]]) -> str:
    """The lengths of tiles, each with the least number that is left for which it is the longest one taken.

    `rest`: how many of each are taken for what is left, by how much that is.
    """
    parts = []
    for number, length in enumerate(lengths):
        taken = [left for left, counts in enumerate(rest) if counts[number] and not any(counts[:number])]
        least = min(taken, default=length)
        parts.append(f"{length} for {least} or more" if least > 1 else f"{length}")
    return ", ".join(parts)


def said(is_measured: bool) -> str:
    """Where that comes from."""
    return "as measured" if is_measured else "by rule"


@dataclass(frozen=True)
class Cover:
    """How many tiles of each of some `lengths`, the most rows first, the last of one row, compute any number of rows.

    As many of the length number `main` as fit, and those of `rest` for what is left; `few`: those of fewer rows than
    that length. `is_measured`: whether they are those that take least time, by times of the tiles.
    """

    lengths: tuple[int, ...]
    few: tuple[Counts, ...]
    rest: tuple[Counts, ...]
    main: int = 0
    is_measured: bool = False

    @classmethod
    def ruled(cls, lengths: Sequence[int], rule: Callable[[int], Sequence[int]]) -> Self:
        """As a rule says of a number of rows."""
        longest = lengths[0]
        rest = [rule(longest + left) for left in range(longest)]
        few = tuple(tuple(rule(rows)) for rows in range(longest))
        return cls(tuple(lengths), few, tuple((first - 1, *others) for first, *others in rest))

    @classmethod
    def measured(cls, lengths: Sequence[int], times: Mapping[int, float]) -> Self:
        """What takes least time. `times`: of tiles, by their rows; of others on the line between the next ones.

        Most rows are computed by the tile that takes least time for a row; longer ones are not used.
        """
        known = sorted(times)
        us = [float(np.interp(length, known, [times[rows] for rows in known])) for length in lengths]
        main = min(range(len(lengths)), key=lambda number: us[number] / lengths[number])
        costs, longest = dict(zip(lengths[main:], us[main:], strict=True)), lengths[main]

        def counts(rows: int, most: int) -> Counts:
            taken = cheapest(rows, {length: cost for length, cost in costs.items() if length <= most})
            return tuple(taken.count(length) for length in lengths)

        few = tuple(counts(rows, rows) for rows in range(longest))
        return cls(tuple(lengths), few, tuple(counts(rows, longest) for rows in range(longest)), main, True)

    def counts(self, rows: int) -> list[int]:
        """How many tiles of each length compute so many rows."""
        whole, left = divmod(rows, self.lengths[self.main])
        found = list(self.rest[left] if whole else self.few[left])
        found[self.main] += whole
        return found

    def uses(self, number: int, least: int = 0) -> bool:
        """Whether a tile of the length with that number computes rows, of which there are `least` or more."""
        return number == self.main or any(counts[number] for counts in (*self.few[least:], *self.rest))

    def emitted(self, rows: Expr) -> list[Expr]:
        """`counts` of a number of rows that is known when the kernel runs."""
        longest = self.lengths[self.main]
        left, whole, found = builder.bind(rows % longest), rows // longest, []
        for number in range(len(self.lengths)):
            few = looked_up([counts[number] for counts in self.few], left)
            rest = looked_up([counts[number] for counts in self.rest], left)
            more = rest + whole if number == self.main else rest
            found.append(builder.bind(tirx.Select(rows < longest, few, more)))
        return found

    @property
    def text(self) -> str:
        """Which tiles are taken for how many rows."""
        used = [number for number in range(len(self.lengths)) if self.uses(number)]
        if any(counts[self.main] < 0 for counts in self.rest):  # what is left is shared with a whole tile
            others = ", ".join(str(self.lengths[number]) for number in used if number != self.main)
            return f"tiles of {self.lengths[self.main]} rows, the last ones of {others}, {said(self.is_measured)}"
        rest = [[counts[number] for number in used] for counts in self.rest]
        return f"tiles of {taken_for([self.lengths[number] for number in used], rest)} rows, {said(self.is_measured)}"
