"""Emits contractions that are summed in float16, a stretch of the reduction at a time, between sums in float32."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.float16.instructions import Float16Instruction
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter, Tile
from autofuse.kernels.nest.tiles import spans
from autofuse.kernels.tir.emit import Expr, Index, const


class Float16SumsEmitter(NarrowEmitter):
    """See the module. The sums in float32 wait while the registers hold those of a stretch."""

    multiplier: Float16Instruction

    def registers(self) -> list[Any]:
        """See NarrowEmitter: and as many sums of a stretch."""
        sums = super().registers()
        self.short = [self.emitter.scratch(self.summed, self.multiplier.left) for _ in sums]
        return sums

    def steps(self, tile: Tile, sums: list[Any], taps: Index, tap: Expr, count: int) -> None:
        """See NarrowEmitter."""
        stretch = self.multiplier.stretch
        for first, turns, length in spans(count, stretch, count % stretch):
            with self.emitter.serial(turns) as turn:
                self.stretch(tile, sums, taps, tap, turn * length + first, length)

    def stretch(self, tile: Tile, sums: list[Any], taps: Index, tap: Expr, start: Expr, length: int) -> None:
        """Sums `length` products in float16, from step `start` of a run on, and adds them to the sums."""
        emitter, lanes, summed = self.emitter, self.lanes, self.summed
        held = range(tile.vectors * tile.width)
        zero = tirx.Broadcast(const(0.0, self.multiplier.left), summed)
        for number in held:
            emitter.put_vector(self.short[number], 0, zero, summed)
        self.run(tile, self.short, taps, tap, start, length)
        for number in held:
            wide = self.multiplier.widened(emitter.vector_at(self.short[number], 0, summed))
            emitter.put_vector(sums[number], 0, emitter.vector_at(sums[number], 0, lanes) + wide, lanes)
