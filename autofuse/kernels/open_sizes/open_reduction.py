"""The kernel of a reduction over any number of rows: the sum, the mean, or the largest of what rows have at a place; or
the least or the largest of all that they have.

Rows are counted when the kernel runs. Sums are those of blocks of rows, so that long ones lose no more than short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.families.reductions.reduction import REDUCE, across, first_value, reduced_axes
from autofuse.kernels.open_sizes.open_function import Arguments, open_function, whole_arrays
from autofuse.kernels.tir.emit import Emitter, Expr, const
from autofuse.kernels.workload.workload import Workload

BLOCK_ROWS = 512
"""Rows whose sum is made by itself."""
VECTORS = 4
"""Vectors of places that are reduced together, in registers."""
EXTREMES = ("ReduceMax", "ReduceMin")
"""Reductions that may go over all elements."""
LEAST_ELEMENTS = 1 << 16
"""Elements of a thread for which it is worth starting: reading 256 KiB takes longer."""
MOST_ELEMENTS = (1 << 31) - 1
"""Of a tensor: kernels count in 32 bits."""


def reduction_kernel(
    workload: Workload,
    rows: Mapping[int, OpenAxis],
    target: Target,
    repeated: Collection[int] = (),
    threads: int = 1,
) -> Kernel:
    """The kernel of `workload`, one reduction over all rows, at the largest size: over nothing else, or over all
    elements of all sequences.

    `rows`: the input that has the open axis, by its index. `repeated`: what each sequence has of its own. `threads`:
    those among which all elements are shared out. InputError for another layout than the plain one.
    """
    (operator,) = workload.operators
    source, result = operator.inputs[0], operator.outputs[0]
    shape = workload.values[source].shape
    if len(reduced_axes(workload, operator)) == len(shape) and operator.op_type in EXTREMES:
        return _extreme_kernel(workload, rows, target, repeated, threads)
    where = rows[source]
    most = shape[where.axis]

    def emit(given: Arguments, _constants: Constants) -> None:
        extent = builder.bind(given.count * where.factor + where.more)
        emitter = Emitter(target)
        emitter.analyzer.bind(extent, tvm.ir.Range(1, most + 1))

        dtype = workload.values[source].dtype

        def arrays(sequence: Expr) -> tuple[Any, Any]:
            found = whole_arrays(workload, given.of(sequence))
            return found[source].buffer, found[result].buffer

        _Reduction(emitter, operator.op_type, arrays, extent, prod(shape) // most, dtype).emit(given.repeats)

    return open_function(workload, rows, emit, repeated=repeated)


def _extreme_kernel(
    workload: Workload, rows: Mapping[int, OpenAxis], target: Target, repeated: Collection[int], threads: int
) -> Kernel:
    """The kernel of the least or the largest of all elements, which lie one behind the other."""
    (operator,) = workload.operators
    source, result = operator.inputs[0], operator.outputs[0]
    where, shape = rows.get(source), workload.values[source].shape

    def emit(given: Arguments, _constants: Constants) -> None:
        elements: Expr = tirx.const(prod(shape), "int32")
        if where is not None:
            elements = (given.count * where.factor + where.more) * (prod(shape) // shape[where.axis])
        elements = builder.bind(elements if given.repeats is None else elements * given.repeats)
        emitter = Emitter(target)
        emitter.analyzer.bind(elements, tvm.ir.Range(1, MOST_ELEMENTS))
        arrays = whole_arrays(workload, given.one)
        whole = arrays[source].buffer
        read = builder.decl_buffer((MOST_ELEMENTS,), whole.dtype, data=whole.data, align=64)
        _Extreme(emitter, operator.op_type, read, arrays[result].buffer, elements).emit(threads)

    return open_function(workload, rows, emit, repeated=repeated)


class _Extreme:
    """Emits the least or the largest of so many `elements`."""

    def __init__(self, emitter: Emitter, kind: str, source: Any, result: Any, elements: Expr) -> None:
        self.emitter, self.source, self.result, self.elements = emitter, source, result, elements
        self.first, _, self.fold = REDUCE[kind]
        self.step = VECTORS * emitter.lanes

    def emit(self, threads: int) -> None:
        """Parts for so many threads where each has enough to do, else one."""
        if threads == 1:
            self.parts(1)
            return
        with builder.If(self.elements >= threads * LEAST_ELEMENTS):
            with builder.Then():
                self.parts(threads)
            with builder.Else():
                self.parts(1)

    def parts(self, parts: int) -> None:
        """The extreme of each part in lanes, then of all parts and of what is left behind whole steps."""
        emitter, lanes = self.emitter, self.emitter.lanes
        found, steps = emitter.scratch(parts * lanes), builder.bind(self.elements // self.step)
        with emitter.parallel(parts) as part:
            held = emitter.registers(VECTORS, lanes)
            clear(emitter, held, self.first)
            begin, end = builder.bind(steps * part // parts), builder.bind(steps * (part + 1) // parts)
            with emitter.serial(end - begin) as step:
                for vector, one in enumerate(held):
                    place = (begin + step) * self.step + vector * lanes
                    with emitter.vector(lanes) as lane:
                        emitter.put(one, lane, self.fold(one[lane], self.source[place + lane]))
            for one in held[1:]:
                with emitter.vector(lanes) as lane:
                    emitter.put(held[0], lane, self.fold(held[0][lane], one[lane]))
            with emitter.vector(lanes) as lane:
                emitter.put(found, part * lanes + lane, held[0][lane])
        across(emitter, found, parts, lanes, self.fold, down_to=lanes)
        with emitter.serial(self.elements - steps * self.step) as rest:
            emitter.put(found, 0, self.fold(found[0], self.source[steps * self.step + rest]))
        across(emitter, found, 1, lanes, self.fold)
        emitter.put(self.result, 0, found[0])


def column_pieces(columns: int, lanes: int, together: int) -> Iterator[tuple[int, int, int, int]]:
    """(first column, tasks, vectors of a task, lanes of a vector): tasks of some vectors `together`, then of one, and
    what is left."""
    begin = 0
    for vectors, wide in ((together, lanes), (1, lanes), (1, columns % lanes)):
        tasks = (columns - begin) // (vectors * wide) if wide else 0
        if tasks:
            yield begin, tasks, vectors, wide
        begin += tasks * vectors * wide


class _Reduction:
    """Emits the reduction of `extent` rows of so many `columns`."""

    def __init__(
        self, emitter: Emitter, kind: str, arrays: Callable[[Expr], tuple[Any, Any]], extent: Expr, columns: int,
        dtype: str,
    ) -> None:  # fmt: skip
        self.emitter, self.kind, self.arrays = emitter, kind, arrays
        self.extent, self.columns, self.dtype = extent, columns, dtype

    def emit(self, repeats: Expr) -> None:
        """All columns of all sequences: a few vectors a task, then what is left of them."""
        for begin, tasks, vectors, lanes in column_pieces(self.columns, self.emitter.lanes, VECTORS):
            with self.emitter.parallel_parts(tasks, repeats) as (sequence, task):
                self.source, self.result = self.arrays(sequence)
                self.reduce(begin + task * vectors * lanes, vectors, lanes)

    def reduce(self, column: Expr, vectors: int, lanes: int) -> None:
        """The columns of some vectors, over all rows in blocks."""
        emitter = self.emitter
        totals = [emitter.scratch(lanes, self.dtype) for _ in range(vectors)]

        def read(row: Expr, vector: int, lane: Expr) -> Expr:
            return self.source[emitter.simplify(row * self.columns + column + vector * lanes + lane)]

        fold_rows(emitter, self.kind, totals, self.extent, read)
        for vector, total in enumerate(totals):
            with emitter.vector(lanes) as lane:
                done = last_step(self.kind, total[lane], self.extent)
                emitter.put(self.result, column + vector * lanes + lane, done)


def fold_rows(
    emitter: Emitter, kind: str, totals: Sequence[Any], extent: Expr, read: Callable[[Expr, int, Expr], Expr],
    point: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:  # fmt: skip
    """Reduces so many rows, in blocks, into vectors. `read`: of a row, the number of a vector, and a lane; each in a
    context of its own, `point`."""
    _, contribute, fold = REDUCE[kind]
    lanes, first = int(totals[0].shape[0]), first_value(kind, str(totals[0].dtype))
    parts = [emitter.scratch(lanes, str(total.dtype)) for total in totals]
    clear(emitter, totals, first)
    with emitter.serial((extent + (BLOCK_ROWS - 1)) // BLOCK_ROWS) as block:
        clear(emitter, parts, first)
        start = block * BLOCK_ROWS
        with emitter.serial(tirx.min(extent - start, BLOCK_ROWS)) as step:
            for vector, part in enumerate(parts):
                with emitter.vector(lanes) as lane, point():
                    emitter.put(part, lane, fold(part[lane], contribute(read(start + step, vector, lane))))
        for total, part in zip(totals, parts, strict=True):
            with emitter.vector(lanes) as lane:
                emitter.put(total, lane, fold(total[lane], part[lane]))


def clear(emitter: Emitter, vectors: Sequence[Any], first: float) -> None:
    """Sets all lanes of vectors to what a reduction begins with."""
    for one in vectors:
        with emitter.vector(int(one.shape[0])) as lane:
            emitter.put(one, lane, const(first, str(one.dtype)))


def last_step(kind: str, total: Expr, count: Expr) -> Expr:
    """What a reduction of so many numbers makes of what they were folded to."""
    if kind in ("GlobalAveragePool", "ReduceMean"):
        return total / tirx.Cast("float32", count)
    return tirx.sqrt(total) if kind == "ReduceL2" else total
