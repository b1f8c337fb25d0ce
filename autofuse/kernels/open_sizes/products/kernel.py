"""Products over an open number of rows: a loop over panels of weights around one over tiles of rows.

So each weight is read from memory once a call, as in a kernel of a fixed number of rows. Tiles one after the other,
each with all panels, would read all weights for every 16 rows. A panel that the second cache does not hold is cut into
parts, each of which meets all rows of a block before the next one does; the sums so far wait in a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.cut_sums import Waiting
from autofuse.kernels.families.contraction.direct import TileTask
from autofuse.kernels.families.contraction.panels import streams
from autofuse.kernels.families.contraction.parallel_grid import ParallelGrid
from autofuse.kernels.families.protocol import vector_lanes
from autofuse.kernels.nest.evaluate import Pack, Scope
from autofuse.kernels.nest.tiles import Run, Window
from autofuse.kernels.open_sizes.products.emitters import FewRowsEmitter, PassesEmitter, RowsEmitter
from autofuse.kernels.open_sizes.products.narrow import NarrowRowsEmitter
from autofuse.kernels.open_sizes.products.tiles import ProductTile
from autofuse.kernels.schedule.covers import Cover
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index

MANY, SOME = 4, 2
"""Tiles among which a panel that is asked for is shared out: the first four of the longest, where there are as many,
else the first two of any length, where there are two."""
FEW = (1, 2, 3)
"""Rows of a call that have a loop of their own. They only read the weights."""
MOST_WAITING = 256
"""Rows whose sums wait while parts of a panel are read: with a part they fit the second cache."""
Arrays = Callable[[int, Expr], dict[int, Array]]
"""What the tile of a number sees of the arguments, from a row on."""
Declare = Callable[[int], Callable[[str, Pack, tuple[int, ...], str], Array]]
"""Declares the constants of the tile of a number."""
Step = Callable[[PassesEmitter], Callable[[Waiting, TileTask, Run, Expr], None]]
"""What a pass does with a tile of a row."""


@dataclass(frozen=True)
class TileLoop:
    """A loop over so many tiles, `number`, one behind the other from row `begin` on.

    `asking`: parts of the next panel, of which each tile asks for its own; 0: they ask for nothing. `before`: tiles
    ahead of these.
    """

    tile: ProductTile
    begin: Expr
    number: Expr
    asking: int = 0
    before: Expr = 0


def emit_product(
    tiles: Sequence[ProductTile],
    cover: Cover,
    target: Target,
    threads: int,
    count: Expr,
    arrays: Arrays,
    declare: Declare,
) -> None:
    """Emits a product over `count` rows, for so many threads. `cover`: which tiles compute how many rows."""
    emitter = Emitter(target, vector_lanes(tiles[0].workload, target))
    product = _Product(emitter, tiles, cover, arrays, declare)
    if tiles[0].narrow is not None:
        with tiles[0].narrow.multiplier.known():
            product.emit(count)
        return
    for rows in FEW:
        tile = next(one for one in reversed(tiles) if one.rows >= rows or one is tiles[0])
        with emitter.when(count == rows):
            few = FewRowsEmitter(product.scope(tile, 0), tile.nest, tile.form, tile.knobs)
            few.prepare()
            few.all_panels(rows, threads)
    with emitter.when(count > FEW[-1]):
        product.emit(count, FEW[-1] + 1)


@dataclass(frozen=True)
class _Product:
    """A product whose panels each meet all rows, tile by tile."""

    emitter: Emitter
    tiles: Sequence[ProductTile]
    cover: Cover
    arrays: Arrays
    declare: Declare

    def emit(self, count: Expr, least: int = 1) -> None:
        """Emits `count` rows, of which there are `least` or more."""
        if self.main.passes == 1:
            loops = self.loops(count, least)
            with self.panels() as (panel, _):
                self.rows(loops, count, panel)
            return
        with _blocks(self.emitter, count) as (begin, rows):
            block = replace(self, arrays=lambda number, row: self.arrays(number, begin + row))
            loops = block.loops(rows, least)
            with block.panels((MOST_WAITING + self.main.rows) * self.held) as (panel, sums):
                block.in_passes(loops, rows, panel, sums)

    @contextmanager
    def panels(self, elements: int = 0) -> Iterator[tuple[Expr, Any]]:
        """The loop over panels, which the threads share: (panel, a buffer of so many elements)."""
        emitter, first = self.emitter, self.tiles[0]
        columns = -(-first.form.columns // emitter.target.lanes)
        panels = -(-columns // min(int(first.knobs["vectors"]), columns))
        tasks = ParallelGrid.cut(1, panels, 1, first.knobs)
        with emitter.parallel(panels // tasks.panels) as task:
            buffer = emitter.scratch(elements) if elements else None
            with emitter.serial(tasks.panels) as step:
                yield emitter.simplify(task * tasks.panels + step), buffer

    @property
    def main(self) -> ProductTile:
        """The tile that computes most rows."""
        return self.tiles[self.cover.main]

    @property
    def held(self) -> int:
        """Sums of a row that wait while the parts of a panel are read."""
        return int(self.main.knobs["vectors"]) * self.emitter.target.lanes

    def loops(self, count: Expr, least: int) -> list[TileLoop]:
        """All tiles of `count` rows, of which there are `least` or more."""
        alone = streams(self.emitter.target) and self.main.narrow is None
        return list(_loops(self.tiles, self.cover, count, least, alone))

    def scope(self, tile: ProductTile, row: Expr) -> Scope:
        """What a tile sees from a row on."""
        return Scope(tile.workload, self.emitter, self.arrays(tile.number, row), self.declare(tile.number))

    def rows(self, loops: Sequence[TileLoop], count: Expr, panel: Expr) -> None:
        """Emits loops over tiles of `count` rows, for one panel."""
        for loop in loops:
            accumulators = _registers(self.emitter, loop.tile)
            with builder.serial(0, loop.number) as place:
                _one_tile(self.scope(loop.tile, self.first(loop, place, count)), loop, place, panel, accumulators)

    def first(self, loop: TileLoop, place: Expr, count: Expr) -> Expr:
        """The first row of a tile: one that would reach beyond `count` is moved back."""
        return self.emitter.hidden(tirx.min(loop.begin + place * loop.tile.rows, count - loop.tile.rows))

    def in_passes(self, loops: Sequence[TileLoop], count: Expr, panel: Expr, sums: Any) -> None:
        """Emits them for a panel that is read in parts: the sums of most tiles wait while the others meet one."""
        emitter, main = self.emitter, self.main
        waiting = [loop for loop in loops if loop.tile is main]
        whole = replace(waiting[-1], begin=waiting[0].begin, number=waiting[-1].before + waiting[-1].number, before=0)
        vectors, lanes = whole.number * (main.rows * self.held // emitter.lanes), emitter.lanes
        with builder.serial(0, vectors) as place, emitter.vector(lanes) as lane:
            emitter.put(sums, place * lanes + lane, tirx.const(0.0, "float32"))
        with emitter.serial(main.passes) as number:
            for loop in waiting:
                self.passing(loop, count, panel, sums, lambda product: partial(product.add_pass, number))
        self.passing(whole, count, panel, sums, lambda product: product.finish_tile)
        self.rows([loop for loop in loops if loop.tile is not main], count, panel)

    def passing(self, loop: TileLoop, count: Expr, panel: Expr, sums: Any, step: Step) -> None:
        """Emits what one pass does with each tile of a loop."""
        tile, accumulators = loop.tile, _registers(self.emitter, loop.tile)
        with builder.serial(0, loop.number) as place:
            number = loop.before + place
            scope = self.scope(tile, self.first(loop, place, count))
            product = PassesEmitter(scope, tile, number, loop.asking)
            product.prepare()
            emit = partial(step(product), Waiting(sums, number * tile.rows))
            window = Window(tile.rows, 1, outputs=tile.rows)
            product.panel((0,) * len(tile.form.batch), panel, (0,), accumulators, (window, 0), emit)


@contextmanager
def _blocks(emitter: Emitter, count: Expr) -> Iterator[tuple[Expr, Expr]]:
    """A loop over blocks of at most so many rows as wait, all as long or one row longer: (first row, rows)."""
    blocks = builder.bind((count + (MOST_WAITING - 1)) // MOST_WAITING)
    each, longer = builder.bind(count // blocks), builder.bind(count % blocks)
    with builder.serial(0, blocks) as block:
        begin = emitter.stored(block * each + tirx.min(block, longer))
        yield begin, emitter.stored(each + tirx.Select(block < longer, tirx.const(1, "int32"), tirx.const(0, "int32")))


def _registers(emitter: Emitter, tile: ProductTile) -> list[Any]:
    """The sums of a tile."""
    vectors = int(tile.knobs["vectors"]) * tile.rows
    if tile.narrow is None:
        return emitter.registers(vectors, emitter.target.lanes)
    multiplier = tile.narrow.multiplier
    return [emitter.scratch(multiplier.lanes, multiplier.sums) for _ in range(vectors)]


def _one_tile(scope: Scope, loop: TileLoop, place: Expr, panel: Expr, accumulators: list[Any]) -> None:
    """Emits one tile of a loop, number `place`, for one panel."""
    tile, rows, place = loop.tile, loop.tile.rows, loop.before + place
    batch: Index = (0,) * len(tile.form.batch)
    if tile.narrow is not None:
        narrow = NarrowRowsEmitter(scope, tile.nest, tile.narrow, rows, place, loop.asking)
        narrow.panel(batch, panel, (0,), accumulators)
        return
    product = RowsEmitter(scope, tile, place, loop.asking)
    product.prepare()
    product.panel(batch, panel, (0,), accumulators, (Window(rows, 1, outputs=rows), 0))


def _loops(tiles: Sequence[ProductTile], cover: Cover, count: Expr, least: int, alone: bool) -> Iterator[TileLoop]:
    """All tiles of `count` rows, the most rows first. The first ones ask for weights ahead, but where `alone` not one
    that is the only one, since the hardware reads its stream."""
    begin: Expr = tirx.const(0, "int32")
    before: Expr = tirx.const(0, "int32")
    counts = cover.emitted(count)
    used = [number for number in range(len(tiles)) if cover.uses(number, least)]
    total = builder.bind(sum((counts[number] for number in used), start=before))
    for number in used:
        tile, left = tiles[number], counts[number]
        for asking, some in _asking(tile, left, before, total, number == cover.main, alone):
            taken = builder.bind(some)
            yield TileLoop(tile, begin, taken, asking, before)
            begin, before = builder.bind(begin + taken * tile.rows), builder.bind(before + taken)
            left = builder.bind(left - taken)
        yield TileLoop(tile, begin, left, 0, before)
        begin, before = builder.bind(begin + left * tile.rows), builder.bind(before + left)


def _asking(
    tile: ProductTile, number: Expr, before: Expr, total: Expr, is_main: bool, alone: bool
) -> Iterator[tuple[int, Expr]]:
    """Of so many tiles of a kind, behind those `before` them: (parts of the next panel, how many tiles ask for one
    each). `alone`: see `_loops`."""
    none, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    if tile.reads_ahead:
        yield 1, tirx.Select(tirx.all(before == 0, number > 0), one, none)
    if not tile.shares:
        return
    some = tirx.min(number, SOME if is_main else tirx.max(SOME - before, 0))
    if is_main:
        yield MANY, tirx.Select(number >= MANY, tirx.const(MANY, "int32"), none)
        some = tirx.Select(number >= MANY, none, some)
    yield SOME, tirx.Select(total > 1, some, none)
    if not alone:
        yield 1, tirx.Select(total == 1, number, none)
