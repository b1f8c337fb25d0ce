"""Convolutions of many small groups: the lanes run over the channels of as many groups as fill a vector.

A vector of the input holds these groups; its n-th shuffle has the n-th channel of its own group in each lane. Shuffles
are of what was read, and neighbouring taps and results share them.
"""

from __future__ import annotations

from autofuse.kernels.families.contraction.direct import ContractionEmitter, TileTask
from autofuse.kernels.nest.tiles import Run, kernel_tap, positions
from autofuse.kernels.tir.emit import Expr, Index, shuffled


class GroupLanesEmitter(ContractionEmitter):
    """Emits a contraction of the form `GroupLanes`, whose input lies in blocks of a vector."""

    def step(
        self, task: TileTask, run: Run, start: Expr, block: Expr, channels: int, taps: Index, pixels: list[int]
    ) -> None:
        """One tap: every channel of a group times every valid pixel and vector."""
        assert self.weights is not None
        emitter, form, lanes, group = self.emitter, self.form, self.lanes, self.form.depth
        windows = (*form.windows[:-1], task.window)
        outer = task.row[: len(windows) - 1]
        packed = self.places(task, block, kernel_tap(windows, (*outer, start), taps))
        x, first = self.scope.arrays[form.x], block * self.block
        for c in range(task.vectors):
            column = emitter.simplify((task.panel * self.vectors + c) * lanes)
            for r in pixels:
                place = self.x_index(task.batch, positions(windows, (*outer, start + r), taps), 0)
                read = emitter.vector_at(x.buffer, x.offset((place[0], column, *place[2:])), lanes)
                sums = task.accumulators[c * run.width + r]
                for channel in range(channels):
                    own = shuffled(read, [lane // group * group + first + channel for lane in range(lanes)])
                    weight = emitter.vector_at(self.weights.buffer, packed(channel, c), lanes)
                    emitter.put_vector(sums, 0, emitter.vector_at(sums, 0, lanes) + own * weight, lanes)
