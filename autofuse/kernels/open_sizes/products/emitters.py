"""What emits one tile of a product over an open number of rows, or all columns of a few rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autofuse.kernels.families.contraction.cut_sums import KBlockingEmitter
from autofuse.kernels.families.contraction.direct import ContractionEmitter, TileTask
from autofuse.kernels.families.contraction.panels import PrefetchShare
from autofuse.kernels.families.contraction.parallel_grid import EVEN, evenness
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.tiles import Run, Window, runs
from autofuse.kernels.open_sizes.products.tiles import ProductTile
from autofuse.kernels.tir.emit import Expr

ENOUGH_SUMS = 6
"""Few rows read as many panels side by side as have so many sums, which hide how long a multiply-add takes. More are
slower (Zen 4, panels of 3 vectors, products of 512x2048; the time of eight side by side, or as many as registers hold,
is 1): where 75 MB of weights come from memory 1, 2, 3 and 4 take 0.89, 0.90, 0.92 and 0.93 by one row, 1 and 2 take
0.98 and 1.05 by two; where they come from the last cache, 1.00 by one row, 0.74 and 0.81 by two."""


class RowsEmitter(ContractionEmitter):
    """Emits one tile of a product, number `place`, which asks for one of so many parts of the next panel."""

    def __init__(self, scope: Scope, tile: ProductTile, place: Expr, asking: int) -> None:
        super().__init__(scope, tile.nest, tile.form, tile.knobs)
        self.place, self.asking = place, asking

    def share(self, task: TileTask, run: Run, start: Expr) -> PrefetchShare | None:
        """See ContractionEmitter."""
        if not self.asking:
            return None
        return PrefetchShare(self.place, self.asking, self.block * self.panel_lanes, self.block, always=True)


class PassesEmitter(RowsEmitter, KBlockingEmitter):
    """Emits what one pass over a part of a panel does with a tile, which asks for one of so many parts of the next."""

    def __init__(self, scope: Scope, tile: ProductTile, place: Expr, asking: int) -> None:
        super().__init__(scope, replace(tile, knobs={**tile.knobs, "k_blocking": tile.passes}), place, asking)


class FewRowsEmitter(ContractionEmitter):
    """Emits a product of few rows: several panels side by side, as if they were one."""

    def all_panels(self, rows: int, threads: int) -> None:
        """All columns of so many rows, the first ones of the workload."""
        emitter, vectors = self.emitter, self.vectors
        together = self._together(rows, threads)
        whole = self.full_panels // together
        rest = self.vectors_total - whole * together * vectors
        window, batch, row = Window(rows, 1, outputs=rows), (0,) * len(self.form.batch), (0,) * len(self.form.rows)
        (run,) = runs(window, rows)
        with emitter.parallel(whole + (rest > 0)) as number:
            accumulators = emitter.registers(together * vectors * rows, self.lanes)
            panel = emitter.simplify(number * together)
            full = TileTask(batch, panel, row, accumulators, together * vectors, False, window)
            if not rest:
                self.tile(full, run, 0)
                return
            with emitter.when(number < whole):
                self.tile(full, run, 0)
            with emitter.when(number >= whole):
                self.tile(replace(full, vectors=rest, last=True), run, 0)

    def _together(self, rows: int, threads: int) -> int:
        """Panels side by side: those that have enough sums, that registers hold, and that threads share evenly."""
        each = self.vectors * rows
        wanted = -(-ENOUGH_SUMS // each)
        most = min(wanted, self.panels, self.emitter.target.registers * 3 // 4 // each)

        def even(together: int) -> bool:
            whole, rest = divmod(self.vectors_total, together * self.vectors)
            return evenness([together * self.vectors] * whole + [rest] * (rest > 0), threads) >= EVEN

        return next((together for together in range(most, 1, -1) if threads == 1 or even(together)), 1)

    def share(self, task: TileTask, run: Run, start: Expr) -> PrefetchShare | None:
        """See ContractionEmitter."""
        return None

    def places(self, task: TileTask, block: Expr, tap: Expr) -> Callable[[Expr, int], Expr]:
        """See ContractionEmitter: each panel lies behind all channels of the one before."""
        last = -(-task.vectors // self.vectors) - 1
        panels = [
            super(FewRowsEmitter, self).places(
                replace(task, panel=task.panel + number, last=task.last and number == last), block, tap
            )
            for number in range(last + 1)
        ]
        return lambda channel, vector: panels[vector // self.vectors](channel, vector % self.vectors)
