"""Contractions whose results are passed over several times, each time with another part of the channels.

The weights of a panel that the first cache cannot hold come from the second one for every tile of results. A part of
them that it holds comes once; the sums so far wait in a buffer of the task (the loop over "kc" of Goto and van de
Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008, section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from autofuse.kernels.families.contraction.direct import ContractionEmitter, TileTask
from autofuse.kernels.nest.tiles import Run
from autofuse.kernels.tir.emit import Expr, const


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
