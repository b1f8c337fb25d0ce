"""The kernel of an input or output that has the open size behind other axes: a copy to rows, or from them.

Both are matrices of pieces: `before` x rows of those that have the size behind others, rows x `before` of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.open_sizes.open_cache import copy_elements
from autofuse.kernels.open_sizes.open_function import Arguments, open_function
from autofuse.kernels.tir.emit import Emitter, Expr
from autofuse.kernels.workload.workload import Workload


def turn_kernel(workload: Workload, rows: Mapping[int, OpenAxis], target: Target) -> Kernel:
    """The kernel of `workload`, one Transpose between rows and a tensor that has them behind other axes, at the largest
    size. `rows`: both, by index, with their open axis."""
    (operator,) = workload.operators
    source, result = operator.inputs[0], operator.outputs[0]
    behind = source if rows[source].axis else result
    axis, shape = rows[behind].axis, workload.values[behind].shape
    before, piece, most = prod(shape[:axis]), prod(shape[axis + 1 :]), shape[axis]

    def emit(given: Arguments, _constants: Constants) -> None:
        emitter, count = Emitter(target), builder.bind(given.count)
        emitter.analyzer.bind(count, tvm.ir.Range(1, most + 1))
        buffers: dict[int, Any] = {index: given.one[index].flat(prod(shape)) for index in (source, result)}

        def place(index: int, row: Expr, head: Expr) -> Expr:
            return (head * count + row if index == behind else row * before + head) * piece

        with emitter.serial(count) as row, emitter.serial(before) as head:
            start, begin = place(source, row, head), place(result, row, head)
            copy_elements(emitter, buffers[source], start, buffers[result], begin, piece)

    return open_function(workload, rows, emit)
