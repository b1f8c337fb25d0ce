"""The left operand of narrow products: read where it lies, or copied as the instruction reads it.

Maps of few channels that lie in rows are copied some neighbours of each channel at a time, woven in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from tvm import tirx

from autofuse.kernels.families.contraction.form import Convolution, Product
from autofuse.kernels.families.contraction.panels import NARROW
from autofuse.kernels.families.narrow.products.operands import Operands, positions
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.scalar import SCALAR
from autofuse.kernels.nest.tiles import Window, vector_spans
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear, linear

FEW = 4
"""Numbers of a position up to which positions are woven: the vectors of one for each fit the registers."""


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
        return self.form.depth if self.in_place else self.form.windows[-1].stride * self.of.pitch

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
        return linear((*batch, *places, depth), (*self.form.batch, *self.sizes, self.of.pitch))

    def _copied(self) -> Any:
        """A copy as the instruction wants it: the prologue computed once, zero points where nothing stands."""
        form, emitter, of = self.form, self.emitter, self.of
        size = prod(form.batch) * prod(self.sizes) * of.pitch
        buffer = emitter.scratch(size + of.beyond, of.multiplier.left)
        if _weaves(of):
            _Weaver(of, buffer, self.sizes, self._copy_element).rows()
            return buffer
        with positions(emitter, form.batch, self.sizes) as (batch, place, number):
            position = tuple(
                emitter.simplify(part - window.pad_begin) for part, window in zip(place, form.windows, strict=True)
            )
            self._copy_position(buffer, number * of.pitch, batch, position)
        return buffer

    def _copy_position(self, buffer: Any, at: Expr, batch: Index, position: Index) -> None:
        emitter, of = self.emitter, self.of
        conditions = _conditions_inside(emitter, position, self.form.windows)

        def fill() -> None:
            for chunk in vector_spans(self.form.depth, emitter.lanes):
                with self.scope.point(), _stepped(emitter, chunk) as (start, width), emitter.vector(width) as lane:
                    depth = emitter.simplify(start + lane)
                    self._copy_element(buffer, at + depth, self._index(batch, position, depth))

        def blank(first: int) -> None:
            if first < of.pitch:
                zero = of.x_zero() if of.shifts else const(0, "int32")
                held = emitter.bind(tirx.Cast(of.multiplier.left, zero))
                with emitter.vector(of.pitch - first) as lane:
                    emitter.put(buffer, at + first + lane, held)

        if conditions:
            condition = tirx.all(*conditions) if len(conditions) > 1 else conditions[0]
            with emitter.when(condition):
                fill()
            with emitter.when(tirx.Not(condition)):
                blank(0)
        else:
            fill()
        blank_rest = of.pitch > self.form.depth
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


def _weaves(of: Operands) -> bool:
    """Whether a copy is woven: it pays where a position has few numbers, and vectors are long."""
    form = of.product.form
    maps = isinstance(form, Convolution) and not form.flat and len(form.windows) > 1
    return maps and of.pitch <= FEW and of.scope.emitter.target.lanes > NARROW and _in_rows(of.scope, form.x)


def _in_rows(scope: Scope, value: int) -> bool:
    """Whether neighbours of a row are neighbours in memory, or functions of such."""
    if scope.workload.values[value].kind in ("constant", "literal") or scope.in_rows(value):
        return True
    producer = scope.producer.get(value)
    if producer is None or value in scope.ready or producer.op_type not in SCALAR:
        return False
    return all(_in_rows(scope, read) for read in producer.inputs if read >= 0)


class _Weaver:
    """Copies x into `buffer`, as [batch, position, number], with what stands for padding around it.

    `sizes`: positions of every window. `element(buffer, offset, index)` writes one element as it is multiplied.
    """

    def __init__(self, of: Operands, buffer: Any, sizes: Index, element: Callable[[Any, Expr, Index], None]) -> None:
        self.of, self.buffer, self.element = of, buffer, element
        self.form, self.emitter = of.product.form, of.scope.emitter
        *self.outer, self.last = sizes
        self.window = self.form.windows[-1]

    def rows(self) -> None:
        """All rows, shared by the threads."""
        emitter, windows = self.emitter, self.form.windows[:-1]
        grid = (*self.form.batch, *self.outer)
        with emitter.parallel(prod(grid)) as task:
            place = tuple(emitter.simplify(part) for part in delinear(task, grid))
            batch, places = place[: len(self.form.batch)], place[len(self.form.batch) :]
            position = tuple(
                emitter.simplify(part - window.pad_begin) for part, window in zip(places, windows, strict=True)
            )
            first = emitter.simplify(task * (self.last * self.of.pitch))
            conditions = _conditions_inside(emitter, position, windows)
            if not conditions:
                self.row(first, batch, position)
                return
            condition = tirx.all(*conditions) if len(conditions) > 1 else conditions[0]
            with emitter.when(condition):
                self.row(first, batch, position)
            with emitter.when(tirx.Not(condition)):
                self.blank(first, self.last)

    def row(self, first: Expr, batch: Index, position: Index) -> None:
        """One row of the map between its padding; `first`: where it begins in the buffer."""
        emitter, pitch = self.emitter, self.of.pitch
        begin = self.window.pad_begin
        count = min(self.window.size, self.last - begin)
        self.blank(first, begin)
        for chunk in vector_spans(count, emitter.lanes):
            with _stepped(emitter, chunk) as (start, width):
                at = emitter.simplify(first + (start + begin) * pitch)
                if width == emitter.lanes:
                    self.woven(at, batch, position, start)
                    continue
                with emitter.serial(width) as step:
                    for channel in range(self.form.depth):
                        with self.of.scope.point():
                            index = self.form.x_index(batch, (*position, start + step), channel)
                            self.element(self.buffer, at + step * pitch + channel, self.simplified(index))
                    self.blank_numbers(at + step * pitch + self.form.depth, pitch - self.form.depth)
        self.blank(emitter.simplify(first + (begin + count) * pitch), self.last - begin - count)

    def woven(self, at: Expr, batch: Index, position: Index, start: Expr) -> None:
        """As many positions of a row as a vector has lanes."""
        emitter, lanes, pitch = self.emitter, self.emitter.lanes, self.of.pitch
        parts = []
        for channel in range(self.form.depth):
            part = emitter.scratch(lanes, self.of.multiplier.left)
            with self.of.scope.point(), emitter.vector(lanes) as lane:
                index = self.form.x_index(batch, (*position, start + lane), channel)
                self.element(part, lane, self.simplified(index))
            parts.append(emitter.bind(emitter.vector_at(part, 0, lanes)))
        parts += [tirx.Broadcast(self.nothing(), lanes)] * (pitch - self.form.depth)
        order = [const(channel * lanes + lane, "int32") for lane in range(lanes) for channel in range(pitch)]
        emitter.put_vector(self.buffer, at, tirx.Shuffle(parts, order), lanes * pitch)

    def simplified(self, index: Index) -> Index:
        """An index under the bounds of the loops around."""
        return tuple(self.emitter.simplify(part) for part in index)

    def nothing(self) -> Expr:
        """What stands for padding."""
        zero = self.of.x_zero() if self.of.shifts else const(0, "int32")
        return self.emitter.bind(tirx.Cast(self.of.multiplier.left, zero))

    def blank(self, first: Expr, count: int) -> None:
        """So many positions of padding."""
        self.blank_numbers(first, count * self.of.pitch)

    def blank_numbers(self, first: Expr, count: int) -> None:
        if not count:
            return
        held = self.nothing()
        for chunk in vector_spans(count, self.emitter.lanes):
            with _stepped(self.emitter, chunk) as (start, width), self.emitter.vector(width) as lane:
                self.emitter.put(self.buffer, first + start + lane, held)


def _conditions_inside(emitter: Emitter, position: Index, windows: Sequence[Window]) -> list[Expr]:
    """Conditions under which a position is no padding; none where it never is."""
    found = [one for part, window in zip(position, windows, strict=True) for one in _inside(part, window)]
    return [c for c in map(emitter.simplify, found) if not (isinstance(c, (bool, int)) and c)]


def _seen(window: Window) -> int:
    """Positions, padding among them, that the outputs of a window read."""
    return (window.outputs - 1) * window.stride + (window.taps - 1) * window.dilation + 1


def _inside(position: Expr, window: Window) -> Iterator[Expr]:
    """Conditions under which a position is no padding; none where it never is."""
    if window.pad_begin:
        yield position >= 0
    if _seen(window) - window.pad_begin > window.size:
        yield position < window.size


@contextmanager
def _stepped(emitter: Emitter, chunk: tuple[int, int, int]) -> Iterator[tuple[Expr, int]]:
    """A loop over the vectors of a chunk; yields where each begins, and its width."""
    first, count, width = chunk
    with emitter.serial(count) as step:
        yield first + step * width, width
