"""Convolutions over an image whose sizes are known when the kernel runs, row by row.

Some rows of results of a group of channels are a task, as in a kernel of one size. Along a row as many results are in
registers as fit, and fewer for what is left of it. Which taps of a row look beyond the borders is counted for each row;
along a row that is known ahead (see `RowParts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.kernels.families.contraction.direct import ContractionEmitter, EmitTile, Knobs, Task, TileTask
from autofuse.kernels.families.contraction.dot import DotEmitter
from autofuse.kernels.families.contraction.form import Convolution
from autofuse.kernels.families.contraction.group_lanes import GroupLanesEmitter
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Run, Window
from autofuse.kernels.open_sizes.images.row_parts import RowParts, Rows
from autofuse.kernels.tir.emit import Expr, Index


class _ImageRows(ContractionEmitter):
    """What the kernels of an image do otherwise than those of one size. `form` and `knobs` are those of a sample."""

    def __init__(self, scope: Scope, nest: Nest, form: Convolution, knobs: Knobs, extents: Rows) -> None:
        form = replace(form, windows=extents.windows(form.windows))
        super().__init__(scope, nest, form, {**knobs, "order": "weights"})
        self.extents = extents

    def swept_blocks(self) -> int:
        """See ContractionEmitter: tasks are of some rows."""
        return 0

    @contextmanager
    def tasks(self) -> Iterator[Task]:
        """See ContractionEmitter."""
        each, shares = self.extents.shares(int(self.knobs["rows_per_task"]))
        groups = self.form.batch[1]
        with self.emitter.parallel(shares * groups) as number:
            group = builder.bind(number // shares) if groups > 1 else 0
            first, count = self.extents.share(number - group * shares, each)

            def row_at(step: Expr) -> Index:
                return (builder.bind(first + step),)

            yield Task((0, group), self.panels, count, lambda panel: panel, row_at)

    def row(self, task: TileTask, origin: Expr, emit: EmitTile) -> None:
        """See ContractionEmitter."""

        def visit(window: Window, run: Run, start: Expr) -> None:
            emit(replace(task, window=window), run, start)

        RowParts(self.emitter, self.extents, int(self.knobs["pixels"])).emit(task.window, visit)


class _ImagePlaces(_ImageRows):
    """What those of a 1x1 convolution do otherwise: all places of an image are one row, of which a task has some, as
    many as have their part of the input in the second cache while all weights are read."""

    first: Expr = 0
    count: Expr = 0

    @contextmanager
    def tasks(self) -> Iterator[Task]:
        """See ContractionEmitter."""
        pixels, extents, groups = int(self.knobs["pixels"]), self.extents, self.form.batch[1]
        held = self.emitter.target.l2_bytes // (2 * 4 * self.form.depth * pixels)
        total = builder.bind(extents.rows * extents.columns)
        wanted = (total + extents.threads * pixels - 1) // (extents.threads * pixels)
        each = builder.bind(tirx.min(wanted, max(held, 1)) * pixels)
        shares = builder.bind((total + each - 1) // each)
        with self.emitter.parallel(shares * groups) as number:
            group = builder.bind(number // shares) if groups > 1 else 0
            self.first = builder.bind((number - group * shares) * each)
            self.count = builder.bind(tirx.min(total - self.first, each))
            yield Task((0, group), self.panels, 1, lambda panel: panel, lambda step: (0 * step,))

    def row(self, task: TileTask, origin: Expr, emit: EmitTile) -> None:
        """See ContractionEmitter."""

        def visit(window: Window, run: Run, start: Expr) -> None:
            emit(replace(task, window=window), run, builder.bind(self.first + start))

        extents = replace(self.extents, columns=self.count, least=1)
        RowParts(self.emitter, extents, int(self.knobs["pixels"])).emit(task.window, visit)


class ImageDirect(_ImageRows):
    """A convolution whose lanes run over channels of the results."""


class ImageDot(_ImageRows, DotEmitter):
    """A convolution to few channels, whose lanes run over those of the input."""


class ImageGroupLanes(_ImageRows, GroupLanesEmitter):
    """A convolution of small groups, whose lanes run over the channels of several of them."""


class PlacesDirect(_ImagePlaces):
    """A 1x1 convolution whose lanes run over channels of the results."""


class PlacesDot(_ImagePlaces, DotEmitter):
    """A 1x1 convolution to few channels, whose lanes run over those of the input."""


EMITTERS: dict[str, Any] = {"direct": ImageDirect, "dot": ImageDot, "group_lanes": ImageGroupLanes}
"""By the knob `algorithm`."""
PLACES: dict[str, Any] = {"direct": PlacesDirect, "dot": PlacesDot}
"""The same for convolutions of one place, all of whose tensors have all places."""
