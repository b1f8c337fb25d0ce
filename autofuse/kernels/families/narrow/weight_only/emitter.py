"""Emits weight-only products: a tile of vectors of columns x rows of sums in registers, codes unpacked beside them.

"stream": few rows. Each vector of codes is unpacked where it is used, for all rows of a tile at once. One row alone is
multiplied by the bare codes, and the sum of each block scaled; several share weights that are scaled first.
"unpacked": many rows. A part of a panel is unpacked to real numbers in the cache, then all rows meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.weight_only.form import WeightOnly
from autofuse.kernels.families.narrow.weight_only.operands import Rows, Weights
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Window, runs
from autofuse.kernels.tir.emit import FIRST_CACHE, Emitter, Expr, const
from autofuse.kernels.tir.offsets import delinear

Knobs = Mapping[str, int | str]
LINE_WORDS = 16
"""Words in a line of a cache (64 bytes)."""
PART_DEPTH = 256
"""Depth up to which a part of a panel is unpacked at once: 64 KB of four vectors of 16 numbers."""


class WeightOnlyEmitter:
    """Emits one nest of a weight-only product under `knobs`."""

    def __init__(self, scope: Scope, nest: Nest, form: WeightOnly, knobs: Knobs) -> None:
        self.scope, self.nest, self.form = scope, nest, form
        self.emitter: Emitter = scope.emitter
        self.lanes = self.emitter.target.lanes
        self.vectors = min(int(knobs["vectors"]), -(-form.columns // self.lanes))
        self.tile_rows = int(knobs["rows"])
        self.ahead = int(knobs["prefetch"])
        self.streams = knobs["algorithm"] == "stream"
        self.together = scope.lanes_together(nest, self.lanes)

    def emit(self) -> None:
        """Emits the whole nest: rows brought into place, then panels in parallel."""
        emitter, form = self.emitter, self.form
        self.weights = Weights(self.scope, form, self.vectors)
        alone = self.streams and min(form.rows, self.tile_rows) == 1
        self.rows = Rows(self.scope, form, alone and self.weights.shifts is not None)
        with emitter.parallel(self.weights.packing.panels) as panel:
            if not self.streams:
                self.unpacked(panel)
                return
            window = Window(form.rows, 1, outputs=form.rows)
            for run in runs(window, self.tile_rows):
                with emitter.serial(run.count) as tile:
                    start = emitter.simplify(tile * run.width + run.start)
                    (self.row_alone if run.width == 1 and alone else self.tile)(panel, start, run.width)

    def zero(self) -> Expr:
        return tirx.Broadcast(const(0.0, "float32"), self.lanes)

    def cleared(self, count: int) -> list[Any]:
        """Vectors of zeros."""
        found = self.emitter.registers(count, self.lanes)
        for one in found:
            self.emitter.put_vector(one, 0, self.zero(), self.lanes)
        return found

    def add(self, sums: Any, value: Expr) -> None:
        """Adds to a vector of sums."""
        self.emitter.put_vector(sums, 0, self.emitter.vector_at(sums, 0, self.lanes) + value, self.lanes)

    def row_alone(self, panel: Expr, row: Expr, width: int) -> None:
        """One row: sums of each block by its bare codes, then scaled."""
        emitter, form, weights = self.emitter, self.form, self.weights
        totals = self.cleared(self.vectors)
        with emitter.serial(form.blocks) as block:
            sums = self.cleared(self.vectors)

            def meet(v: int, depth: Expr, number: Expr) -> None:
                self.add(sums[v], self.rows.number(row, depth) * number)

            self.words_of_block(panel, block, meet)
            for v in range(self.vectors):
                scale = weights.factor(weights.scales, panel, block, v)
                self.add(totals[v], emitter.vector_at(sums[v], 0, self.lanes) * scale)
                if weights.shifts is not None:
                    shift = weights.factor(weights.shifts, panel, block, v)
                    self.add(totals[v], self.rows.sum(row, block) * shift)
        for v in range(self.vectors):
            self.deliver(panel, v, row, totals[v], 0)

    def tile(self, panel: Expr, start: Expr, width: int) -> None:
        """Some rows, which share the scaled weights."""
        emitter, form = self.emitter, self.form
        totals = self.cleared(self.vectors * width)
        with emitter.serial(form.blocks) as block:
            scaled = self.scaling(panel, block)

            def meet(v: int, depth: Expr, number: Expr) -> None:
                weight = emitter.bind(scaled(v, number))
                for r in range(width):
                    self.add(totals[v * width + r], self.rows.number(start + r, depth) * weight)

            self.words_of_block(panel, block, meet)
        for v in range(self.vectors):
            for r in range(width):
                self.deliver(panel, v, start + r, totals[v * width + r], 0)

    def scaling(self, panel: Expr, block: Expr) -> Callable[[int, Expr], Expr]:
        """What makes weights of the numbers of a block."""
        weights, bind = self.weights, self.emitter.bind
        scales = [bind(weights.factor(weights.scales, panel, block, v)) for v in range(self.vectors)]
        if weights.shifts is None:
            return lambda v, number: number * scales[v]
        shifts = [bind(weights.factor(weights.shifts, panel, block, v)) for v in range(self.vectors)]
        return lambda v, number: number * scales[v] + shifts[v]

    def words_of_block(self, panel: Expr, block: Expr, meet: Callable[[int, Expr, Expr], None]) -> None:
        """Hands the numbers of a block to `meet`: vector of columns, depth, numbers."""
        emitter, form, weights = self.emitter, self.form, self.weights
        steps = form.block // form.together
        with emitter.serial(steps) as step:
            at = block * steps + step
            if self.ahead:
                self.prefetch(weights.word_offset(panel, at, 0))
            words = [emitter.bind(weights.word(panel, at, v)) for v in range(self.vectors)]
            for place in range(form.together):
                for v in range(self.vectors):
                    meet(v, at * form.together + place, weights.numbers(words[v], place))

    def prefetch(self, start: Expr) -> None:
        """Asks for the words some lines behind those of this step."""
        buffer = self.weights.words
        last = int(buffer.shape[0]) - 1
        for line in range(-(-self.vectors * self.lanes // LINE_WORDS)):
            place = self.emitter.simplify(start + (line + self.ahead) * LINE_WORDS)
            self.emitter.prefetch(buffer, tirx.Min(place, tirx.IntImm("int32", last)), FIRST_CACHE)

    def unpacked(self, panel: Expr) -> None:
        """Many rows: part after part of a panel is unpacked, and meets all rows."""
        emitter, form, width = self.emitter, self.form, self.vectors * self.lanes
        blocks = gcd(form.blocks, max(1, PART_DEPTH // form.block))
        depth = blocks * form.block
        sums = emitter.scratch(form.rows * width)
        part = emitter.scratch(depth * width)
        with emitter.serial(form.rows * self.vectors) as step:
            emitter.put_vector(sums, step * self.lanes, self.zero(), self.lanes)
        with emitter.serial(form.blocks // blocks) as number:
            with emitter.serial(blocks) as inner:
                block = emitter.simplify(number * blocks + inner)
                scaled = self.scaling(panel, block)

                def keep(v: int, at: Expr, value: Expr) -> None:
                    place = (at - number * depth) * width + v * self.lanes
                    emitter.put_vector(part, place, scaled(v, value), self.lanes)

                self.words_of_block(panel, block, keep)
            self.meet_rows(sums, part, number * depth, depth)
        with emitter.serial(form.rows) as row:
            for v in range(self.vectors):
                self.deliver(panel, v, row, sums, row * width + v * self.lanes)

    def meet_rows(self, sums: Any, part: Any, first: Expr, depth: int) -> None:
        """Adds what a part of a panel gives to the sums of all rows."""
        emitter, lanes, width = self.emitter, self.lanes, self.vectors * self.lanes
        rows = self.form.rows
        for run in runs(Window(rows, 1, outputs=rows), self.tile_rows):
            with emitter.serial(run.count) as tile:
                start = emitter.simplify(tile * run.width + run.start)
                tile_at = [(v, r) for v in range(self.vectors) for r in range(run.width)]
                places = [(start + r) * width + v * lanes for v, r in tile_at]
                held = emitter.registers(len(places), lanes)
                for one, place in zip(held, places, strict=True):
                    emitter.put_vector(one, 0, emitter.vector_at(sums, place, lanes), lanes)
                with emitter.serial(depth) as step:
                    weights = [emitter.bind(emitter.vector_at(part, step * width + v * lanes, lanes))
                               for v in range(self.vectors)]  # fmt: skip
                    for r in range(run.width):
                        number = emitter.bind(self.rows.number(start + r, first + step))
                        for v in range(self.vectors):
                            self.add(held[v * run.width + r], number * weights[v])
                for one, place in zip(held, places, strict=True):
                    emitter.put_vector(sums, place, emitter.vector_at(one, 0, lanes), lanes)

    def deliver(self, panel: Expr, vector: int, row: Expr, sums: Any, place: Expr) -> None:
        """The epilogue of one vector of results; the last panel may end before its last vector, or inside one."""
        emitter, form = self.emitter, self.form
        first = emitter.simplify((panel * self.vectors + vector) * self.lanes)
        rest = form.columns % self.lanes
        before = form.columns - (self.weights.packing.panels - 1) * self.weights.packing.width
        if (vector + 1) * self.lanes <= before:
            self.finish(row, first, sums, place, self.lanes)
            return
        if self.weights.packing.panels > 1:
            with emitter.when(panel < self.weights.packing.panels - 1):
                self.finish(row, first, sums, place, self.lanes)
        if rest and vector * self.lanes < before:
            with emitter.when(panel >= self.weights.packing.panels - 1):
                self.finish(row, first, sums, place, rest)

    def finish(self, row: Expr, first: Expr, sums: Any, place: Expr, lanes: int) -> None:
        lead = tuple(self.emitter.simplify(part) for part in delinear(row, self.form.lead))
        for begin in range(0, lanes, self.together):
            with self.emitter.vector(min(self.together, lanes - begin)) as lane:
                column = self.emitter.simplify(first + begin + lane)
                value = sums[self.emitter.simplify(place + begin + lane)]
                self.scope.finish(self.nest, (*lead, column), value)
