"""Kernels of a convolution or a pooling that go over a whole image of any size, and when they are taken.

Tiles of places (`open_grid.py`) compute more than an image has where it is no multiple of them, and read the weights
for each. Winograd's algorithm needs neither: its own tiles are small, and go on from row to row. Nor do windows that
are computed row by row: their rows are as long as those of the image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd, prod
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.families.contraction.family import CONTRACTION
from autofuse.kernels.families.contraction.form import (
    Convolution,
    contraction_form,
    group_lanes,
    group_lanes_refusal,
)
from autofuse.kernels.families.contraction.parallel_grid import EVEN, evenness
from autofuse.kernels.families.contraction.winograd import ALGORITHMS, Side, winograd_refusal
from autofuse.kernels.families.protocol import Schedule, vector_lanes
from autofuse.kernels.families.registry import nests_of
from autofuse.kernels.families.windowed.family import POOLS, WINDOWED
from autofuse.kernels.families.windowed.pixel_lanes import rows_refusal
from autofuse.kernels.families.windows import CONVOLUTIONS, convolution_windows
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.scalar import SCALAR
from autofuse.kernels.nest.tiles import Window
from autofuse.kernels.open_sizes.images.grid_tiles import Range, Split
from autofuse.kernels.open_sizes.images.image_rows import EMITTERS, PLACES
from autofuse.kernels.open_sizes.images.image_windows import WINDOWS
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
from autofuse.kernels.open_sizes.images.row_parts import Rows, edges
from autofuse.kernels.tir.emit import Array, Emitter, Expr
from autofuse.kernels.workload.workload import Value, Workload

PLANE = [2, 3]
"""The axes of an image of which one or both are open."""
_OF_CHANNELS = ("Conv", "BatchNormalization")
"""Operators whose constants have an element a channel, not one a place."""
SAMPLE = (64, 112)
"""Places of the sample whose schedule a kernel has: of so many tiles that chunks of each size are some."""
FEW = (8, 8)
"""The same for images of few places."""
ROWS = (16, 64)
"""The same for convolutions that are computed row by row."""
STAYING = 3
"""Part of the second cache that a panel of weights fills at most which every row of results reads."""
SIDE = 4
"""Results along a side of the tiles that are counted."""
READING = 8
"""Multiplications of a weight that take as long as reading it from the last cache."""
DIRECT, WINOGRAD = 5, 6
"""What a multiplication takes, as a ratio: Winograd's algorithm transforms besides."""
STARTING = 3
"""Results of a row that could be computed while its weights are read anew from the second cache."""
NARROW = 2
"""Results along a row that look beyond the borders, at most, where shorter rows have code of their own."""
PLAIN: dict[str, int | str] = {"algorithm": "direct", "split_k": 1, "k_blocking": 1, "order": "weights"}
"""Knobs of a convolution that is computed row by row, without an algorithm."""


def algorithm(schedule: Schedule) -> int:
    """Results along a side of the tiles of Winograd's algorithm, where a schedule has it; else 0."""
    return ALGORITHMS.get(str(CONTRACTION.chosen(schedule)["algorithm"]), 0)


def with_winograd(schedule: Schedule) -> Schedule:
    """A schedule with Winograd's algorithm, of the smallest tiles where it has another one."""
    return schedule if algorithm(schedule) else {**schedule, CONTRACTION.full("algorithm"): "winograd2"}


def by_winograd(workload: Workload, target: Target) -> bool:
    """Whether a sample is one convolution that has Winograd's form, with what is computed of each result."""
    form = _form(workload)
    if form is None or form.operator.op_type != "Conv" or any(window.dilation != 1 for window in form.windows):
        return False
    return winograd_refusal(workload, form.operator, form, vector_lanes(workload, target)) is None


def by_rows(workload: Workload, schedule: Schedule, target: Target) -> bool:
    """Whether a sample is one convolution or pooling, with what is computed of each result, that is computed directly
    under a schedule."""
    nest = _nest(workload)
    if nest is None or nest.anchor is None:
        return False
    if WINDOWED.takes(workload, nest):
        direct = WINDOWED.chosen(schedule)["algorithm"] == "direct"
        return direct or rows_refusal(workload, nest.anchor) is not None
    form, knobs = _form(workload), CONTRACTION.chosen(schedule)
    if form is None or knobs["algorithm"] not in EMITTERS or knobs["order"] == "copied":
        return False
    if knobs["algorithm"] == "group_lanes" and group_lanes_refusal(workload, form, vector_lanes(workload, target)):
        return False
    return knobs["split_k"] == 1 and (knobs["k_blocking"] == 1 or _in_one_pass(form, int(knobs["vectors"]), target))


