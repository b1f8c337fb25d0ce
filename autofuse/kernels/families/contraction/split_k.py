"""Contractions whose sum is cut into parts that are computed apart, then added in their order (split-K).

With few rows a product only streams its weights: the parts give every thread a piece of that stream where there are
too few panels of columns for it, and keep a piece in cache while several tiles of rows read it. The order of the
additions is fixed, so that results do not depend on threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from autofuse.kernels.families.contraction.direct import ContractionEmitter, TileTask
from autofuse.kernels.nest.tiles import Run, divisor_near
from autofuse.kernels.tir.emit import Expr, Index
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
