"""The function around every kernel over an open number of rows: its arguments, and how many rows they have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.errors import InputError
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import FUNCTION_ATTRIBUTES, Constants, Kernel, complete
from autofuse.kernels.tir.emit import Array, Expr, Index
from autofuse.kernels.workload.workload import Workload

Emit = Callable[[Mapping[int, Any], Expr, Constants], None]
"""Makes a body of inputs and outputs by their index, the number of rows, and a place for packed constants."""


def open_function(
    workload: Workload, rows: Mapping[int, OpenAxis], emit: Emit, kinds: Sequence[str] = ("input", "output")
) -> Kernel:
    """A kernel whose body `emit` makes. `rows`: the inputs and outputs, by index, that have an open axis. `kinds`: of
    its arguments: a kernel that writes into an input is given no outputs.

    InputError when an open axis is not where rows lie behind one another.
    """
    constants = Constants()
    buffers: dict[int, Any] = {}
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr(FUNCTION_ATTRIBUTES)
        inputs, outputs, count = _arguments(workload, rows, buffers, kinds)
        emit(buffers, count, constants)
    return Kernel(complete(ib.get(), inputs, constants.parameters, outputs), constants.packed)


@dataclass(frozen=True)
class LongArray(Array):
    """An array with an open axis behind others: `extents` are those that it has when the kernel runs."""

    extents: tuple[Expr, ...] = ()

    def offset(self, index: Index) -> Expr:
        """See Array."""
        place: Expr = 0
        for position, extent in zip(index, self.extents, strict=True):
            place = place * extent + position
        return place


def whole_arrays(workload: Workload, buffers: Mapping[int, Any], wide: Collection[int] = ()) -> dict[int, Array]:
    """The arguments of a kernel that is of all rows at once, as they are at the largest size.

    `wide`: those that lie in memory as they do at that size, so that there is room between their rows at smaller ones.
    InputError for another layout than the plain one, which such kernels do not know.
    """
    found = {}
    for index, buffer in buffers.items():
        value = workload.values[index]
        if value.block or value.is_half:
            raise InputError(f"a kernel of all rows at once has no layout {value.layout!r}")
        flat = builder.decl_buffer((prod(value.shape),), value.dtype, data=buffer.data, align=64)
        found[index] = Array(flat, value.shape, value.dtype)
        extents = tuple(buffer.shape)
        behind = (prod(value.shape[:axis]) > 1 for axis, extent in enumerate(extents) if isinstance(extent, tirx.Var))
        if index not in wide and any(behind):
            found[index] = LongArray(flat, value.shape, value.dtype, extents=extents)
    return found


def _arguments(
    workload: Workload, rows: Mapping[int, OpenAxis], buffers: dict[int, Any], kinds: Sequence[str]
) -> tuple[list[Any], list[Any], Expr]:
    """The inputs and outputs of a function that is being built, and the number of rows, read when it runs.

    `buffers` gets each of them by its index. Rows are counted at the outputs, where there are any: an input may be
    longer.
    """
    made: dict[str, list[Any]] = {"input": [], "output": []}
    count: Expr = None
    for kind in kinds:
        for index in workload.of_kind(kind):
            value = workload.values[index]
            shape: list[Expr] = list(value.physical_shape)
            where = rows.get(index)
            if where is not None:
                if value.block and where.axis:
                    raise InputError(f"layout {value.layout!r} parts rows along axis {where.axis}")
                shape[where.axis] = extent = tirx.Var(f"rows{index}", "int32")
                if count is None or kind == "output":
                    beyond = extent - where.more if where.more else extent
                    count = beyond if where.factor == 1 else beyond // where.factor
            buffers[index] = builder.arg(f"{kind}{index}", builder.buffer(shape, value.stored_dtype, align=64))
            made[kind].append(buffers[index])
    return made["input"], made["output"], count
