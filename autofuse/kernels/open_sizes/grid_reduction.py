"""The kernel of a reduction over all places of images whose sizes are known when it runs: a global pooling."""

from __future__ import annotations

from math import prod
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.device.target import Target
from autofuse.kernels.build import FUNCTION_ATTRIBUTES, Kernel, complete
from autofuse.kernels.families.reductions.reduction import REDUCE
from autofuse.kernels.open_sizes.open_grid import Given, GridArgument
from autofuse.kernels.tir.emit import Emitter, Expr, const

BLOCK = 512
"""Vectors whose sum is made by itself, so that long sums lose no more than short ones."""
KINDS = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
"""Poolings by the names of reductions."""


def grid_reduction_kernel(kind: str, source: GridArgument, result: GridArgument, target: Target) -> Kernel:
    """The kernel of a reduction of each channel of each image to one place.

    `kind`: the operator's type. The result has one place a channel, so that it lies alike in each layout.
    """
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr(FUNCTION_ATTRIBUTES)
        given, made = Given(source, "input0"), Given(result, "output0")
        _Reduction(Emitter(target), KINDS.get(kind, kind), given, made).emit()
    return Kernel(complete(ib.get(), [given.buffer], [], [made.buffer]), lambda _: [])


class _Reduction:
    """Emits the reduction."""

    def __init__(self, emitter: Emitter, kind: str, given: Given, made: Given) -> None:
        self.emitter, self.kind = emitter, kind
        self.first, self.contribute, self.fold = REDUCE[kind]
        value = given.argument.value
        self.block = value.block or 1
        self.maps = given.extents[0] * (value.shape[1] // self.block)
        self.places = builder.bind(prod(given.extents[3:], start=given.extents[2] * 1))
        flat = given.elements
        self.source = builder.decl_buffer((flat,), value.dtype, data=given.buffer.data, align=64)
        self.result = builder.decl_buffer((self.maps * self.block,), value.dtype, data=made.buffer.data, align=64)
        self.lanes = value.block or emitter.lanes

    def emit(self) -> None:
        """All maps, each by one task."""
        lanes, emitter = self.lanes, self.emitter
        with emitter.parallel(self.maps) as task:
            start = task * self.places * self.block
            vectors = self.places * self.block // lanes
            total, part = emitter.registers(2, lanes)
            self.clear(total)
            with builder.serial(0, (vectors + (BLOCK - 1)) // BLOCK) as block:
                self.clear(part)
                steps = tirx.min(vectors - block * BLOCK, BLOCK)
                with builder.serial(0, steps) as step, builder.vectorized(0, lanes) as lane:
                    read = self.source[start + (block * BLOCK + step) * lanes + lane]
                    builder.buffer_store(part, self.fold(part[lane], self.contribute(read)), [lane])
                with builder.vectorized(0, lanes) as lane:
                    builder.buffer_store(total, self.fold(total[lane], part[lane]), [lane])
            self.finish(task, start, vectors * lanes, total)

    def finish(self, task: Expr, start: Expr, done: Expr, total: Any) -> None:
        """Stores the results of one map: of a block a vector, of a plain one its lanes and what fills none."""
        if self.block > 1:
            with builder.vectorized(0, self.lanes) as lane:
                builder.buffer_store(self.result, self.finished(total[lane]), [task * self.lanes + lane])
            return
        whole = self.emitter.scratch(1)
        builder.buffer_store(whole, const(self.first, "float32"), [0])
        with builder.serial(0, self.lanes) as lane:
            builder.buffer_store(whole, self.fold(whole[0], total[lane]), [0])
        with builder.serial(0, self.places - done) as rest:
            builder.buffer_store(whole, self.fold(whole[0], self.contribute(self.source[start + done + rest])), [0])
        builder.buffer_store(self.result, self.finished(whole[0]), [task])

    def clear(self, vector: Any) -> None:
        with builder.vectorized(0, self.lanes) as lane:
            builder.buffer_store(vector, const(self.first, "float32"), [lane])

    def finished(self, total: Expr) -> Expr:
        """The operator's last step."""
        return total / tirx.Cast("float32", self.places) if self.kind == "ReduceMean" else total
