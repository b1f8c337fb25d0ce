"""Convolutions over an image whose sizes are known when the kernel runs, row by row.

Some rows of results are a task, as in a kernel of one size. Along a row as many results are in registers as fit, and
fewer for what is left of it. Those whose windows look beyond the borders are the first and the last of a row, and know
which taps do; which taps of other rows do is counted for each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.families.contraction.direct import ContractionEmitter, EmitTile, Knobs, Task, TileTask
from autofuse.kernels.families.contraction.dot import DotEmitter
from autofuse.kernels.families.contraction.form import Convolution
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Run, Window
from autofuse.kernels.nest.transposed_window import TransposedWindow
from autofuse.kernels.open_sizes.images.grid_tiles import Split, widths
from autofuse.kernels.tir.emit import Expr, Index

LONG = 256
"""Results of a row along which windows are looked at ahead."""
STARTING = 1
"""Results along a row that could be computed while some are begun and stored."""


@dataclass(frozen=True)
class Rows:
    """Extents of results, and rows of the input; `least`: results along a row at least.

    `borders`: along rows and columns, where windows look beyond them: the padding in front, and places of the input
    beyond a stride for each result.
    """

    rows: Expr
    columns: Expr
    seen_rows: Expr
    least: int
    borders: tuple[tuple[int, int], ...] = ()
    threads: int = 1


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


class _ImageRows(ContractionEmitter):
    """What the kernels of an image do otherwise than those of one size. `form` and `knobs` are those of a sample."""

    def __init__(self, scope: Scope, nest: Nest, form: Convolution, knobs: Knobs, extents: Rows) -> None:
        above, along = form.windows
        if isinstance(above, TransposedWindow):  # it asks at each row which taps meet it
            above = replace(above, size=extents.seen_rows)
        if extents.borders:
            (pad, _), last = extents.borders
            above = _Above(extents.seen_rows, above.taps, above.stride, above.dilation, pad, 0, above.outputs)
            along = bordered(along, *last)
        super().__init__(scope, nest, replace(form, windows=(above, along)), {**knobs, "order": "weights"})
        self.extents = extents

    def swept_blocks(self) -> int:
        """See ContractionEmitter: tasks are of some rows."""
        return 0

    @contextmanager
    def tasks(self) -> Iterator[Task]:
        """See ContractionEmitter."""
        rows, wanted = self.extents.rows, int(self.knobs["rows_per_task"])
        each = (rows + self.extents.threads - 1) // self.extents.threads
        each = builder.bind(tirx.min(each, wanted) if wanted else each)
        with self.emitter.parallel(builder.bind((rows + each - 1) // each)) as number:
            first = builder.bind(number * each)
            count = builder.bind(tirx.min(rows - first, each))

            def row_at(step: Expr) -> Index:
                return (builder.bind(first + step),)

            yield Task((0, 0), self.panels, count, lambda panel: panel, row_at)

    def row(self, task: TileTask, origin: Expr, emit: EmitTile) -> None:
        """See ContractionEmitter."""
        phases = task.window.phases
        steps = sum(count for count, _ in phases)
        results = builder.bind(self.extents.columns // steps)
        first, last = edges(task.window) if self.extents.borders else (0, 0)
        for count, phase in phases:
            with self.emitter.serial(count) as number:
                here = replace(task, window=phase.at(number))
                self.between(here, results, first, last, emit)

    def between(self, task: TileTask, results: Expr, first: int, last: int, emit: EmitTile) -> None:
        """A row whose `first` and `last` results look beyond the borders: with as many beside them as are in registers
        together, where the row is that long."""
        pixels = int(self.knobs["pixels"])
        wide = [max(count, pixels) if count else 0 for count in (first, last)]
        if [first, last] == wide or self.extents.least >= sum(wide):
            self.parts(task, results, wide[0], wide[1], emit)
            return
        with builder.If(results >= sum(wide)):
            with builder.Then():
                self.parts(task, results, wide[0], wide[1], emit)
            with builder.Else():
                self.parts(task, results, first, last, emit)

    def parts(self, task: TileTask, results: Expr, first: int, last: int, emit: EmitTile) -> None:
        """The first results of a row, those between, of which the last tile is moved back, and the last ones."""
        pixels, outputs = int(self.knobs["pixels"]), task.window.outputs
        for start in range(0, first, pixels):
            emit(task, Run(start, min(pixels, first - start), 1, clean=False), start)
        least = max((self.extents.least if not first + last else 0) // sum(count for count, _ in self.phases), 1)
        split, before = row_split(pixels, least), first
        for width, often in zip(split.lengths, split.emitted(results - (first + last)), strict=True):
            with builder.serial(0, often) as tile:
                start = builder.bind(tirx.min(before + tile * width, results - (last + width)))
                emit(task, Run(first, width, 1, clean=True), start)
            before = builder.bind(before + often * width)
        for start in range(outputs - last, outputs, pixels):
            width = min(pixels, outputs - start)
            emit(task, Run(start, width, 1, clean=False), builder.bind(results - (outputs - start)))

    @property
    def phases(self) -> tuple[tuple[int, Window], ...]:
        """The windows of a row; see `Window`."""
        return self.form.windows[-1].phases


class ImageDirect(_ImageRows):
    """A convolution whose lanes run over channels of the results."""


class ImageDot(_ImageRows, DotEmitter):
    """A convolution to few channels, whose lanes run over those of the input."""


EMITTERS: dict[str, Any] = {"direct": ImageDirect, "dot": ImageDot}
"""By the knob `algorithm`."""


def bordered(along: Window, pad: int, beyond: int) -> Window:
    """A window along a row with borders, long enough that some results see none of them."""
    outputs = max(along.outputs, LONG)
    size = outputs * along.stride + beyond
    reach = (outputs - 1) * along.stride + (along.taps - 1) * along.dilation + 1
    return Window(size, along.taps, along.stride, along.dilation, pad, max(reach - pad - size, 0), outputs)


def edges(along: Window) -> tuple[int, int]:
    """How many results, the first and the last ones of a row, look beyond the borders."""
    first, end = along.clean_outputs()
    return first, along.outputs - end


def row_split(pixels: int, least: int) -> Split:
    """How a row of at least so many results is parted into those that are in registers together."""
    lengths = [*widths(pixels, pixels)]
    while lengths[-1] > least:
        lengths.append(max(lengths[-1] // 2, 1))
    return Split(tuple(lengths), STARTING)
