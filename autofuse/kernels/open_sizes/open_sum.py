"""The kernel of a running sum over any number of rows: each row is the sum of all before it; and of their number.

Rows are counted when the kernel runs, and added one after the other, as ONNX Runtime adds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.open_sizes.open_function import Arguments, open_function, whole_arrays
from autofuse.kernels.open_sizes.open_reduction import column_pieces
from autofuse.kernels.tir.emit import Emitter, Expr, const
from autofuse.kernels.workload.workload import Workload


def sum_kernel(
    workload: Workload, rows: Mapping[int, OpenAxis], target: Target, repeated: Collection[int] = ()
) -> Kernel:
    """The kernel of `workload`, one CumSum over all rows and nothing else, at the largest size.

    `rows`: the input and output that have the open axis, by their index. `repeated`: what each sequence has of its own.
    InputError for another layout than the plain one.
    """
    (operator,) = workload.operators
    source, result = operator.inputs[0], operator.outputs[0]
    where, shape = rows[source], workload.values[source].shape
    columns = prod(shape) // shape[where.axis]
    exclusive, reverse = (bool(operator.attribute(name, 0)) for name in ("exclusive", "reverse"))

    def emit(given: Arguments, _constants: Constants) -> None:
        extent = builder.bind(given.count * where.factor)
        emitter = Emitter(target)
        emitter.analyzer.bind(extent, tvm.ir.Range(1, shape[where.axis] + 1))
        for begin, tasks, _, lanes in column_pieces(columns, emitter.lanes, 1):
            with emitter.parallel_parts(tasks, given.repeats) as (sequence, task):
                arrays = whole_arrays(workload, given.of(sequence))
                first = begin + task * lanes
                total = emitter.scratch(lanes, workload.values[source].dtype)
                with emitter.vector(lanes) as lane:
                    emitter.put(total, lane, const(0, workload.values[source].dtype))
                with emitter.serial(extent) as step:
                    row = extent - 1 - step if reverse else step
                    places = arrays[source].buffer, arrays[result].buffer, row * columns + first
                    _add(emitter, total, *places, lanes, exclusive)

    return open_function(workload, rows, emit, repeated=repeated)


def count_kernel(
    workload: Workload, rows: Mapping[int, OpenAxis], target: Target, repeated: Collection[int] = (), room: int = 0
) -> Kernel:
    """The kernel of `workload`, one Shape of an input, which says how long that is along one axis. `rows`, `repeated`:
    the input, by its index. `room`: how much longer it is in memory than what it holds."""
    (operator,) = workload.operators
    source, result = operator.inputs[0], operator.outputs[0]
    axis = operator.attribute("start", 0)
    assert isinstance(axis, int)

    def emit(given: Arguments, _constants: Constants) -> None:
        emitter = Emitter(target)
        emitter.put(given.one[result].flat(1), 0, tirx.Cast("int64", given.one[source].shape[axis] - room))

    return open_function(workload, rows, emit, repeated=repeated)


def _add(emitter: Emitter, total: Any, source: Any, result: Any, place: Expr, lanes: int, exclusive: bool) -> None:
    """One row: what it adds to the `total`, and what is written of that, with the row itself or without."""
    if exclusive:
        with emitter.vector(lanes) as lane:
            emitter.put(result, place + lane, total[lane])
    with emitter.vector(lanes) as lane:
        emitter.put(total, lane, total[lane] + source[emitter.simplify(place + lane)])
    if not exclusive:
        with emitter.vector(lanes) as lane:
            emitter.put(result, place + lane, total[lane])
