"""Windows that slide over each channel by itself: depthwise convolution, max and average pooling.

The vector lanes run over channels; `pixels` neighbouring results of a row stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.kernels.families.contraction.form import Convolution, contraction_form
from autofuse.kernels.families.elementwise import ends_in_chain
from autofuse.kernels.families.windows import convolution_windows
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import (
    Run,
    Visit,
    Window,
    divisor_near,
    kernel_tap,
    positions,
    row_taps,
    runs,
    tap_loops,
)
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear

Knobs = Mapping[str, int | str]

UNROLLED_STEPS = 256
"""Taps of a row, times results of a tile, that are unrolled at most."""


@dataclass(frozen=True)
class TilePlace:
    """Where a tile stands: image, channel block with its valid lanes, outer row, window of the row, first pixel."""

    image: Expr
    block: Expr
    lanes: int
    row: Index
    window: Window
    run: Run
    start: Expr
    accumulators: Any


class WindowedEmitter:
    """Base of the family: walks images, channel blocks, rows, tiles and taps; subclasses do the arithmetic."""

    dtype = "float32"
    """Of the accumulators."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs) -> None:
        assert nest.anchor is not None
        self.scope, self.nest, self.knobs, self.operator = scope, nest, knobs, nest.anchor
        self.emitter: Emitter = scope.emitter
        self.windows = convolution_windows(scope.workload, nest.anchor)
        self.x = nest.anchor.inputs[0]
        self.images, self.channels = nest.space[:2]
        self.lanes = min(self.emitter.lanes, self.channels)
        self.blocks = -(-self.channels // self.lanes)
        self.outer = self.windows[:-1]
        self.taps = prod(window.kernel for window in self.windows)
        # Of a chain of functions all pixels of a tile are computed side by side: see the elementwise family.
        self.chained = ends_in_chain(nest) and scope.lanes_together(nest, self.lanes) == self.lanes

    def emit(self) -> None:
        """Emits the whole nest."""
        self.prepare()
        emitter = self.emitter
        rows = tuple(window.outputs for window in self.outer) or (1,)
        per_task = divisor_near(prod(rows), int(self.knobs["rows_per_task"]))
        grid = (self.images, self.blocks, prod(rows) // per_task)
        with emitter.parallel(prod(grid)) as task:
            image, block, row_task = delinear(task, grid)
            accumulators = self.registers()
            with emitter.serial(per_task) as step:
                row = tuple(emitter.simplify(part) for part in delinear(row_task * per_task + step, rows))
                self.channel_block(image, emitter.simplify(block), row, accumulators)

    def registers(self) -> Any:
        """The accumulators of one tile."""
        return self.emitter.scratch(int(self.knobs["pixels"]) * self.lanes, self.dtype)

    @property
    def initial(self) -> Expr:
        """What an accumulator starts at."""
        return const(0.0, self.dtype)

    def channel_block(self, image: Expr, block: Expr, row: Index, accumulators: Any) -> None:
        """One row of one block; the last block may have fewer channels."""

        def tiles(lanes: int) -> None:
            def part(window: Window, run: Run, start: Expr) -> None:
                self.tile(TilePlace(image, block, lanes, row, window, run, start, accumulators))

            self.row(part)

        rest = self.channels % self.lanes
        if not rest:
            tiles(self.lanes)
            return
        with self.emitter.when(block < self.blocks - 1):
            tiles(self.lanes)
        with self.emitter.when(block == self.blocks - 1):
            tiles(rest)

    def row(self, visit: Visit) -> None:
        """The tiles of one row of results."""
        for count, phase in self.windows[-1].phases:
            with self.emitter.serial(count) as number:
                for run in runs(phase, int(self.knobs["pixels"])):
                    with self.emitter.serial(run.count) as tile:
                        visit(phase.at(number), run, tile * run.width + run.start)

    def tile(self, site: TilePlace) -> None:
        """Clear, take every tap, finish."""
        emitter = self.emitter
        for r in range(site.run.width):
            with emitter.vector(site.lanes) as lane:
                emitter.put(site.accumulators, r * self.lanes + lane, self.initial)
        if site.run.reads(site.window):
            self.reduce(site)
        together = self.chained and site.lanes == self.lanes
        for r in range(site.run.width):
            with emitter.vector(site.lanes) as lane:
                channel = emitter.simplify(site.block * self.lanes + lane)
                place = r * self.lanes + lane
                value = self.result(site, r, channel, site.accumulators[place])
                if together:
                    emitter.put(site.accumulators, place, value)
                else:
                    self.finish(site, r, channel, value)
        if together:
            with emitter.vector(site.run.width * self.lanes) as lane:
                channel = emitter.simplify(site.block * self.lanes + lane % self.lanes)
                self.finish(site, lane // self.lanes, channel, site.accumulators[lane])

    def finish(self, site: TilePlace, r: Expr, channel: Expr, value: Expr) -> None:
        """The epilogue on the result of pixel `r` of a tile."""
        pixel = self.emitter.simplify(site.window.result(site.start + r))
        self.scope.finish(self.nest, (site.image, channel, *site.row[: len(self.outer)], pixel), value)

    def reduce(self, site: TilePlace) -> None:
        """Outer taps in loops that skip the padding, the taps of the row unrolled unless they are many."""
        with tap_loops(self.emitter, self.outer, site.row) as taps:
            for tap_loop, pixels in row_taps(self.emitter, site.run, site.window, site.start, UNROLLED_STEPS):
                with tap_loop as tap:
                    for r in pixels:
                        self.take(site, r, (*taps, tap))

    def take(self, site: TilePlace, r: int, taps: Index) -> None:
        """Combines one tap into the accumulator of pixel `r`."""
        emitter = self.emitter
        outputs, windows = (*site.row[: len(self.outer)], site.start + r), (*self.outer, site.window)
        position = [emitter.simplify(part) for part in positions(windows, outputs, taps)]
        flat = kernel_tap(windows, outputs, taps)
        with emitter.vector(site.lanes) as lane, self.scope.point():
            channel = emitter.simplify(site.block * self.lanes + lane)
            x = self.scope.read(self.x, (site.image, self.input_channel(channel), *position))
            place = r * self.lanes + lane
            emitter.put(site.accumulators, place, self.combine(site, site.accumulators[place], x, flat, lane))

    def prepare(self) -> None:
        """Declares constants before the loops."""

    def input_channel(self, channel: Expr) -> Expr:
        """Channel read for a result channel."""
        return channel

    def combine(self, site: TilePlace, total: Expr, x: Expr, tap: Expr, lane: Expr) -> Expr:
        """The accumulator after one more element."""
        raise NotImplementedError

    def result(self, site: TilePlace, r: int, channel: Expr, total: Expr) -> Expr:
        """The anchor's result from its accumulator."""
        return total


class DepthwiseEmitter(WindowedEmitter):
    """Conv or ConvTranspose with one input channel a group; of m results a group, channel c reads channel c // m."""

    def prepare(self) -> None:
        """Weights [C, 1, *taps] as [block, tap, lane]."""
        form = contraction_form(self.scope.workload, self.operator)
        assert isinstance(form, Convolution)
        self.multiplier = self.channels // self.scope.shape(self.x)[1]
        self.bias = self.operator.inputs[2] if len(self.operator.inputs) > 2 else -1
        place = self.scope.workload.of_kind("constant").index(self.operator.inputs[1])
        padded_channels = self.blocks * self.lanes

        def pack(constants: Any) -> np.ndarray:
            padded = np.zeros((padded_channels, self.taps), "float32")
            padded[: self.channels] = form.weights(constants[place]).reshape(self.channels, self.taps)
            return padded.reshape(self.blocks, self.lanes, self.taps).transpose(0, 2, 1)

        declare: Callable[..., Array] = self.scope.declare_constant
        name = f"depthwise{self.operator.inputs[1]}{form.packing}"
        self.weights = declare(name, pack, (self.blocks, self.taps, self.lanes), "float32")

    def input_channel(self, channel: Expr) -> Expr:
        """See WindowedEmitter."""
        return self.emitter.simplify(channel // self.multiplier)

    def combine(self, site: TilePlace, total: Expr, x: Expr, tap: Expr, lane: Expr) -> Expr:
        """See WindowedEmitter."""
        offset = (site.block * self.taps + tap) * self.lanes + lane
        return total + x * self.weights.buffer[self.emitter.simplify(offset)]

    def result(self, site: TilePlace, r: int, channel: Expr, total: Expr) -> Expr:
        """See WindowedEmitter."""
        return total + self.scope.read(self.bias, (channel,)) if self.bias >= 0 else total


class MaxPoolEmitter(WindowedEmitter):
    """MaxPool, of numbers or bytes: padding never wins."""

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """See WindowedEmitter."""
        return self.scope.workload.values[self.x].dtype

    @property
    def initial(self) -> Expr:
        """See WindowedEmitter."""
        least = float("-inf") if self.dtype == "float32" else int(np.iinfo(self.dtype).min)
        return const(least, self.dtype)

    def combine(self, site: TilePlace, total: Expr, x: Expr, tap: Expr, lane: Expr) -> Expr:
        """See WindowedEmitter."""
        return tirx.Max(total, x)


class AveragePoolEmitter(WindowedEmitter):
    """AveragePool: divides by the real elements of the window, or by all of them (`count_include_pad`)."""

    def combine(self, site: TilePlace, total: Expr, x: Expr, tap: Expr, lane: Expr) -> Expr:
        """See WindowedEmitter."""
        return total + x

    def result(self, site: TilePlace, r: int, channel: Expr, total: Expr) -> Expr:
        """See WindowedEmitter."""
        window = site.window
        padded = self.operator.attribute("count_include_pad", 0)
        if site.run.clean:
            count: Expr = window.taps
        elif padded:
            count = window.covered(site.start + r)
        elif site.run.ragged:
            low, high = window.tap_range(site.start + r)
            count = high - low
        else:
            count = sum(window.inside(site.run.start + r, tap) for tap in range(window.taps))
        for outer, position in zip(self.outer, site.row, strict=False):
            low, high = (0, outer.covered(position)) if padded else outer.tap_range(position)
            count = count * (high - low)
        if isinstance(count, int):
            return total * const(1.0 / count, "float32")
        return total / tirx.Cast("float32", self.emitter.simplify(count))
