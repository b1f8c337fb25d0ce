"""Windows over each channel of an image whose sizes are known when the kernel runs: depthwise convolutions, poolings.

Some rows of results of a vector of channels are a task, as in a kernel of one size; each row is parted as that of
another convolution is (see `RowParts`).
"""

from __future__ import annotations

from typing import Any

import tvm.script.ir_builder.tirx as builder

from autofuse.kernels.families.windowed.direct import (
    AveragePoolEmitter,
    DepthwiseEmitter,
    Knobs,
    MaxPoolEmitter,
    WindowedEmitter,
)
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Visit
from autofuse.kernels.open_sizes.images.row_parts import RowParts, Rows


class _ImageWindows(WindowedEmitter):
    """What the kernels of an image do otherwise than those of one size."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs, extents: Rows) -> None:
        super().__init__(scope, nest, knobs)
        self.windows = extents.windows(self.windows)
        self.outer = self.windows[:-1]
        self.extents = extents

    def emit(self) -> None:
        """See WindowedEmitter."""
        self.prepare()
        emitter = self.emitter
        each, shares = self.extents.shares(int(self.knobs["rows_per_task"]))
        with emitter.parallel(shares * self.blocks) as number:
            block = builder.bind(number // shares)
            first, count = self.extents.share(number - block * shares, each)
            accumulators = self.registers()
            with emitter.serial(count) as step:
                self.channel_block(0, block, (builder.bind(first + step),), accumulators)

    def row(self, visit: Visit) -> None:
        """See WindowedEmitter."""
        RowParts(self.emitter, self.extents, int(self.knobs["pixels"])).emit(self.windows[-1], visit)


class ImageDepthwise(_ImageWindows, DepthwiseEmitter):
    """A convolution of one input channel a group."""


class ImageMaxPool(_ImageWindows, MaxPoolEmitter):
    """The largest of a window."""


class ImageAveragePool(_ImageWindows, AveragePoolEmitter):
    """The mean of a window, of which what lies beyond the borders is part."""


WINDOWS: dict[str, Any] = {"depthwise": ImageDepthwise, "max_pool": ImageMaxPool, "average_pool": ImageAveragePool}
"""By the kind of nest."""
