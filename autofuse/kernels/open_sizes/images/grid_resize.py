"""The kernel that resizes images by factors that are known when it runs: to the size of another image, by the corners.

Where each place along a row lies between two of the image is computed once a call; of the rows, once for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.images.over_places.resizing import Resizing
from autofuse.kernels.build import FUNCTION_ATTRIBUTES, Kernel, complete
from autofuse.kernels.open_sizes.images.open_grid import Given, GridForm, whole_array
from autofuse.kernels.tir.emit import Emitter, Expr, const


def grid_resize_kernel(resizing: Resizing, form: GridForm, widths: Sequence[int], target: Target) -> Kernel:
    """The kernel of one resizing operator. `widths`: of the image and of the result, where they are largest."""
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr(FUNCTION_ATTRIBUTES)
        given = [Given(argument, f"input{number}") for number, argument in enumerate(form.inputs)]
        made = Given(form.outputs[0], "output0")
        _Resize(Emitter(target), resizing, given[0], made, widths).emit()
    return Kernel(complete(ib.get(), [one.buffer for one in given], [], [made.buffer]), lambda _: [])


@dataclass(frozen=True)
class _Between:
    """Two or four places of an image, and how much of the second, or of each of four, a place of the result has."""

    places: tuple[Expr, ...]
    shares: tuple[Expr, ...]


class _Resize:
    """Emits the rows of all maps."""

    def __init__(
        self, emitter: Emitter, resizing: Resizing, given: Given, made: Given, widths: Sequence[int]
    ) -> None:  # fmt: skip
        self.emitter, self.resizing, self.widths = emitter, resizing, widths
        self.before, self.after = given.extents, made.extents
        self.source, self.result = whole_array(given), whole_array(made)
        value = made.argument.value
        self.rank, self.block = len(value.shape), value.block or 1
        self.cubic = resizing.mode == "cubic"
        self.maps, self.lanes = value.shape[1] // self.block, value.block or emitter.lanes

    def emit(self) -> None:
        """All rows, shared by the threads."""
        emitter, last = self.emitter, self.rank - 1
        width = self.after[last]
        self.places = [emitter.scratch(self.widths[1], "int32") for _ in range(4 if self.cubic else 2)]
        self.shares = [emitter.scratch(self.widths[1]) for _ in range(4 if self.cubic else 1)]
        with builder.serial(0, width) as place:
            at = self.between(place, last)
            for table, one in zip((*self.places, *self.shares), (*at.places, *at.shares), strict=True):
                emitter.put(table, place, one)
        rows = self.after[2] if self.rank > 3 else 1
        with emitter.parallel(self.after[0] * self.maps * rows) as task:
            row = builder.bind(task % rows) if self.rank > 3 else 0
            number = builder.bind(task // rows) if self.rank > 3 else task
            channel = number % self.maps if self.maps > 1 else 0
            if self.maps > 1:
                channel = builder.bind(channel)
                emitter.analyzer.bind(channel, tvm.ir.Range(0, self.maps))
            image = builder.bind(number // self.maps) if not isinstance(number, int) else 0
            self.row(image, channel * self.block, row)

    def between(self, place: Expr, axis: int) -> _Between:
        """Where a place of the result lies along an axis."""
        before = self.before[axis]
        at = self.coordinate(tirx.Cast("float32", place), axis)
        end = before - 1
        if self.cubic:
            first = builder.bind(tirx.Cast("int32", tirx.floor(at)))
            places = tuple(tirx.max(tirx.min(first + more, end), 0) for more in range(-1, 3))
            return _Between(places, self.keys(self.emitter.stored(at - tirx.Cast("float32", first))))
        if self.resizing.mode == "linear":
            at = self.emitter.stored(tirx.max(tirx.min(at, _float(end)), const(0.0, "float32")))
            first = builder.bind(tirx.Cast("int32", at))
            return _Between((first, tirx.min(first + 1, end)), (at - _float(first),))
        half = const(0.5, "float32")
        nearest = {
            "floor": tirx.floor, "ceil": tirx.ceil, "round_prefer_ceil": lambda x: tirx.floor(x + half),
            "round_prefer_floor": lambda x: tirx.ceil(x - half),
        }[self.resizing.rounding]  # fmt: skip
        first = builder.bind(tirx.max(tirx.min(tirx.Cast("int32", nearest(at)), end), 0))
        return _Between((first, first), (const(0.0, "float32"),))

    def keys(self, share: Expr) -> tuple[Expr, ...]:
        """How much of four places a place between the middle two has (Keys, "Cubic convolution interpolation")."""
        a, one, two = self.resizing.coefficient, const(1.0, "float32"), const(2.0, "float32")
        near, far = (a + 2.0, -(a + 3.0), 0.0, 1.0), (a, -5.0 * a, 8.0 * a, -4.0 * a)
        found = []
        for distance, scheme in ((share + one, far), (share, near), (one - share, near), (two - share, far)):
            total: Expr = const(scheme[0], "float32")
            for coefficient in scheme[1:]:
                total = total * distance + const(coefficient, "float32")
            found.append(total)
        return tuple(found)

    def mixed(self, values: Sequence[Any], shares: Sequence[Any]) -> Any:
        """A place of the result of those of the image."""
        if not self.cubic:
            return _mixed(*values, *shares)
        products = [value * share for value, share in zip(values, shares, strict=True)]
        return sum(products[1:], products[0])

    def coordinate(self, place: Expr, axis: int) -> Expr:
        """A place of the result as one of the image, in ONNX Runtime's steps."""
        before, after, way = self.before[axis], self.after[axis], self.resizing.coordinates
        zero, half = const(0.0, "float32"), const(0.5, "float32")
        if way == "align_corners":
            steps = place * _float(before - 1) / _float(tirx.max(after - 1, 1))
            return self.emitter.stored(tirx.Select(after == 1, zero, steps))
        given = self.resizing.scales.get(axis)
        scale = _float(after) / _float(before) if given is None else const(given, "float32")
        if way == "asymmetric":
            return self.emitter.stored(place / scale)
        found = (place + half) / scale - half
        return self.emitter.stored(tirx.Select(after > 1, found, zero) if way == "pytorch_half_pixel" else found)

    def row(self, image: Expr, channel: Expr, row: Expr) -> None:
        """One row of a result: of a block of channels, or of one channel."""
        emitter, last = self.emitter, self.rank - 1
        at = self.between(row, 2) if self.rank > 3 else _Between((), ())
        width, middle = self.after[last], (row,) if self.rank > 3 else ()
        if self.block > 1:
            with builder.serial(0, width) as place:
                places = [builder.bind(table[place]) for table in self.places]
                shares = [builder.bind(table[place]) for table in self.shares]
                with emitter.vector(self.lanes) as lane:
                    values = [self.vertical(image, channel + lane, at, one) for one in places]
                    emitter.store(self.result, (image, channel + lane, *middle, place), self.mixed(values, shares))
            return
        held = emitter.scratch(self.widths[0])
        for count, lanes in _pieces(self.before[last], self.lanes):
            begin = self.before[last] // self.lanes * self.lanes if lanes == 1 else 0
            with builder.serial(0, count) as step, emitter.vector(lanes) as lane:
                place = begin + step * lanes + lane
                emitter.put(held, place, self.vertical(image, channel, at, place))
        for count, lanes in _pieces(width, self.lanes):
            begin = width // self.lanes * self.lanes if lanes == 1 else 0
            with builder.serial(0, count) as step, emitter.vector(lanes) as lane:
                place = begin + step * lanes + lane
                values, shares = [held[table[place]] for table in self.places], [table[place] for table in self.shares]
                emitter.store(self.result, (image, channel, *middle, place), self.mixed(values, shares))

    def vertical(self, image: Expr, channel: Expr, at: _Between, place: Expr) -> Expr:
        """A place of the image, between two rows, or four."""
        if self.rank == 3:
            return self.emitter.load(self.source, (image, channel, place))
        values = [self.emitter.load(self.source, (image, channel, row, place)) for row in at.places]
        return values[0] if self.resizing.mode == "nearest" else self.mixed(values, at.shares)


def _pieces(extent: Expr, lanes: int) -> list[tuple[Expr, int]]:
    """(steps, lanes) of whole vectors, and of what is left."""
    return [(extent // lanes, lanes), (extent % lanes, 1)]


def _mixed(one: Any, other: Any, share: Any) -> Any:
    return one * (const(1.0, "float32") - share) + other * share


def _float(value: Expr) -> Expr:
    return const(float(value), "float32") if isinstance(value, int) else tirx.Cast("float32", value)
