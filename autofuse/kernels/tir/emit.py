"""Thin layer over TVM's TIR builder: loops with known bounds, flat arrays, simplified offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.sym.analyzer import Analyzer
from tvm.tirx.analysis import undefined_vars
from tvm_ffi import structural_walk

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.kernels.tir import bfloat16
from autofuse.kernels.tir.lanes import must_stay_scalar, selects_floats
from autofuse.kernels.tir.offsets import Expr as Expr
from autofuse.kernels.tir.offsets import Index as Index
from autofuse.kernels.tir.offsets import linear

DEEPEST_NAME = 6
"""Names upon names that TVM's simplifier is given to see through.

Each multiplies its work by two at least, one that is compared by eight.
A sigmoid needs five, Mish seven.
"""

FIRST_CACHE, SECOND_CACHE = 3, 2
"""Arguments of LLVM's prefetch: into all caches, or all but the first."""
_READ, _DATA = 0, 1
"""And for reading, of data."""

MOST_STORES = 6_000
"""Statements that write, of one kernel. TVM's passes take more than their share of time for long code: 1.5 s of
processor time for 350 of them, over 200 s for 28,000."""


@dataclass(frozen=True)
class Array:
    """A flat buffer seen as a tensor of logical `shape`; `block` > 0: axis 1 split, block innermost.

    `half`: the buffer holds float32 numbers as the 16 bits of bfloat16.
    """

    buffer: Any
    shape: tuple[int, ...]
    dtype: str
    block: int = 0

    @property
    def half(self) -> bool:
        """See above."""
        return self.dtype == "float32" and str(self.buffer.dtype) == "uint16"

    @property
    def in_one_piece(self) -> bool:
        """Whether its elements lie one behind the other."""
        return True

    def inside(self, index: Index) -> Expr | None:
        """Whether there is an element at a logical index; None where there always is."""
        del index
        return None

    def offset(self, index: Index) -> Expr:
        """Linear element offset of a logical index."""
        if not self.block:
            return linear(index, self.shape)
        head, channel, *rest = index
        outer = (head, channel // self.block, *rest, channel % self.block)
        n, c, *spatial = self.shape
        return linear(outer, (n, c // self.block, *spatial, self.block))


@dataclass
class VectorLoop:
    """The vector loop around: its variable, its extent, and buffers of one element a lane that stand outside it.

    `names`: what is named inside it. `rounded`: (numbers, one a lane; where their bfloat16 go: a buffer, an offset).
    """

    lane: Expr = 0
    extent: int = 1
    buffers: list[Any] = field(default_factory=list)
    names: list[Any] = field(default_factory=list)
    rounded: list[tuple[Any, Any, Expr]] = field(default_factory=list)


class Emitter:
    """Emits loops and stores into the function that is being built.

    `lanes`: of a vector whose elements are neighbours in memory in every feature map (default: a whole register).
    `alone`: by one thread, since a loop around is spread over the threads. `rounds`: whether what is written to arrays
    of bfloat16 is rounded by that, because the target has an instruction for it.
    """

    def __init__(self, target: Target, lanes: int | None = None, alone: bool = False) -> None:
        self.target = target
        self.alone = alone
        self.lanes = lanes or target.lanes
        self.analyzer = Analyzer()
        self._depths: dict[Any, int] = {}
        self._vector = VectorLoop()
        self._stores = 0
        self.rounds = bfloat16.rounds_vectors(target, target.lanes)

    def simplify(self, expression: Expr) -> Expr:
        """`expression` simplified under the bounds of all loops around it."""
        return expression if isinstance(expression, int) else self.analyzer.simplify(expression)

    @contextmanager
    def serial(self, extent: Expr) -> Iterator[Expr]:
        """A sequential loop over [0, extent)."""
        with self._loop(builder.serial, extent) as var:
            yield var

    @contextmanager
    def parallel(self, extent: Expr) -> Iterator[Expr]:
        """A loop whose iterations are spread over the threads."""
        with self._loop(builder.serial if self.alone else builder.parallel, extent) as var:
            yield var

    @contextmanager
    def parallel_parts(self, parts: int, repeats: Expr) -> Iterator[tuple[Expr, Expr]]:
        """(sequence, part) of so many parts of each of `repeats` sequences, all of them spread over the threads; of one
        sequence, where that is None."""
        if repeats is None:
            with self.parallel(parts) as part:
                yield 0, part
            return
        with self.parallel(repeats * parts) as place:
            part = builder.bind(place % parts) if parts > 1 else 0
            if parts > 1:
                self.analyzer.bind(part, tvm.ir.Range(0, parts))
            yield builder.bind(place // parts), part

    @contextmanager
    def vector(self, extent: int) -> Iterator[Expr]:
        """A loop that becomes one vector operation (a plain scalar when `extent` is 1, or when it has to)."""
        if extent == 1:
            yield 0
            return
        outer = self._vector
        with IRBuilder() as inner, self._loop(builder.vectorized, extent) as var:
            self._vector = VectorLoop(var, extent)
            yield var
        done = self._vector
        for buffer in done.buffers:
            builder.add_to_parent(tirx.AllocBuffer(buffer))
        self._vector = outer
        loop = inner.get()
        if must_stay_scalar(loop):
            loop = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
        builder.add_to_parent(loop)
        for numbers, buffer, offset in done.rounded:
            with bfloat16.with_rounding(self.target, extent):
                bits = bfloat16.rounded_vector(self.vector_at(numbers, 0, extent), extent)
                builder.buffer_store(buffer, bits, [tirx.Ramp(offset, 1, extent)])

    @contextmanager
    def _loop(self, kind: Any, extent: Expr) -> Iterator[Expr]:
        if isinstance(extent, int) and extent == 1:
            yield 0
            return
        with kind(0, extent) as var:
            self.analyzer.bind(var, tvm.ir.Range(0, extent))
            yield var

    def bind(self, value: Expr) -> Expr:
        """Names `value` so that it is computed once, however often it is used."""
        if isinstance(value, (int, float, tirx.IntImm, tirx.FloatImm, tvm.ir.Var)):
            return value
        depth = 1 + max((self._depths.get(used, 0) for used in undefined_vars(value, [])), default=0)
        if depth > DEEPEST_NAME or selects_floats(value):
            # TVM does not see through memory; LLVM does, and keeps it in a register.
            held = self._register(str(value.ty.dtype))
            builder.buffer_store(held, value, [self._vector.lane])
            name = builder.bind(held[self._vector.lane])
            self._vector.names.append(name)
            return name
        name = builder.bind(value)
        self._depths[name] = depth
        self._vector.names.append(name)
        return name

    def hidden(self, value: Expr) -> Expr:
        """Names an integer outside of vector loops. TVM cannot see through the name, and nothing is simplified by it.

        The least and the greatest of positions, one in the other, in every index of an unrolled nest take TVM's
        passes minutes.
        """
        if isinstance(value, int) or not _is_cut(value):
            return value
        return self.stored(value)

    def stored(self, value: Expr) -> Expr:
        """A name for a number that goes through memory, so that no analysis of TVM's sees through it."""
        held = self.scratch(1, str(value.ty.dtype))
        builder.buffer_store(held, value, [0])
        return builder.bind(held[0])

    def _register(self, dtype: str) -> Any:
        """A buffer of one element a lane. Inside the vector loop TVM would give all lanes one element."""
        loop = self._vector
        if loop.extent == 1:
            return self.scratch(1, dtype)
        loop.buffers.append(tirx.decl_buffer((loop.extent,), dtype, data_alignment=64))
        return loop.buffers[-1]

    def scratch(self, elements: int, dtype: str = "float32") -> Any:
        """A flat working buffer.

        TVM puts one of the scope "global" and less than a KiB on the stack, where LLVM can keep it in registers, and
        takes every other one from the heap.
        """
        return builder.alloc_buffer((elements,), dtype, align=64)

    def registers(self, vectors: int, lanes: int) -> list[Any]:
        """Vectors that can stay in registers: a buffer each, since all of them may be too large for the stack."""
        return [self.scratch(lanes) for _ in range(vectors)]

    def _count(self) -> None:
        """InputError once the code is so long that TVM would work on it for minutes."""
        self._stores += 1
        if self._stores > MOST_STORES:
            raise InputError(f"its code would have more than {MOST_STORES:,} stores; take smaller tiles")

    def load(self, array: Array, index: Index) -> Expr:
        """Element of `array` at a logical index."""
        element = array.buffer[self.simplify(array.offset(index))]
        return bfloat16.number_of(element) if array.half else element

    def store(self, array: Array, index: Index, value: Expr) -> None:
        """Writes `value` to `array` at a logical index, if it is inside; where the array is of bfloat16, one of them,
        unless `rounds`."""
        inside = array.inside(index)
        with nullcontext() if inside is None else self.when(inside):
            self._store(array, index, value)

    def _store(self, array: Array, index: Index, value: Expr) -> None:
        if array.half and self.rounds:
            self.put_rounded(array.buffer, array.offset(index), value)
            return
        self._count()
        value = bfloat16.stored(value) if array.half else value
        builder.buffer_store(array.buffer, value, [self.simplify(array.offset(index))])

    def put_rounded(self, buffer: Any, offset: Expr, value: Expr) -> None:
        """Writes the bfloat16 nearest to `value` as its 16 bits to a flat buffer."""
        self._count()
        at, vector = self.simplify(offset), self._vector
        first = self.first_of_row(at)
        if first is None or not bfloat16.rounds_vectors(self.target, vector.extent):
            builder.buffer_store(buffer, bfloat16.bits_of(value, self.bind), [at])
            return
        vector.rounded.append((self.held(value), buffer, first))

    @property
    def extent(self) -> int:
        """Lanes of the vector loop around."""
        return self._vector.extent

    @property
    def lane(self) -> Expr:
        """The variable of the vector loop around."""
        return self._vector.lane

    def held(self, value: Expr) -> Any:
        """A buffer outside of the vector loop around that holds `value`, a float32 for each lane."""
        held = self._register("float32")
        builder.buffer_store(held, value, [self._vector.lane])
        return held

    def first_of_row(self, offset: Expr) -> Expr | None:
        """Where the first lane of the vector loop around writes, when its lanes write neighbours; else None."""
        vector = self._vector
        if vector.extent == 1:
            return None
        first = self.simplify(offset - vector.lane)
        inside = [vector.lane, *vector.names]
        return None if any(used.same_as(name) for used in undefined_vars(first, []) for name in inside) else first

    def put(self, buffer: Any, offset: Expr, value: Expr) -> None:
        """Writes `value` to a flat buffer."""
        self._count()
        builder.buffer_store(buffer, value, [self.simplify(offset)])

    def prefetch(self, buffer: Any, offset: Expr, cache: int) -> None:
        """Asks for the line of an element ahead, into `FIRST_CACHE` or `SECOND_CACHE`."""
        address = tirx.address_of(buffer[offset])
        builder.evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, _READ, cache, _DATA))

    def vector_at(self, buffer: Any, offset: Expr, lanes: int) -> Expr:
        """So many neighbours of a flat buffer, as one value; outside of vector loops."""
        return buffer[tirx.Ramp(self.simplify(offset), 1, lanes)]

    def put_vector(self, buffer: Any, offset: Expr, value: Expr, lanes: int) -> None:
        """Writes neighbours of a flat buffer."""
        self._count()
        builder.buffer_store(buffer, value, [tirx.Ramp(self.simplify(offset), 1, lanes)])

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """Statements that run only under `condition`."""
        with builder.If(condition), builder.Then():
            yield


def _is_cut(value: Expr) -> bool:
    """Whether an expression holds the smaller or the larger of two."""
    found: list[Any] = []
    structural_walk(value, ((tirx.Min, tirx.Max), lambda node: found.append(node)))
    return bool(found)


def shuffled(vector: Expr, order: Sequence[int]) -> Expr:
    """The elements of a vector in another order; one may come several times, or not at all."""
    return tirx.Shuffle([vector], [tirx.const(place, "int32") for place in order])


def smaller(one: Expr, other: Expr) -> Expr:
    """The smaller of two positions."""
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else tirx.Min(one, other)


def larger(one: Expr, other: Expr) -> Expr:
    """The larger of two positions."""
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else tirx.Max(one, other)


def const(value: float | int | bool, dtype: str) -> Expr:
    """A constant of `dtype`."""
    return tirx.const(value, dtype)
