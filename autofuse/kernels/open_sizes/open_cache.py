"""The kernels of a cache of keys and values that grows: new rows behind those before, attention of a few queries to it.
That of rows that move up or down stands beside them: it copies as they do.

Rows are counted when a kernel runs. A cache is read where it lies: of one query each key and each value is read once,
so that nothing would be won by a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.attention import Attention
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.graph.transform.open_sizes.shifts import Shift
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.open_sizes.open_attention import QueryTile, Tokens
from autofuse.kernels.open_sizes.open_function import Arguments, TailArray, open_function, whole_arrays
from autofuse.kernels.tir.emit import Emitter, Expr, const
from autofuse.kernels.workload.workload import Workload

KEYS = 4
"""Keys whose products with a query are summed side by side, so that none waits for another."""
VALUES = 2
"""Values that are added up side by side."""
VECTORS = 4
"""Vectors of a value that are held in registers."""
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
                _copy(emitter, arguments[past].flat(outer * most * inner), head * size, written, begin, size)
                fresh, start = arguments[new].flat(outer * added * inner), head * (added * inner)
                _copy(emitter, fresh, start, written, begin + size, added * inner)

            _shared(emitter, outer, size, threads, copy_part)

    def emit_append(given: Arguments, _constants: Constants) -> None:
        emitter = Emitter(target)
        size = _bound(emitter, given.count * rows[made].factor * inner, most * inner)
        with given.each() as arguments:
            written, fresh = arguments[past].flat(prod(shape)), arguments[new].flat(outer * added * inner)
            with emitter.serial(outer) as head:
                begin = head * (shape[axis] * inner) + size
                _copy(emitter, fresh, head * (added * inner), written, begin, added * inner)

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
            _copy(emitter, read, shift.first * inner, written, shift.before * inner, kept)
            _fill(emitter, written, shift.before * inner + kept, shift.behind * inner, shift.value)

    return open_function(workload, rows, emit, repeated=repeated)


def _fill(emitter: Emitter, made: Any, begin: Expr, elements: int, value: float) -> None:
    with emitter.serial(elements) as place:
        emitter.put(made, begin + place, const(value, "float32"))


def _shared(emitter: Emitter, parts: int, elements: Expr, threads: int, body: Callable[[Expr], None]) -> None:
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


def _copy(emitter: Emitter, source: Any, start: Expr, made: Any, begin: Expr, elements: Expr) -> None:
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


def cache_kernel(
    workload: Workload, attention: Attention, rows: Mapping[int, OpenAxis], target: Target, threads: int = 1,
    wide: Collection[int] = (), repeated: Collection[int] = (), tails: Mapping[int, int] | None = None,
) -> Kernel:  # fmt: skip
    """The kernel of `workload`, an attention of a fixed number of queries to a cache, at the largest size.

    `rows`: its inputs, by index, whose open axis has an extent that is read when the kernel runs. `wide`: those of them
    that lie in memory as they do at the largest size. `repeated`: what each sequence has of its own. `tails`: inputs
    with as many places along that axis as there are keys at most, of which the last ones are meant.
    """

    def emit(given: Arguments, constants: Constants) -> None:
        with given.each() as arguments:
            arrays, keys = whole_arrays(workload, arguments, wide), builder.bind(given.count + (attention.more or 0))
            for index, axis in (tails or {}).items():
                buffer, shape = arrays[index].buffer, arrays[index].shape
                arrays[index] = TailArray(buffer, shape, arrays[index].dtype, axis=axis, before=shape[axis] - keys)
            _Cache(Scope(workload, Emitter(target), arrays, constants.declare), attention, keys).emit_for(threads)

    apart = {index: prod(workload.values[index].shape) for index in wide}
    return open_function(workload, rows, emit, repeated=repeated, apart=apart)


class _Cache(Tokens):
    """Emits an attention to `count` keys."""

    def emit_for(self, threads: int) -> None:
        """Heads, which so many threads share where the cache is long enough; each query by itself."""
        queries = self.shape(self.product.outputs[0])[-2]

        def attend(head: Expr) -> None:
            with self.emitter.serial(queries) as first:
                _Query(self, head, first, 1).emit()

        _shared(self.emitter, self.heads, self.count * (queries * (self.depth + self.width)), threads, attend)


class _Query(QueryTile):
    """One query of one head."""

    def multiply_keys(self) -> None:
        """Its scores: a few keys at a time."""
        tokens, emitter, depth = self.tokens, self.emitter, self.tokens.depth
        held = emitter.scratch(depth)
        for column, lanes in tokens.columns(depth):
            with emitter.vector(lanes) as lane, self.scope.point():
                value = tokens.read(tokens.scores.inputs[0], self.head, self.first, column + lane)
                emitter.put(held, column + lane, value)
        whole = tokens.count // KEYS
        with emitter.serial(whole) as step:
            self.score_keys(held, step * KEYS, KEYS)
        with emitter.serial(tokens.count - whole * KEYS) as rest:
            self.score_keys(held, whole * KEYS + rest, 1)

    def score_keys(self, held: Any, first: Expr, keys: int) -> None:
        """Scores of so many keys: products in lanes, summed across them."""
        tokens, emitter, lanes = self.tokens, self.emitter, self.lanes
        sums = emitter.registers(keys, lanes)
        self.clear(sums)
        for column, wide in tokens.columns(tokens.depth):
            for number, one in enumerate(sums):
                with emitter.vector(wide) as lane, self.scope.point():
                    key = tokens.read(tokens.scores.inputs[1], self.head, column + lane, first + number)
                    emitter.put(one, lane, one[lane] + key * held[column + lane])
        while lanes > 1:
            lanes //= 2
            for one in sums:
                with emitter.vector(lanes) as lane:
                    emitter.put(one, lane, one[lane] + one[lanes + lane])
        for number, one in enumerate(sums):
            emitter.put(self.scores, first + number, one[0])

    def clear(self, vectors: list[Any]) -> None:
        for one in vectors:
            with self.emitter.vector(self.lanes) as lane:
                self.emitter.put(one, lane, const(0.0, "float32"))

    def multiply_values(self) -> Any:
        """The sum of values, each times the exponential of its score."""
        tokens, emitter, padded = self.tokens, self.emitter, self.tokens.padded
        made = emitter.scratch(padded)
        whole = tokens.count // VALUES
        for column in range(0, padded, VECTORS * self.lanes):
            end = column + VECTORS * self.lanes
            pieces = [piece for piece in tokens.columns(tokens.width) if column <= piece[0] < end]
            sums = [emitter.registers(len(pieces), self.lanes) for _ in range(VALUES)]
            for one in sums:
                self.clear(one)
            with emitter.serial(whole) as step:
                for number, one in enumerate(sums):
                    self.add_value(one, pieces, step * VALUES + number)
            with emitter.serial(tokens.count - whole * VALUES) as rest:
                self.add_value(sums[0], pieces, whole * VALUES + rest)
            for vector, (start, _) in enumerate(pieces):
                with emitter.vector(self.lanes) as lane:
                    total = sum((one[vector][lane] for one in sums[1:]), sums[0][vector][lane])
                    emitter.put(made, start + lane, total)
        return made

    def add_value(self, sums: list[Any], pieces: list[tuple[int, int]], token: Expr) -> None:
        """Adds one value, times its share."""
        tokens, emitter = self.tokens, self.emitter
        share = emitter.bind(self.score(0, token))
        for one, (start, wide) in zip(sums, pieces, strict=True):
            with emitter.vector(wide) as lane, self.scope.point():
                value = tokens.read(tokens.product.inputs[1], self.head, token, start + lane)
                emitter.put(one, lane, one[lane] + value * share)
