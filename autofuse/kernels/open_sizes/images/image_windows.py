"""Windows over each channel of an image whose sizes are known when the kernel runs: depthwise convolutions, poolings.

Some rows of results of a vector of channels are a task, as in a kernel of one size; they are parted as those of
another convolution are (see `RowParts`), several short ones together, so that each tile is found once for all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm.script.ir_builder.tirx as builder

from autofuse.kernels.families.windowed.direct import (
    AveragePoolEmitter,
    DepthwiseEmitter,
    Knobs,
    MaxPoolEmitter,
    TilePlace,
    WindowedEmitter,
)
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Visit
from autofuse.kernels.open_sizes.images.row_parts import RowParts, Rows
from autofuse.kernels.tir.emit import Expr

SHORT = 24
"""Results of a row up to which tiles below each other are computed one after the other: what is asked of a row is asked
once for all of them (Zen 4: rows of 9 and 14 take 0.9 of the time, rows of 56 and 112 longer)."""
SCATTERED = 4
"""Results of a tile at most where the channels of a place lie apart: each lane is a load of its own then. Eight took
LLVM up to 7 s where four take 2 s, and are no faster (Zen 5, poolings of 3x3 and 5x5: 0.9 to 1.3 of the time)."""
WAITING = 2
"""Sums of a result, as if there were so many: those of neighbouring tiles are computed while others wait."""


class _ImageWindows(WindowedEmitter):
    """What the kernels of an image do otherwise than those of one size."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs, extents: Rows) -> None:
        super().__init__(scope, nest, knobs)
        self.windows = extents.windows(self.windows)
        self.outer = self.windows[:-1]
        self.extents = self.lengths = extents
        self.below: tuple[Expr, Expr] | None = None
        apart = scope.workload.values[self.x].block == 0 and self.lanes > 1
        self.pixels = min(int(knobs["pixels"]), SCATTERED) if apart else int(knobs["pixels"])

    def emit(self) -> None:
        """See WindowedEmitter: short rows and long ones have code of their own, where the range has both."""
        self.prepare()
        each, shares = self.extents.shares(int(self.knobs["rows_per_task"]))
        with self.emitter.parallel(shares * self.blocks) as number:
            block = builder.bind(number // shares)
            share = self.extents.share(number - block * shares, each)
            accumulators = self.registers()
            short, long = self.extents.within(0, SHORT), self.extents.within(SHORT + 1, self.extents.most)
            if short is None or long is None:
                self.part(block, share, accumulators, short or long or self.extents)
                return
            with builder.If(self.extents.columns <= SHORT):
                with builder.Then():
                    self.part(block, share, accumulators, short)
                with builder.Else():
                    self.part(block, share, accumulators, long)

    def part(self, block: Expr, share: tuple[Expr, Expr], accumulators: Any, extents: Rows) -> None:
        """A task's rows (the first one, and how many) of a vector of channels: each by itself, or tiles below each
        other."""
        (first, count), self.lengths = share, extents
        if extents.most <= SHORT:
            self.below = share
            self.channel_block(0, block, (first,), accumulators)
            return
        self.below = None
        with self.emitter.serial(count) as step:
            self.channel_block(0, block, (builder.bind(first + step),), accumulators)

    def row(self, visit: Visit) -> None:
        """See WindowedEmitter."""
        RowParts(self.emitter, self.lengths, self.pixels, WAITING).emit(self.windows[-1], visit)

    def tile(self, site: TilePlace) -> None:
        """See WindowedEmitter."""
        if self.below is None:
            super().tile(site)
            return
        first, count = self.below
        with self.emitter.serial(count) as step:
            super().tile(replace(site, row=(builder.bind(first + step),)))


class ImageDepthwise(_ImageWindows, DepthwiseEmitter):
    """A convolution of one input channel a group."""


class ImageMaxPool(_ImageWindows, MaxPoolEmitter):
    """The largest of a window."""


class ImageAveragePool(_ImageWindows, AveragePoolEmitter):
    """The mean of a window, of which what lies beyond the borders is part."""


WINDOWS: dict[str, Any] = {"depthwise": ImageDepthwise, "max_pool": ImageMaxPool, "average_pool": ImageAveragePool}
"""By the kind of nest."""