def _in_one_pass(form: Convolution, vectors: int, target: Target) -> bool:
    """Whether rows of results need no passes over parts of a panel of weights: it stays in the second cache beside what
    windows see. A map of one row reads it once."""
    taps, staying = prod(window.taps for window in form.windows), 1 if form.windows[0].outputs == 1 else STAYING
    return taps > 1 and 4 * vectors * target.lanes * form.depth * taps * staying <= target.l2_bytes


def is_within(grid: GridForm) -> bool:
    """Whether the first results see the first places: none is passed over in front of them."""
    return all(slide.offset == 0 for slide in grid.plane)


def has_borders(workload: Workload, grid: GridForm) -> bool:
    """Whether no result of windows computed row by row looks beyond both borders of an image."""
    nest = _nest(workload)
    if nest is None or nest.anchor is None or nest.anchor.op_type == "ConvTranspose":
        return False
    along = convolution_windows(workload, nest.anchor)[-1]
    return sum(edges(along, grid.borders[-1])) <= grid.bounds[-1].low


def shares_rows(workload: Workload, grid: GridForm, threads: int) -> bool:
    """Whether threads share the rows of an image evenly, where their number is fixed, and they share nothing else."""
    form, made = _form(workload), grid.outputs[0]
    if threads == 1 or form is None or PLANE[0] in made.axes or all(window.taps == 1 for window in form.windows):
        return True
    return evenness([1] * (made.value.shape[PLANE[0]] * form.batch[1]), threads) >= EVEN


def _nest(workload: Workload) -> Nest | None:
    """The nest of windows over an image that a sample is; None where it computes anything else than what needs one
    place of others."""
    nests = nests_of(workload)
    anchor = nests[0].anchor if len(nests) == 1 else None
    if anchor is None or anchor.op_type not in CONVOLUTIONS | POOLS.keys():
        return None
    around = all(one is anchor or (one.op_type in SCALAR and not one.domain) for one in workload.operators)
    image = len(workload.values[anchor.inputs[0]].shape) == len(SAMPLE) + 2
    return nests[0] if around and image else None


def _form(workload: Workload) -> Convolution | None:
    """The convolution of all channels, or of groups of some, that a sample is; None where it is something else."""
    nest = _nest(workload)
    if nest is None or nest.anchor is None or not CONTRACTION.takes(workload, nest):
        return None
    form = contraction_form(workload, nest.anchor, by_rows=True)
    return form if isinstance(form, Convolution) else None


