"""Copies the window that a tile of an image looks at, with what is beyond the borders in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.graph.transform.open_sizes.images.grid_windows import EDGE, REFLECT
from autofuse.kernels.tir.emit import Array, Emitter, Expr
from autofuse.kernels.workload.workload import Value


@dataclass(frozen=True)
class WindowCopy:
    """A window of the shape of `value` of an image with such `extents` and `strides`; see `TileArray` for these.

    `fill`: what is beyond the borders.
    """

    emitter: Emitter
    data: Any
    value: Value
    extents: Sequence[Expr]
    strides: Sequence[Expr]
    fill: float | str

    def emit(self, places: Mapping[int, Expr], alone: bool) -> Array:
        """The copy of the window that begins at such `places` of its open axes, which may lie beyond the borders."""
        value, block = self.value, self.value.block or 1
        last = len(value.shape) - 1
        target = Array(self.emitter.scratch(prod(value.shape), value.dtype), value.shape, value.dtype, value.block)
        heads = [extent // block if axis == 1 else extent for axis, extent in enumerate(value.shape[:-1])]
        first, rest = heads[:2], heads[2:]
        serial = builder.serial if alone else builder.parallel
        with ExitStack() as loops:
            head = loops.enter_context(serial(0, prod(first)))
            index: list[Expr] = [head // first[1], head % first[1]] if len(first) > 1 else [head]
            index += [loops.enter_context(builder.serial(0, extent)) for extent in rest]
            self.row(target, index, places, last, block)
        return target

    def row(self, target: Array, index: Sequence[Expr], places: Mapping[int, Expr], last: int, block: int) -> None:
        """One row of the window: what is in front of the border, in the image, and behind it."""
        width = self.value.shape[last]
        written, read, inside = self.offsets(index, places, block)
        origin = places.get(last, 0)
        if last in places:
            low = builder.bind(tirx.max(tirx.min(-origin, width), 0))
            high = builder.bind(tirx.max(tirx.min(self.extents[last] - origin, width), low))
        else:
            low, high = 0, width
        if not isinstance(inside, bool):
            low = builder.bind(tirx.Select(inside, low, width))
            high = builder.bind(tirx.Select(inside, high, width))
        row = builder.decl_buffer(
            (self.most(),), self.value.dtype, data=self.data, elem_offset=builder.bind(read), align=64
        )  # fmt: skip
        self.beyond(target, row, written, 0, low, origin, last, block)
        self.inside(target, row, written, low, high, origin, last, block)
        self.beyond(target, row, written, high, width, origin, last, block)

    def most(self) -> Expr:
        """Elements of the image."""
        total: Expr = 1
        for extent in self.extents:
            total = total * extent
        return total

    def offsets(self, index: Sequence[Expr], places: Mapping[int, Expr], block: int) -> tuple[Expr, Expr, Expr]:
        """Where a row begins in the window and in the image, and whether it is inside of it."""
        value = self.value
        written: Expr = 0
        read: Expr = 0
        inside: Expr = True
        for axis, position in enumerate(index):
            extent = value.shape[axis] // block if axis == 1 and value.block else value.shape[axis]
            written = written * extent + position
            if axis in places:
                position = builder.bind(position + places[axis])
                if self.fill in (EDGE, REFLECT):
                    position = builder.bind(self.mapped(position, axis))
                else:
                    within = tirx.all(position >= 0, position < self.extents[axis])
                    inside = within if isinstance(inside, bool) else tirx.all(inside, within)
                    position = tirx.max(tirx.min(position, self.extents[axis] - 1), 0)
            read = read + position * self.strides[axis]
        return builder.bind(written * value.shape[-1] * block), read, inside

    def mapped(self, position: Expr, axis: int) -> Expr:
        """The place of the image that stands for one beyond its borders."""
        end = self.extents[axis] - 1
        if self.fill == REFLECT:
            position = tirx.Select(position < 0, -position, position)
            position = tirx.Select(position > end, end + end - position, position)
        return tirx.max(tirx.min(position, end), 0)

    def inside(
        self, target: Array, row: Any, written: Expr, low: Expr, high: Expr, origin: Expr, last: int, block: int
    ) -> None:
        """Copies the part of a row that lies in the image."""
        emitter, step = self.emitter, self.strides[last]
        lanes = emitter.lanes
        count = builder.bind((high - low) * block) if not isinstance(low, int) else (high - low) * block
        begin = builder.bind(origin + low) if not isinstance(origin + low, int) else origin + low
        with builder.serial(0, count // lanes) as vector, builder.vectorized(0, lanes) as lane:
            at = vector * lanes + lane
            builder.buffer_store(target.buffer, row[begin * step + at], [written + low * block + at])
        done = count // lanes * lanes
        with builder.serial(0, count - done) as rest:
            builder.buffer_store(target.buffer, row[begin * step + done + rest], [written + low * block + done + rest])

    def beyond(
        self, target: Array, row: Any, written: Expr, low: Expr, high: Expr, origin: Expr, last: int, block: int
    ) -> None:
        """Fills a part of a row beyond the borders."""
        if isinstance(low, int) and isinstance(high, int):
            return
        with builder.serial(0, high - low) as place:
            here = builder.bind(low + place)
            source = None
            if self.fill in (EDGE, REFLECT):
                source = builder.bind(self.mapped(origin + here, last) * self.strides[last])
            with builder.vectorized(0, block) if block > 1 else builder.serial(0, 1) as lane:
                value = row[source + lane] if source is not None else filling(self.fill, self.value.dtype)
                builder.buffer_store(target.buffer, value, [written + here * block + lane])


def filling(value: float | str, dtype: str) -> Expr:
    """What is beyond the borders, as a constant."""
    return tirx.const(np.dtype(dtype).type(value).item(), dtype)
