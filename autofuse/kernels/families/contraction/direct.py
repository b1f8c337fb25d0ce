"""Contraction family: convolution of any rank (1x1, strided, dilated, grouped), matmul, gemm, batched matmul.

One micro-kernel: `vectors` x `pixels` accumulators in registers; the vector lanes run over output
channels (columns), whose weights are packed so that each tile reads them in one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any

from autofuse.kernels.families.contraction.form import Contraction, copies_left, reads_rows
from autofuse.kernels.families.contraction.panels import (
    NARROW,
    CopiedRow,
    PanelLayout,
    PrefetchShare,
    channel_block,
    packed_at_run_time,
    prefetch,
)
from autofuse.kernels.families.contraction.parallel_grid import ParallelGrid, Task
from autofuse.kernels.families.elementwise import ends_in_chain
from autofuse.kernels.nest.evaluate import Scope, Store
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Run, Window, divisor_near, kernel_tap, positions, row_taps, runs, tap_loops
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear, linear

Knobs = Mapping[str, int | str]

CHAINED = 8
"""Vectors of results side by side in a chain of functions."""


@dataclass(frozen=True)
class TileTask:
    """What one task of the parallel loop knows while its body is emitted."""

    batch: Index
    panel: Expr
    row: Index
    accumulators: list[Any]
    vectors: int
    last: bool
    window: Window


EmitTile = Callable[[TileTask, Run, Expr], None]
"""Emits a tile of a row: the run that it belongs to, and its first pixel."""


class ContractionEmitter:
    """Emits one contraction nest; `knobs` as declared in the search space."""

    def __init__(self, scope: Scope, nest: Nest, form: Contraction, knobs: Knobs) -> None:
        self.scope, self.nest, self.form, self.knobs = scope, nest, form, knobs
        self.emitter: Emitter = scope.emitter
        self.lanes = self.emitter.target.lanes
        self.together = scope.lanes_together(nest, self.lanes)
        self.vectors_total = -(-form.columns // self.lanes)
        self.vectors = min(int(knobs["vectors"]), self.vectors_total)
        self.full_panels = (form.columns // self.lanes) // self.vectors
        self.rest_vectors = self.vectors_total - self.full_panels * self.vectors
        self.panels = self.full_panels + (self.rest_vectors > 0)
        block = scope.arrays[form.x].block if form.x in scope.ready else 0
        self.block = min(block or channel_block(self.lanes), form.depth)
        self.blocks = -(-form.depth // self.block)
        self.split_k, self.k_blocking = (
            divisor_near(form.depth // self.block, int(knobs[name])) for name in ("split_k", "k_blocking")
        )
        self.taps = prod(window.kernel for window in form.windows)
        self.panel_lanes = self.vectors * self.lanes
        cut = self.full_panels and self.rest_vectors and scope.workload.values[form.w].kind == "constant"
        self.last_lanes = (self.rest_vectors if cut else self.vectors) * self.lanes
        self.all_rows = divisor_near(prod(form.rows), int(knobs["rows_per_task"])) == prod(form.rows)
        self.copy: Any = None
        self.store: Store | None = None
        self.blocked = any(scope.arrays[value].block for value in nest.stores if value in scope.arrays)
        self.chained = ends_in_chain(nest) and self.together == self.lanes

    def emit(self) -> None:
        """Emits the whole nest."""
        emitter = self.emitter
        self.prepare()
        with self.tasks() as task:
            accumulators = self.registers()
            self.copied = CopiedRow(self.form.windows, self.blocks, self.block)
            if self.knobs["order"] == "copied" and copies_left(self.scope.workload, self.form):
                self.copy = emitter.scratch(self.copied.elements)
            if self.knobs["order"] == "weights":
                with emitter.serial(task.panels) as panel, emitter.serial(task.rows) as row:
                    self.panel(task.batch, task.panel_at(panel), task.row_at(row), accumulators)
                return
            with emitter.serial(task.rows) as row:
                if self.copy is not None:
                    self.copy_row(task.batch, task.row_at(row))
                with emitter.serial(task.panels) as panel:
                    self.panel(task.batch, task.panel_at(panel), task.row_at(row), accumulators)

    @contextmanager
    def tasks(self) -> Iterator[Task]:
        """The parallel loop: each task has some panels, and some rows of results of one batch."""
        emitter, form = self.emitter, self.form
        tasks = ParallelGrid.cut(prod(form.batch), self.panels, prod(form.rows), self.knobs)
        rows, panels = tasks.rows, tasks.panels
        with emitter.parallel(prod(tasks.grid)) as number:
            batch, panel_task, row_task = delinear(number, tasks.grid)

            def row_at(step: Expr) -> Index:
                place = delinear(emitter.simplify(row_task * rows + step), form.rows)
                return tuple(emitter.simplify(part) for part in place)

            def panel_at(step: Expr) -> Expr:
                return emitter.simplify(panel_task * panels + step)

            yield Task(delinear(batch, form.batch), panels, rows, panel_at, row_at)

    def prepare(self) -> None:
        """What has to stand before the loops: the packed right-hand side, where it is not read as it lies."""
        self.direct = self.knobs["operand"] == "direct" and reads_rows(self.form, self.scope.in_rows)
        self.weights = None if self.direct else self.packed_weights()

    def registers(self) -> list[Any]:
        """The accumulators of one tile."""
        return self.emitter.registers(self.vectors * int(self.knobs["pixels"]), self.lanes)

    def copy_row(self, batch: Index, row: Index) -> None:
        """Copies what a row of results reads side by side, a prologue computed once.

        Maps whose size is a multiple of a page hold all channels of a position in the same few sets of the cache.
        """
        emitter, (*outer, last) = self.emitter, self.form.windows
        places, as_one = last.read_positions, self.copied.in_one_loop
        for first, count, channels in self.block_runs():
            with (
                emitter.serial(1 if as_one else count) as number,
                tap_loops(emitter, outer, row) as taps,
                emitter.serial(count * places if as_one else places) as step,
                emitter.vector(channels) as lane,
                self.scope.point(),
            ):
                block = emitter.simplify(first + number + step // places)
                place = (*positions(outer, row[: len(outer)], taps), emitter.simplify(step % places * last.read_step))
                value = self.scope.read(self.form.x, self.x_index(batch, place, block * self.block + lane))
                emitter.put(self.copy, self.copied.offset(block, taps, place[-1]) + lane, value)

    def x_index(self, batch: Index, position: Index, depth: Expr) -> Index:
        """Logical index of the left operand, simplified."""
        return tuple(self.emitter.simplify(part) for part in self.form.x_index(batch, position, depth))

    def left(self, task: TileTask, position: Index, taps: Index, block: Expr, channel: Expr) -> Expr:
        """An element of the left operand: from the copied row, where there is one."""
        if self.copy is not None:
            return self.copy[self.emitter.simplify(self.copied.offset(block, taps[:-1], position[-1]) + channel)]
        return self.scope.read(self.form.x, self.x_index(task.batch, position, block * self.block + channel))

    def rows(self, batch: Index, start: Expr, count: int) -> None:
        """All columns of `count` rows from `start` on, of a product that is `prepared`."""
        accumulators, tiled = self.registers(), Window(count, 1, outputs=count)
        with self.emitter.serial(self.panels) as panel:
            self.panel(batch, panel, (0,) * len(self.form.rows), accumulators, (tiled, start))

    def panel(
        self,
        batch: Index,
        panel: Expr,
        row: Index,
        accumulators: list[Any],
        part: tuple[Window, Expr] | None = None,
        tile: EmitTile | None = None,
    ) -> None:
        """One row of outputs (or the `part` of it from a position on) for one panel; the last one may be narrower.

        `tile` emits each tile of the row (by default all of it: `self.tile`).
        """
        window, origin = part or (self.form.windows[-1], 0)
        task, emit = partial(TileTask, batch, panel, row, accumulators), tile or self.tile
        if not self.rest_vectors:
            self.row(task(self.vectors, False, window), origin, emit)
            return
        if not self.full_panels:
            self.row(task(self.rest_vectors, True, window), origin, emit)
            return
        with self.emitter.when(panel < self.full_panels):
            self.row(task(self.vectors, False, window), origin, emit)
        with self.emitter.when(panel >= self.full_panels):
            self.row(task(self.rest_vectors, True, window), origin, emit)

    def row(self, task: TileTask, origin: Expr, emit: EmitTile) -> None:
        """The tiles of one row: the clean ones in loops, those at the padding each by itself unless they are many."""
        for count, phase in task.window.phases:
            with self.emitter.serial(count) as number:
                here = replace(task, window=phase.at(number))
                for run in runs(phase, int(self.knobs["pixels"])):
                    with self.emitter.serial(run.count) as tile:
                        emit(here, run, origin + (tile * run.width + run.start))

    def tile(self, task: TileTask, run: Run, start: Expr) -> None:
        """Accumulators of `run.width` pixels x `task.vectors` vectors: clear, reduce, finish."""
        held = self.cleared(task, run)
        if run.reads(task.window):
            self.reduce(task, run, start)
        together = self.beside(task, run)
        for c, r, sums in held:
            if not together:
                self.deliver(task, c, task.window.result(start + r), sums, 0)
        for chosen in together:
            self.deliver_together(task, start, [(c, r, task.accumulators[c * run.width + r]) for c, r in chosen])

    def beside(self, task: TileTask, run: Run) -> list[list[tuple[int, int]]]:
        """The (vector, pixel) whose chain of functions is computed side by side (see the elementwise family):
        neighbours in memory, pixels of a block or columns of a row; none where there is no such chain."""
        vectors, pixels = range(task.vectors), range(run.width)
        if not self.chained or any(self.valid(task, c) < self.lanes for c in vectors):
            return []
        if self.blocked:
            return [[(c, r) for r in pixels[at : at + CHAINED]] for c in vectors for at in pixels[::CHAINED]]
        return [[(c, r) for c in vectors[at : at + CHAINED]] for r in pixels for at in vectors[::CHAINED]]

    def deliver_together(self, task: TileTask, start: Expr, chosen: list[tuple[int, int, Any]]) -> None:
        """Finishes some vectors of results at once, of one vector's pixels or of one pixel's vectors."""
        emitter, lanes = self.emitter, self.lanes
        (vector, first, _), sums = chosen[0], emitter.scratch(len(chosen) * lanes)
        for number, (_, _, held) in enumerate(chosen):
            with emitter.vector(lanes) as lane:
                emitter.put(sums, number * lanes + lane, held[lane])
        with emitter.vector(len(chosen) * lanes) as lane:
            column = (task.panel * self.vectors + vector) * lanes + (lane % lanes if self.blocked else lane)
            pixel = task.window.result(start + first + (lane // lanes if self.blocked else 0))
            index = self.form.out_index(task.batch, task.row, pixel, emitter.simplify(column))
            self.finish(tuple(emitter.simplify(part) for part in index), sums[lane])

    def held(self, task: TileTask, run: Run) -> list[tuple[int, int, Any]]:
        """(vector, pixel, its accumulator) of a tile."""
        return [(c, r, task.accumulators[c * run.width + r]) for c in range(task.vectors) for r in range(run.width)]

    def cleared(self, task: TileTask, run: Run) -> list[tuple[int, int, Any]]:
        """`held`, all zero."""
        held = self.held(task, run)
        for _, _, sums in held:
            with self.emitter.vector(self.lanes) as lane:
                self.emitter.put(sums, lane, const(0.0, "float32"))
        return held

    def deliver(self, task: TileTask, vector: int, pixel: Expr, sums: Any, place: Expr) -> None:
        """Finishes one vector of results, whose sums stand in a buffer from `place` on."""
        emitter = self.emitter
        column = emitter.simplify((task.panel * self.vectors + vector) * self.lanes)
        for first, width in self.pieces(self.valid(task, vector)):
            with emitter.vector(width) as lane:
                index = self.form.out_index(task.batch, task.row, pixel, column + first + lane)
                index = tuple(emitter.simplify(part) for part in index)
                self.finish(index, sums[emitter.simplify(place + first + lane)])

    def pieces(self, columns: int) -> Iterator[tuple[int, int]]:
        """(first, how many) of the columns of a vector, cut where the tensors behind it are not in one piece."""
        for first in range(0, columns, self.together):
            yield first, min(self.together, columns - first)

    def valid(self, task: TileTask, vector: int) -> int:
        """Lanes of a vector of the panel that hold columns."""
        return (self.form.columns - 1) % self.lanes + 1 if task.last and vector == task.vectors - 1 else self.lanes

    def finish(self, index: Index, value: Expr) -> None:
        """Scale, bias and epilogue of one vector of results."""
        form = self.form
        if form.alpha != 1.0:
            value = value * const(form.alpha, "float32")
        if form.bias >= 0:
            bias = self.scope.read(form.bias, form.bias_index(index))
            value = value + (bias if form.beta == 1.0 else bias * const(form.beta, "float32"))
        self.scope.finish(self.nest, index, value, self.store)

    def reduce(self, task: TileTask, run: Run, start: Expr) -> None:
        """Sums over channel blocks, taps, and the channels of a block."""
        self.over_blocks(partial(self.over_taps, task, run, start))

    def reduce_piece(self, task: TileTask, run: Run, start: Expr, piece: Expr, pieces: int) -> None:
        """Sums over one of `pieces` equal numbers of channel blocks; what fills no block belongs to the last piece."""
        each = self.form.depth // self.block // pieces
        with self.emitter.serial(each) as step:
            self.over_taps(task, run, start, self.emitter.simplify(piece * each + step), self.block)
        if self.form.depth % self.block:
            with self.emitter.when(piece == pieces - 1):
                self.over_taps(task, run, start, pieces * each, self.form.depth % self.block)

    def over_blocks(self, visit: Callable[[Expr, int], None]) -> None:
        """Calls `visit` with every block of channels and how many it holds: the full ones in a loop."""
        for first, count, channels in self.block_runs():
            with self.emitter.serial(count) as number:
                visit(first + number, channels)

    def block_runs(self) -> Iterator[tuple[int, int, int]]:
        """(first block, how many, channels of each): the full blocks of channels, and the one that is left."""
        full, rest = divmod(self.form.depth, self.block)
        both = ((0, full, self.block), (full, int(rest > 0), rest))
        return (run for run in both if run[1])

    def over_taps(self, task: TileTask, run: Run, start: Expr, block: Expr, channels: int) -> None:
        """Taps of the outer dimensions in loops that skip the padding; those of the row static at the padding."""
        with tap_loops(self.emitter, self.form.windows[:-1], task.row) as taps:
            for tap_loop, pixels in row_taps(self.emitter, run, task.window, start):
                with tap_loop as tap:
                    self.step(task, run, start, block, channels, (*taps, tap), pixels)

    def share(self, task: TileTask, run: Run, start: Expr) -> PrefetchShare | None:
        """A tile's share of a tap's weights that the next sweep over all rows reads; None: it asks for nothing."""
        swept = self.swept_blocks()
        if not swept or self.weights is None or self.scope.workload.values[self.form.w].kind != "constant":
            return None
        tiles = -(-task.window.outputs // run.width)
        tile, tiles = linear(task.row, self.form.rows) * tiles + start // run.width, prod(self.form.rows) * tiles
        return PrefetchShare(tile, tiles, self.block * self.panel_lanes, self.block, self.knobs["next_panel"] == 1)

    def swept_blocks(self) -> int:
        """Blocks of channels that one sweep over all rows reads of a panel; 0 where no sweep is of all rows."""
        return self.blocks if prod(self.form.rows) == 1 or (self.all_rows and self.knobs["order"] == "weights") else 0

    def step(
        self, task: TileTask, run: Run, start: Expr, block: Expr, channels: int, taps: Index, pixels: list[int]
    ) -> None:
        """One tap: every channel of the block times every valid pixel and vector."""
        emitter, form, lanes = self.emitter, self.form, self.lanes
        windows = (*form.windows[:-1], task.window)
        outer = task.row[: len(windows) - 1]
        flat_tap = kernel_tap(windows, (*outer, start), taps)
        place = None if self.direct else self.places(task, block, flat_tap)

        def weight(channel: Expr, c: int, lane: Expr) -> Expr:
            if self.weights is not None and place is not None:
                return self.weights.buffer[emitter.simplify(place(channel, c) + lane)]
            column = (task.panel * self.vectors + c) * lanes + lane
            index = form.w_index(task.batch, 0, block * self.block + channel, column)
            return self.scope.read(form.w, tuple(emitter.simplify(part) for part in index))

        def take(channel: Expr) -> None:
            for r in pixels:
                x = self.left(task, positions(windows, (*outer, start + r), taps), taps, block, channel)
                for c in range(task.vectors):
                    sums = task.accumulators[c * run.width + r]
                    with emitter.vector(self.valid(task, c) if self.direct else lanes) as lane:
                        emitter.put(sums, lane, sums[lane] + x * weight(channel, c, lane))

        together = self.channels_together(channels)
        share = self.share(task, run, start)
        pieces = share.pieces(channels // together) if share is not None else 1
        with emitter.serial(pieces) as piece:
            if share is not None and self.weights is not None:
                ahead = self.weight_offset(task, block + self.swept_blocks(), flat_tap)
                prefetch(emitter, self.weights.buffer, ahead, share.part(piece, pieces))
            with emitter.serial(channels // together // pieces) as step:
                for number in range(together):
                    with self.scope.point():
                        take(emitter.simplify(piece * (channels // pieces) + step * together + number))

    def channels_together(self, channels: int) -> int:
        """Channels that are unrolled here, in a loop that LLVM then leaves alone.

        Narrow vectors need many steps: LLVM would unroll all of a short loop, and its scheduler then loads so far
        ahead that accumulators are spilled (LLVM 22, AArch64).
        """
        narrow = self.lanes <= NARROW and channels > NARROW and channels % NARROW == 0
        return NARROW if narrow else 1

    @cached_property
    def layout(self) -> PanelLayout:
        """How the weights lie once they are packed."""
        batches = prod(self.form.weight_batch)
        return PanelLayout(batches, self.panels, self.blocks, self.taps, self.block, self.panel_lanes, self.last_lanes)

    def weight_offset(self, task: TileTask, block: Expr, tap: Expr) -> Expr:
        """Offset of the packed weights of one tap."""
        flat: Expr = 0
        for position, extent in zip(task.batch, self.form.weight_batch, strict=True):
            flat = flat * extent + (position if extent > 1 else 0)
        return self.emitter.simplify(self.layout.offset(flat, task.panel, block, tap, task.last))

    def places(self, task: TileTask, block: Expr, tap: Expr) -> Callable[[Expr, int], Expr]:
        """Where the packed weights begin, by the channel of a block and the vector, at one tap."""
        at, width = self.weight_offset(task, block, tap), self.layout.width(task.last)
        return lambda channel, vector: at + channel * width + vector * self.lanes

    def packed_weights(self) -> Array:
        """The weights in panels: packed ahead, or at run time when computed."""
        form, layout = self.form, self.layout
        if self.scope.workload.values[form.w].kind == "constant":
            place = self.scope.workload.of_kind("constant").index(form.w)
            name = "_".join(map(str, (f"weights{form.w}", *layout.box))) + form.packing
            return self.scope.declare_constant(name, lambda c: layout.pack(c[place], form), layout.shape, "float32")
        return packed_at_run_time(self.scope, form, layout.box)
