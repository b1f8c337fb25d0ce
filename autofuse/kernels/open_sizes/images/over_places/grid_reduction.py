"""The kernel of a reduction over all places of images whose sizes are known when it runs: a global pooling, the mean or
the variance of a norm. What is computed at each place before it is computed where it is read."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.device.target import Target
from autofuse.kernels.build import FUNCTION_ATTRIBUTES, Constants, Kernel, complete
from autofuse.kernels.families.reductions.reduction import REDUCE, reduced_axes
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.open_sizes.images.open_grid import Given, GridForm, whole_array
from autofuse.kernels.open_sizes.images.over_places.side_reduction import SideReduction, is_along_side
from autofuse.kernels.open_sizes.open_reduction import clear, column_pieces, fold_rows, last_step
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.workload.workload import Workload

BLOCK = 512
"""Steps whose sum is made by itself, so that long sums lose no more than short ones."""
VECTORS = 4
"""Vectors of a step, which are summed side by side."""


def grid_reduction_kernel(workload: Workload, form: GridForm, target: Target) -> Kernel:
    """The kernel of a reduction of each channel of each image to one place, or to those along one side, and of what
    `workload` computes before it; channels stand in front of the places, or behind them.

    All that it reads has all open sizes of places, or none. The result has one place a channel, so that it lies alike
    in each layout.
    """
    constants = Constants()
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr(FUNCTION_ATTRIBUTES)
        given = [Given(argument, f"input{number}") for number, argument in enumerate(form.inputs)]
        made = Given(form.outputs[0], "output0")
        emitter = Emitter(target)
        arrays = {index: whole_array(one) for index, one in zip(workload.of_kind("input"), given, strict=True)}
        scope = Scope(workload, emitter, arrays, constants.declare)
        (SideReduction if is_along_side(scope) else _Reduction)(scope, given, made).emit()
    inputs = [one.buffer for one in given]
    return Kernel(complete(ib.get(), inputs, constants.parameters, [made.buffer]), constants.packed)


class _Reduction:
    """Emits the reduction."""

    def __init__(self, scope: Scope, given: Sequence[Given], made: Given) -> None:
        self.scope, self.emitter = scope, scope.emitter
        operator = scope.workload.operators[-1]
        self.source, shape = operator.inputs[0], scope.shape(operator.inputs[0])
        self.kind = operator.op_type
        self.in_rows = 1 in reduced_axes(scope.workload, operator)
        self.first, self.contribute, self.fold = REDUCE[operator.op_type]
        whole = [one for one in given if one.argument.value.shape == shape]
        blocks = [one.argument.value.block for one in whole]
        self.block = max((block for block in blocks if block), default=1)
        self.rank, self.extents = len(shape), whole[0].extents
        self.channels = shape[-1] if self.in_rows else shape[1]
        self.maps = self.channels // self.block
        axes = range(1, self.rank - 1) if self.in_rows else range(2, self.rank)
        self.places = builder.bind(prod((self.extents[axis] for axis in axes[1:]), start=self.extents[axes[0]] * 1))
        # Whatever is read along an axis of extent 1 stands at its only place.
        self.along = max((axis for axis in axes if shape[axis] != 1), default=axes[-1])
        result = made.argument.value
        count = self.extents[0] * self.channels
        self.result = builder.decl_buffer((count,), result.dtype, data=made.buffer.data, align=64)
        self.lanes = self.block if self.block > 1 else self.emitter.lanes

    def emit(self) -> None:
        """All results."""
        if self.in_rows:
            self.over_rows()
        else:
            self.over_maps()

    def over_rows(self) -> None:
        """Channels that stand behind the places: a few vectors of them by each task, over all places."""
        emitter, number = self.emitter, self.extents[0]
        repeats = None if isinstance(number, int) and number == 1 else number
        for begin, tasks, vectors, lanes in column_pieces(self.channels, emitter.lanes, VECTORS):
            with emitter.parallel_parts(tasks, repeats) as (image, task):
                columns = [begin + task * vectors * lanes + vector * lanes for vector in range(vectors)]
                totals = emitter.registers(vectors, lanes)

                def read(place: Expr, vector: int, lane: Expr, image: Expr = image, columns: Any = columns) -> Expr:
                    return self.scope.read(self.source, self.index(image, columns[vector] + lane, place))

                fold_rows(emitter, self.kind, totals, self.places, read, self.scope.point)
                for column, total in zip(columns, totals, strict=True):
                    with emitter.vector(lanes) as lane:
                        emitter.put(self.result, image * self.channels + column + lane, self.finished(total[lane]))

    def over_maps(self) -> None:
        """All maps, each by one task."""
        emitter = self.emitter
        with emitter.parallel(self.extents[0] * self.maps) as task:
            image, channel = self.map(task)
            vectors = builder.bind(self.places * self.block // self.lanes)
            steps = builder.bind(vectors // VECTORS)
            total, *parts = emitter.registers(1 + VECTORS, self.lanes)
            clear(emitter, [total], self.first)
            with builder.serial(0, (steps + (BLOCK - 1)) // BLOCK) as block:
                clear(emitter, parts, self.first)
                with builder.serial(0, tirx.min(steps - block * BLOCK, BLOCK)) as step:
                    for number, part in enumerate(parts):
                        self.add(part, image, channel, (block * BLOCK + step) * VECTORS + number)
                for part in parts:
                    with emitter.vector(self.lanes) as lane:
                        emitter.put(total, lane, self.fold(total[lane], part[lane]))
            with builder.serial(0, vectors - steps * VECTORS) as rest:
                self.add(total, image, channel, steps * VECTORS + rest)
            self.finish(task, (image, channel), vectors * self.lanes, total)

    def map(self, task: Expr) -> tuple[Expr, Expr]:
        """The image, and the first channel, of a task."""
        if isinstance(task, int):
            return 0, 0
        if self.maps == 1:
            return task, 0
        place = builder.bind(task % self.maps)
        self.emitter.analyzer.bind(place, tvm.ir.Range(0, self.maps))
        one = isinstance(self.extents[0], int) and self.extents[0] == 1
        return 0 if one else builder.bind(task // self.maps), place * self.block

    def index(self, image: Expr, channel: Expr, place: Expr) -> Index:
        """Where a place of a map stands; places are counted through all axes."""
        index: list[Expr] = [0] * self.rank
        index[0], index[-1 if self.in_rows else 1], index[self.along] = image, channel, place
        return tuple(index)

    def read(self, image: Expr, channel: Expr, place: Expr) -> Expr:
        """What one place of a map contributes."""
        return self.contribute(self.scope.read(self.source, self.index(image, channel, place)))

    def add(self, vector: Any, image: Expr, channel: Expr, number: Expr) -> None:
        """Folds vector number `number` of a map into another."""
        with self.emitter.vector(self.lanes) as lane, self.scope.point():
            at = (channel + lane, number) if self.block > 1 else (channel, number * self.lanes + lane)
            self.emitter.put(vector, lane, self.fold(vector[lane], self.read(image, *at)))

    def finish(self, task: Expr, at: tuple[Expr, Expr], done: Expr, total: Any) -> None:
        """Stores the results of one map: of a block a vector, of a plain one its lanes and what fills none."""
        emitter = self.emitter
        if self.block > 1:
            with emitter.vector(self.lanes) as lane:
                emitter.put(self.result, task * self.lanes + lane, self.finished(total[lane]))
            return
        whole = emitter.scratch(1)
        emitter.put(whole, 0, const(self.first, "float32"))
        with builder.serial(0, self.lanes) as lane:
            builder.buffer_store(whole, self.fold(whole[0], total[lane]), [0])
        with builder.serial(0, self.places - done) as rest, self.scope.point():
            builder.buffer_store(whole, self.fold(whole[0], self.read(*at, done + rest)), [0])
        builder.buffer_store(self.result, self.finished(whole[0]), [task])

    def finished(self, total: Expr) -> Expr:
        """The operator's last step."""
        return last_step(self.kind, total, self.places)
