"""Contractions whose results are passed over several times, each time with another part of the channels.

The weights of a panel that the first cache cannot hold come from the second one for every tile of results. A part of
them that it holds comes once; the sums so far wait in a buffer of the job (the loop over "kc" of Goto and van de Geijn,
"Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008, section 4).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autofuse.kernels.contraction import ContractionEmitter, TileJob
from autofuse.kernels.emit import Expr, const
from autofuse.kernels.tiles import Run


class PassesEmitter(ContractionEmitter):
    """A contraction in `passes` passes (at least 2), each over as many whole blocks of channels."""

    def emit(self) -> None:
        """Emits the nest: for each panel of a job all passes over its rows, then what follows the sums."""
        emitter = self.emitter
        self.prepare()
        self.outputs = self.form.windows[-1].outputs
        with self.jobs() as job:
            size = job.rows * self.outputs * self.vectors
            accumulators, self.sums = self.registers(), emitter.scratch(size * self.lanes)

            def over_rows(panel: Expr) -> None:
                with emitter.serial(job.rows) as self.row_step:
                    self.panel(job.batch, panel, job.row_at(self.row_step), accumulators)

            with emitter.serial(job.panels) as step:
                panel = job.panel_at(step)
                with emitter.serial(size) as place, emitter.vector(self.lanes) as lane:
                    emitter.put(self.sums, place * self.lanes + lane, const(0.0, "float32"))
                self.summing = True
                with emitter.serial(self.passes) as self.number:
                    over_rows(panel)
                self.summing = False
                over_rows(panel)

    def tile(self, job: TileJob, run: Run, start: Expr) -> None:
        """One pass over a tile of results; after the last one, what follows their sums."""
        emitter, lanes = self.emitter, self.lanes
        places = [(c, r, place, self.sum_at(job, c, start + r)) for c, r, place in self.places(job, run)]
        if not self.summing:
            for c, r, _, waiting in places:
                self.deliver(replace(job, accumulators=self.sums), c, job.window.result(start + r), waiting)
            return
        if not run.reads(job.window):
            return
        for _, _, place, waiting in places:
            with emitter.vector(lanes) as lane:
                emitter.put(job.accumulators, place + lane, self.sums[emitter.simplify(waiting + lane)])
        self.reduce_piece(job, run, start, self.number, self.passes)
        for _, _, place, waiting in places:
            with emitter.vector(lanes) as lane:
                emitter.put(self.sums, waiting + lane, job.accumulators[place + lane])

    def sum_at(self, job: TileJob, vector: int, pixel: Expr) -> Expr:
        """Place of a vector of sums in the job's buffer."""
        result: Any = self.row_step * self.outputs + job.window.result(pixel)
        return (result * self.vectors + vector) * self.lanes
