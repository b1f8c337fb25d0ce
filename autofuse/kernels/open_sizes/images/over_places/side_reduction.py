"""The kernel of a reduction along one side of images whose sizes are known when it runs: the mean of each row, or of
each column. What is computed at each place before it is computed where it is read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.families.reductions.reduction import REDUCE, reduced_axes
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.open_sizes.images.open_grid import Given, whole_array
from autofuse.kernels.open_sizes.open_reduction import fold_rows, last_step
from autofuse.kernels.tir.emit import Expr, Index, const

VECTORS = 4
"""Vectors that are reduced side by side."""


def is_along_side(scope: Scope) -> bool:
    """Whether a reduction goes along one of several axes of places."""
    operator = scope.workload.operators[-1]
    return len(scope.shape(operator.inputs[0])) > 3 and len(reduced_axes(scope.workload, operator)) == 1


class SideReduction:
    """Emits the reduction. Vectors lie across the side: along the last axis, or a block of channels; where the last
    axis is reduced itself, along it."""

    def __init__(self, scope: Scope, given: Sequence[Given], made: Given) -> None:
        self.scope, self.emitter = scope, scope.emitter
        operator = scope.workload.operators[-1]
        self.kind, self.source = operator.op_type, operator.inputs[0]
        (self.axis,) = reduced_axes(scope.workload, operator)
        shape = scope.shape(self.source)
        whole = [one for one in given if one.argument.value.shape == shape]
        self.extents = whole[0].extents
        self.block = max(one.argument.value.block for one in whole)
        self.lanes = self.block or self.emitter.lanes
        self.across = 1 if self.block else len(shape) - 1
        self.result = whole_array(made)
        self.keeps = len(made.argument.value.shape) == len(shape)

    def emit(self) -> None:
        """All results."""
        kept = [axis for axis in range(len(self.extents)) if axis not in (self.axis, self.across)]
        counts = [self.extents[axis] for axis in kept]
        if self.block:
            kept, counts = [*kept, 1], [*counts, self.extents[1] // self.block]
        with self.emitter.parallel(prod(counts[1:], start=counts[0] * 1)) as task:
            index: list[Expr] = [0] * len(self.extents)
            for axis, count in reversed([*zip(kept, counts, strict=True)]):
                index[axis], task = self.parted(task, count)
            if self.block:
                self.column(index, index[1] * self.block, 1, self.lanes)
            elif self.across == self.axis:
                self.row(index)
            else:
                self.columns(index)

    def parted(self, task: Expr, count: Expr) -> tuple[Expr, Expr]:
        """A place along an axis of so many, and what is left for the axes in front."""
        if isinstance(task, int) or (isinstance(count, int) and count == 1):
            return 0, task
        place = builder.bind(task % count)
        if isinstance(count, int):
            self.emitter.analyzer.bind(place, tvm.ir.Range(0, count))
        return place, builder.bind(task // count)

    def columns(self, index: Sequence[Expr]) -> None:
        """All columns of a task: some vectors at a time, then one. A last one is moved back; of fewer columns than a
        vector has lanes, each by itself."""
        extent, lanes = self.extents[self.across], self.lanes
        wide = extent // (VECTORS * lanes)
        with builder.serial(0, wide) as step:
            self.column(index, step * (VECTORS * lanes), VECTORS, lanes)
        done = builder.bind(wide * (VECTORS * lanes))
        fills = tirx.const(extent, "int32") >= lanes if isinstance(extent, int) else extent >= lanes
        with builder.serial(0, tirx.Select(fills, (extent - done + (lanes - 1)) // lanes, 0)) as step:
            self.column(index, builder.bind(tirx.min(done + step * lanes, extent - lanes)), 1, lanes)
        with builder.serial(0, tirx.Select(fills, 0, extent)) as column:
            self.column(index, column, 1, 1)

    def column(self, index: Sequence[Expr], begin: Expr, vectors: int, lanes: int) -> None:
        """The columns of some vectors from `begin` on, along the whole side."""
        emitter = self.emitter
        totals = emitter.registers(vectors, lanes)

        def at(vector: int, lane: Expr, place: Expr = 0) -> list[Expr]:
            whole = list(index)
            whole[self.across], whole[self.axis] = begin + vector * lanes + lane, place
            return whole

        def read(place: Expr, vector: int, lane: Expr) -> Expr:
            return self.scope.read(self.source, tuple(at(vector, lane, place)))

        fold_rows(emitter, self.kind, totals, self.extents[self.axis], read, self.scope.point)
        for vector, total in enumerate(totals):
            with emitter.vector(lanes) as lane:
                emitter.store(self.result, self.of_result(at(vector, lane)), self.finished(total[lane]))

    def row(self, index: Sequence[Expr]) -> None:
        """The one result of a row, whose places lie one behind the other: whole vectors, and what fills none."""
        emitter, extent = self.emitter, self.extents[self.axis]
        vectors = builder.bind(extent // self.lanes)
        (total,) = emitter.registers(1, self.lanes)

        def at(place: Expr) -> Index:
            return (*index[: self.axis], place)

        def read(step: Expr, _vector: int, lane: Expr) -> Expr:
            return self.scope.read(self.source, at(step * self.lanes + lane))

        fold_rows(emitter, self.kind, [total], vectors, read, self.scope.point)
        first, contribute, fold = REDUCE[self.kind]
        whole = emitter.scratch(1)
        emitter.put(whole, 0, const(first, "float32"))
        with builder.serial(0, self.lanes) as lane:
            builder.buffer_store(whole, fold(whole[0], total[lane]), [0])
        done = vectors * self.lanes
        with builder.serial(0, extent - done) as rest, self.scope.point():
            one = contribute(self.scope.read(self.source, at(done + rest)))
            builder.buffer_store(whole, fold(whole[0], one), [0])
        emitter.store(self.result, self.of_result(at(0)), self.finished(whole[0]))

    def of_result(self, index: Sequence[Expr]) -> Index:
        """The place of the result for a place of what is reduced."""
        behind: Any = index[self.axis + 1 :]
        return (*index[: self.axis], *((0,) if self.keeps else ()), *behind)

    def finished(self, total: Expr) -> Expr:
        """The operator's last step."""
        return last_step(self.kind, total, self.extents[self.axis])
