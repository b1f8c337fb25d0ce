"""Contractions whose sum is cut into parts that are computed apart, then added in their order (split-K).

With few rows a product only streams its weights: the parts give every thread a piece of that stream where there are
too few panels of columns for it, and keep a piece in cache while several tiles of rows read it. The order of the
additions is fixed, so that results do not depend on threads.
"""

from __future__ import annotations

from math import prod
from typing import Any

from autofuse.kernels.contraction import ContractionEmitter, TileJob
from autofuse.kernels.emit import Expr, delinear, linear
from autofuse.kernels.tiles import Run, divisor_near


class PartedEmitter(ContractionEmitter):
    """A contraction in `parts` parts (at least 2), each over as many whole blocks of channels."""

    def emit(self) -> None:
        """Emits both nests: the parts' sums, then their sums."""
        form, emitter = self.form, self.emitter
        self.prepare()
        self.padded_columns = self.vectors_total * self.lanes
        self.pixels = form.windows[-1].outputs
        self.results = prod(form.batch) * prod(form.rows) * self.pixels
        self.partial: Any = emitter.scratch(self.parts * self.results * self.padded_columns)
        panels_per_job = divisor_near(self.panels, int(self.knobs["panels_per_job"]))
        grid = (prod(form.batch), self.panels // panels_per_job, self.parts)
        with emitter.parallel(prod(grid)) as job:
            batch_flat, panel_job, self.part = delinear(job, grid)
            batch = delinear(batch_flat, form.batch)
            accumulators = self.registers()
            with emitter.serial(panels_per_job) as panel_step, emitter.serial(prod(form.rows)) as row_flat:
                panel = emitter.simplify(panel_job * panels_per_job + panel_step)
                row = tuple(emitter.simplify(part) for part in delinear(row_flat, form.rows))
                self.panel(batch, panel, row, accumulators)
        self.add_parts()

    def swept_blocks(self) -> int:
        """None: few rows only stream their weights, and the hardware fetches a stream by itself."""
        return 0

    def reduce(self, job: TileJob, run: Run, start: Expr) -> None:
        """The blocks of this part."""
        self.reduce_piece(job, run, start, self.part, self.parts)

    def deliver(self, job: TileJob, vector: int, pixel: Expr, sums: Any, place: Expr) -> None:
        """One vector of a part's sums, to where the second nest reads it."""
        lanes, column = self.lanes, (job.panel * self.vectors + vector) * self.lanes
        result = self.result_number(job.batch, job.row, pixel)
        with self.emitter.vector(lanes) as lane:
            self.emitter.put(self.partial, self.partial_at(self.part, result, column + lane), sums[place + lane])

    def result_number(self, batch: tuple[Expr, ...], row: tuple[Expr, ...], pixel: Expr) -> Expr:
        """Number of a result among those that differ in batch, row or pixel."""
        return linear((*batch, *row, pixel), (*self.form.batch, *self.form.rows, self.pixels))

    def partial_at(self, part: Expr, result: Expr, column: Expr) -> Expr:
        """Place of a part's sum."""
        return (part * self.results + result) * self.padded_columns + column

    def add_parts(self) -> None:
        """The sums of all parts, first to last; then scale, bias and epilogue."""
        emitter, form = self.emitter, self.form
        extents = (*form.batch, *form.rows, self.pixels)
        whole, rest = divmod(form.columns, self.lanes)
        for first, vectors, columns in ((0, whole, self.lanes), (whole, 1, rest)):
            if not vectors or not columns:
                continue
            with emitter.parallel(self.results * vectors) as job:
                result = emitter.simplify(job // vectors)
                position = tuple(emitter.simplify(part) for part in delinear(result, extents))
                vector = emitter.simplify((first + job % vectors) * self.lanes)
                batch, row = position[: len(form.batch)], position[len(form.batch) : -1]
                for start, width in self.pieces(columns):
                    with emitter.vector(width) as lane:
                        column = vector + start + lane
                        index = form.out_index(batch, row, position[-1], column)
                        self.finish(tuple(emitter.simplify(at) for at in index), self.total(result, column))

    def total(self, result: Expr, column: Expr) -> Expr:
        """A column's sums of all parts, added."""
        total: Expr = self.partial[self.emitter.simplify(self.partial_at(0, result, column))]
        for part in range(1, self.parts):
            total = total + self.partial[self.emitter.simplify(self.partial_at(part, result, column))]
        return total
