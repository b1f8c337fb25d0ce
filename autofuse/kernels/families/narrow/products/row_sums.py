"""Sums of the bytes that each result of a narrow product reads: what a zero point of the weights is multiplied by."""

from __future__ import annotations

from contextlib import ExitStack
from math import prod
from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.products.left import Left
from autofuse.kernels.families.narrow.products.operands import positions
from autofuse.kernels.tir.emit import Expr, Index, const
from autofuse.kernels.tir.offsets import linear


class RowSums:
    """Sums of x as it is multiplied, one for each pixel of the results; computed ahead, by the instruction and ones."""

    def __init__(self, left: Left) -> None:
        self.left, self.of, self.form, self.emitter = left, left.of, left.form, left.emitter
        self.shape = (*self.form.batch, *(window.outputs for window in self.form.windows))
        self.buffer = self.emitter.scratch(prod(self.shape), "int32")
        sizes = self.shape[len(self.form.batch) :]
        with positions(self.emitter, self.form.batch, sizes) as (batch, outputs, number):
            self.emitter.put(self.buffer, number, self._sum(batch, outputs))

    def at(self, batch: Index, outputs: Index) -> Expr:
        """The sum that a pixel reads, less as much of the zero point of x: as int32."""
        found = self.buffer[self.emitter.simplify(linear((*batch, *outputs), self.shape))]
        taken = self.of.taps * self.of.padded_depth
        return found - const(taken, "int32") * self.of.x_zero()

    def _sum(self, batch: Index, outputs: Index) -> Expr:
        emitter, of, windows = self.emitter, self.of, self.form.windows
        lanes, run = of.multiplier.lanes, self.left.row_is_one_run
        totals = [emitter.scratch(lanes, "int32") for _ in range(2)]
        for total in totals:
            emitter.put_vector(total, 0, tirx.Broadcast(const(0, "int32"), lanes), lanes)
        with ExitStack() as stack:
            taps = tuple(
                stack.enter_context(emitter.serial(window.taps)) for window in (windows[:-1] if run else windows)
            )
            units = of.units * windows[-1].taps if run else of.units
            self._add(totals, batch, outputs, (*taps, 0) if run else taps, units)
        parts = [totals[0][lane] for lane in range(lanes)]
        while len(parts) > 1:
            parts = [one + other for one, other in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0] + totals[1][0]

    def _add(self, totals: list[Any], batch: Index, outputs: Index, taps: Index, units: int) -> None:
        """Adds one run of memory: whole vectors, whose sums lie in their lanes, and the rest, spread over all lanes."""
        emitter, multiplier = self.emitter, self.of.multiplier
        lanes, together = multiplier.lanes, multiplier.together
        ones = tirx.Broadcast(const(1, multiplier.right), lanes * together)
        whole, rest = divmod(units, lanes)
        for total, count, first, width in ((totals[0], whole, 0, lanes), (totals[1], rest, whole * lanes, 1)):
            if not count:
                continue
            with emitter.serial(count) as step:
                at = emitter.simplify(self.left.offset(batch, outputs, taps, first + step * width))
                numbers = emitter.vector_at(self.left.buffer, at, width * together)
                if width == 1:
                    numbers = multiplier.spread(numbers, self.left.flips)
                elif self.left.flips:
                    numbers = multiplier.turned(numbers)
                emitter.put_vector(total, 0, multiplier.add(emitter.vector_at(total, 0, lanes), numbers, ones), lanes)
