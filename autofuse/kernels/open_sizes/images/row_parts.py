"""Rows of results of an image whose sizes are known when a kernel runs: cut into tiles that are in registers together.

Those results whose windows look beyond the borders are the first and the last ones of a row, and know which taps do.
Where strides leave another rest at each size, the last ones are emitted for each rest that there may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import inf

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.nest.tiles import Run, Visit, Window
from autofuse.kernels.nest.transposed_window import TransposedWindow
from autofuse.kernels.open_sizes.images.grid_tiles import Split, widths
from autofuse.kernels.schedule.covers import PLACES, looked_up
from autofuse.kernels.tir.emit import Emitter, Expr

LONG = 256
"""Results of a row along which windows are looked at ahead."""
STARTING = 1
"""Results along a row that could be computed while some are begun and stored."""
BUSY = 8
"""Sums that multiply-adds are busy with: two units that take four steps for each."""
FINISHING = 2
"""Taps of code that beginning and finishing a result takes."""
CODE = 2.5
"""Times the code of one widest tile at each end and one between that the tiles of a row have, at most."""
LENGTHS = 48
"""Lengths of rows that tiles are chosen for: the shortest ones, which whole tiles do not fill."""
LEAST_GAIN = 0.005
"""Part of the time that a further width saves at least."""


@dataclass(frozen=True)
class Border:
    """`pad`: places in front of the first one that windows see. `beyond`: places of the input beyond a stride for each
    result, all that there may be."""

    pad: int
    beyond: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Extents of results, and of the input. `least` and `most`: results along a row, which are a multiple of `unit`.

    `borders`: along rows and columns, where windows look beyond them.
    """

    rows: Expr
    columns: Expr
    seen_rows: Expr
    seen_columns: Expr
    least: int
    most: int = 0
    unit: int = 1
    borders: tuple[Border, ...] = ()
    threads: int = 1

    def windows(self, windows: Sequence[Window]) -> tuple[Window, Window]:
        """The windows of a sample as they are over the whole image."""
        above, along = windows
        if isinstance(above, TransposedWindow):  # it asks at each row which taps meet it
            above = replace(above, size=self.seen_rows)
        if self.borders:
            high, wide = self.borders
            above = _Above(self.seen_rows, above.taps, above.stride, above.dilation, high.pad, 0, above.outputs)
            along = bordered(along, wide.pad, wide.beyond[0])
        return above, along

    def within(self, low: int, high: int) -> Rows | None:
        """The same for rows of that many results; None where there are none."""
        lengths = [length for length in range(self.least, self.most + 1, self.unit) if low <= length <= high]
        return replace(self, least=lengths[0], most=lengths[-1]) if lengths else None

    def shares(self, wanted: int) -> tuple[Expr, Expr]:
        """How many rows a task has, `wanted` at most (0: all), and how many tasks all rows are; each thread has some
        where there are enough."""
        if isinstance(self.rows, tirx.IntImm):
            rows = int(self.rows)
            most = -(-rows // self.threads)
            fixed = min(most, wanted) if wanted else most
            return tirx.const(fixed, "int32"), tirx.const(-(-rows // fixed), "int32")
        each = (self.rows + self.threads - 1) // self.threads
        each = builder.bind(tirx.min(each, wanted) if wanted else each)
        return each, builder.bind((self.rows + each - 1) // each)

    def share(self, number: Expr, each: Expr) -> tuple[Expr, Expr]:
        """The first row of a task, and how many rows it has."""
        first = builder.bind(number * each)
        return first, builder.bind(tirx.min(self.rows - first, each))


class _Above(Window):
    """The rows of a window, of which any may lie beyond the borders."""

    @property
    def clean(self) -> bool:
        """See Window."""
        return False

    @property
    def some_blind(self) -> bool:
        """See Window."""
        return True

    def covered(self, output: Expr) -> Expr:
        """See Window: no window is cut at the end."""
        del output
        return self.taps


@dataclass(frozen=True)
class RowParts:
    """Emits the tiles of a row, of so many results (`pixels`) at most, each of which has `vectors` of sums."""

    emitter: Emitter
    extents: Rows
    pixels: int
    vectors: int = 1

    def emit(self, window: Window, visit: Visit) -> None:
        """All tiles of a row with such a window."""
        extents, phases = self.extents, window.phases
        if extents.borders:
            ends = edges(window, extents.borders[-1])
            if sum(ends) > extents.least:
                self._narrow(window, ends, visit)
                return
            if sum(ends):
                self._with_ends(window, ends, visit)
                return
        steps = sum(count for count, _ in phases)
        results = builder.bind(extents.columns // steps)
        split = row_split(self.pixels, max(extents.least // steps, 1))
        for count, phase in phases:
            with self.emitter.serial(count) as number:
                before: Expr = 0
                for width, often in zip(split.lengths, split.emitted(results), strict=True):
                    before = self._between(phase.at(number), width, often, (before, 0, results), visit)

    def _between(self, window: Window, width: int, often: Expr, row: tuple[Expr, int, Expr], visit: Visit) -> Expr:
        """So many tiles of results whose windows look beyond no border, and where the next ones begin. `row`: where
        these begin, how many results of the row do, and where the last one of these ends: the last tile is moved back.
        """
        before, first, end = row
        with builder.serial(0, often) as tile:
            start = builder.bind(tirx.min(before + tile * width, end - width))
            visit(window, Run(first, width, 1, clean=True), start)
        return builder.bind(before + often * width)

    def _narrow(self, window: Window, ends: tuple[int, int], visit: Visit) -> None:
        """Rows of which some are so short that a result sees both borders: each of these lengths by itself."""
        extents, whole = self.extents, sum(ends)
        border, rest = extents.borders[-1], extents.seen_columns - extents.columns * window.stride
        for length, beyond in product(range(extents.least, whole, extents.unit), border.beyond):
            with self.emitter.when(tirx.all(extents.columns == length, rest == beyond)):
                narrow = _ending(window, length, border.pad, beyond)
                for start in range(0, length, self.pixels):
                    visit(narrow, Run(start, min(self.pixels, length - start), 1, clean=False), start)
        longer = extents.within(whole, extents.most)
        if longer is not None:
            with self.emitter.when(extents.columns >= whole):
                replace(self, extents=longer)._with_ends(window, ends, visit)

    def _with_ends(self, window: Window, ends: tuple[int, int], visit: Visit) -> None:
        """A row whose first and last results look beyond the borders: so many at each of its `ends`."""
        extents, results = self.extents, builder.bind(self.extents.columns)
        border = extents.borders[-1]
        lengths = range(extents.least, extents.most + 1, extents.unit)
        cover = row_cover(self.pixels, self.vectors, ends, lengths, window.taps, len(border.beyond))
        counts = iter(cover.emitted(results))
        before: Expr = 0
        for width in cover.firsts:
            often = next(counts)
            with builder.serial(0, often):
                for start in range(0, width, self.pixels):
                    visit(window, Run(start, min(self.pixels, width - start), 1, clean=False), start)
            before = builder.bind(before + often * width)
        for width in cover.between:
            before = self._between(window, width, next(counts), (before, ends[0], results - ends[1]), visit)
        lasts = [*zip(cover.lasts, counts, strict=True)]
        for beyond in border.beyond:
            self._last(bordered(window, border.pad, beyond), beyond, lasts, visit)

    def _last(self, window: Window, beyond: int, widths: Sequence[tuple[int, Expr]], visit: Visit) -> None:
        """The last results of a row, where its stride leaves that rest; `widths`: of tiles, and how often each is."""
        extents, outputs = self.extents, window.outputs
        rest = extents.seen_columns - extents.columns * window.stride
        alone = len(extents.borders[-1].beyond) == 1
        with nullcontext() if alone else self.emitter.when(rest == beyond):
            for width, often in widths:
                with builder.serial(0, often):
                    for start in range(outputs - width, outputs, self.pixels):
                        run = Run(start, min(self.pixels, outputs - start), 1, clean=False)
                        visit(window, run, builder.bind(extents.columns - (outputs - start)))


def bordered(along: Window, pad: int, beyond: int) -> Window:
    """A window along a row with borders, long enough that some results see none of them."""
    return _ending(along, max(along.outputs, LONG), pad, beyond)


def _ending(along: Window, outputs: int, pad: int, beyond: int) -> Window:
    """A window along a row of so many results."""
    size = outputs * along.stride + beyond
    reach = (outputs - 1) * along.stride + (along.taps - 1) * along.dilation + 1
    return Window(size, along.taps, along.stride, along.dilation, pad, max(reach - pad - size, 0), outputs)


def edges(along: Window, border: Border) -> tuple[int, int]:
    """How many results, the first and the last ones of a row, look beyond the borders."""
    windows = [bordered(along, border.pad, beyond) for beyond in border.beyond]
    firsts, ends = zip(*(window.clean_outputs() for window in windows), strict=True)
    return max(firsts), max(window.outputs - end for window, end in zip(windows, ends, strict=True))


def row_split(pixels: int, least: int) -> Split:
    """How a row of at least so many results is parted into those that are in registers together."""
    lengths = [*widths(pixels, pixels)]
    while lengths[-1] > least:
        lengths.append(max(lengths[-1] // 2, 1))
    return Split(tuple(lengths), STARTING)


@dataclass(frozen=True)
class RowCover:
    """Which tiles compute a row whose first and last results, so many at its `ends`, look beyond the borders.

    `firsts`, `between`, `lasts`: widths of tiles, the widest first. One of the first ones begins a row, one of the last
    ones ends it, some of those between compute what these leave, if anything. None sees both borders. `least_cost`: of
    a tile, however narrow.
    """

    ends: tuple[int, int]
    firsts: tuple[int, ...]
    between: tuple[int, ...]
    lasts: tuple[int, ...]
    least_cost: float

    @property
    def long(self) -> int:
        """Results from which on a row has all of the widest tiles."""
        return 2 * self.between[0] + max(self.firsts, default=0) + max(self.lasts, default=0)

    def cost(self, results: int) -> float:
        """What a row of so many results costs, in results."""
        short, whole = self._reduced(results)
        return self._way(short)[0] + whole * _cost(self.between[0], self.least_cost)

    def counts(self, results: int) -> tuple[int, ...]:
        """How many tiles of each width: the first ones, those between, the last ones."""
        short, whole = self._reduced(results)
        _, first, last, taken = self._way(short)
        between = [taken.count(width) for width in self.between]
        between[0] += whole
        begin, end = [width == first for width in self.firsts], [width == last for width in self.lasts]
        return (*map(int, begin), *between, *map(int, end))

    def emitted(self, results: Expr) -> list[Expr]:
        """`counts` of a row whose length is known when the kernel runs."""
        widest, place = self.between[0], len(self.firsts)
        whole = builder.bind(tirx.max(results - self.long, 0) // widest)
        short = builder.bind(results - whole * widest)
        columns = zip(*(self.counts(one) for one in range(self.long + widest)), strict=True)
        found = [builder.bind(_tabled(column, short)) for column in columns]
        return [*found[:place], builder.bind(found[place] + whole), *found[place + 1 :]]

    def _reduced(self, results: int) -> tuple[int, int]:
        """The length of a shorter row that is parted alike, and how many more of the widest tiles the row has."""
        whole = max(results - self.long, 0) // self.between[0]
        return results - whole * self.between[0], whole

    def _way(self, results: int) -> tuple[float, int, int, tuple[int, ...]]:
        """The cheapest way: what it costs, the first and the last tile (0: none), and those between."""
        first, last = self.ends
        rests = _ways(tuple(width for width in self.between if width <= results - first - last), self.least_cost)
        found: list[tuple[float, int, int, tuple[int, ...]]] = [(inf, 0, 0, ())]
        for one, other in product(self.firsts or (0,), self.lasts or (0,)):
            if one <= results - last and other <= results - first:
                cost, taken = rests(max(results - one - other, 0))
                ends = sum(_cost(width, self.least_cost) for width in (one, other) if width)
                found.append((cost + ends, one, other, taken))
        return min(found, key=lambda way: way[0])


def _cost(width: int, least_cost: float) -> float:
    """What a tile costs, in results: a narrow one waits for its sums."""
    return max(width, least_cost) + STARTING


@lru_cache(256)
def _ways(widths: tuple[int, ...], least_cost: float) -> Callable[[int], tuple[float, tuple[int, ...]]]:
    """The cheapest tiles of such widths for a number of results, and what they cost; infinite, where there are none."""
    known: list[tuple[float, tuple[int, ...]]] = [(0, ())]

    def way(results: int) -> tuple[float, tuple[int, ...]]:
        while len(known) <= results:
            ways = [(known[max(len(known) - width, 0)], width) for width in widths]
            costs = [(cost + _cost(width, least_cost), (*taken, width)) for (cost, taken), width in ways]
            known.append(min(costs, key=lambda one: (one[0], len(one[1])), default=(inf, ())))
        return known[results]

    return way


@lru_cache(256)
def row_cover(pixels: int, vectors: int, ends: tuple[int, int], lengths: range, taps: int, rests: int) -> RowCover:
    """The tiles, of so many results (`pixels`) at most, that compute rows of such `lengths` at the least cost, of a
    bounded amount of code.

    `vectors`: of sums of each result. `taps` of a row and `rests` that it may leave: ends are written out for each.
    """
    least, sizes = (ends[0], 1, ends[1]), (taps + FINISHING, 1 + FINISHING, rests * (taps + FINISHING))
    most = CODE * pixels * sum(size for size, one in zip(sizes, least, strict=True) if one)
    tried = lengths[:LENGTHS]
    further = [(place, width) for place, one in enumerate(least) if one for width in range(one, pixels)]

    def cover(widths: Sequence[tuple[int, ...]]) -> RowCover:
        firsts, between, lasts = widths
        return RowCover(ends, firsts, between, lasts, BUSY / vectors)

    def waste(widths: Sequence[tuple[int, ...]]) -> float:
        return sum(cover(widths).cost(length) / length for length in tried) / len(tried)

    def widened(widths: Sequence[tuple[int, ...]], place: int, width: int) -> list[tuple[int, ...]]:
        more = tuple(sorted({*widths[place], width}, reverse=True))
        return [more if number == place else known for number, known in enumerate(widths)]

    widths = [tuple(sorted({max(one, pixels), one}, reverse=True)) if one else () for one in least]
    found = inf
    while waste(widths) < found - LEAST_GAIN:
        found, kept = waste(widths), widths
        ways = [widened(widths, *one) for one in further]
        fitting = [way for way in ways if sum(size * sum(one) for size, one in zip(sizes, way, strict=True)) <= most]
        widths = min(fitting, key=waste, default=widths)
    counts = zip(*(cover(kept).counts(length) for length in tried), strict=True)
    used = [iter([any(next(counts)) for _ in known]) for known in kept]
    return cover(
        [
            tuple(width for width in known if next(often) or (place == 1 and width == known[0]))
            for place, (known, often) in enumerate(zip(kept, used, strict=True))
        ]
    )


def _tabled(values: Sequence[int], position: Expr) -> Expr:
    """The value at a position that is known when the kernel runs."""
    words = [looked_up(values[at : at + PLACES], position % PLACES) for at in range(0, len(values), PLACES)]
    found = words[0]
    for number, word in enumerate(words[1:], 1):
        found = tirx.Select(position < number * PLACES, found, word)
    return found
