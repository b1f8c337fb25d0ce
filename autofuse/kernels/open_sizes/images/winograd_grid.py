"""Kernels of a 3x3 convolution over images of any size by Winograd's algorithm, and when they are taken.

Tiles of places (`open_grid.py`) compute more than an image has where it is no multiple of them, and read the weights
for each. A kernel of Winograd's algorithm needs neither: its own tiles are small, and go on from row to row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import gcd, prod

import tvm.script.ir_builder.tirx as builder

from autofuse.device.target import Target
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.families.contraction.family import CONTRACTION
from autofuse.kernels.families.contraction.form import Convolution, contraction_form
from autofuse.kernels.families.contraction.guesses.winograd import LEAST_TILES
from autofuse.kernels.families.contraction.winograd import ALGORITHMS, Side, winograd_refusal
from autofuse.kernels.families.protocol import Schedule, vector_lanes
from autofuse.kernels.families.registry import nests_of
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.scalar import SCALAR
from autofuse.kernels.open_sizes.images.grid_tiles import Range, Split
from autofuse.kernels.open_sizes.images.image_winograd import ImageWinograd, Plane
from autofuse.kernels.open_sizes.images.open_grid import (
    Given,
    GridForm,
    GridTile,
    Lengths,
    TileArray,
    declaring,
    grid_function,
)
from autofuse.kernels.tir.emit import Array, Emitter, Expr
from autofuse.kernels.workload.workload import Value, Workload

PLANE = [2, 3]
"""The axes of an image that are open."""
SAMPLE = (64, 112)
"""Places of the sample whose schedule a kernel has: of so many tiles that chunks of each size are some."""
FEW = (8, 8)
"""The same for images of few places."""
SIDE = 4
"""Results along a side of the tiles that are counted."""


def algorithm(schedule: Schedule) -> int:
    """Results along a side of the tiles of Winograd's algorithm, where a schedule has it; else 0."""
    return ALGORITHMS.get(str(CONTRACTION.chosen(schedule)["algorithm"]), 0)


def with_winograd(schedule: Schedule) -> Schedule:
    """A schedule with Winograd's algorithm, of the smallest tiles where it has another one."""
    return schedule if algorithm(schedule) else {**schedule, CONTRACTION.full("algorithm"): "winograd2"}


def has_winograd(workload: Workload, target: Target) -> bool:
    """Whether a sample is one convolution that has Winograd's form, with what is computed of each result."""
    nests = nests_of(workload)
    if len(nests) != 1 or nests[0].anchor is None or nests[0].anchor.op_type != "Conv":
        return False
    anchor = nests[0].anchor
    form = contraction_form(workload, anchor)
    plain = all(window.dilation == 1 for window in form.windows)
    around = all(one is anchor or (one.op_type in SCALAR and not one.domain) for one in workload.operators)
    lanes = vector_lanes(workload, target)
    return (
        plain and around and len(form.windows) == len(SAMPLE) and isinstance(form, Convolution)
        and winograd_refusal(workload, anchor, form, lanes) is None
    )  # fmt: skip


def samples(ranges: Sequence[Range]) -> tuple[Split, Split]:
    """The lengths of the samples along two sizes: of a large image, and of one of few tiles where there may be such."""
    least = [-(-one.low // SIDE) for one in ranges]
    large = [min(most, -(-one.high // SIDE) * SIDE) for most, one in zip(SAMPLE, ranges, strict=True)]
    few = [min(most, one) for most, one in zip(FEW, large, strict=True)]
    if least[0] * least[1] > LEAST_TILES or few == large:
        return Split((large[0],), cut=True), Split((large[1],), cut=True)
    return Split((large[0], few[0]), cut=True), Split((large[1], few[1]), cut=True)


def sample_for(lengths: Sequence[Lengths], extents: Sequence[int]) -> Lengths:
    """Of the samples the one whose schedule computes images with such extents."""
    few = prod(-(-extent // SIDE) for extent in extents[-len(SAMPLE) :]) <= LEAST_TILES
    return lengths[-1] if few else lengths[0]


def winograd_kernel(form: GridForm, tiles: Mapping[Lengths, GridTile], target: Target, threads: int = 1) -> Kernel:
    """The kernel of a convolution over images of any size. `tiles`: the samples, that of a large image first."""

    def emit(arguments: Sequence[Given], constants: Constants) -> None:
        _WinogradGrid(form, target, arguments, constants, threads).emit(list(tiles.values()))

    return grid_function(form, emit)


class _WinogradGrid:
    """Emits the convolution of all images."""

    def __init__(
        self, form: GridForm, target: Target, arguments: Sequence[Given], constants: Constants, threads: int
    ) -> None:
        self.target, self.arguments, self.constants = target, arguments, constants
        self.threads = threads
        self.strides = [one.strides() for one in arguments]
        looked = next(one for one in arguments if one.argument.looked)
        made = arguments[len(form.inputs)]
        self.images, outputs, sizes = made.extents[0], made.extents[2:], looked.extents[2:]
        assert form.units is not None
        slides = [form.slides[size] for size in form.sizes[-len(SAMPLE) :]]
        self.bounds = [*zip(sizes, outputs, slides, form.units, strict=True)]

    def emit(self, tiles: Sequence[GridTile]) -> None:
        """Emits the loop over images, and in it what computes those of many tiles, and those of few."""
        counted: Expr = 1
        for _, extent, _, _ in self.bounds:
            counted = counted * ((extent + SIDE - 1) // SIDE)
        with builder.serial(0, self.images) as image:
            large, *few = (partial(self.image, tile, number, image) for number, tile in enumerate(tiles))
            if not few:
                large()
                return
            with builder.If(counted > LEAST_TILES):
                with builder.Then():
                    large()
                with builder.Else():
                    few[0]()

    def image(self, tile: GridTile, number: int, image: Expr) -> None:
        """One image, under the schedule of a sample."""
        workload, m = tile.workload, algorithm(tile.schedule)
        indices = (*workload.of_kind("input"), *workload.of_kind("output"))
        arrays = {
            index: self.array(workload.values[index], one, strides, image)
            for index, one, strides in zip(indices, self.arguments, self.strides, strict=True)
        }
        emitter = Emitter(self.target, vector_lanes(workload, self.target))
        scope = Scope(workload, emitter, arrays, declaring(self.constants, number))
        (nest,) = nests_of(workload)
        assert nest.anchor is not None
        form = contraction_form(workload, nest.anchor)
        assert isinstance(form, Convolution) and m
        high, wide = (Side(size, extent, -slide.offset, gcd(m, unit)) for size, extent, slide, unit in self.bounds)
        knobs = CONTRACTION.chosen(tile.schedule)
        ImageWinograd(scope, nest, form, knobs, m, Plane((high, wide))).emit_image(self.threads)

    def array(self, value: Value, given: Given, strides: tuple[Expr, ...], image: Expr) -> Array:
        """What belongs to an image of an argument; all of it, where it is the same for each."""
        argument = given.argument
        own = len(value.shape) == len(self.bounds) + 2 and (argument.value.shape[0] > 1 or 0 in argument.axes)
        at = {"elem_offset": builder.bind(image * strides[0])} if own else {}
        flat = builder.decl_buffer((given.elements,), value.dtype, data=given.buffer.data, align=64, **at)
        shape = (1, *value.shape[1:]) if own else value.shape
        return TileArray(flat, shape, value.dtype, value.block, strides=strides)
