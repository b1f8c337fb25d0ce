"""Kernels over images whose sizes are known when they run: loops over tiles of a fixed number of places.

The families emit a tile as they emit any kernel, of a workload of so many places. They read and write it where it lies
in the whole image, by strides that are known when the kernel runs. A tile whose head looks beyond the borders works on
a copy of its window, with what is beyond the borders in it. A last tile is moved back to the last places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.graph.transform.open_sizes.images.grid_windows import Slide
from autofuse.kernels.build import FUNCTION_ATTRIBUTES, Constants, Kernel, complete, emit_body
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.nest.evaluate import Pack
from autofuse.kernels.open_sizes.images.grid_tiles import Range, Split, splits_text, stands_in
from autofuse.kernels.open_sizes.images.grid_window_copy import WindowCopy
from autofuse.kernels.open_sizes.images.row_parts import Border
from autofuse.kernels.open_sizes.open_rows import work
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index
from autofuse.kernels.tir.loops import OF_IMAGES
from autofuse.kernels.workload.workload import Value, Workload

ENOUGH_WORK = 1 << 22
"""Operations of a tile from which on all threads share it; of smaller ones, each thread takes some."""
JOINED = -1
"""In the place of an open size: the axis has the places of several maps."""
Lengths = tuple[int, ...]
"""Places of a tile along each open size."""


@dataclass(frozen=True)
class GridArgument:
    """An input or output: how it is stored, which open size each of its open axes has, whether it is `looked` at, or is
    a constant that is given as it is at the largest sizes, `grown`."""

    value: Value
    axes: Mapping[int, int] = field(default_factory=dict)
    looked: bool = False
    grown: bool = False


@dataclass(frozen=True)
class GridTile:
    """A tile with so many places along each size, as a `workload` under a `schedule`."""

    workload: Workload
    schedule: Schedule


@dataclass(frozen=True)
class GridForm:
    """What a kernel over an image is. `inputs` and `outputs` are those of each tile's workload, in its order.

    `sizes`: the open sizes of its results, in the order of the loops; `splits`: how each is parted into tiles.
    `slides`: what the head sees of its input along each size; `fill`: what is beyond the borders, None where it never
    looks there. `bounds`: of the extents of a kernel that goes over the whole image, whose tiles are samples of it; by
    `winograd`'s algorithm, or row by row. `plane`: what its windows see along rows and columns, of which one may be
    fixed; `borders`: what they see beyond them.
    `flat`: the places of an image are one row of tiles.
    """

    inputs: tuple[GridArgument, ...]
    outputs: tuple[GridArgument, ...]
    sizes: tuple[int, ...]
    splits: tuple[Split, ...]
    slides: Mapping[int, Slide] = field(default_factory=dict)
    fill: float | str | None = None
    bounds: tuple[Range, ...] = ()
    plane: tuple[Slide, ...] = ()
    borders: tuple[Border, ...] = ()
    winograd: bool = False
    flat: bool = False

    def parted(self, extents: Sequence[Any]) -> list[Any]:
        """Extents of results along each size, as `splits` part them."""
        if not self.flat:
            return [*extents]
        *images, high, wide = extents
        return [*images, 1, high * wide]

    @property
    def fixed(self) -> tuple[int, ...]:
        """Rows or columns of results of a kernel that goes over the whole image, where these are not open."""
        made = self.outputs[0]
        return tuple(made.value.shape[axis] for axis in range(2, 2 + len(self.bounds)) if axis not in made.axes)

    @property
    def text(self) -> str:
        """Which tiles compute how many places; "" where all have one length."""
        return "the whole image at once" if self.bounds else splits_text(self.splits)


def are_one_row(form: GridForm) -> bool:
    """Whether the places of an image lie one behind the other in all tensors that have any, in the same order."""
    plane = form.sizes[-2:]
    if len(plane) != 2:
        return False
    found = []
    for argument in (*form.inputs, *form.outputs):
        placed = [(axis, size) for axis, size in sorted(argument.axes.items()) if size in plane]
        axes, sizes = ([one[number] for one in placed] for number in (0, 1))
        in_order = tuple(sizes) == plane and axes[1] == axes[0] + 1 and axes[0] > 0
        found.append(JOINED not in argument.axes.values() and (in_order or not placed))
    return all(found)


@dataclass(frozen=True)
class TileArray(Array):
    """A part of an image: `strides` of its axes are known when the kernel runs (of axis 1, where it lies in blocks,
    that of a block).

    `limits`: places of the image from the part's first one on, by axis, where the part may reach beyond: what is read
    there is anything, what is written there is dropped.
    """

    strides: tuple[Expr, ...] = ()
    limits: Mapping[int, Expr] = field(default_factory=dict)

    @property
    def in_one_piece(self) -> bool:
        """See Array."""
        return False

    def offset(self, index: Index) -> Expr:
        """See Array."""
        parts = list(zip(index, self.strides, strict=True))
        total: Expr = 0
        for axis, (position, stride) in enumerate(parts):
            if axis in self.limits:
                position = tirx.min(position, self.limits[axis] - 1)
            if axis == 1 and self.block:
                total = total + position // self.block * stride + position % self.block
            elif self.shape[axis] > 1:
                total = total + position * stride
        return total

    def inside(self, index: Index) -> Expr | None:
        """See Array."""
        within = [index[axis] < limit for axis, limit in self.limits.items()]
        return tirx.all(*within) if within else None


def grid_kernel(form: GridForm, tiles: Mapping[Lengths, GridTile], target: Target, threads: int = 1) -> Kernel:
    """The kernel of a group over images of any size. `tiles`: by their lengths, all that `form` has.

    InputError when a tile cannot be emitted.
    """

    def emit(arguments: Sequence[Given], constants: Constants) -> None:
        _Grid(form, tiles, Emitter(target), arguments, constants, threads).emit()

    return grid_function(form, emit)


def grid_function(form: GridForm, emit: Callable[[Sequence[Given], Constants], None]) -> Kernel:
    """A kernel over images whose body `emit` makes, of its arguments and a place for packed constants."""
    constants = Constants()
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr({**FUNCTION_ATTRIBUTES, OF_IMAGES: True})
        arguments = [Given(argument, f"input{n}") for n, argument in enumerate(form.inputs)]
        arguments += [Given(argument, f"output{n}") for n, argument in enumerate(form.outputs)]
        emit(arguments, constants)
    buffers = [argument.buffer for argument in arguments]
    inputs, outputs = buffers[: len(form.inputs)], buffers[len(form.inputs) :]
    return Kernel(complete(ib.get(), inputs, constants.parameters, outputs), constants.packed)


class Given:
    """An argument of the function that is being built, and its extents when it runs."""

    def __init__(self, argument: GridArgument, name: str) -> None:
        self.argument, value = argument, argument.value
        if value.block and 1 in argument.axes:
            raise InputError(f"layout {value.layout!r} parts channels, which have an open size")
        shape: list[Expr] = list(value.physical_shape)
        self.extents: list[Expr] = list(value.shape)
        for axis in argument.axes:
            shape[axis] = self.extents[axis] = tirx.Var(f"{name}_{axis}", "int32")
        self.buffer = builder.arg(name, builder.buffer(shape, value.dtype, align=64))
        self.elements = prod(shape[1:], start=shape[0]) if shape else 1

    def strides(self) -> tuple[Expr, ...]:
        """Elements between neighbours along each axis; see `TileArray`."""
        value = self.argument.value
        found: list[Expr] = []
        step: Expr = value.block or 1
        for axis in reversed(range(len(value.shape))):
            found.insert(0, builder.bind(step) if not isinstance(step, int) else step)
            step = found[0] * (self.extents[axis] // value.block if axis == 1 and value.block else self.extents[axis])
        return tuple(found)


def whole_array(given: Given) -> Array:
    """All of an argument, in the function that is being built."""
    value = given.argument.value
    flat = builder.decl_buffer((given.elements,), value.dtype, data=given.buffer.data, align=64)
    if not given.argument.axes:
        return Array(flat, value.shape, value.dtype, value.block)
    return TileArray(flat, value.shape, value.dtype, value.block, strides=given.strides())


class _Grid:
    """Emits the loops over tiles."""

    def __init__(
        self,
        form: GridForm,
        tiles: Mapping[Lengths, GridTile],
        emitter: Emitter,
        arguments: Sequence[Given],
        constants: Constants,
        threads: int,
    ) -> None:
        self.form, self.tiles, self.emitter, self.constants = form, tiles, emitter, constants
        self.arguments = arguments
        largest = max(tiles.values(), key=lambda tile: work(tile.workload))
        self.shared = threads > 1 and work(largest.workload) >= ENOUGH_WORK
        self.spread = not self.shared

    def emit(self) -> None:
        """Emits all tiles."""
        self.strides = [argument.strides() for argument in self.arguments]
        made = self.arguments[len(self.form.inputs)]
        axes = {size: axis for axis, size in made.argument.axes.items()}
        extents = self.form.parted([made.extents[axes[size]] for size in self.form.sizes])
        self.extents = [builder.bind(tirx.const(one, "int32") if isinstance(one, int) else one) for one in extents]
        self.outer = 1 if self.form.sizes and axes[self.form.sizes[0]] == 0 and len(self.form.sizes) > 1 else 0
        self.outer = len(extents) - 1 if self.form.flat else self.outer
        self.along((), ())

    def along(self, starts: tuple[Expr, ...], lengths: Lengths) -> None:
        """All tiles along the sizes that are left."""
        place = len(starts)
        if place == len(self.form.sizes):
            self.tile(starts, lengths)
            return
        split, extent, before = self.form.splits[place], self.extents[place], tirx.const(0, "int32")
        for number, (length, count) in enumerate(zip(split.lengths, split.emitted(extent), strict=True)):
            with self.loop(count, before, length, extent, self.spread and place == self.outer and not number) as start:
                self.along((*starts, start), (*lengths, length))
            before = builder.bind(before + count * length)

    @contextmanager
    def loop(self, count: Expr, before: Expr, length: int, extent: Expr, spread: bool) -> Iterator[Expr]:
        """`count` tiles from place `before` on. `spread`: over the threads, but for one that is moved back: it
        computes places again that the one before it does, so that one thread takes both, in turn."""
        if not spread:
            with builder.serial(0, count) as step:
                yield builder.bind(tirx.max(tirx.min(before + step * length, extent - length), 0))
            return
        over = tirx.Select(before + count * length > extent, 1, 0)
        tasks = builder.bind(tirx.max(count - over, tirx.min(count, 1)))
        with builder.parallel(0, tasks) as task:
            last = tirx.Select(task == tasks - 1, count - tasks, 0)
            with builder.serial(0, last + 1) as more:
                yield builder.bind(tirx.max(tirx.min(before + (task + more) * length, extent - length), 0))

    def tile(self, starts: Sequence[Expr], lengths: Lengths) -> None:
        """One tile, or one that stands in for it, which computes more places."""
        lengths = stands_in(lengths, self.form.splits)
        tile, number = self.tiles[lengths], list(self.tiles).index(lengths)
        begins = dict(zip(self.form.sizes, starts, strict=True))
        indices = (*tile.workload.of_kind("input"), *tile.workload.of_kind("output"))
        arrays = {
            index: self.array(tile.workload.values[index], argument, strides, begins)
            for index, argument, strides in zip(indices, self.arguments, self.strides, strict=True)
        }
        alone = self.spread
        declare = declaring(self.constants, number)
        emit_body(tile.workload, tile.schedule, self.emitter.target, arrays, declare, alone)

    def array(self, value: Value, given: Given, strides: tuple[Expr, ...], begins: Mapping[int, Expr]) -> Array:
        """What a tile sees of an argument: all of it, its part, or a copy of its window."""
        argument = given.argument
        if not argument.axes:
            flat = builder.decl_buffer((prod(value.shape),), value.dtype, data=given.buffer.data, align=64)
            return Array(flat, value.shape, value.dtype, value.block)
        places: dict[int, Expr] = {}
        limits: dict[int, Expr] = {}
        for axis, size in argument.axes.items():
            slide = self.form.slides.get(size, Slide()) if argument.looked else Slide()
            start = begins[size]
            start = start * slide.multiply if slide.divide == 1 else start // slide.divide
            places[axis] = builder.bind(start + slide.offset)
            if self.form.splits[self.form.sizes.index(size)].cut:
                limits[axis] = builder.bind(given.extents[axis] - places[axis])
        if argument.looked and self.form.fill is not None:
            copy = WindowCopy(self.emitter, given.buffer.data, value, given.extents, strides, self.form.fill)
            return copy.emit(places, alone=self.spread)
        start = 0
        for axis, place in places.items():
            start = start + place * strides[axis]
        flat = builder.decl_buffer(
            (given.elements,), value.dtype, data=given.buffer.data, elem_offset=builder.bind(start), align=64
        )  # fmt: skip
        return TileArray(flat, value.shape, value.dtype, value.block, strides=strides, limits=limits)


def declaring(constants: Constants, number: int) -> Callable[[str, Pack, tuple[int, ...], str], Array]:
    """Declares the constants of the tile with that number. Weights that are packed alike are the same in all tiles;
    small constants may depend on the tile."""

    def declared(name: str, pack: Pack, shape: tuple[int, ...], dtype: str) -> Array:
        own = f"tile{number}_" if name.startswith("literal") else ""
        return constants.declare(f"{own}{name}_{'x'.join(map(str, shape))}", pack, shape, dtype)

    return declared
