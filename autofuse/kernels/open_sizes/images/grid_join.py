"""The kernel that makes rows of one tensor of the places of maps whose sizes are known when it runs: all scales of a
detector, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.open_sizes.images.open_grid import Given, GridForm, grid_function
from autofuse.kernels.tir.emit import Emitter, Expr

PIECE = 4096
"""Elements that a thread copies at a time: whole pages, so that each has enough to do."""


def grid_join_kernel(axis: int, form: GridForm, target: Target) -> Kernel:
    """The kernel of one operator that joins places along an `axis` of its result. Maps lie in rows, as it does."""

    def emit(arguments: Sequence[Given], _constants: Constants) -> None:
        *given, made = arguments
        _join(Emitter(target), axis, given, made)

    return grid_function(form, emit)


def _join(emitter: Emitter, axis: int, given: Sequence[Given], made: Given) -> None:
    """Copies what each map has for each place before the axis behind what the maps before it have there."""
    value = made.argument.value
    result = builder.decl_buffer((made.elements,), value.dtype, data=made.buffer.data, align=64)
    outer = made.extents[:axis]
    heads = builder.bind(prod(outer[1:], start=outer[0])) if outer else 1
    row = builder.bind(prod(made.extents[axis + 1 :], start=made.extents[axis] * 1))
    before: Expr = 0
    for one in given:
        source = builder.decl_buffer((one.elements,), value.dtype, data=one.buffer.data, align=64)
        own = one.extents[axis:]
        elements = builder.bind(prod(own[1:], start=own[0] * 1))
        _copy(emitter, heads, elements, source, (result, row, before))
        before = builder.bind(before + elements)


def _copy(emitter: Emitter, heads: Expr, elements: Expr, source: Any, to: tuple[Any, Expr, Expr]) -> None:
    """So many `elements` for each of `heads`, in pieces that the threads share; `to`: the result, what it has for each
    head, and where in it these elements begin."""
    result, row, before = to
    pieces = builder.bind((elements + (PIECE - 1)) // PIECE)
    with emitter.parallel(builder.bind(heads * pieces)) as task:
        head = builder.bind(task // pieces)
        first = builder.bind((task % pieces) * PIECE)
        count = builder.bind(tirx.min(elements - first, PIECE))
        read, written = builder.bind(head * elements + first), builder.bind(head * row + before + first)
        whole = builder.bind(count // emitter.lanes)
        for steps, start, lanes in ((whole, 0, emitter.lanes), (count % emitter.lanes, whole * emitter.lanes, 1)):
            with builder.serial(0, steps) as step, emitter.vector(lanes) as lane:
                place = start + step * lanes + lane
                emitter.put(result, written + place, source[read + place])
