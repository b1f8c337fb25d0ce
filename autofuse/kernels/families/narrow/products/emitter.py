"""Emits products and convolutions of narrow numbers: a tile of vectors x pixels of sums in registers.

The lanes run over columns. For each pixel a few neighbouring numbers of the depth are spread over all lanes, and meet a
vector of weights that holds as many for every column.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.kernels.families.narrow.instructions import Multiplier
from autofuse.kernels.families.narrow.levels import LevelWriter
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.families.narrow.products.left import Left
from autofuse.kernels.families.narrow.products.operands import Operands
from autofuse.kernels.families.narrow.products.right import Right
from autofuse.kernels.families.narrow.products.row_sums import RowSums
from autofuse.kernels.nest.evaluate import Scope, Store
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Window, divisor_near, runs, spans
from autofuse.kernels.tir.emit import FIRST_CACHE, SECOND_CACHE, Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear, linear

Knobs = Mapping[str, int | str]
LINE_BYTES = 64


@dataclass(frozen=True)
class Tile:
    """Where a tile stands: batch, panel with so many vectors (the last may be cut), outer row, first pixel, pixels."""

    batch: Index
    panel: Expr
    vectors: int
    last: bool
    row: Index
    start: Expr
    width: int


@dataclass(frozen=True)
class Share:
    """Lines of weights that a tile asks for ahead: where they start, how many, and steps of the tile."""

    start: Expr
    lines: int
    steps: int


class NarrowEmitter:
    """Emits one nest of a narrow product under `knobs`, by one instruction."""

    def __init__(
        self, scope: Scope, nest: Nest, product: NarrowContraction, multiplier: Multiplier, knobs: Knobs
    ) -> None:
        self.scope, self.nest, self.product, self.form = scope, nest, product, product.form
        self.emitter: Emitter = scope.emitter
        self.multiplier, self.lanes, self.summed = multiplier, multiplier.lanes, multiplier.summed
        self.together = scope.lanes_together(nest, self.lanes)
        self.vectors_total = -(-self.form.columns // self.lanes)
        self.knobs = knobs
        self.vectors = min(int(knobs["vectors"]), self.vectors_total)
        self.pixels = int(knobs["pixels"])
        self.ahead = int(knobs.get("prefetch", 0))
        self.next_panel = bool(knobs.get("next_panel", 0))
        self.share: Share | None = None
        self.rows_per_task = divisor_near(prod(self.form.rows), int(knobs["rows_per_task"]))
        self.operands = Operands(scope, product, multiplier, self.vectors)

    def emit(self) -> None:
        """Emits the whole nest."""
        with self.multiplier.known():
            self.nests()

    def nests(self) -> None:
        """Operands brought into place, then the loops."""
        self.right = Right(self.operands)
        self.left = Left(self.operands)
        self.row_sums = RowSums(self.left) if self.operands.corrects else None
        self.loops()

    def loops(self) -> None:
        """Panels and rows in parallel."""
        emitter, form = self.emitter, self.form
        grid = (prod(form.batch), self.operands.panels, prod(form.rows) // self.rows_per_task)
        with emitter.parallel(prod(grid)) as task:
            sums = self.registers()
            flat, panel, row_task = (emitter.simplify(part) for part in delinear(task, grid))
            batch = tuple(emitter.simplify(part) for part in delinear(flat, form.batch))
            with emitter.serial(self.rows_per_task) as step:
                number = emitter.simplify(row_task * self.rows_per_task + step)
                row = tuple(emitter.simplify(part) for part in delinear(number, form.rows))
                self.panel(batch, panel, row, sums)

    def registers(self) -> list[Any]:
        """The sums of one tile."""
        held = self.vectors * self.held(self.pixels)
        return [self.emitter.scratch(self.lanes, self.multiplier.sums) for _ in range(held)]

    def panel(self, batch: Index, panel: Expr, row: Index, sums: list[Any]) -> None:
        """One row for one panel; the last panel may be narrower, and its last vector be cut."""
        emitter, before = self.emitter, self.operands.panels - 1
        vectors = self.vectors_total - before * self.vectors
        if not before or (vectors == self.vectors and self.form.columns % self.lanes == 0):
            self.row(batch, panel, vectors, not before, row, sums)
            return
        with emitter.when(panel < before):
            self.row(batch, panel, self.vectors, False, row, sums)
        with emitter.when(panel >= before):
            self.row(batch, panel, vectors, True, row, sums)

    def row(self, batch: Index, panel: Expr, vectors: int, last: bool, row: Index, sums: list[Any]) -> None:
        """The tiles of one row of pixels."""
        outputs = self.form.windows[-1].outputs
        for run in runs(Window(outputs, 1, outputs=outputs), self.pixels):
            with self.emitter.serial(run.count) as tile:
                start = tile * run.width + run.start
                self.tile(Tile(batch, panel, vectors, last, row, start, run.width), sums)

    def tile(self, tile: Tile, sums: list[Any]) -> None:
        """Clears the sums, takes every tap and depth, and finishes the results."""
        width = self.held(tile.width)
        held = [(v, r, sums[v * width + r]) for v in range(tile.vectors) for r in range(tile.width)]
        self.clear(tile, held)
        self.reduce(tile, sums)
        writer = LevelWriter(self.emitter)
        for v, r, one in held:
            self.deliver(tile, v, r, one, store=writer.store)
        writer.write()

    def held(self, width: int) -> int:
        """Pixels whose sums a tile of `width` holds."""
        return width

    def clear(self, tile: Tile, held: list[tuple[int, int, Any]]) -> None:
        """Sums start at what zero points take away: that of x times the sums of the columns, those of w the rows'."""
        emitter, lanes = self.emitter, self.lanes
        starts = self.starts(tile)
        if self.row_sums is None:
            for v, _, one in held:
                emitter.put_vector(one, 0, starts[v], lanes)
            return
        rests = self.rests(tile)
        rows = [emitter.bind(tirx.Broadcast(self.row_sums.at(tile.batch, self.outputs(tile, r)), lanes))
                for r in range(tile.width)]  # fmt: skip
        for v, r, one in held:
            emitter.put_vector(one, 0, starts[v] - rests[v] * rows[r], lanes)

    def starts(self, tile: Tile) -> list[Expr]:
        """What the sums of each vector start at: what the zero point of x takes away."""
        emitter, lanes = self.emitter, self.lanes
        starts: list[Expr] = [tirx.Broadcast(tirx.const(0, self.multiplier.sums), lanes)] * tile.vectors
        if self.right.sums is not None:
            zero = emitter.bind(tirx.Broadcast(tirx.const(0, "int32") - self.operands.x_zero(), lanes))
            starts = [
                emitter.bind(
                    emitter.vector_at(self.right.sums, self.right.sums_offset(tile.batch, tile.panel, v), lanes) * zero
                )
                for v in range(tile.vectors)
            ]
        return starts

    def rests(self, tile: Tile) -> list[Expr]:
        """What the sums of rows are multiplied by in each vector; none where no zero point of w wants them."""
        if self.row_sums is None:
            return []
        emitter = self.emitter
        at = [self.right.sums_offset(tile.batch, tile.panel, v) for v in range(tile.vectors)]
        return [emitter.bind(emitter.vector_at(self.right.rests, offset, self.lanes)) for offset in at]

    def reduce(self, tile: Tile, sums: list[Any]) -> None:
        """Loops over the taps and the depth; those that are one run of memory are one loop."""
        self.share = self.share_of_next(tile) if self.next_panel and self.operands.panels > 1 else None
        emitter, windows, of = self.emitter, self.form.windows, self.operands
        run = self.left.row_is_one_run
        looped = windows[:-1] if run else windows
        with ExitStack() as stack:
            taps = tuple(stack.enter_context(emitter.serial(window.taps)) for window in looped)
            taps = (*taps, 0) if run else taps
            tap: Expr = 0
            for position, window in zip(taps, windows[:-1] if of.joins else windows, strict=not of.joins):
                tap = tap * window.kernel + position
            self.steps(tile, sums, taps, tap, of.row_units if run else of.units)

    def steps(self, tile: Tile, sums: list[Any], taps: Index, tap: Expr, count: int) -> None:
        """A loop over the depth, cut where blocks of channels lie apart; some steps at a time where they lie side by
        side."""
        block = self.left.block
        if block:
            with self.emitter.serial(count // block) as outer, self.emitter.serial(block) as inner:
                self.ask_next(tap, outer * block + inner, 1)
                self.step(tile, sums, taps, tap, outer * block + inner)
            return
        cut = 1 if self.operands.cuts else 0
        self.run(tile, sums, taps, tap, 0, count - cut)
        if cut:
            self.step(tile, sums, taps, tap, count - 1)

    def run(self, tile: Tile, sums: list[Any], taps: Index, tap: Expr, start: Expr, count: int) -> None:
        """Steps over neighbours of the depth, from `start` on: as many at a time as the instruction wants, then one."""
        for first, turns, size in spans(count, self.multiplier.steps, 1):
            with self.emitter.serial(turns) as turn:
                unit = start + turn * size + first
                self.ask_next(tap, unit, size)
                if self.ahead:
                    self.prefetch(self.right.offset(tile.batch, tile.panel, tap, unit, 0), tile.vectors * size)
                self.step(tile, sums, taps, tap, unit, size)

    def prefetch(self, start: Expr, vectors: int) -> None:
        """Asks for as many vectors of weights as a step reads, some lines behind its own."""
        line, last = self.line, int(self.right.buffer.shape[0]) - 1
        for number in range(-(-vectors * self.lanes * self.multiplier.together // line)):
            place = self.emitter.simplify(start + (number + self.ahead) * line)
            self.emitter.prefetch(self.right.buffer, tirx.Min(place, const(last, "int32")), FIRST_CACHE)

    def share_of_next(self, tile: Tile) -> Share:
        """What a tile asks for of the next panel, of which all tiles of one panel take equal shares.

        The last panel asks for itself.
        """
        form, right, of = self.form, self.right, self.operands
        steps = right.shape[2] * right.shape[3]
        panel = steps * of.panel_lanes * self.multiplier.together
        lines, outputs = -(-panel // self.line), form.windows[-1].outputs
        pixels = prod(form.rows) * outputs
        done = linear(tile.row, form.rows) * outputs + tile.start
        start = right.offset(tile.batch, tile.panel, 0, 0, 0) + panel
        last = const(int(right.buffer.shape[0]) - panel, "int32")
        first = tirx.Min(start, last) + done * lines // pixels * self.line
        return Share(self.emitter.bind(self.emitter.simplify(first)), -(-tile.width * lines // pixels), steps)

    def ask_next(self, tap: Expr, unit: Expr, size: int) -> None:
        """Asks for a part of the tile's share before so many of its steps."""
        share = self.share
        if share is None:
            return
        each = -(-share.lines * size // share.steps)
        turn = (tap * self.right.shape[3] + unit) // size
        first = tirx.Min(turn * each, const(max(share.lines - each, 0), "int32"))
        for number in range(each):
            place = self.emitter.simplify(share.start + (first + number) * self.line)
            self.emitter.prefetch(self.right.buffer, place, SECOND_CACHE)

    @property
    def line(self) -> int:
        """Weights of a line of a cache."""
        return LINE_BYTES // np.dtype(self.multiplier.right).itemsize

    def step(self, tile: Tile, sums: list[Any], taps: Index, tap: Expr, unit: Expr, size: int = 1) -> None:
        """So many steps; of each the weights of every vector, then for each pixel its bytes, times all of them."""
        emitter, lanes, together, summed = self.emitter, self.lanes, self.multiplier.together, self.summed
        if size > 1:
            rows = [emitter.bind(self.numbers(tile, r, taps, unit, size)) for r in range(tile.width)]
            for place in range(size):
                for v in range(tile.vectors):
                    at = self.right.offset(tile.batch, tile.panel, tap, unit + place, v)
                    weights = emitter.bind(emitter.vector_at(self.right.buffer, at, lanes * together))
                    for r, row in enumerate(rows):
                        one = sums[v * tile.width + r]
                        spread = self.multiplier.spread_lane(row, place)
                        emitter.put_vector(
                            one, 0, self.multiplier.add(emitter.vector_at(one, 0, summed), spread, weights), summed
                        )
            return
        held = [
            emitter.bind(
                emitter.vector_at(
                    self.right.buffer, self.right.offset(tile.batch, tile.panel, tap, unit, v), lanes * together
                )
            )
            for v in range(tile.vectors)
        ]
        for r in range(tile.width):
            spread = emitter.bind(self.multiplier.spread(self.numbers(tile, r, taps, unit), self.left.flips))
            for v in range(tile.vectors):
                one = sums[v * tile.width + r]
                added = self.multiplier.add(emitter.vector_at(one, 0, summed), spread, held[v])
                emitter.put_vector(one, 0, added, summed)

    def numbers(self, tile: Tile, r: int, taps: Index, unit: Expr, size: int = 1) -> Expr:
        """The numbers of so many steps of a pixel; of several with the sign of those that are multiplied.

        Where `Operands.cuts`, the last step of a row stands outside the loop, and 0 in place of what lies beyond it.
        """
        width = self.multiplier.together * size
        at = self.emitter.simplify(self.left.offset(tile.batch, self.outputs(tile, r), taps, unit))
        found = self.emitter.vector_at(self.left.buffer, at, width) if width > 1 else self.left.buffer[at]
        if self.operands.cuts and isinstance(unit, int) and unit == self.operands.row_units - 1:
            return first_numbers(found, self.multiplier.together - self.operands.beyond)
        return self.multiplier.turned(found) if size > 1 and self.left.flips else found

    def outputs(self, tile: Tile, r: Expr) -> Index:
        """Where a pixel of a tile stands in every window."""
        return (*tile.row[: len(self.form.windows) - 1], tile.start + r)

    def deliver(self, tile: Tile, vector: int, r: Expr, sums: Any, at: Expr = 0, store: Store | None = None) -> None:
        """The epilogue of one vector of results, whose sums stand `at`, in pieces whose tensors are in one piece, and
        which `store` writes."""
        emitter = self.emitter
        first_column = emitter.simplify((tile.panel * self.vectors + vector) * self.lanes)
        last = tile.last and vector == tile.vectors - 1
        valid = (self.form.columns - 1) % self.lanes + 1 if last else self.lanes
        for first in range(0, valid, self.together):
            with emitter.vector(min(self.together, valid - first)) as lane:
                index = self.form.out_index(tile.batch, tile.row, tile.start + r, first_column + first + lane)
                index = tuple(emitter.simplify(part) for part in index)
                value = sums[emitter.simplify(at + first + lane)]
                if self.right.scales is not None:
                    column = self.right.sums_offset(tile.batch, tile.panel, vector) + first + lane
                    value = value * self.right.scales[emitter.simplify(column)]
                if self.form.bias >= 0:
                    value = value + self.scope.read(self.form.bias, self.form.bias_index(index))
                self.scope.finish(self.nest, index, value, store)


def first_numbers(numbers: Expr, valid: int) -> Expr:
    """The first ones of two neighbouring bfloat16, as their bits, and 0 in place of the others."""
    mask = tirx.const((1 << 16 * valid) - 1, "int32")
    return tirx.reinterpret("uint16x2", tirx.bitwise_and(tirx.reinterpret("int32", numbers), mask))
