"""The kernel of a product that sums over all places of an image, as keys times values of a linear attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.nest.evaluate import Scope, broadcast
from autofuse.kernels.open_sizes.images.open_grid import Given, GridForm, grid_function, whole_array
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload

BLOCK = 128
"""Places whose products are summed by themselves, so that long sums lose no more than short ones."""
ROWS = 8
"""Rows of a result whose sums are in registers together; half as many where there are 16 registers."""
VECTORS = 2
"""Vectors of a row that are."""
TASK = 64
"""Rows of a result that a task computes."""


def grid_product_kernel(workload: Workload, form: GridForm, target: Target) -> Kernel:
    """The kernel of a MatMul whose sums go over all places of an image, and of what `workload` computes before it.

    All that it reads has its places in one axis, or none; the result has none. Images may be counted by the first axis
    of both factors and of the result.
    """

    def emit(arguments: Sequence[Given], constants: Constants) -> None:
        indices = (*workload.of_kind("input"), *workload.of_kind("output"))
        arrays = {index: whole_array(one) for index, one in zip(indices, arguments, strict=True)}
        scope = Scope(workload, Emitter(target), arrays, constants.declare)
        result = arguments[-1]
        images = result.extents[0] if result.argument.axes else None
        apart = {*result.argument.axes.values()}
        counted = [one for one in arguments if not one.argument.grown]
        extents = [
            one.extents[axis] for one in counted for axis, size in one.argument.axes.items() if size not in apart
        ]
        if not extents:
            raise InputError("a product of constants that grow with the size")
        _Product(scope, builder.bind(extents[0]), images).emit()

    return grid_function(form, emit)


class _Product:
    """Emits a product over so many `places`, of so many `images` where their number is open."""

    def __init__(self, scope: Scope, places: Expr, images: Expr = None) -> None:
        self.scope, self.emitter, self.places = scope, scope.emitter, places
        operator = scope.workload.operators[-1]
        self.left, self.right = operator.inputs
        (self.result,) = operator.outputs
        lead: list[Expr]
        *lead, self.height, self.width = scope.shape(self.result)
        self.lead = lead if images is None else [images, *lead[1:]]
        self.lanes = self.emitter.lanes
        self.rows = ROWS if self.emitter.target.registers >= 32 else ROWS // 2
        self.task = min(TASK, -(-self.height // self.rows) * self.rows)
        self.padded = -(-self.width // self.lanes) * self.lanes
        self.emitter.analyzer.bind(places, tvm.ir.Range(1, scope.shape(self.left)[-1] + (1 << 24)))

    def emit(self) -> None:
        """All results, some rows of them by each task."""
        emitter, parts = self.emitter, -(-self.height // self.task)
        with emitter.parallel(prod(self.lead[1:], start=self.lead[0] if self.lead else 1) * parts) as task:
            whole = (*self.lead, parts)
            *batch, part = (emitter.simplify(one) for one in delinear(task, whole))
            self.batch, self.first = tuple(batch), emitter.bind(part * self.task)
            self.total = emitter.scratch(self.task * self.padded)
            self.held_left = emitter.scratch(self.task * BLOCK)
            self.held_right = emitter.scratch(BLOCK * self.padded)
            for buffer in (self.total, self.held_left, self.held_right):
                self.clear(buffer)
            with emitter.serial((self.places + (BLOCK - 1)) // BLOCK) as block:
                begin = builder.bind(block * BLOCK)
                count = builder.bind(tirx.min(self.places - begin, BLOCK))
                self.copy_left(begin, count)
                self.copy_right(begin, count)
                self.multiply(count)
            self.write()

    def clear(self, buffer: Any) -> None:
        """Sets all elements to zero."""
        with self.emitter.serial(int(buffer.shape[0]) // self.lanes) as step, self.emitter.vector(self.lanes) as lane:
            self.emitter.put(buffer, step * self.lanes + lane, const(0.0, "float32"))

    def read(self, value: int, *index: Expr) -> Expr:
        """An element of a factor."""
        return self.scope.read(value, broadcast((*self.batch, *index), self.scope.shape(value)))

    def copy_left(self, begin: Expr, count: Expr) -> None:
        """The left factor at some places, row by row; beyond its last row stands anything that is finite."""
        emitter, whole = self.emitter, builder.bind(count // self.lanes)
        with emitter.serial(tirx.min(self.height - self.first, self.task)) as row:

            def copied(place: Expr) -> None:
                emitter.put(self.held_left, row * BLOCK + place, self.read(self.left, self.first + row, begin + place))

            with emitter.serial(whole) as step, emitter.vector(self.lanes) as lane, self.scope.point():
                copied(step * self.lanes + lane)
            with emitter.serial(count - whole * self.lanes) as rest, self.scope.point():
                copied(whole * self.lanes + rest)

    def copy_right(self, begin: Expr, count: Expr) -> None:
        """The right factor at some places, a row of whole vectors for each; zero beyond its last column."""
        emitter = self.emitter
        with emitter.serial(count) as place:
            for column in range(0, self.width, self.lanes):
                with emitter.vector(min(self.lanes, self.width - column)) as lane, self.scope.point():
                    value = self.read(self.right, begin + place, column + lane)
                    emitter.put(self.held_right, place * self.padded + column + lane, value)

    def multiply(self, count: Expr) -> None:
        """Adds the products of so many places."""
        emitter, block = self.emitter, VECTORS * self.lanes
        with emitter.serial(self.task // self.rows) as tile:
            for column in range(0, self.padded, block):
                vectors = min(block, self.padded - column) // self.lanes
                sums = [emitter.registers(vectors, self.lanes) for _ in range(self.rows)]
                for one in (one for row in sums for one in row):
                    with emitter.vector(self.lanes) as lane:
                        emitter.put(one, lane, const(0.0, "float32"))
                with emitter.serial(count) as place:
                    for row, held in enumerate(sums):
                        factor = self.held_left[emitter.simplify((tile * self.rows + row) * BLOCK + place)]
                        for vector, one in enumerate(held):
                            at = emitter.simplify(place * self.padded + column + vector * self.lanes)
                            with emitter.vector(self.lanes) as lane:
                                emitter.put(one, lane, one[lane] + self.held_right[at + lane] * factor)
                for row, held in enumerate(sums):
                    start = (tile * self.rows + row) * self.padded + column
                    for vector, one in enumerate(held):
                        with emitter.vector(self.lanes) as lane:
                            at = start + vector * self.lanes + lane
                            emitter.put(self.total, at, self.total[at] + one[lane])

    def write(self) -> None:
        """Stores the rows of the task."""
        emitter, target = self.emitter, self.scope.arrays[self.result]
        with emitter.serial(tirx.min(self.height - self.first, self.task)) as row:
            for column in range(0, self.width, self.lanes):
                with emitter.vector(min(self.lanes, self.width - column)) as lane:
                    index: Index = (*self.batch, self.first + row, column + lane)
                    emitter.store(target, index, self.total[row * self.padded + column + lane])
