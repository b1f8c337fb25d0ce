"""Convolutions over an image whose sizes are known when the kernel runs, row by row.

Some rows of results of a group of channels are a task, as in a kernel of one size. Along a row as many results are in
registers as fit, and fewer for what is left of it. Which taps of a row look beyond the borders is counted for each row;
along a row that is known ahead (see `RowParts`). Maps in rows of pixels are written by such rows, which a tile's sums
are turned to in registers: places of neighbouring channels are apart by what is known when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.families.contraction.direct import CHAINED, ContractionEmitter, EmitTile, Knobs, TileTask
from autofuse.kernels.families.contraction.dot import DotEmitter
from autofuse.kernels.families.contraction.form import Convolution
from autofuse.kernels.families.contraction.group_lanes import GroupLanesEmitter
from autofuse.kernels.families.contraction.parallel_grid import Task
from autofuse.kernels.families.moves.transposes import LEAST_SIDE, turned
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Run, Window
from autofuse.kernels.nest.transposed_window import Phase
from autofuse.kernels.open_sizes.images.open_grid import TileArray
from autofuse.kernels.open_sizes.images.row_parts import RowParts, Rows
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, shuffled


class RowWriter:
    """Writes the results of a tile to a map in rows of pixels: squares of pixels and channels are turned in registers.

    `width`: pixels of a tile; `channels`: of each vector of `lanes`.
    """

    def __init__(self, emitter: Emitter, array: Array, lanes: int, width: int, channels: Sequence[int]) -> None:
        self.emitter, self.array, self.lanes, self.width, self.channels = emitter, array, lanes, width, channels
        parts = -(-width // CHAINED)
        self.kept = [[emitter.scratch(CHAINED * lanes) for _ in range(parts)] for _ in channels]
        self.count = 0

    def keep(self, value: Expr) -> None:
        """Takes a vector of results: of the channels of one pixel, or of some pixels one behind the other. All pixels
        of a vector of channels come before those of the next one."""
        emitter, (vector, pixel) = self.emitter, divmod(self.count, self.width)
        emitter.put(self.kept[vector][pixel // CHAINED], pixel % CHAINED * self.lanes + emitter.lane, value)
        self.count += -(-emitter.extent // self.lanes)

    def write(self, first: Index) -> None:
        """Writes all that was taken, the first of which stands at that index."""
        for vector, channels in enumerate(self.channels):
            for pixel in range(0, self.width, self.lanes):
                high = min(self.width - pixel, self.lanes)
                side = min(max(1 << (high - 1).bit_length(), LEAST_SIDE), self.lanes)
                for channel in range(0, channels, side):
                    columns = self._turned(vector, pixel, channel, side)
                    for number, column in enumerate(columns[: channels - channel]):
                        image, channels_before, *rows, pixels_before = first
                        beside = channels_before + vector * self.lanes + channel + number
                        self._put(self.array.offset((image, beside, *rows, pixels_before + pixel)), column, side, high)

    def _turned(self, vector: int, pixel: int, channel: int, side: int) -> list[Expr]:
        """The pixels of each of some channels, of a square that begins at a pixel and a channel."""
        emitter, found = self.emitter, []
        for number in range(side):
            at = min(pixel + number, self.width - 1)
            offset = at % CHAINED * self.lanes + channel
            found.append(emitter.bind(emitter.vector_at(self.kept[vector][at // CHAINED], offset, side)))
        return turned(emitter, found)

    def _put(self, offset: Expr, column: Expr, side: int, pixels: int) -> None:
        """Writes the first pixels of a channel, in parts that are powers of two."""
        begin = 0
        while begin < pixels:
            count = 1 << (pixels - begin).bit_length() - 1
            part = column if count == side else shuffled(column, range(begin, begin + count))
            if count > 1:
                self.emitter.put_vector(self.array.buffer, offset + begin, part, count)
            else:
                self.emitter.put(self.array.buffer, offset + begin, part)
            begin += count


def in_plain_rows(array: Array) -> bool:
    """Whether an array has numbers in rows of pixels whose strides are known when the kernel runs."""
    plain = isinstance(array, TileArray) and array.dtype == "float32" and not (array.half or array.block)
    return plain and len(array.shape) == 4 and array.inside((0,) * 4) is None


class _ImageRows(ContractionEmitter):
    """What the kernels of an image do otherwise than those of one size. `form` and `knobs` are those of a sample."""

    lanes_of_results = True

    def __init__(self, scope: Scope, nest: Nest, form: Convolution, knobs: Knobs, extents: Rows) -> None:
        form = replace(form, windows=extents.windows(form.windows))
        super().__init__(scope, nest, form, {**knobs, "order": "weights"})
        self.extents = extents
        turns = self.lanes_of_results and self.together == self.lanes >= LEAST_SIDE
        made = [scope.arrays[value] for value in nest.stores] if turns else []
        self.plain = [array for array in made if in_plain_rows(array)]
        self.blocked = self.blocked or bool(self.plain)  # chains are of pixels that are neighbours

    def swept_blocks(self) -> int:
        """See ContractionEmitter: tasks are of some rows."""
        return 0

    @contextmanager
    def tasks(self) -> Iterator[Task]:
        """See ContractionEmitter."""
        each, shares = self.extents.shares(int(self.knobs["rows_per_task"]))
        groups = self.form.batch[1]
        with self.emitter.parallel(shares * groups) as number:
            group = builder.bind(number // shares) if groups > 1 else 0
            first, count = self.extents.share(number - group * shares, each)

            def row_at(step: Expr) -> Index:
                return (builder.bind(first + step),)

            yield Task((0, group), self.panels, count, lambda panel: panel, row_at)

    def tile(self, task: TileTask, run: Run, start: Expr) -> None:
        """See ContractionEmitter."""
        along = task.window.result(start)
        channels = [self.valid(task, vector) for vector in range(task.vectors)]
        apart = isinstance(task.window, Phase)  # whose pixels are no neighbours
        plain = [] if apart or run.width < LEAST_SIDE else self.plain
        writers = [RowWriter(self.emitter, array, self.lanes, run.width, channels) for array in plain]

        def store(array: Array, index: Index, value: Expr) -> None:
            writer = next((one for one in writers if one.array is array), None)
            if writer is None:
                self.emitter.store(array, index, value)
            else:
                writer.keep(value)

        self.store = store if writers else None
        super().tile(task, run, start)
        for writer in writers:
            writer.write(self.form.out_index(task.batch, task.row, along, task.panel * self.vectors * self.lanes))

    def row(self, task: TileTask, origin: Expr, emit: EmitTile) -> None:
        """See ContractionEmitter."""

        def visit(window: Window, run: Run, start: Expr) -> None:
            emit(replace(task, window=window), run, start)

        RowParts(self.emitter, self.extents, int(self.knobs["pixels"]), self.vectors).emit(task.window, visit)


class _ImagePlaces(_ImageRows):
    """What those of a 1x1 convolution do otherwise: all places of an image are one row, of which a task has some, as
    many as have their part of the input in the second cache while all weights are read."""

    first: Expr = 0
    count: Expr = 0

    @contextmanager
    def tasks(self) -> Iterator[Task]:
        """See ContractionEmitter."""
        pixels, extents, groups = int(self.knobs["pixels"]), self.extents, self.form.batch[1]
        held = self.emitter.target.l2_bytes // (2 * 4 * self.form.depth * pixels)
        total = builder.bind(extents.rows * extents.columns)
        wanted = (total + extents.threads * pixels - 1) // (extents.threads * pixels)
        each = builder.bind(tirx.min(wanted, max(held, 1)) * pixels)
        shares = builder.bind((total + each - 1) // each)
        with self.emitter.parallel(shares * groups) as number:
            group = builder.bind(number // shares) if groups > 1 else 0
            self.first = builder.bind((number - group * shares) * each)
            self.count = builder.bind(tirx.min(total - self.first, each))
            yield Task((0, group), self.panels, 1, lambda panel: panel, lambda step: (0 * step,))

    def row(self, task: TileTask, origin: Expr, emit: EmitTile) -> None:
        """See ContractionEmitter."""

        def visit(window: Window, run: Run, start: Expr) -> None:
            emit(replace(task, window=window), run, builder.bind(self.first + start))

        extents = replace(self.extents, columns=self.count, least=1)
        RowParts(self.emitter, extents, int(self.knobs["pixels"])).emit(task.window, visit)


class ImageDirect(_ImageRows):
    """A convolution whose lanes run over channels of the results."""


class ImageDot(_ImageRows, DotEmitter):
    """A convolution to few channels, whose lanes run over those of the input."""

    lanes_of_results = False


class ImageGroupLanes(_ImageRows, GroupLanesEmitter):
    """A convolution of small groups, whose lanes run over the channels of several of them."""


class PlacesDirect(_ImagePlaces):
    """A 1x1 convolution whose lanes run over channels of the results."""


class PlacesDot(_ImagePlaces, DotEmitter):
    """A 1x1 convolution to few channels, whose lanes run over those of the input."""

    lanes_of_results = False


EMITTERS: dict[str, Any] = {"direct": ImageDirect, "dot": ImageDot, "group_lanes": ImageGroupLanes}
"""By the knob `algorithm`."""
PLACES: dict[str, Any] = {"direct": PlacesDirect, "dot": PlacesDot}
"""The same for convolutions of one place, all of whose tensors have all places."""
