"""Rows of results of an image whose sizes are known when a kernel runs: cut into tiles that are in registers together.

Those results whose windows look beyond the borders are the first and the last ones of a row, and know which taps do.
Where strides leave another rest at each size, the last ones are emitted for each rest that there may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.nest.tiles import Run, Visit, Window
from autofuse.kernels.nest.transposed_window import TransposedWindow
from autofuse.kernels.open_sizes.images.grid_tiles import Split, widths
from autofuse.kernels.tir.emit import Emitter, Expr

LONG = 256
"""Results of a row along which windows are looked at ahead."""
STARTING = 1
"""Results along a row that could be computed while some are begun and stored."""


@dataclass(frozen=True)
class Border:
    """`pad`: places in front of the first one that windows see. `beyond`: places of the input beyond a stride for each
    result, all that there may be."""

    pad: int
    beyond: tuple[int, ...]


@dataclass(frozen=True)
class Rows:
    """Extents of results, and of the input; `least`: results along a row at least.

    `borders`: along rows and columns, where windows look beyond them.
    """

    rows: Expr
    columns: Expr
    seen_rows: Expr
    seen_columns: Expr
    least: int
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

    def shares(self, wanted: int) -> tuple[Expr, Expr]:
        """How many rows a task has, `wanted` at most (0: all), and how many tasks all rows are; each thread has some
        where there are enough."""
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
    """Emits the tiles of a row, of so many results (`pixels`) at most."""

    emitter: Emitter
    extents: Rows
    pixels: int

    def emit(self, window: Window, visit: Visit) -> None:
        """All tiles of a row with such a window."""
        extents, phases = self.extents, window.phases
        steps = sum(count for count, _ in phases)
        results = builder.bind(extents.columns // steps)
        first, last = edges(window, extents.borders[-1]) if extents.borders else (0, 0)
        least = 1 if first + last else max(extents.least // steps, 1)
        for count, phase in phases:
            with self.emitter.serial(count) as number:
                self._between(_Row(phase.at(number), results, row_split(self.pixels, least)), first, last, visit)

    def _between(self, row: _Row, first: int, last: int, visit: Visit) -> None:
        """A row whose `first` and `last` results look beyond the borders: with as many beside them as are in registers
        together, where the row is that long."""
        wide = [max(count, self.pixels) if count else 0 for count in (first, last)]
        if [first, last] == wide or self.extents.least >= sum(wide):
            self._parts(row, wide[0], wide[1], visit)
            return
        with builder.If(row.results >= sum(wide)):
            with builder.Then():
                self._parts(row, wide[0], wide[1], visit)
            with builder.Else():
                self._parts(row, first, last, visit)

    def _parts(self, row: _Row, first: int, last: int, visit: Visit) -> None:
        """The first results of a row, those between, of which the last tile is moved back, and the last ones."""
        for start in range(0, first, self.pixels):
            visit(row.window, Run(start, min(self.pixels, first - start), 1, clean=False), start)
        before: Expr = first
        counts = row.split.emitted(row.results - (first + last))
        for width, often in zip(row.split.lengths, counts, strict=True):
            with builder.serial(0, often) as tile:
                start = builder.bind(tirx.min(before + tile * width, row.results - (last + width)))
                visit(row.window, Run(first, width, 1, clean=True), start)
            before = builder.bind(before + often * width)
        if last:
            self._last(row, last, visit)

    def _last(self, row: _Row, last: int, visit: Visit) -> None:
        """The last results of a row, for each rest that its stride may leave."""
        border, extents, outputs = self.extents.borders[-1], self.extents, row.window.outputs
        rests = border.beyond
        for beyond in rests:
            alone = len(rests) == 1
            window = bordered(row.window, border.pad, beyond)
            rest = extents.seen_columns - extents.columns * window.stride
            with nullcontext() if alone else self.emitter.when(rest == beyond):
                for start in range(outputs - last, outputs, self.pixels):
                    run = Run(start, min(self.pixels, outputs - start), 1, clean=False)
                    visit(window, run, builder.bind(row.results - (outputs - start)))


@dataclass(frozen=True)
class _Row:
    """A row of so many results, and how those are parted that look beyond no border."""

    window: Window
    results: Expr
    split: Split


def bordered(along: Window, pad: int, beyond: int) -> Window:
    """A window along a row with borders, long enough that some results see none of them."""
    outputs = max(along.outputs, LONG)
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
