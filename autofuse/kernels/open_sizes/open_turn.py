"""The kernels of an input or output that has the open size behind other axes: a copy to rows, or from them; and of one
that has its sequences there: a copy to sequences one behind the other, or from them.

All are matrices of pieces: `before` x rows of those that have the size behind others, rows x `before` of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.graph.transform.open_sizes.over_rows.sequences import IN_FRONT
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.open_sizes.open_cache import copy_elements
from autofuse.kernels.open_sizes.open_function import Arguments, open_function
from autofuse.kernels.tir.emit import Emitter, Expr
from autofuse.kernels.workload.workload import Workload


def turn_kernel(
    workload: Workload, rows: Mapping[int, OpenAxis], target: Target, repeated: Collection[int] = ()
) -> Kernel:
    """The kernel of `workload`, one Transpose between rows and a tensor that has them behind other axes, at the largest
    size. `rows`: both, by index, with their open axis; `repeated`: both, where each sequence has its own, or none."""
    (operator,) = workload.operators
    source, result = operator.inputs[0], operator.outputs[0]
    behind = source if rows[source].axis else result
    axis, shape = rows[behind].axis, workload.values[behind].shape
    before, piece, most = prod(shape[:axis]), prod(shape[axis + 1 :]), shape[axis]

    def emit(given: Arguments, _constants: Constants) -> None:
        emitter, count = Emitter(target), builder.bind(given.count)
        emitter.analyzer.bind(count, tvm.ir.Range(1, most + 1))

        def place(index: int, row: Expr, head: Expr) -> Expr:
            return (head * count + row if index == behind else row * before + head) * piece

        with given.each() as one:
            buffers: dict[int, Any] = {index: one[index].flat(prod(shape)) for index in (source, result)}
            with emitter.serial(count) as row, emitter.serial(before) as head:
                start, begin = place(source, row, head), place(result, row, head)
                copy_elements(emitter, buffers[source], start, buffers[result], begin, piece)

    return open_function(workload, rows, emit, repeated=repeated)


def sequences_kernel(
    workload: Workload, rows: Mapping[int, OpenAxis], target: Target, repeated: Collection[int]
) -> Kernel:
    """The kernel of `workload`, one operator between an input or output and a tensor with its sequences in front, at
    the largest size of one sequence. `rows`, `repeated`: as of `open_function`; both are repeated."""
    (operator,) = workload.operators
    source, result = operator.inputs[0], operator.outputs[0]
    axis = dict(operator.attributes)["axis"]
    assert isinstance(axis, int)

    def emit(given: Arguments, _constants: Constants) -> None:
        emitter, whole = Emitter(target), given.one[source]
        before, piece = (builder.bind(prod(part)) for part in (whole.shape[:axis], whole.shape[axis + 1 :]))
        elements = prod(workload.values[source].shape)
        buffers: dict[int, Any] = {index: given.one[index].flat(elements) for index in (source, result)}

        def place(front: bool, sequence: Expr, head: Expr) -> Expr:
            return (sequence * before + head if front else head * given.repeats + sequence) * piece

        first = operator.op_type == IN_FRONT
        with emitter.serial(given.repeats) as sequence, emitter.serial(before) as head:
            start, begin = place(not first, sequence, head), place(first, sequence, head)
            copy_elements(emitter, buffers[source], start, buffers[result], begin, piece)

    return open_function(workload, rows, emit, repeated=repeated)
