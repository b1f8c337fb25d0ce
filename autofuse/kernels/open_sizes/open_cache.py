"""The kernel of a cache that grows: new rows behind those before. That of rows that move up or down stands beside it,
since it copies as that does. Rows are counted when a kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.graph.transform.open_sizes.over_rows.shifts import Shift
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.open_sizes.open_function import Arguments, open_function
from autofuse.kernels.tir.emit import Emitter, Expr, const
from autofuse.kernels.workload.workload import Workload

LEAST_ELEMENTS = 1 << 16
"""Elements of caches that each thread reads at least where several do: 256 KiB take longer than the threads' start."""


def append_kernel(
    workload: Workload,
    rows: Mapping[int, OpenAxis],
    target: Target,
    threads: int = 1,
    in_place: bool = False,
    repeated: Collection[int] = (),
) -> Kernel:
    """The kernel of `workload`, one Concat of a cache and new rows, at the largest size.

    `rows`: the cache and the result, by index, with their open axis. `in_place`: the cache, which has room for the new
    rows, gets them, and is the result; it lies in memory as the result does at the largest size. `repeated`: what each
    sequence has of its own.
    """
    (operator,) = workload.operators
    (past, new), made = operator.inputs, operator.outputs[0]
    axis, shape = rows[made].axis, workload.values[made].shape
    added, inner = workload.values[new].shape[axis], prod(shape[axis + 1 :])
    outer, most = prod(shape[:axis]), shape[axis] - added

    def emit_copy(given: Arguments, _constants: Constants) -> None:
        emitter = Emitter(target)
        size = _bound(emitter, given.count * rows[past].factor * inner, most * inner)
        with given.each() as arguments:
            written = arguments[made].flat(outer * shape[axis] * inner)

            def copy_part(head: Expr) -> None:
                begin = head * (size + added * inner)
                copy_elements(emitter, arguments[past].flat(outer * most * inner), head * size, written, begin, size)
                fresh, start = arguments[new].flat(outer * added * inner), head * (added * inner)
                copy_elements(emitter, fresh, start, written, begin + size, added * inner)

            shared_parts(emitter, outer, size, threads, copy_part)

    def emit_append(given: Arguments, _constants: Constants) -> None:
        emitter = Emitter(target)
        size = _bound(emitter, given.count * rows[made].factor * inner, most * inner)
        with given.each() as arguments:
            written, fresh = arguments[past].flat(prod(shape)), arguments[new].flat(outer * added * inner)
            with emitter.serial(outer) as head:
                begin = head * (shape[axis] * inner) + size
                copy_elements(emitter, fresh, head * (added * inner), written, begin, added * inner)

    if in_place:
        return open_function(workload, {past: rows[made]}, emit_append, ("input",), repeated, {past: prod(shape)})
    return open_function(workload, rows, emit_copy, repeated=repeated)


def shift_kernel(
    workload: Workload,
    shift: Shift,
    rows: Mapping[int, OpenAxis],
    target: Target,
    repeated: Collection[int] = (),
) -> Kernel:
    """The kernel of `workload`, a Slice and a Pad that shift rows, at the largest size.

    `rows`: what they read and make, by index, with its open axis. `repeated`: what each sequence has of its own.
    """
    source, made = workload.of_kind("input")[0], workload.of_kind("output")[0]
    axis, shape = rows[made].axis, workload.values[made].shape
    inner, most, cut = prod(shape[axis + 1 :]), prod(shape), shift.first + shift.last

    def emit(given: Arguments, _constants: Constants) -> None:
        emitter = Emitter(target)
        kept = _bound(emitter, (given.count - cut) * inner, most)
        with given.each() as arguments:
            read, written = arguments[source].flat(most), arguments[made].flat(most)
            _fill(emitter, written, 0, shift.before * inner, shift.value)
            copy_elements(emitter, read, shift.first * inner, written, shift.before * inner, kept)
            _fill(emitter, written, shift.before * inner + kept, shift.behind * inner, shift.value)

    return open_function(workload, rows, emit, repeated=repeated)


def _fill(emitter: Emitter, made: Any, begin: Expr, elements: int, value: float) -> None:
    with emitter.serial(elements) as place:
        emitter.put(made, begin + place, const(value, "float32"))


def shared_parts(emitter: Emitter, parts: int, elements: Expr, threads: int, body: Callable[[Expr], None]) -> None:
    """A loop over parts of so many elements each: threads share it where, when it runs, each has enough to do."""
    if threads == 1:
        with emitter.serial(parts) as part:
            body(part)
        return
    with builder.If(elements >= -(-threads * LEAST_ELEMENTS // parts)):
        with builder.Then(), emitter.parallel(parts) as part:
            body(part)
        with builder.Else(), emitter.serial(parts) as part:
            body(part)


def _bound(emitter: Emitter, size: Expr, most: int) -> Expr:
    """A number of elements by a name, with what is known of it."""
    name = builder.bind(size)
    emitter.analyzer.bind(name, tvm.ir.Range(0, most + 1))
    return name


def copy_elements(emitter: Emitter, source: Any, start: Expr, made: Any, begin: Expr, elements: Expr) -> None:
    """Elements behind one another: whole vectors, then single ones."""
    done: Expr = 0
    for lanes in (emitter.lanes, 1):
        steps = (elements - done) // lanes
        if isinstance(steps, int) and not steps:
            continue
        with emitter.serial(steps) as step, emitter.vector(lanes) as lane:
            place = done + step * lanes + lane
            emitter.put(made, begin + place, source[emitter.simplify(start + place)])
        done = done + steps * lanes
