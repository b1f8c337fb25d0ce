"""Operands of narrow products as their instruction reads them: neighbours of the depth side by side; the left one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx

from autofuse.kernels.families.contraction.form import Product
from autofuse.kernels.families.narrow.instructions import SIGN, Multiplier
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.tiles import Window
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear, linear


@dataclass(frozen=True)
class Operands:
    """The two sides of a narrow product while its kernel is emitted.

    `panel_vectors`: vectors of columns in a panel of packed weights.
    """

    scope: Scope
    product: NarrowContraction
    multiplier: Multiplier
    panel_vectors: int

    @cached_property
    def units(self) -> int:
        """Steps of the instruction over the depth."""
        return self.multiplier.whole(-(-self.product.form.depth // self.multiplier.together))

    @cached_property
    def padded_depth(self) -> int:
        """The depth, up to a whole number of steps."""
        return self.units * self.multiplier.together

    @cached_property
    def panels(self) -> int:
        """Panels of columns."""
        return -(-self.product.form.columns // self.panel_lanes)

    @cached_property
    def panel_lanes(self) -> int:
        """Columns of a panel."""
        return self.panel_vectors * self.multiplier.lanes

    @cached_property
    def taps(self) -> int:
        """Taps of the window."""
        return prod(window.kernel for window in self.product.form.windows)

    @cached_property
    def signed(self) -> bool:
        """Whether x is of signed bytes."""
        return self.product.left_signed(self.scope.workload)

    @property
    def real(self) -> bool:
        """Whether real numbers are rounded to bfloat16."""
        return self.multiplier.left == "uint16"

    @property
    def float16(self) -> bool:
        """Whether real numbers are rounded to float16."""
        return self.multiplier.left == "float16"

    @property
    def shifts(self) -> bool:
        """Whether zero points are taken out of the sums, and bytes stay as they are but for their sign."""
        return self.multiplier.right == "int8"

    @cached_property
    def shift(self) -> int:
        """What is added to a byte of x so that it has the sign of those that are multiplied."""
        wanted = self.multiplier.left == "int8"
        if not self.shifts or wanted == self.signed:
            return 0
        return -SIGN if wanted else SIGN

    @cached_property
    def corrects(self) -> bool:
        """Whether w less its zero point may exceed signed bytes, so that the sums of x take the rest of it away."""
        return self.shifts and not self.product.right_is_centred(self.scope.workload)

    def stored(self, value: int, index: Index) -> Expr | None:
        """The 16 bits of an element that lies in memory as bfloat16 and is multiplied so; else None."""
        if not self.real or value not in self.scope.ready or not self.scope.arrays[value].half:
            return None
        array = self.scope.arrays[value]
        return array.buffer[self.scope.emitter.simplify(array.offset(index))]

    def x_zero(self) -> Expr:
        """The zero point of x as int32, of bytes as they are multiplied."""
        shift = self.shift
        return self.zero(self.product.x_zero, (0,)) + const(shift, "int32")

    def zero(self, value: int, index: Index) -> Expr:
        """An element of a zero point as int32."""
        if value < 0:
            return const(0, "int32")
        shape = self.scope.shape(value)
        element = self.scope.read(value, tuple(0 for _ in shape) if prod(shape) == 1 else index)
        return const(int(element.value), "int32") if isinstance(element, tirx.IntImm) else tirx.Cast("int32", element)


@contextmanager
def positions(emitter: Emitter, batch: Index, sizes: Index) -> Iterator[tuple[Index, Index, Expr]]:
    """All positions, as (batch, position, number). Threads share those of all sizes but the last; of one size, all."""
    *outer, last = sizes
    grid, inner = ((*batch, *outer), last) if outer else ((*batch, last), 1)
    with emitter.parallel(prod(grid)) as task, emitter.serial(inner) as step:
        place = (*(emitter.simplify(part) for part in delinear(task, grid)), *([step] if outer else ()))
        yield place[: len(batch)], place[len(batch) :], emitter.simplify(task * inner + step)


class Left:
    """The left operand: read where it lies, or copied into [batch, position, depth] with the padding around it."""

    def __init__(self, operands: Operands) -> None:
        self.of = operands
        self.scope, self.form = operands.scope, operands.product.form
        self.emitter = self.scope.emitter
        self.in_place = self._lies_right()
        self.sizes = tuple(_seen(window) for window in self.form.windows)
        self.buffer = self.scope.arrays[self.form.x].buffer if self.in_place else self._copied()
        self.flips = self.in_place and operands.shift != 0

    def _lies_right(self) -> bool:
        """Whether each step's bytes are neighbours in memory, and no padding is read."""
        form, multiplier = self.form, self.of.multiplier
        if form.x not in self.scope.ready or form.depth != self.of.padded_depth:
            return False
        array = self.scope.arrays[form.x]
        if not self.of.shifts and not (self.of.real and array.half):
            return False
        if multiplier.strided and (array.block or type(array) is not Array):
            return False
        if isinstance(form, Product):
            return not array.block
        if self.of.corrects:  # whose sums are of whole vectors
            return False
        read = multiplier.together * multiplier.steps  # numbers that it takes from memory at once
        return array.block % read == 0 < array.block and all(window.clean for window in form.windows)

    @property
    def row_is_one_run(self) -> bool:
        """Whether the taps of a row and their depth are one run of memory."""
        return not self.in_place and self.form.windows[-1].dilation == 1

    @property
    def block(self) -> int:
        """Steps whose bytes are one run of memory, where it lies in blocks; 0: all of a position are."""
        if not self.in_place:
            return 0
        block = self.scope.arrays[self.form.x].block
        return block // self.of.multiplier.together if block and self.form.depth % block == 0 else 0

    @property
    def pitch(self) -> int:
        """Numbers in `buffer` from a pixel of a row to the next one, where they are not in blocks."""
        return self.form.depth if self.in_place else self.form.windows[-1].stride * self.of.padded_depth

    def offset(self, batch: Index, outputs: Index, taps: Index, unit: Expr) -> Expr:
        """Where in `buffer` the numbers of one step of the depth stand; `outputs`: of every window."""
        depth = unit * self.of.multiplier.together
        windows = self.form.windows
        if self.in_place:
            position = tuple(w.position(output, tap) for w, output, tap in zip(windows, outputs, taps, strict=True))
            index = self.form.x_index(batch, position, depth)
            return self.scope.arrays[self.form.x].offset(tuple(self.emitter.simplify(part) for part in index))
        places = tuple(
            output * w.stride + tap * w.dilation for w, output, tap in zip(windows, outputs, taps, strict=True)
        )
        return linear((*batch, *places, depth), (*self.form.batch, *self.sizes, self.of.padded_depth))

    def _copied(self) -> Any:
        """A copy as the instruction wants it: the prologue computed once, zero points where nothing stands."""
        form, emitter, of = self.form, self.emitter, self.of
        buffer = emitter.scratch(prod(form.batch) * prod(self.sizes) * of.padded_depth, of.multiplier.left)
        with positions(emitter, form.batch, self.sizes) as (batch, place, number):
            position = tuple(
                emitter.simplify(part - window.pad_begin) for part, window in zip(place, form.windows, strict=True)
            )
            self._copy_position(buffer, number * of.padded_depth, batch, position)
        return buffer

    def _copy_position(self, buffer: Any, at: Expr, batch: Index, position: Index) -> None:
        emitter, of = self.emitter, self.of
        inside = [
            condition
            for part, window in zip(position, self.form.windows, strict=True)
            for condition in _inside(part, window)
        ]
        conditions = [c for c in map(emitter.simplify, inside) if not (isinstance(c, (bool, int)) and c)]

        def fill() -> None:
            for first, lanes in _chunks(self.form.depth, emitter.lanes):
                with self.scope.point(), _stepped(emitter, first) as start, emitter.vector(lanes) as lane:
                    depth = emitter.simplify(start + lane)
                    self._copy_element(buffer, at + depth, self._index(batch, position, depth))

        def blank(first: int) -> None:
            if first < of.padded_depth:
                zero = of.x_zero() if of.shifts else const(0, "int32")
                held = emitter.bind(tirx.Cast(of.multiplier.left, zero))
                with emitter.vector(of.padded_depth - first) as lane:
                    emitter.put(buffer, at + first + lane, held)

        if conditions:
            condition = tirx.all(*conditions) if len(conditions) > 1 else conditions[0]
            with emitter.when(condition):
                fill()
            with emitter.when(tirx.Not(condition)):
                blank(0)
        else:
            fill()
        blank_rest = of.padded_depth > self.form.depth
        if blank_rest:
            blank(self.form.depth)

    def _index(self, batch: Index, position: Index, depth: Expr) -> Index:
        return tuple(self.emitter.simplify(part) for part in self.form.x_index(batch, position, depth))

    def _copy_element(self, buffer: Any, at: Expr, index: Index) -> None:
        """Writes an element as it is multiplied; what is stored as bfloat16 is."""
        stored = self.of.stored(self.form.x, index)
        if stored is not None:
            self.emitter.put(buffer, at, stored)
        elif self.of.real:
            self.emitter.put_rounded(buffer, at, self.scope.read(self.form.x, index))
        elif self.of.float16:
            self.emitter.put(buffer, at, tirx.Cast("float16", self.scope.read(self.form.x, index)))
        else:
            self.emitter.put(buffer, at, self._integer(self.scope.read(self.form.x, index)))

    def _integer(self, value: Expr) -> Expr:
        of = self.of
        wide = tirx.Cast("int32", value)
        if of.shifts:
            return tirx.Cast(of.multiplier.left, wide + const(of.shift, "int32")) if of.shift else value
        return tirx.Cast("int16", wide - of.x_zero())


def _seen(window: Window) -> int:
    """Positions, padding among them, that the outputs of a window read."""
    return (window.outputs - 1) * window.stride + (window.taps - 1) * window.dilation + 1


def _inside(position: Expr, window: Window) -> Iterator[Expr]:
    """Conditions under which a position is no padding; none where it never is."""
    if window.pad_begin:
        yield position >= 0
    if _seen(window) - window.pad_begin > window.size:
        yield position < window.size


def _chunks(total: int, lanes: int) -> Iterator[tuple[tuple[int, int, int], int]]:
    """((first, how many, width), lanes): runs of full vectors, and the rest."""
    full, rest = divmod(total, lanes)
    if full:
        yield (0, full, lanes), lanes
    if rest:
        yield (full * lanes, 1, rest), rest


@contextmanager
def _stepped(emitter: Emitter, chunk: tuple[int, int, int]) -> Iterator[Expr]:
    """A loop over the vectors of a chunk; yields where each begins."""
    first, count, width = chunk
    with emitter.serial(count) as step:
        yield first + step * width
