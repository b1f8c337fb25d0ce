"""Depthwise convolutions of bytes in float32, where a target has no instruction on bytes: so few sums are exact."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.depthwise.emitter import DepthwiseEmitter
from autofuse.kernels.families.narrow.depthwise.form import unsigned
from autofuse.kernels.tir.emit import Expr, const


class RealEmitter(DepthwiseEmitter):
    """Tap after tap in float32, the zero point taken from the rows ahead."""

    @property
    def row_size(self) -> int:
        """See DepthwiseEmitter."""
        return self.form.positions * self.lanes

    def declare(self) -> None:
        """See DepthwiseEmitter."""
        form, workload, lanes = self.form, self.scope.workload, self.lanes
        shape = (self.blocks, form.height.taps * form.width.taps, lanes)
        name = "_".join(map(str, (f"taps{form.w}", *shape)))
        self.weights = self.scope.declare_constant(
            name, lambda c: form.in_lanes(workload.array_of(form.w, c), lanes), shape, "float32"
        ).buffer

    def arrange(self, ring: Any, slot: Expr, line: Any, first: int, end: int) -> None:
        """See DepthwiseEmitter."""
        emitter, lanes = self.emitter, self.lanes
        zero = const(unsigned(self.form, self.zero), "int32")
        with emitter.serial(end - first) as step, emitter.vector(lanes) as lane:
            at = emitter.simplify((step + first) * lanes + lane)
            emitter.put(ring, slot + at, tirx.Cast("float32", tirx.Cast("int32", line[at]) - zero))

    def blank_row(self, ring: Any, slot: Expr) -> None:
        """See DepthwiseEmitter."""
        lanes = self.lanes
        with self.emitter.serial(self.form.positions) as position:
            zero = tirx.Broadcast(const(0.0, "float32"), lanes)
            self.emitter.put_vector(ring, slot + position * lanes, zero, lanes)

    def tile(self, block: Expr, ring: Any, slots: list[Expr], start: Expr, sums: list[Any]) -> None:
        """See DepthwiseEmitter."""
        emitter, width, lanes = self.emitter, self.form.width, self.lanes
        for one in sums:
            emitter.put_vector(one, 0, tirx.Broadcast(const(0.0, "float32"), lanes), lanes)
        for row, slot in enumerate(slots):
            first = (block * len(slots) + row) * width.taps
            weights = [
                emitter.bind(emitter.vector_at(self.weights, (first + tap) * lanes, lanes)) for tap in range(width.taps)
            ]
            for column in range((len(sums) - 1) * width.stride + width.taps):
                at = slot + (start * width.stride + column) * lanes
                read = emitter.bind(emitter.vector_at(ring, at, lanes))
                for pixel, one in enumerate(sums):
                    tap = column - pixel * width.stride
                    if 0 <= tap < width.taps:
                        emitter.put_vector(one, 0, emitter.vector_at(one, 0, lanes) + read * weights[tap], lanes)
