"""Winograd's algorithm over an image whose sizes are known when the kernel runs.

The tiles of the whole image are counted row by row, as in a kernel of one size, and cut into chunks, which go on from
one row of tiles to the next. A chunk has as many tiles as the image leaves it: its sums are held by several widths of
registers, so that few are computed in vain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.families.contraction.form import Convolution
from autofuse.kernels.families.contraction.parallel_grid import EVEN, evenness
from autofuse.kernels.families.contraction.winograd import Knobs, Side, WinogradEmitter, spaced
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.open_sizes.images.grid_tiles import counted, widths
from autofuse.kernels.schedule.covers import cheapest
from autofuse.kernels.tir.emit import Expr

STARTING = 0.5
"""Tiles that could be multiplied while the sums of some are begun and stored."""


@dataclass(frozen=True)
class Plane:
    """The two open `sides` of an image (`filled` of one: of what all extents are multiples), and which `image` of a
    batch it is."""

    sides: tuple[Side, Side]
    image: Expr = 0


class ImageWinograd(WinogradEmitter):
    """Emits a 3x3 convolution over all tiles of an image. `form` and `knobs` are those of a sample of it, whose chunks
    have as many tiles as the largest ones here."""

    def __init__(self, scope: Scope, nest: Nest, form: Convolution, knobs: Knobs, m: int, plane: Plane) -> None:
        super().__init__(scope, nest, form, knobs, m)
        self.image, self.sides = plane.image, plane.sides
        self.most = self.chunk
        self.widths = widths(int(knobs["pixels"]), self.most)
        self.chunk = max(sum(self.taken(tiles)) for tiles in range(self.most + 1))  # tiles that memory is laid out for
        self.streams = 4 * self.points * form.depth * form.columns > self.emitter.target.l2_bytes
        self.apart = spaced(self.chunk * form.depth, self.lanes)
        self.products_apart = spaced(self.vectors * self.chunk * self.lanes, self.lanes)
        self.products = self.points * self.products_apart

    def emit_image(self, threads: int) -> None:
        """Emits all chunks: each by one thread, where there are enough of them; else all threads share each. Where they
        would share its panels unevenly, each takes some of fewer tiles."""
        self.weights = self.packed_weights()
        down, self.across = (builder.bind((side.outputs + self.m - 1) // self.m) for side in self.sides)
        total = builder.bind(down * self.across)
        if any(isinstance(side.outputs, tirx.IntImm) for side in self.sides):
            # Where fewer tiles than one side has would leave the other none, TVM divides by that.
            total = self.emitter.stored(total)
        chunks = builder.bind((total + self.most - 1) // self.most)
        if threads == 1:
            with builder.serial(0, chunks) as chunk:
                self.emit_chunk(chunk * self.most, total, alone=True)
            return
        shared = builder.bind((chunks + threads - 1) // threads * threads)
        each = builder.bind(tirx.min((total + shared - 1) // shared, self.most))
        uneven = evenness([1] * self.panels, threads) < EVEN
        with builder.If(total >= (threads if uneven else threads * self.most)):
            with builder.Then(), builder.parallel(0, builder.bind((total + each - 1) // each)) as chunk:
                self.emit_chunk(chunk * each, tirx.min(total, (chunk + 1) * each), alone=True)
            with builder.Else(), builder.serial(0, chunks) as chunk:
                self.emit_chunk(chunk * self.most, total, alone=False)

    def emit_chunk(self, first: Expr, end: Expr, alone: bool) -> None:
        """Some tiles of the image, from the `first` one on, at most up to `end`; `alone`: by one thread."""
        emitter = self.emitter
        emitter.alone = alone
        count = builder.bind(tirx.min(end - first, self.most))
        self.counts = self.emitted(count)
        filled: Expr = 0
        for width, often in zip(self.widths, self.counts, strict=True):
            filled = filled + often * width
        self.finished, self.filled = count, builder.bind(filled)
        self.rows, self.columns = (emitter.scratch(self.chunk, "int32") for _ in range(2))
        with builder.serial(0, self.filled) as p:
            tile = builder.bind(first + p)
            builder.buffer_store(self.rows, tile // self.across, [p])
            builder.buffer_store(self.columns, tile % self.across, [p])
        v = emitter.scratch(self.points * self.apart)
        with emitter.parallel(self.form.depth // self.lanes) as block:
            self.transform_input(0, block, v, 0)
        product = emitter.scratch(self.products) if alone else None
        with emitter.parallel(self.panels) as panel:
            self.panel(0, panel, v, 0, product if alone else emitter.scratch(self.products))

    def taken(self, tiles: int) -> list[int]:
        """The widths that compute so many tiles: the widest ones, and at the end those that compute least in vain."""
        widest = self.widths[0]
        whole = max(tiles // widest - 1, 0)
        costs = {width: width + STARTING for width in self.widths}
        return [widest] * whole + cheapest(tiles - whole * widest, costs)

    def emitted(self, count: Expr) -> list[Expr]:
        """How many of each width that are, of a number of tiles that is known when the kernel runs."""

        def counts(tiles: int) -> list[int]:
            return list(map(self.taken(tiles).count, self.widths))

        return counted(counts, self.widths, count)

    def tile_at(self, chunk: Expr, p: Expr) -> tuple[Expr, Expr, Expr]:
        """See WinogradEmitter."""
        return self.image, builder.bind(self.rows[p]), builder.bind(self.columns[p])

    def multiplied_together(self) -> Iterator[tuple[Expr, int, Expr]]:
        """See WinogradEmitter."""
        start: Expr = 0
        for width, count in zip(self.widths, self.counts, strict=True):
            yield start, width, count
            start = start + count * width
