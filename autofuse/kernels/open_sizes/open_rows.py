"""Kernels over an open number of rows: a loop whose count is known when it runs, around tiles of a fixed count.

The families emit the tiles as they emit any kernel: of a workload with so many rows, under a schedule of its own. A
tile that would reach beyond the last row is moved back to the last rows, and computes some of them again. Where there
are tiles enough for all threads, each thread takes some; the tiles that are left are shared one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import tvm.script.ir_builder.tirx as builder
from numpy.typing import NDArray
from tvm import tirx

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.graph.model import Tensor
from autofuse.graph.own.recurrence import RECURRENCES
from autofuse.graph.own.weight_only import OP_TYPE as WEIGHT_ONLY
from autofuse.graph.transform.open_sizes.group_kinds import Picked
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import Constants, Kernel, check_layouts, emit_body
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.nest.evaluate import Pack
from autofuse.kernels.open_sizes.open_function import Argument, Arguments, open_function
from autofuse.kernels.open_sizes.products.kernel import emit_product
from autofuse.kernels.open_sizes.products.tiles import ProductTile, product_counts, product_tiles
from autofuse.kernels.schedule.covers import Cover
from autofuse.kernels.schedule.knobs import packing
from autofuse.kernels.tir.emit import Array, Expr
from autofuse.kernels.workload.as_graph import workload_cost
from autofuse.kernels.workload.workload import Workload

TILES = (16, 4, 1)
"""Rows of a tile, the most first. A product reads its weights once a tile, so that more rows read them less often."""
UNPACKING = (64, 16, 4, 2, 1)
"""The same of products that unpack their weights: a tile unpacks all of them, which more rows do less often."""
ENOUGH_ELEMENTS = 4096
"""Elements of a row of a result from which on a tile is one row, where there are no weights."""
ENOUGH_POSITIONS = 16
"""How often a single row has to use each weight, for one row to be a tile: once a pixel, or once a token."""
WEIGHTED = {
    "Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1, "MatMulInteger": -1,
    WEIGHT_ONLY: -1, "Bfloat16Conv": 1, "Bfloat16MatMul": -1,
}  # fmt: skip
"""Operators with weights, and the axis of the result along which these differ."""
LEAST_WORK = 1 << 15
"""Operations, and elements that are moved, of a thread for which whole tiles are worth starting the threads."""
MOST_ELEMENTS = (1 << 31) - 1
"""Of a tensor: kernels count its elements in 32 bits."""


@dataclass(frozen=True)
class Tile:
    """`rows` of a kernel's rows at a time, as the `workload` of so many rows under a `schedule`.

    `us`: its time as measured, None where there is none.
    """

    rows: int
    workload: Workload
    schedule: Schedule
    us: float | None = None


def tile_rows(workload: Workload, rows: Mapping[int, OpenAxis], size: int, high: int) -> tuple[int, ...]:
    """Rows of the tiles of a kernel, the most first, the last of them 1.

    `workload`: at the open size `size`; `rows`: its values that have it. `high`: the largest size.
    """
    outputs = [workload.values[index] for index in workload.of_kind("output") if index in rows]
    positions = _positions(workload, size)
    if any(operator.op_type in RECURRENCES for operator in workload.operators):
        single = False  # each step of a row reads all weights
    elif positions:
        single = min(positions) >= ENOUGH_POSITIONS
    else:
        single = max(prod(value.shape) // size for value in outputs) >= ENOUGH_ELEMENTS
    unpacks = any(operator.op_type == WEIGHT_ONLY for operator in workload.operators)
    return (1,) if single else tuple(count for count in (UNPACKING if unpacks else TILES) if count <= max(1, high))


def tile_counts(tiles: Sequence[int], rows: int) -> list[int]:
    """How many tiles of each kind compute so many rows by the rule: half a tile or more is worth a whole one, and three
    quarters of a long one, where there are rows enough for it.

    `tiles`: rows of each kind, the most first, the last of 1.
    """
    left, found = rows, []
    for size in tiles:
        moved = size // 2 if size <= TILES[0] else size // 4
        count = left if size == 1 else (left + moved) // size if rows >= size else 0
        left = max(left - count * size, 0)
        found.append(count)
    return found


def _positions(workload: Workload, size: int) -> list[int]:
    """For each operator with weights how often a row uses each of them."""
    found = []
    for operator in workload.operators:
        axis = WEIGHTED.get(operator.op_type)
        if axis is not None and workload.values[operator.inputs[1]].kind == "constant":
            shape = workload.values[operator.outputs[0]].shape
            found.append(prod(shape) // size // shape[axis])
    return found


def open_kernel(
    tiles: Sequence[Tile],
    rows: Mapping[int, OpenAxis],
    target: Target,
    picked: Picked | None = None,
    threads: int = 1,
    repeated: Collection[int] = (),
    cover: RowCover | None = None,
) -> Kernel:
    """The kernel of a workload over any number of rows; over the `picked` ones, by one tile of so many, if given; by
    one tile of all that there is, if that has 0 rows.

    `tiles`: the one with the most rows first, the last with a single row. `rows`: the inputs and outputs, by their
    index in each tile's workload, that have the open size; the others are the same for all rows. Packed constants are
    those of the first tile, then those of the second, and so on: `pack` is given the constants of one row. `threads`:
    for which the tiles are cut; every number of threads computes the same. `repeated`: inputs and outputs of which each
    sequence has its own. `cover`: which tiles it takes, where whoever builds it knows.

    InputError when a tile cannot be emitted, or an open axis is not where rows lie behind one another.
    """
    if picked is None and tiles[-1].rows > 1:
        raise InputError("the last tile must have a single row")
    for tile in tiles:
        check_layouts(tile.workload)

    joined = are_joined(rows, repeated, picked)
    if not set(tiles[0].workload.of_kind("output")) <= set(rows):
        threads = 1  # what is the same for all rows is written with each of them, to one place

    def emit(given: Arguments, constants: Constants) -> None:
        count = None if given.count is None else builder.bind(given.count)
        if joined and given.repeats is not None:
            count, given = builder.bind(count * given.repeats), Arguments(given.one)
        with given.each() as arguments:
            _Rows(tiles, rows, target, threads, arguments, constants).emit(count, picked, cover)

    return open_function(tiles[0].workload, rows, emit, repeated=repeated)


def are_joined(rows: Collection[int], repeated: Collection[int], picked: Picked | None = None) -> bool:
    """Whether the rows of all sequences are those of one: no tensor has something for a row, or for a sequence, that
    is not there for each row of each sequence."""
    return picked is None and set(rows) == set(repeated)


RowCover = tuple[Cover, list[ProductTile] | None]
"""Which tiles compute so many rows, of a kernel over any number of them; and what these are as those of a product whose
panels each meet all rows, where they are."""


def row_cover(tiles: Sequence[Tile], target: Target, threads: int) -> RowCover:
    """The tiles that a kernel takes."""
    products = product_tiles([(tile.rows, tile.workload, tile.schedule) for tile in tiles], target, threads)
    lengths = [tile.rows for tile in products or tiles]
    times = {tile.rows: tile.us for tile in tiles if tile.us is not None}
    if len(times) == len(tiles) > 1:
        return Cover.measured(lengths, times), products
    rule = tile_counts if products is None else product_counts
    return Cover.ruled(lengths, partial(rule, lengths)), products


class _Rows:
    """Emits a workload over rows that are counted when it runs."""

    def __init__(
        self,
        tiles: Sequence[Tile],
        rows: Mapping[int, OpenAxis],
        target: Target,
        threads: int,
        arguments: Mapping[int, Argument],
        constants: Constants,
    ) -> None:
        self.tiles, self.rows, self.target, self.threads = tiles, rows, target, threads
        self.arguments, self.constants = arguments, constants

    def emit(self, count: Expr, picked: Picked | None, known: RowCover | None) -> None:
        """All of `count` rows, or the `picked` ones."""
        if picked is not None or not self.tiles[0].rows:
            self._body(0, self.tiles[0], count - picked.rows if picked is not None and picked.last else 0)
            return
        cover, products = known or row_cover(self.tiles, self.target, self.threads)
        if products is not None:
            emit_product(products, cover, self.target, self.threads, count, self._arrays, self._declare)
            return
        begin: Expr = tirx.const(0, "int32")
        for number, whole in enumerate(cover.emitted(count)):
            if cover.uses(number):
                spread = self._spread(number, count) if number == cover.main and self.threads > 1 else 0
                begin = self._tiles(number, count, begin, spread, whole)

    def _tiles(self, number: int, count: Expr, begin: Expr, spread: Expr, whole: Expr) -> Expr:
        """The loop over the `whole` tiles of one kind from row `begin` on, of which the first ones are `spread`. The
        row behind them."""
        tile = self.tiles[number]
        with builder.serial(spread, whole) as step:
            row = builder.bind(tirx.min(begin + step * tile.rows, count - tile.rows))
            self._body(number, tile, row)
        return builder.bind(begin + whole * tile.rows)

    def _spread(self, number: int, count: Expr) -> Expr:
        """The loop over the tiles that the threads share out, which are the first ones. How many it takes."""
        tile = self.tiles[number]
        found = builder.bind(shared_tiles(tile, count, self.threads))
        with builder.If(found > 0), builder.Then(), builder.parallel(0, found) as step:
            self._body(number, tile, step * tile.rows, alone=True)
        return found

    def _body(self, number: int, tile: Tile, row: Expr, alone: bool = False) -> None:
        """One tile from `row` on; `alone`: by one thread."""
        emit_body(tile.workload, tile.schedule, self.target, self._arrays(number, row), self._declare(number), alone)

    def _arrays(self, number: int, row: Expr) -> dict[int, Array]:
        """What tile `number` sees of all arguments, from `row` on."""
        return {index: self._array(self.tiles[number], index, row) for index in self.arguments}

    def _array(self, tile: Tile, index: int, row: Expr) -> Array:
        """What a tile sees of an argument: its rows, or all of what is the same for all rows."""
        value = tile.workload.values[index]
        elements = prod(value.shape)
        start = row * (elements // tile.rows) if index in self.rows else 0
        return Array(self.arguments[index].flat(elements, start), value.shape, value.dtype, value.block)

    def _declare(self, number: int) -> Callable[[str, Pack, tuple[int, ...], str], Array]:
        """Declares the constants of a tile: those that an earlier one packs alike are its own, too."""
        packed = [_packed_from(tile) for tile in self.tiles]
        owner = packed.index(packed[number])

        def declare(name: str, pack: Pack, shape: tuple[int, ...], dtype: str) -> Array:
            own = f"tile{owner}_{name}_{'x'.join(map(str, shape))}_{dtype}"
            return self.constants.declare(own, _of_tile(owner, pack), shape, dtype)

        return declare


def _packed_from(tile: Tile) -> tuple[object, ...]:
    """All that packed constants of one name and shape may depend on: the constants, and how a schedule packs them."""
    constants = [
        (index, value.shape, value.dtype, value.literal)
        for index, value in enumerate(tile.workload.values)
        if value.kind in ("constant", "literal")
    ]
    return constants, packing(tile.schedule)


def _of_tile(number: int, pack: Pack) -> Pack:
    """A packing that finds the constants of its tile among those of all tiles."""

    def packed(constants: Sequence[Any]) -> NDArray[np.generic]:
        return pack(constants[number])

    return packed


def work(workload: Workload) -> int:
    """Operations of a workload, and elements that it reads and writes."""
    moved = sum(prod(value.shape) for value in workload.values if value.kind in ("input", "output"))
    return workload_cost(workload).flops + moved


def shared_tiles(tile: Tile, rows: Expr, threads: int) -> Expr:
    """How many tiles of so many rows the threads share out: as many for each, and none that is moved back.

    None where a thread would have little to do.
    """
    least = threads * -(-LEAST_WORK // max(1, work(tile.workload)))
    found = rows // (tile.rows * threads) * threads
    return tirx.Select(found >= least, found, tirx.const(0, "int32"))


def check_elements(largest: Tensor, times: int = 1) -> None:
    """InputError for a tensor that has too many elements at the largest size, so many times."""
    elements = largest.elements * times
    if elements > MOST_ELEMENTS:
        raise InputError(
            f"a tensor would have {elements:,} elements at the largest size, and at most {MOST_ELEMENTS:,} are possible"
        )