def winograd_samples(ranges: Sequence[Range]) -> tuple[Split, ...]:
    """The lengths of the samples along rows and columns: of a large image, and of one of few tiles where there may be
    such."""
    large = [min(most, -(-one.high // SIDE) * SIDE) for most, one in zip(SAMPLE, ranges, strict=True)]
    few = [min(most, one) for most, one in zip(FEW, large, strict=True)]
    if not Costs(*(one.low for one in ranges)).are_few or few == large:
        return tuple(Split((one,), cut=True) for one in large)
    return tuple(Split(both, cut=True) for both in zip(large, few, strict=True))


def row_sample(ranges: Sequence[Range]) -> tuple[Split, ...]:
    """The lengths of the sample of a convolution that is computed row by row."""
    return tuple(
        Split((max(min(most, one.high) // one.aligned, 1) * one.aligned,), cut=True)
        for most, one in zip(ROWS, ranges, strict=True)
    )


def sample_for(form: GridForm, lengths: Sequence[Lengths], extents: Sequence[int]) -> Lengths:
    """Of the samples of a kernel the one whose schedule computes images with such extents along its open sizes."""
    along = (*form.fixed, *extents[len(form.fixed) - len(SAMPLE) :])
    return lengths[-1] if Costs(*along).are_few else lengths[0]


def whole_kernel(form: GridForm, tiles: Mapping[Lengths, GridTile], target: Target, threads: int = 1) -> Kernel:
    """The kernel of a convolution over images of any size. `tiles`: the samples, that of a large image first."""

    def emit(arguments: Sequence[Given], constants: Constants) -> None:
        _WholeGrid(form, target, arguments, constants, threads).emit(list(tiles.values()))

    return grid_function(form, emit)


@dataclass(frozen=True)
class Costs:
    """What the ways to compute a map of a 3x3 convolution cost: multiplications by each weight, where reading it counts
    as `READING` of them. `high`, `wide`: results along rows and columns."""

    high: Expr | int
    wide: Expr | int

    def tiles(self, side: int) -> Any:
        """Tiles of so many results along each side."""
        return ((self.high + side - 1) // side) * ((self.wide + side - 1) // side)

    def winograd(self, side: int) -> Any:
        """By tiles of so many results along each side."""
        return WINOGRAD * (side + 2) ** 2 * (self.tiles(side) + READING)

    @property
    def are_few(self) -> Any:
        """Whether tiles of 2x2 cost no more than those of 4x4: of these there are five at most, or of little use."""
        return self.winograd(SIDE // 2) <= self.winograd(SIDE)

    @property
    def direct(self) -> Any:
        """By no tiles."""
        return DIRECT * 9 * (self.high * (self.wide + STARTING) + READING)


@dataclass(frozen=True)
class DirectRows:
    """A map of few places, computed row by row without an algorithm. `tile`: a sample with the schedule for that;
    `least`: results along a row at least."""

    tile: GridTile
    least: int

    @classmethod
    def of(cls, tile: GridTile, grid: GridForm, target: Target, threads: int) -> DirectRows | None:
        """The same for a sample of few tiles that Winograd's algorithm has; None where that cannot be, or pays for no
        map of the range."""
        schedule = {**tile.schedule, **{CONTRACTION.full(name): value for name, value in PLAIN.items()}}
        nest = _nest(tile.workload)
        if nest is None or nest.anchor is None or not by_rows(tile.workload, schedule, target):
            return None
        if not grid.borders and not is_within(grid):
            return None
        ends = edges(convolution_windows(tile.workload, nest.anchor)[-1], grid.borders[-1]) if grid.borders else (0, 0)
        high, wide = grid.bounds
        least = max(wide.low, sum(ends) if sum(ends) > NARROW else 1)
        smallest = Costs(max(high.low, threads), least)
        pays = smallest.direct < smallest.winograd(SIDE // 2) and wide.high >= least and high.high >= threads
        return cls(replace(tile, schedule=schedule), least) if pays else None

    def takes(self, costs: Costs, threads: int) -> Expr:
        """Whether no tiles cost less than those of 2x2, with a row for each thread."""
        cheaper = costs.direct < costs.winograd(SIDE // 2)
        return tirx.all(cheaper, costs.wide >= self.least, costs.high >= threads)


def _counted(extents: Sequence[Expr]) -> list[Expr]:
    """Extents as loops count them, of which some are known."""
    return [tirx.const(one, "int32") if isinstance(one, int) else one for one in extents]


class _WholeGrid:
    """Emits the convolution of all images."""

    def __init__(
        self, form: GridForm, target: Target, arguments: Sequence[Given], constants: Constants, threads: int
    ) -> None:
        self.form, self.target, self.arguments, self.constants = form, target, arguments, constants
        self.threads = threads
        self.strides = [one.strides() for one in arguments]
        made = arguments[len(form.inputs)]
        looked = next((one for one in arguments if one.argument.looked), made)
        self.images, outputs, sizes = made.extents[0], _counted(made.extents[2:]), _counted(looked.extents[2:])
        assert form.bounds
        self.bounds = [*zip(sizes, outputs, form.plane, form.bounds, strict=True)]

    def emit(self, tiles: Sequence[GridTile]) -> None:
        """Emits the loop over images, and in it what computes those of many tiles, those of few, and those of so few
        places that reading the weights takes longer than all else."""
        with builder.serial(0, self.images) as image:
            large, *few = (partial(self.image, tile, number, image) for number, tile in enumerate(tiles))
            if not few:
                large()
                return
            costs = Costs(*(extent for _, extent, _, _ in self.bounds))
            with builder.If(costs.are_few):
                with builder.Then():
                    self.few(tiles, costs, image, few[0])
                with builder.Else():
                    large()

    def few(self, tiles: Sequence[GridTile], costs: Costs, image: Expr, by_tiles: Callable[[], None]) -> None:
        """An image of few places: directly, where that costs less than `by_tiles`."""
        small = DirectRows.of(tiles[-1], self.form, self.target, self.threads)
        if small is None:
            by_tiles()
            return
        with builder.If(small.takes(costs, self.threads)):
            with builder.Then():
                self.image(small.tile, len(tiles), image, small.least)
            with builder.Else():
                by_tiles()

    def image(self, tile: GridTile, number: int, image: Expr, least: int = 0) -> None:
        """One image, under the schedule of a sample; `least`: see `rows`."""
        workload, m = tile.workload, algorithm(tile.schedule)
        indices = (*workload.of_kind("input"), *workload.of_kind("output"))
        arrays = {
            index: self.array(workload.values[index], one, strides, image)
            for index, one, strides in zip(indices, self.arguments, self.strides, strict=True)
        }
        emitter = Emitter(self.target, vector_lanes(workload, self.target))
        scope = Scope(workload, emitter, arrays, declaring(self.constants, number))
        (nest,) = nests_of(workload)
        assert bool(m) == self.form.winograd or least
        if not m:
            emitter.alone = self.threads == 1
            self.rows(scope, nest, tile.schedule, least)
            return
        assert nest.anchor is not None
        form = contraction_form(workload, nest.anchor, by_rows=True)
        assert isinstance(form, Convolution)
        knobs = CONTRACTION.chosen(tile.schedule)
        high, wide = (Side(size, extent, -slide.offset, gcd(m, one.unit)) for size, extent, slide, one in self.bounds)
        ImageWinograd(scope, nest, form, knobs, m, Plane((high, wide))).emit_image(self.threads)

    def rows(self, scope: Scope, nest: Nest, schedule: Schedule, least: int = 0) -> None:
        """One image, row by row; `least`: results along a row at least, where the range has fewer."""
        (seen_rows, rows, *_), (seen_columns, columns, _, range_) = self.bounds
        lengths = -(-max(range_.low, least) // range_.unit) * range_.unit, range_.high, range_.unit
        extents = Rows(rows, columns, seen_rows, seen_columns, *lengths, self.form.borders, self.threads)
        if WINDOWED.takes(scope.workload, nest):
            WINDOWS[WINDOWED.kind(nest)](scope, nest, WINDOWED.chosen(schedule), extents).emit()
            return
        assert nest.anchor is not None
        form, knobs = contraction_form(scope.workload, nest.anchor, by_rows=True), CONTRACTION.chosen(schedule)
        assert isinstance(form, Convolution)
        algorithm = str(knobs["algorithm"])
        form = group_lanes(form) if algorithm == "group_lanes" else form
        emitters = PLACES if algorithm in PLACES and self.sees_one_place(scope.workload, form) else EMITTERS
        emitters[algorithm](scope, nest, form, knobs, extents).emit()

    def sees_one_place(self, workload: Workload, form: Convolution) -> bool:
        """Whether each result sees the place where it stands alone, and all tensors have all places or none."""
        still = all((type(one), one.taps, one.stride) == (Window, 1, 1) for one in form.windows)
        opened, shape = self.form.outputs[0].axes, self.form.outputs[0].value.shape
        wanted = [axis for axis in PLANE if axis in opened or shape[axis] > 1]
        fixed = [axis for axis in wanted if axis not in opened]

        def aligned(own: Sequence[int]) -> tuple[int, ...]:
            return (*(1,) * (len(shape) - len(own)), *own)[-len(shape) :]

        def places(one: Given) -> int:
            own, behind = aligned(one.argument.value.shape), len(shape) - len(one.argument.value.shape)
            return sum(
                own[axis] == shape[axis] if axis in fixed else axis - behind in one.argument.axes for axis in wanted
            )

        beside = (index for one in workload.operators if one.op_type not in _OF_CHANNELS for index in one.inputs)
        constants = (workload.values[one] for one in beside if one >= 0)
        alike = (
            one.kind not in ("constant", "literal") or not fixed or aligned(one.shape)[fixed[0]] == 1
            for one in constants
        )
        flat = PLANE[-1] in wanted and all(places(one) in (0, len(wanted)) for one in self.arguments)
        return still and not self.form.borders and flat and all(alike)

    def array(self, value: Value, given: Given, strides: tuple[Expr, ...], image: Expr) -> Array:
        """What belongs to an image of an argument; all of it, where it is the same for each."""
        argument = given.argument
        own = len(value.shape) == len(self.bounds) + 2 and (argument.value.shape[0] > 1 or 0 in argument.axes)
        at = {"elem_offset": builder.bind(image * strides[0])} if own else {}
        flat = builder.decl_buffer((given.elements,), value.dtype, data=given.buffer.data, align=64, **at)
        shape = (1, *value.shape[1:]) if own else value.shape
        return TileArray(flat, shape, value.dtype, value.block, strides=strides)
