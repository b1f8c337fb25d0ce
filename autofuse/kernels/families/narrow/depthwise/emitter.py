"""Emits depthwise convolutions of bytes: a block of channels at a time, whose rows are brought into place once.

The last rows of a block that a window covers stand in a ring. Each holds four neighbouring pixels of every channel side
by side (a quad), beginning at every second pixel, and one instruction adds up to four taps of a row to each channel.
Where a target lacks it, rows and weights are float32: the sums of so few bytes are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.depthwise.form import Depthwise, unsigned, zero_point
from autofuse.kernels.families.narrow.instructions import SIGN
from autofuse.kernels.families.narrow.levels import LevelWriter
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import divisor_near
from autofuse.kernels.tir.emit import Emitter, Expr, const
from autofuse.kernels.tir.offsets import delinear

Knobs = Mapping[str, int | str]
Place = tuple[Expr, Expr, Expr]
"""What a task computes: image, block of channels, part of the rows."""


class DepthwiseEmitter:
    """Emits one nest of a depthwise convolution; subclasses say how rows lie and how taps are added."""

    row_dtype = "float32"
    sums_dtype = "float32"

    def __init__(self, scope: Scope, nest: Nest, form: Depthwise, knobs: Knobs) -> None:
        self.scope, self.nest, self.form = scope, nest, form
        self.emitter: Emitter = scope.emitter
        self.lanes = self.emitter.target.lanes
        self.pixels = min(int(knobs["pixels"]), form.width.outputs + form.width.outputs % 2)
        self.rows = divisor_near(form.height.outputs, int(knobs["rows_per_task"]))
        self.together = scope.lanes_together(nest, self.lanes)
        self.blocks = -(-form.channels // self.lanes)
        self.zero = zero_point(scope.workload, form)

    def emit(self) -> None:
        """Emits the whole nest: images, blocks of channels and parts of the rows in parallel."""
        emitter, form = self.emitter, self.form
        self.declare()
        grid = (form.images, self.blocks, form.height.outputs // self.rows)
        with emitter.parallel(prod(grid)) as task:
            image, block, part = (emitter.simplify(index) for index in delinear(task, grid))
            ring = emitter.scratch(form.height.taps * self.row_size, self.row_dtype)
            line = emitter.scratch(form.positions * self.lanes, "uint8")
            for channels in self.cuts(block):
                with channels as lanes:
                    self.part((image, block, part), lanes, ring, line)

    def cuts(self, block: Expr) -> Iterator[Any]:
        """Conditions under which a block is whole, or the last and cut, each with its channels."""
        rest = self.form.channels % self.lanes
        if not rest or self.blocks == 1:
            yield _always(rest or self.lanes)
            return
        yield self._when(block < self.blocks - 1, self.lanes)
        yield self._when(block >= self.blocks - 1, rest)

    @contextmanager
    def _when(self, condition: Expr, lanes: int) -> Iterator[int]:
        with self.emitter.when(condition):
            yield lanes

    def part(self, place: Place, lanes: int, ring: Any, line: Any) -> None:
        """Some rows of results: each brings as many rows into the ring as the window moves by."""
        emitter, height = self.emitter, self.form.height
        first = emitter.simplify(place[2] * self.rows)
        before = height.taps - height.stride
        with emitter.serial(before) as step:
            self.bring(place, lanes, ring, line, first * height.stride + step)
        with emitter.serial(self.rows) as step:
            row = emitter.simplify(first + step)
            with emitter.serial(height.stride) as more:
                self.bring(place, lanes, ring, line, row * height.stride + before + more)
            self.row(place, lanes, ring, row)

    def slot(self, position: Expr) -> Expr:
        """Where in the ring a row of the padded map stands."""
        return self.emitter.simplify((position % self.form.height.taps) * self.row_size)

    def bring(self, place: Place, lanes: int, ring: Any, line: Any, position: Expr) -> None:
        """Brings a row of the padded map into the ring."""
        emitter, height = self.emitter, self.form.height
        source = emitter.simplify(position - height.pad_begin)
        last = (height.outputs - 1) * height.stride + height.taps - 1 - height.pad_begin
        inside = [source >= 0] if height.pad_begin else []
        inside += [source < height.size] if last >= height.size else []
        slot = self.slot(position)
        if not inside:
            self.bring_inside(place, lanes, ring, line, source, slot)
            return
        condition = inside[0] if len(inside) == 1 else tirx.all(*inside)
        with emitter.when(condition):
            self.bring_inside(place, lanes, ring, line, source, slot)
        with emitter.when(tirx.Not(condition)):
            self.blank_row(ring, slot)

    def bring_inside(self, place: Place, lanes: int, ring: Any, line: Any, source: Expr, slot: Expr) -> None:
        """Brings a row of the map into the ring."""
        self.fill(place, lanes, line, source, 0, self.form.positions)
        self.arrange(ring, slot, line, 0, self.form.positions)

    def fill(self, place: Place, lanes: int, line: Any, source: Expr, first: int, end: int) -> None:
        """Positions of a row of the map as unsigned bytes [position, channel], its padding included."""
        emitter, form = self.emitter, self.form
        begin = max(first, min(form.width.pad_begin, end))
        stop = max(begin, min(form.width.pad_begin + form.width.size, end))
        self.blank(line, first, begin)
        near = min(self.lanes, emitter.lanes)
        if stop > begin:
            with emitter.serial(stop - begin) as step:
                for start in range(0, lanes, near):
                    with self.scope.point(), emitter.vector(min(near, lanes - start)) as lane:
                        channel = emitter.simplify(place[1] * self.lanes + start + lane)
                        column = emitter.simplify(step + (begin - form.width.pad_begin))
                        value = self.scope.read(form.x, (place[0], channel, source, column))
                        emitter.put(line, (step + begin) * self.lanes + start + lane, self.as_unsigned(value))
        self.blank(line, stop, end)

    def as_unsigned(self, value: Expr) -> Expr:
        """A byte of x as an unsigned one, whose zero point is as much larger."""
        if not self.form.signed:
            return value
        return tirx.Cast("uint8", tirx.Cast("int32", value) + const(SIGN, "int32"))

    def blank(self, line: Any, first: int, end: int) -> None:
        """Positions that hold the zero point."""
        if end > first:
            zero = tirx.Broadcast(const(unsigned(self.form, self.zero), "uint8"), self.lanes)
            with self.emitter.serial(end - first) as step:
                self.emitter.put_vector(line, (step + first) * self.lanes, zero, self.lanes)

    def row(self, place: Place, lanes: int, ring: Any, row: Expr) -> None:
        """The tiles of one row of results."""
        full, rest = divmod(self.form.width.outputs, self.pixels)
        slots = [self.slot(row * self.form.height.stride + tap) for tap in range(self.form.height.taps)]
        slots = [self.emitter.bind(slot) for slot in slots]
        for count, first, width in ((full, 0, self.pixels), (1, full * self.pixels, rest)):
            if not count or not width:
                continue
            with self.emitter.serial(count) as tile:
                start = self.emitter.simplify(first + tile * self.pixels)
                sums = [self.emitter.scratch(self.lanes, self.sums_dtype) for _ in range(width)]
                self.tile(place[1], ring, slots, start, sums)
                writer = LevelWriter(self.emitter)
                for pixel, one in enumerate(sums):
                    self.deliver(place, lanes, row, start + pixel, one, writer)
                writer.write()

    def deliver(self, place: Place, lanes: int, row: Expr, column: Expr, sums: Any, writer: LevelWriter) -> None:
        """The epilogue of one pixel of a block."""
        emitter = self.emitter
        for first in range(0, lanes, self.together):
            with emitter.vector(min(self.together, lanes - first)) as lane:
                channel = emitter.simplify(place[1] * self.lanes + first + lane)
                value = tirx.Cast("int32", sums[emitter.simplify(first + lane)])
                self.scope.finish(self.nest, (place[0], channel, row, emitter.simplify(column)), value, writer.store)

    @property
    def row_size(self) -> int:
        """Numbers of a row in the ring."""
        raise NotImplementedError

    def declare(self) -> None:
        """Declares the packed weights."""
        raise NotImplementedError

    def arrange(self, ring: Any, slot: Expr, line: Any, first: int, end: int) -> None:
        """Brings positions of a row of bytes [position, channel] into their place in the ring."""
        raise NotImplementedError

    def blank_row(self, ring: Any, slot: Expr) -> None:
        """A row of padding in the ring."""
        raise NotImplementedError

    def tile(self, block: Expr, ring: Any, slots: list[Expr], start: Expr, sums: list[Any]) -> None:
        """All taps of some neighbouring pixels."""
        raise NotImplementedError


@contextmanager
def _always(lanes: int) -> Iterator[int]:
    yield lanes
