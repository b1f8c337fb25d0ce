"""Emits narrow products by tile registers: a tile of sums stays in them over all taps and the depth.

They are set up for the tiles of a row of results at a time. Where the system refuses them, the same kernel has the
loops of the instruction on vectors, on the same operands.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter, Tile
from autofuse.kernels.families.narrow.tiles import (
    LANES,
    ROW_BYTES,
    STEPS,
    TileMultiplier,
    TileShape,
    asked,
    asking,
    rows_of_tiles,
)
from autofuse.kernels.nest.tiles import Window, runs
from autofuse.kernels.tir.emit import Expr, Index
from autofuse.kernels.tir.llvm_text import imported


class TileEmitter(NarrowEmitter):
    """See the module. `pixels` follow from `vectors`: as many as there are tiles for."""

    multiplier: TileMultiplier
    shape: TileShape

    def loops(self) -> None:
        """See NarrowEmitter."""
        plain = NarrowEmitter(self.scope, self.nest, self.product, self.multiplier, self.knobs)
        plain.right, plain.left, plain.row_sums = self.right, self.left, self.row_sums
        self.pixels = rows_of_tiles(self.vectors)
        with imported(asking()):
            given = builder.bind(asked())
            with builder.If(given == 1):
                with builder.Then():
                    super().loops()
                with builder.Else():
                    plain.loops()

    def registers(self) -> list[Any]:
        """See NarrowEmitter: one buffer, as [vector, pixel, lane]."""
        return [self.emitter.scratch(self.vectors * self.pixels * self.lanes, self.multiplier.sums)]

    def row(self, batch: Index, panel: Expr, vectors: int, last: bool, row: Index, sums: list[Any]) -> None:
        """See NarrowEmitter."""
        outputs = self.form.windows[-1].outputs
        for run in runs(Window(outputs, 1, outputs=outputs), self.pixels):
            self.shape = self._shape(run.width, vectors)
            with imported(self.shape.text):
                self.shape.call("shape")
                with self.emitter.serial(run.count) as tile:
                    start = tile * run.width + run.start
                    self.tile(Tile(batch, panel, vectors, last, row, start, run.width), sums)
                self.shape.call("release")

    def _shape(self, width: int, vectors: int) -> TileShape:
        size = np.dtype(self.multiplier.left).itemsize
        right = self.operands.panel_vectors * ROW_BYTES
        return TileShape(self.multiplier.intrinsic, width, vectors, self.steps_at_once, self.left.pitch * size, right)

    @property
    def steps_at_once(self) -> int:
        """Steps of the depth that a tile holds: one number of them that makes every run of memory."""
        run = self.operands.units * (self.form.windows[-1].taps if self.left.row_is_one_run else 1)
        return next(steps for steps in range(STEPS, 0, -1) if run % steps == 0)

    def tile(self, tile: Tile, sums: list[Any]) -> None:
        """See NarrowEmitter."""
        (held,) = sums
        self._begin(tile, held)
        self.reduce(tile, sums)
        self.shape.call("store", held[0])
        for vector in range(tile.vectors):
            with self.emitter.serial(tile.width) as r:
                self.deliver(tile, vector, r, held, (vector * tile.width + r) * LANES)

    def _begin(self, tile: Tile, held: Any) -> None:
        """Sums start at what zero points take away, see `clear`."""
        emitter, lanes = self.emitter, self.lanes
        if self.right.sums is None and self.row_sums is None:
            self.shape.call("zero")
            return
        starts, rests = self.starts(tile), self.rests(tile)
        for vector in range(tile.vectors):
            with emitter.serial(tile.width) as r:
                start = starts[vector]
                if self.row_sums is not None:
                    row = self.row_sums.at(tile.batch, self.outputs(tile, r))
                    start = start - rests[vector] * tirx.Broadcast(row, lanes)
                emitter.put_vector(held, (vector * tile.width + r) * lanes, start, lanes)
        self.shape.call("load", held[0])

    def steps(self, tile: Tile, sums: list[Any], taps: Index, tap: Expr, count: int) -> None:
        """See NarrowEmitter: as many steps at once as a tile holds."""
        emitter, size = self.emitter, self.steps_at_once
        with emitter.serial(count // size) as turn:
            unit = turn * size
            left = self.left.offset(tile.batch, self.outputs(tile, 0), taps, unit)
            right = self.right.offset(tile.batch, tile.panel, tap, unit, 0)
            self.shape.call("add", self.left.buffer[emitter.simplify(left)], self.right.buffer[right])
