"""Contractions of few columns (the last layer of a decoder, a head of few classes): lanes over what is summed.

A vector of output channels would be mostly empty. Here a vector holds neighbouring input channels, and each accumulator
the partial sums of one result, which are added across the lanes at the end.

So are products of few rows by a matrix that was computed and is turned (a step of a decoder meets the keys of all
tokens before): each of its columns lies side by side, and is read as it lies, once for all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from autofuse.fusion.planner.questions import FEW_SHARING
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


def reads_columns(workload: Workload, form: Contraction, in_rows: Callable[[int], bool]) -> bool:
    """Whether a product of few rows reads a computed matrix whose columns lie side by side: one that is turned."""
    if not isinstance(form, Product) or True in form.vector or workload.values[form.w].kind == "constant":
        return False
    if prod(window.outputs for window in form.windows) > FEW_SHARING or form.alpha != 1.0:
        return False
    if form.transposed[1]:
        return in_rows(form.w)
    made = next((operator for operator in workload.operators if form.w in operator.outputs), None)
    if made is None or made.op_type != "Transpose":
        return False
    order = made.attribute("perm")
    return isinstance(order, tuple) and order[-2] == len(order) - 1 and in_rows(made.inputs[0])


def dot_refusal(workload: Workload, form: Contraction, lanes: int, in_rows: Callable[[int], bool]) -> str | None:
    """Why the lanes cannot, or need not, run over the input channels of a contraction (None: they may)."""
    if reads_columns(workload, form, in_rows):
        assert isinstance(form, Product)
        if form.depth % lanes or not in_rows(form.x) or form.transposed[0]:
            return f"the rows are not read as they lie, or are no multiple of {lanes}"
        return None
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
        self.vectors = self.panel_lanes = self.last_lanes = -(-form.columns // -(-form.columns // MOST_COLUMNS))
        self.full_panels, self.rest_vectors = divmod(form.columns, self.vectors)
        self.panels = self.full_panels + (self.rest_vectors > 0)
        self.block, self.blocks = self.lanes, form.depth // self.lanes

    def prepare(self) -> None:
        """See ContractionEmitter: a computed matrix is read as it lies."""
        self.direct = reads_columns(self.scope.workload, self.form, self.scope.in_rows)
        self.weights = None if self.direct else self.packed_weights()

    def swept_blocks(self) -> int:
        """None: the few columns' weights stay in the first cache."""
        return 0

    def step(
        self, task: TileTask, run: Run, start: Expr, block: Expr, channels: int, taps: Index, pixels: list[int]
    ) -> None:
        """One tap: a vector of channels of every valid pixel times that of every column."""
        emitter, lanes = self.emitter, self.lanes
        windows = (*self.form.windows[:-1], task.window)
        outer = task.row[: len(windows) - 1]
        packed_at = 0 if self.direct else self.weight_offset(task, block, kernel_tap(windows, (*outer, start), taps))
        for r in pixels:
            position = positions(windows, (*outer, start + r), taps)
            with emitter.vector(lanes) as lane, self.scope.point():
                x = self.scope.name(self.left(task, position, taps, block, lane))
                for c in range(task.vectors):
                    sums = task.accumulators[c * run.width + r]
                    weight = self.weight(task, packed_at, block, c, lane)
                    emitter.put(sums, lane, sums[lane] + x * weight)

    def weight(self, task: TileTask, packed_at: Expr, block: Expr, column: int, lane: Expr) -> Expr:
        """An element of a column: of the packed weights, or where it lies."""
        if self.weights is not None:
            return self.weights.buffer[self.emitter.simplify(packed_at + column * self.lanes + lane)]
        place = task.panel * self.vectors + column
        index = self.form.w_index(task.batch, 0, block * self.lanes + lane, place)
        return self.scope.read(self.form.w, tuple(self.emitter.simplify(part) for part in index))

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
