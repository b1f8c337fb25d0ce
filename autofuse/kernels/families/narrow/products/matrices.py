"""Emits narrow products by an instruction on matrices: two pixels by two columns of sums in a vector.

While they are summed, the vectors of two neighbouring pixels are woven: one holds the first two columns of both, the
other the last two. Weaving twice gives the vectors back.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.instructions import Bfloat16MatrixMultiplier, MatrixMultiplier
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter, Tile
from autofuse.kernels.nest.tiles import Window, runs
from autofuse.kernels.tir.emit import Expr, Index, const

PAIR = 2


class MatrixEmitter(NarrowEmitter):
    """See the module. The last of an odd number of pixels is multiplied twice."""

    multiplier: MatrixMultiplier | Bfloat16MatrixMultiplier

    def held(self, width: int) -> int:
        """See NarrowEmitter: whole pairs."""
        return width + width % PAIR

    def row(self, batch: Index, panel: Expr, vectors: int, last: bool, row: Index, sums: list[Any]) -> None:
        """See NarrowEmitter: tiles of whole pairs, of which the last may lack one pixel."""
        outputs = self.form.windows[-1].outputs
        pairs = -(-outputs // PAIR)
        for run in runs(Window(pairs, 1, outputs=pairs), max(1, self.pixels // PAIR)):
            width = run.width * PAIR
            cut = outputs % PAIR if run.start + run.count * run.width == pairs else 0
            with self.emitter.serial(run.count - cut) as tile:
                self.tile(Tile(batch, panel, vectors, last, row, (tile * run.width + run.start) * PAIR, width), sums)
            if cut:
                start = const((pairs - run.width) * PAIR, "int32")
                self.tile(Tile(batch, panel, vectors, last, row, start, width - 1), sums)

    def reduce(self, tile: Tile, sums: list[Any]) -> None:
        """See NarrowEmitter. A pixel that is missing starts as its neighbour."""
        width = self.held(tile.width)
        for missing in range(tile.width, tile.vectors * width, width) if tile.width < width else ():
            self.emitter.put_vector(
                sums[missing], 0, self.emitter.vector_at(sums[missing - 1], 0, self.lanes), self.lanes
            )
        self.weave(tile, sums)
        super().reduce(tile, sums)
        self.weave(tile, sums)

    def weave(self, tile: Tile, sums: list[Any]) -> None:
        """Turns the sums of pairs of pixels into those of pairs of columns, and back."""
        emitter, lanes, width = self.emitter, self.lanes, self.held(tile.width)
        for first in range(0, tile.vectors * width, PAIR):
            both = [emitter.bind(emitter.vector_at(one, 0, lanes)) for one in sums[first : first + PAIR]]
            for half, one in enumerate(sums[first : first + PAIR]):
                places = [lane + side * lanes for side in range(PAIR) for lane in (PAIR * half, PAIR * half + 1)]
                woven = tirx.Shuffle(both, [const(place, "int32") for place in places])
                emitter.put_vector(one, 0, woven, lanes)

    def step(self, tile: Tile, sums: list[Any], taps: Index, tap: Expr, unit: Expr, size: int = 1) -> None:
        """So many steps; of each the numbers of every pair of pixels, then each pair of columns, times all of them."""
        emitter, lanes, width = self.emitter, self.lanes, self.held(tile.width)
        rows = [emitter.bind(self.numbers(tile, r, taps, unit, size)) for r in range(tile.width)]
        rows += rows[tile.width - 1 :] * (width - tile.width)
        half = self.multiplier.together * PAIR
        for place in range(size):
            pairs = [
                emitter.bind(self.multiplier.both(rows[r], rows[r + 1], place, size)) for r in range(0, width, PAIR)
            ]
            for number in range(tile.vectors * (lanes // PAIR)):
                vector, side = divmod(number, lanes // PAIR)
                at = self.right.offset(tile.batch, tile.panel, tap, unit + place, vector) + side * half
                weights = emitter.bind(emitter.vector_at(self.right.buffer, emitter.simplify(at), half))
                for pair, numbers in enumerate(pairs):
                    one = sums[vector * width + pair * PAIR + side]
                    added = self.multiplier.add_matrices(emitter.vector_at(one, 0, lanes), numbers, weights)
                    emitter.put_vector(one, 0, added, lanes)
