"""Contractions of few columns (the last layer of a decoder, a head of few classes): lanes over what is summed.

A vector of output channels would be mostly empty. Here a vector holds neighbouring input channels, and each accumulator
the partial sums of one result, which are added across the lanes at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from autofuse.kernels.families.contraction.direct import ContractionEmitter, Knobs, TileTask
from autofuse.kernels.families.contraction.form import Contraction, Product
from autofuse.kernels.families.contraction.panels import pack_weights
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Run, kernel_tap, positions
from autofuse.kernels.tir.emit import Array, Expr, Index
from autofuse.kernels.workload.workload import Workload

MOST_COLUMNS = 4
"""Columns that are computed at once."""


def dot_refusal(workload: Workload, form: Contraction, lanes: int, in_rows: Callable[[int], bool]) -> str | None:
    """Why the lanes cannot, or need not, run over the input channels of a contraction (None: they may)."""
    if form.columns >= lanes:
        return f"the columns fill a vector of {lanes}"
    if form.depth % lanes:
        return f"the channels are no multiple of {lanes}"
    if workload.values[form.w].kind != "constant":
        return "the weights are not constant"
    if isinstance(form, Product):
        return None if in_rows(form.x) and not form.transposed[0] else "the rows are not read as they lie"
    return None if workload.values[form.x].block else "the channels are not neighbours in memory"


class DotEmitter(ContractionEmitter):
    """A contraction whose "vectors" are columns, some at once: the lanes of each hold partial sums over channels."""

    def __init__(self, scope: Scope, nest: Nest, form: Contraction, knobs: Knobs) -> None:
        super().__init__(scope, nest, form, knobs)
        self.lanes = self.emitter.lanes
        self.vectors = self.panel_lanes = -(-form.columns // -(-form.columns // MOST_COLUMNS))
        self.full_panels, self.rest_vectors = divmod(form.columns, self.vectors)
        self.panels = self.full_panels + (self.rest_vectors > 0)
        self.block, self.blocks = self.lanes, form.depth // self.lanes

    def swept_blocks(self) -> int:
        """None: the few columns' weights stay in the first cache."""
        return 0

    def step(
        self, task: TileTask, run: Run, start: Expr, block: Expr, channels: int, taps: Index, pixels: list[int]
    ) -> None:
        """One tap: a vector of channels of every valid pixel times that of every column."""
        emitter, lanes = self.emitter, self.lanes
        assert self.weights is not None
        windows = (*self.form.windows[:-1], task.window)
        outer = task.row[: len(windows) - 1]
        packed_at = self.weight_offset(task, block, kernel_tap(windows, (*outer, start), taps))
        for r in pixels:
            position = positions(windows, (*outer, start + r), taps)
            with emitter.vector(lanes) as lane, self.scope.point():
                x = self.scope.name(self.left(task, position, taps, block, lane))
                for c in range(task.vectors):
                    sums = task.accumulators[c * run.width + r]
                    weight = self.weights.buffer[emitter.simplify(packed_at + c * lanes + lane)]
                    emitter.put(sums, lane, sums[lane] + x * weight)

    def deliver(self, task: TileTask, vector: int, pixel: Expr, sums: Any, place: Expr) -> None:
        """Adds the lanes of one accumulator in halves, and finishes the result."""
        emitter, half = self.emitter, self.lanes
        while half > 1:
            half //= 2
            with emitter.vector(half) as lane:
                emitter.put(sums, place + lane, sums[place + lane] + sums[place + half + lane])
        index = self.form.out_index(task.batch, task.row, pixel, task.panel * self.vectors + vector)
        self.finish(tuple(emitter.simplify(part) for part in index), sums[place])

    def packed_weights(self) -> Array:
        """The weights as [batch, panel, block, tap, column, lane]."""
        form = self.form
        shape = (prod(form.weight_batch), self.panels, self.blocks, self.taps, self.block, self.vectors)
        place = self.scope.workload.of_kind("constant").index(form.w)
        pack: Callable[..., np.ndarray] = partial(pack_weights, form=form, shape=shape)
        name = "_".join(map(str, (f"dots{form.w}", *shape))) + form.packing
        return self.scope.declare_constant(name, lambda c: pack(c[place]).swapaxes(-1, -2), shape, "float32")
