"""Products over an open number of rows: a loop over panels of weights around one over tiles of rows.

So each weight is read from memory once a call, as in a kernel of a fixed number of rows. Tiles one after the other,
each with all panels, would read all weights for every 16 rows. A panel that the second cache does not hold is cut into
parts, each of which meets all rows of a block before the next one does; the sums so far wait in a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.cut_sums import KBlockingEmitter, Waiting
from autofuse.kernels.families.contraction.direct import ContractionEmitter, TileTask
from autofuse.kernels.families.contraction.family import CONTRACTION, PRODUCTS
from autofuse.kernels.families.contraction.form import Contraction, contraction_form, results_a_column
from autofuse.kernels.families.contraction.panels import PrefetchShare, passes_over, streams
from autofuse.kernels.families.contraction.parallel_grid import EVEN, ParallelGrid, evenness
from autofuse.kernels.families.protocol import Schedule, vector_lanes
from autofuse.kernels.families.registry import nests_of, units_of
from autofuse.kernels.nest.evaluate import Pack, Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Run, Window, runs
from autofuse.kernels.open_sizes.open_narrow import Narrow, NarrowRowsEmitter, narrow_product
from autofuse.kernels.schedule.covers import Cover, cheapest
from autofuse.kernels.schedule.knobs import packing
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index
from autofuse.kernels.workload.workload import Workload

MANY, SOME = 4, 2
"""Tiles among which a panel that is asked for is shared out: the first four of the longest, where there are as many,
else the first two of any length, where there are two."""
PAIR = 2
"""Rows of a tile that is taken of the workload of more: one by one they would read a panel twice."""
LONGEST_LEFT = 8
"""Rows up to which a tile of each number of rows is there, behind that of the next workload: what is left over whole
tiles is two tiles as alike as they can be, and each panel is read as few times as may be."""
PASS = 2
"""What it costs to read a panel once more, in rows: it comes from the second cache."""
LEAST = 4
"""Rows that a tile costs at least: fewer wait for each of their sums."""
ALIKE = 1e-3
"""Of tiles that cost the same, those are taken that are most alike: each has time to ask for its part of a panel."""
FEW = (1, 2, 3)
"""Rows of a call that have a loop of their own. They only read the weights."""
ENOUGH_SUMS = 6
"""Few rows read as many panels side by side as have so many sums, which hide how long a multiply-add takes. More are
slower (Zen 4, panels of 3 vectors, products of 512x2048; the time of eight side by side, or as many as registers hold,
is 1): where 75 MB of weights come from memory 1, 2, 3 and 4 take 0.89, 0.90, 0.92 and 0.93 by one row, 1 and 2 take
0.98 and 1.05 by two; where they come from the last cache, 1.00 by one row, 0.74 and 0.81 by two."""
MOST_WAITING = 256
"""Rows whose sums wait while parts of a panel are read: with a part they fit the second cache."""
ALONE = {"algorithm": "direct", "split_k": 1, "k_blocking": 1}
"""Values of the knobs with which a panel is multiplied by some rows in one go."""


@dataclass(frozen=True)
class ProductTile:
    """So many `rows` at a time of a product, as the only `nest` of a `workload` of `knobs`.

    `number`: which of the kernel's tiles that is. Its workload may have more rows, of which these are the first.
    `shares`: whether tiles ask for the next panel, each for its part; few rows only read, which the hardware does
    ahead. `narrow`: what it multiplies where that is bytes or bfloat16. `passes`: parts of a panel, each of which meets
    many rows before the next one does.
    """

    number: int
    rows: int
    workload: Workload
    nest: Nest
    form: Contraction
    knobs: Mapping[str, int | str]
    shares: bool
    narrow: Narrow | None = None
    passes: int = 1

    @property
    def reads_ahead(self) -> bool:
        """Whether the first tile of a panel asks for what it reads itself a little later."""
        return self.narrow is not None and bool(self.knobs["prefetch"]) and not self.narrow.late


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


def product_tiles(
    tiles: Sequence[tuple[int, Workload, Schedule]], target: Target, threads: int
) -> list[ProductTile] | None:
    """The tiles of a kernel as those of a product whose panels each meet all rows; None where it is no such, or they
    pack its weights differently.

    `tiles`: rows, workload and schedule, the most rows first.
    """
    found = [_product_tile(number, *tile, target) for number, tile in enumerate(tiles)]
    products = [tile for tile in found if tile is not None]
    if len(products) < len(tiles) or len(tiles) == 1:
        return None
    packed = [packing(schedule) for _, _, schedule in tiles]
    if any(one != packed[0] for one in packed) or not _is_even(products[0], target, threads):
        return None
    longest, *smaller = products
    left = range(smaller[0].rows + 1, min(longest.rows - 1, LONGEST_LEFT) + 1)
    pair = next((replace(tile, rows=PAIR) for tile in products[:0:-1] if tile.rows > PAIR), None)
    kinds = [
        *(replace(longest, rows=rows) for rows in left[::-1]),
        *smaller[:-1],
        *([pair] if pair else []),
        smaller[-1],
    ]
    shorter = [replace(tile, shares=longest.shares and tile.rows > PAIR) for tile in kinds if tile.rows < longest.rows]
    return [longest, *shorter]


def product_counts(tiles: Sequence[int], rows: int) -> list[int]:
    """How many tiles of each kind compute so many rows by the rule: of the longest so many that two of them could
    compute what is left, and for that the tiles that cost least.

    `tiles`: rows of each kind, the most first, the last of 1.
    """
    whole = max(-(-rows // tiles[0]) - 2, 0)
    left = rows - whole * tiles[0]
    costs = {tile: max(tile, LEAST) + PASS + ALIKE * tile**2 for tile in tiles if tile <= left}
    taken = cheapest(left, costs)
    return [taken.count(tile) + whole * (tile == tiles[0]) for tile in tiles]


def _product_tile(number: int, rows: int, workload: Workload, schedule: Schedule, target: Target) -> ProductTile | None:
    nests = nests_of(workload)
    units = units_of(workload, nests, schedule)
    nest = units[0] if len(units) == 1 else None
    if not isinstance(nest, Nest) or nest.anchor is None:
        return None
    narrow = narrow_product(workload, nest, schedule, target)
    if narrow is None and nest.anchor.op_type not in PRODUCTS:
        return None
    knobs, form = CONTRACTION.chosen(schedule), contraction_form(workload, nest.anchor)
    plain = all(knobs[knob] == value for knob, value in ALONE.items()) and knobs["order"] != "copied"
    if narrow is not None:
        knobs, form, plain = {**narrow.knobs, "panels_per_task": 1}, narrow.product.form, True
    kinds = {workload.values[index].kind for index in nest.stores}
    constant = workload.values[form.w].kind == "constant"
    if not plain or not constant or kinds != {"output"} or len(form.windows) > 1 or results_a_column(form) != rows:
        return None
    together = min(rows, int(knobs["pixels"])) if number == 0 else rows
    shares = together > PAIR and (bool(knobs["next_panel"]) if narrow is None else narrow.late)
    passes = 1 if narrow is not None else passes_over(form, int(knobs["vectors"]), target)
    return ProductTile(number, together, workload, nest, form, knobs, shares, narrow, passes)


def _is_even(tile: ProductTile, target: Target, threads: int) -> bool:
    """Whether threads share the panels evenly."""
    columns = -(-tile.form.columns // target.lanes)
    vectors = min(int(tile.knobs["vectors"]), columns)
    tasks = ParallelGrid.cut(1, -(-columns // vectors), 1, tile.knobs)
    return threads == 1 or tasks.evenness(columns, vectors, threads) >= EVEN


Arrays = Callable[[int, Expr], dict[int, Array]]
"""What the tile of a number sees of the arguments, from a row on."""
Declare = Callable[[int], Callable[[str, Pack, tuple[int, ...], str], Array]]
"""Declares the constants of the tile of a number."""


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


class RowsEmitter(ContractionEmitter):
    """Emits one tile of a product, number `place`, which asks for one of so many parts of the next panel."""

    def __init__(self, scope: Scope, tile: ProductTile, place: Expr, asking: int) -> None:
        super().__init__(scope, tile.nest, tile.form, tile.knobs)
        self.place, self.asking = place, asking

    def share(self, task: TileTask, run: Run, start: Expr) -> PrefetchShare | None:
        """See ContractionEmitter."""
        if not self.asking:
            return None
        return PrefetchShare(self.place, self.asking, self.block * self.panel_lanes, self.block, always=True)


class PassesEmitter(RowsEmitter, KBlockingEmitter):
    """Emits what one pass over a part of a panel does with a tile, which asks for one of so many parts of the next."""

    def __init__(self, scope: Scope, tile: ProductTile, place: Expr, asking: int) -> None:
        super().__init__(scope, replace(tile, knobs={**tile.knobs, "k_blocking": tile.passes}), place, asking)


Step = Callable[[PassesEmitter], Callable[[Waiting, TileTask, Run, Expr], None]]
"""What a pass does with a tile of a row."""


class FewRowsEmitter(ContractionEmitter):
    """Emits a product of few rows: several panels side by side, as if they were one."""

    def all_panels(self, rows: int, threads: int) -> None:
        """All columns of so many rows, the first ones of the workload."""
        emitter, vectors = self.emitter, self.vectors
        together = self._together(rows, threads)
        whole = self.full_panels // together
        rest = self.vectors_total - whole * together * vectors
        window, batch, row = Window(rows, 1, outputs=rows), (0,) * len(self.form.batch), (0,) * len(self.form.rows)
        (run,) = runs(window, rows)
        with emitter.parallel(whole + (rest > 0)) as number:
            accumulators = emitter.registers(together * vectors * rows, self.lanes)
            panel = emitter.simplify(number * together)
            full = TileTask(batch, panel, row, accumulators, together * vectors, False, window)
            if not rest:
                self.tile(full, run, 0)
                return
            with emitter.when(number < whole):
                self.tile(full, run, 0)
            with emitter.when(number >= whole):
                self.tile(replace(full, vectors=rest, last=True), run, 0)

    def _together(self, rows: int, threads: int) -> int:
        """Panels side by side: those that have enough sums, that registers hold, and that threads share evenly."""
        each = self.vectors * rows
        wanted = -(-ENOUGH_SUMS // each)
        most = min(wanted, self.panels, self.emitter.target.registers * 3 // 4 // each)

        def even(together: int) -> bool:
            whole, rest = divmod(self.vectors_total, together * self.vectors)
            return evenness([together * self.vectors] * whole + [rest] * (rest > 0), threads) >= EVEN

        return next((together for together in range(most, 1, -1) if threads == 1 or even(together)), 1)

    def share(self, task: TileTask, run: Run, start: Expr) -> PrefetchShare | None:
        """See ContractionEmitter."""
        return None

    def places(self, task: TileTask, block: Expr, tap: Expr) -> Callable[[Expr, int], Expr]:
        """See ContractionEmitter: each panel lies behind all channels of the one before."""
        last = -(-task.vectors // self.vectors) - 1
        panels = [
            super(FewRowsEmitter, self).places(
                replace(task, panel=task.panel + number, last=task.last and number == last), block, tap
            )
            for number in range(last + 1)
        ]
        return lambda channel, vector: panels[vector // self.vectors](channel, vector % self.vectors)
