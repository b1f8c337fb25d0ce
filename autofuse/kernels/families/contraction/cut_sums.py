"""Contractions whose sums over channels are cut, either way with a fixed order of additions.

Into parts that are computed apart, then added (split-K): with few rows a product only streams its weights. The parts
give every thread a piece of that stream where there are too few panels of columns for it, and keep a piece in cache
while several tiles of rows read it. Results do not depend on threads.

Into passes over all results, one after another (k-blocking): the weights of a panel that the first cache cannot hold
come from the second one for every tile of results. A part of them that it holds comes once; the sums so far wait in a
buffer of the task (the loop over "kc" of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
ACM TOMS 34(3), 2008, section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from autofuse.kernels.families.contraction.direct import ContractionEmitter, TileTask
from autofuse.kernels.nest.tiles import Run, divisor_near
from autofuse.kernels.tir.emit import Expr, Index, const
from autofuse.kernels.tir.offsets import delinear, linear


@dataclass(frozen=True)
class PartialSums:
    """The sums of all parts as `sums` [part, result, column]: `results` of them, of `columns` that fill vectors."""

    sums: Any
    results: int
    columns: int

    def at(self, part: Expr, result: Expr, column: Expr) -> Expr:
        """Place of a part's sum."""
        return (part * self.results + result) * self.columns + column


class SplitKEmitter(ContractionEmitter):
    """A contraction in `parts` parts (at least 2), each over as many whole blocks of channels."""

    def emit(self) -> None:
        """Emits both nests: the parts' sums, then their sums."""
        form, emitter = self.form, self.emitter
        self.prepare()
        results, columns = prod(self.extents()), self.vectors_total * self.lanes
        parts = PartialSums(emitter.scratch(self.split_k * results * columns), results, columns)
        panels_per_task = divisor_near(self.panels, int(self.knobs["panels_per_task"]))
        grid = (prod(form.batch), self.panels // panels_per_task, self.split_k)
        with emitter.parallel(prod(grid)) as task:
            batch_flat, panel_task, part = delinear(task, grid)
            batch = delinear(batch_flat, form.batch)
            accumulators = self.registers()
            with emitter.serial(panels_per_task) as panel_step, emitter.serial(prod(form.rows)) as row_flat:
                panel = emitter.simplify(panel_task * panels_per_task + panel_step)
                row = tuple(emitter.simplify(at) for at in delinear(row_flat, form.rows))
                self.panel(batch, panel, row, accumulators, tile=partial(self.part_of_tile, parts, part))
        self.add_parts(parts)

    def swept_blocks(self) -> int:
        """None: few rows only stream their weights, and the hardware fetches a stream by itself."""
        return 0

    def extents(self) -> Index:
        """Results along every direction but that of the columns."""
        return (*self.form.batch, *self.form.rows, self.form.windows[-1].outputs)

    def part_of_tile(self, parts: PartialSums, part: Expr, task: TileTask, run: Run, start: Expr) -> None:
        """A tile's sums over one part, to where the second nest reads them."""
        held, lanes = self.cleared(task, run), self.lanes
        if run.reads(task.window):
            self.reduce_piece(task, run, start, part, self.split_k)
        for c, r, sums in held:
            column = (task.panel * self.vectors + c) * lanes
            result = linear((*task.batch, *task.row, task.window.result(start + r)), self.extents())
            with self.emitter.vector(lanes) as lane:
                self.emitter.put(parts.sums, parts.at(part, result, column + lane), sums[lane])

    def add_parts(self, parts: PartialSums) -> None:
        """The sums of all parts, first to last; then scale, bias and epilogue."""
        emitter, form = self.emitter, self.form
        extents = self.extents()
        whole, rest = divmod(form.columns, self.lanes)
        for first, vectors, columns in ((0, whole, self.lanes), (whole, 1, rest)):
            if not vectors or not columns:
                continue
            with emitter.parallel(parts.results * vectors) as task:
                result = emitter.simplify(task // vectors)
                position = tuple(emitter.simplify(part) for part in delinear(result, extents))
                vector = emitter.simplify((first + task % vectors) * self.lanes)
                batch, row = position[: len(form.batch)], position[len(form.batch) : -1]
                for start, width in self.pieces(columns):
                    with emitter.vector(width) as lane:
                        column = vector + start + lane
                        index = form.out_index(batch, row, position[-1], column)
                        self.finish(tuple(emitter.simplify(at) for at in index), self.total(parts, result, column))

    def total(self, parts: PartialSums, result: Expr, column: Expr) -> Expr:
        """A column's sums of all parts, added."""
        first, *others = (
            parts.sums[self.emitter.simplify(parts.at(part, result, column))] for part in range(self.split_k)
        )
        return sum(others, start=first)


@dataclass(frozen=True)
class Waiting:
    """The sums so far of a row of results: in `sums` of the task, from its result number `first` on."""

    sums: Any
    first: Expr


class KBlockingEmitter(ContractionEmitter):
    """A contraction in `passes` passes (at least 2), each over as many whole blocks of channels."""

    def emit(self) -> None:
        """Emits the nest: for each panel of a task all passes over its rows, then what follows the sums."""
        emitter = self.emitter
        self.prepare()
        outputs = self.form.windows[-1].outputs
        with self.tasks() as task:
            size = task.rows * outputs * self.vectors
            accumulators, sums = self.registers(), emitter.scratch(size * self.lanes)

            def over_rows(panel: Expr, tile: Callable[[Waiting, TileTask, Run, Expr], None]) -> None:
                with emitter.serial(task.rows) as row:
                    waiting = Waiting(sums, row * outputs)
                    self.panel(task.batch, panel, task.row_at(row), accumulators, tile=partial(tile, waiting))

            with emitter.serial(task.panels) as step:
                panel = task.panel_at(step)
                with emitter.serial(size) as place, emitter.vector(self.lanes) as lane:
                    emitter.put(sums, place * self.lanes + lane, const(0.0, "float32"))
                with emitter.serial(self.k_blocking) as number:
                    over_rows(panel, partial(self.add_pass, number))
                over_rows(panel, self.finish_tile)

    def swept_blocks(self) -> int:
        """Those of a pass."""
        return self.blocks // self.k_blocking if self.all_rows else 0

    def add_pass(self, number: Expr, waiting: Waiting, task: TileTask, run: Run, start: Expr) -> None:
        """The sums of a tile with those of pass `number` added."""
        if not run.reads(task.window):
            return
        emitter = self.emitter
        held = [(sums, self.sum_at(waiting, task, c, start + r)) for c, r, sums in self.held(task, run)]
        for sums, at in held:
            with emitter.vector(self.lanes) as lane:
                emitter.put(sums, lane, waiting.sums[emitter.simplify(at + lane)])
        self.reduce_piece(task, run, start, number, self.k_blocking)
        for sums, at in held:
            with emitter.vector(self.lanes) as lane:
                emitter.put(waiting.sums, at + lane, sums[lane])

    def finish_tile(self, waiting: Waiting, task: TileTask, run: Run, start: Expr) -> None:
        """What follows the sums of a tile, once they are whole."""
        for c, r, _ in self.held(task, run):
            at = self.sum_at(waiting, task, c, start + r)
            self.deliver(task, c, task.window.result(start + r), waiting.sums, at)

    def sum_at(self, waiting: Waiting, task: TileTask, vector: int, pixel: Expr) -> Expr:
        """Place of a vector of sums in the task's buffer."""
        result: Any = waiting.first + task.window.result(pixel)
        return (result * self.vectors + vector) * self.lanes
