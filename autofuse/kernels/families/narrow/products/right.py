"""The right operand of narrow products in panels: packed when the model is compiled, or by the kernel."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.graph.own.rounding import bits_of
from autofuse.kernels.families.contraction.form import Convolution
from autofuse.kernels.families.narrow.instructions import SIGN
from autofuse.kernels.families.narrow.products.operands import Operands
from autofuse.kernels.tir import bfloat16
from autofuse.kernels.tir.emit import Array, Expr, Index, const
from autofuse.kernels.tir.math import LetBinder
from autofuse.kernels.tir.offsets import delinear

LEAST_SCALE, MOST_SCALE = 2.0**-126, 2.0**127
"""Powers of two that are normal float32 numbers."""


class Right:
    """The right operand in panels [batch, panel, tap, step, vector, lane, number], and the sums of its columns."""

    def __init__(self, operands: Operands) -> None:
        self.of = operands
        self.scope, self.product, self.form = operands.scope, operands.product, operands.product.form
        self.emitter = self.scope.emitter
        form, multiplier = self.form, operands.multiplier
        taps, units = operands.taps, operands.units
        if operands.joins:
            taps, units = taps // form.windows[-1].taps, operands.row_units
        self.shape = (prod(form.weight_batch), operands.panels, taps, units,
                      operands.panel_vectors, multiplier.lanes, multiplier.together)  # fmt: skip
        kinds = [self.scope.workload.values[value].kind for value in (form.w, self.product.w_zero) if value >= 0]
        self.constant = set(kinds) <= {"constant", "literal"}
        self.sums: Any = None
        self.scales: Any = None
        self.rests: Any = None
        self.buffer = self._packed_ahead() if self.constant else self._packed_here()

    def offset(self, batch: Index, panel: Expr, tap: Expr, unit: Expr, vector: int) -> Expr:
        """Where in `buffer` a vector of weights stands."""
        place = (self._flat(batch), panel, tap, unit, vector, 0, 0)
        return self.emitter.simplify(_row_major(place, self.shape))

    def sums_offset(self, batch: Index, panel: Expr, vector: int) -> Expr:
        """Where in `sums` and `rests` those of a vector of columns stand."""
        flat = self._flat(batch) * self.of.panels + panel
        return self.emitter.simplify(flat * self.of.panel_lanes + vector * self.of.multiplier.lanes)

    def _flat(self, batch: Index) -> Expr:
        flat: Expr = 0
        for position, extent in zip(batch, self.form.weight_batch, strict=True):
            flat = flat * extent + (position if extent > 1 else 0)
        return flat

    def _packed_ahead(self) -> Any:
        """Packed when the model is compiled."""
        workload = self.scope.workload
        w, zero = self.form.w, self.product.w_zero

        def pack(constants: Any) -> np.ndarray:
            weights = self._weights(constants)
            if self.of.multiplier.stretch:
                weights = weights / column_scales(weights, self.of.multiplier.summed_products)
            elif self.of.real:
                weights = bits_of(weights)
            elif not self.of.float16:
                weights = weights.astype(np.int32)
            if self.of.corrects:
                weights = weights - self._middle
            elif zero >= 0:
                weights = weights - self.product.zero_of_columns(workload.array_of(zero, constants))
            weights = by_rows(weights, self.form.windows[-1].taps) if self.of.joins else weights
            return pack_panels(weights, self.shape).astype(self.of.multiplier.right)

        kind = "halves" if self.of.real else self.of.multiplier.name if self.of.float16 else "bytes"
        name = "_".join(map(str, (f"{kind}{w}", zero, *self.shape))) + self.form.packing
        declared: Array = self.scope.declare_constant(name, pack, self.shape, self.of.multiplier.right)
        shape = (self.shape[0], self.of.panels * self.of.panel_lanes)
        if self._needs_sums():
            self.sums = self.scope.declare_constant(
                f"{name}_sums", lambda c: column_sums(pack(c)).reshape(shape), shape, "int32"
            ).buffer
        if self.of.multiplier.stretch:
            self.scales = self.scope.declare_constant(f"{name}_scales", self._scales_of(shape), shape, "float32").buffer
        if self.of.corrects:
            self.rests = self.scope.declare_constant(f"{name}_rests", self._rests_of(shape), shape, "int32").buffer
        return declared.buffer

    def _weights(self, constants: Any) -> np.ndarray:
        """The weights as [batch, column, depth, tap]."""
        found = self.form.weights(self.scope.workload.array_of(self.form.w, constants))
        return found.reshape(self.shape[0], self.form.columns, self.form.depth, self.of.taps)

    def _scales_of(self, shape: tuple[int, int]) -> Callable[[Any], np.ndarray]:
        """What the sums of columns are multiplied by, 1 beyond the edge."""

        def found(constants: Any) -> np.ndarray:
            wide = np.ones(shape, np.float32)
            powers = column_scales(self._weights(constants), self.of.multiplier.summed_products)
            wide[:, : self.form.columns] = powers[:, :, 0, 0]
            return wide

        return found

    @property
    def _middle(self) -> int:
        """What is taken off the bytes of w so that they are signed."""
        return 0 if self.scope.workload.values[self.form.w].dtype == "int8" else SIGN

    def _rests_of(self, shape: tuple[int, int]) -> Callable[[Any], np.ndarray]:
        """What is left of the zero points of columns then, 0 beyond the edge."""

        def rests(constants: Any) -> np.ndarray:
            found = np.zeros(shape, np.int32)
            zero = self.product.w_zero
            whole = np.zeros((1, 1), np.int32)
            if zero >= 0:
                whole = self.product.zero_of_columns(self.scope.workload.array_of(zero, constants))[:, :, 0, 0]
            found[:, : self.form.columns] = whole - self._middle
            return found

        return rests

    def _needs_sums(self) -> bool:
        zero = self.of.x_zero() if self.of.shifts else const(0, "int32")
        return not (isinstance(zero, tirx.IntImm) and int(zero.value) == 0)

    def _packed_here(self) -> Any:
        """Packed by the kernel, where it is computed."""
        emitter, form, of = self.emitter, self.form, self.of
        buffer = emitter.scratch(prod(self.shape), of.multiplier.right)
        batches, panels, taps, units, _, _, together = self.shape
        width = of.panel_lanes
        with emitter.parallel(batches * panels) as task:
            batch = delinear(task // panels, form.weight_batch)
            panel = task % panels
            with emitter.serial(taps) as tap, emitter.serial(units) as unit:
                for number in range(together):
                    depth = emitter.simplify(unit * together + number)
                    with self.scope.point(), emitter.vector(width) as lane:
                        column = panel * width + lane
                        value = self._element(tuple(batch), tap, depth, column)
                        at = (task * taps + tap) * units + unit
                        emitter.put(buffer, (at * width + lane) * together + number, value)
        if self._needs_sums():
            self.sums = self._sums_here(buffer)
        return buffer

    def _element(self, batch: Index, tap: Expr, depth: Expr, column: Expr) -> Expr:
        """A computed weight less its zero point, 0 beyond the edges."""
        form, of = self.form, self.of
        inside = []
        if of.panels * of.panel_lanes > form.columns:
            inside.append(column < form.columns)
        if of.padded_depth > form.depth:
            inside.append(depth < form.depth)
        index = tuple(self.emitter.simplify(part) for part in form.w_index(batch, tap, depth, column))
        stored = of.stored(form.w, index)
        value = (self.scope.read_alone if inside else self.scope.read)(form.w, index) if stored is None else stored
        group = batch[1] * form.columns if isinstance(form, Convolution) else 0
        if stored is not None:
            whole = stored
        elif of.real:
            binder = LetBinder()
            whole = binder.wrap(bfloat16.bits_of(value, binder))
        elif of.float16:
            whole = tirx.Cast("float16", value)
        else:
            zero = self._zero(group + column, bool(inside))
            whole = tirx.Cast(of.multiplier.right, tirx.Cast("int32", value) - zero)
        if not inside:
            return whole
        condition = inside[0] if len(inside) == 1 else tirx.all(*inside)
        return tirx.if_then_else(condition, whole, const(0, of.multiplier.right))

    def _zero(self, column: Expr, guarded: bool) -> Expr:
        zero = self.product.w_zero
        if zero < 0 or not guarded:
            return self.of.zero(zero, (column,))
        shape = self.scope.shape(zero)
        return tirx.Cast(
            "int32", self.scope.read_alone(zero, tuple(0 for _ in shape) if prod(shape) == 1 else (column,))
        )

    def _sums_here(self, buffer: Any) -> Any:
        """The sums of the columns of computed weights."""
        emitter, multiplier = self.emitter, self.of.multiplier
        batches, panels, taps, units, vectors, lanes, together = self.shape
        sums = emitter.scratch(batches * panels * vectors * lanes, "int32")
        ones = multiplier.spread(tirx.Broadcast(const(1, multiplier.left), together))
        with emitter.parallel(batches * panels) as task, emitter.serial(vectors) as vector:
            total = emitter.scratch(lanes, "int32")
            emitter.put_vector(total, 0, tirx.Broadcast(const(0, "int32"), lanes), lanes)
            with emitter.serial(taps * units) as step:
                at = (((task * taps * units) + step) * vectors + vector) * lanes * together
                weights = emitter.vector_at(buffer, at, lanes * together)
                emitter.put_vector(total, 0, multiplier.add(emitter.vector_at(total, 0, lanes), ones, weights), lanes)
            emitter.put_vector(sums, (task * vectors + vector) * lanes, emitter.vector_at(total, 0, lanes), lanes)
        return sums


def by_rows(weights: np.ndarray, row: int) -> np.ndarray:
    """Weights [batch, column, depth, tap] as [batch, column, tap in its row and depth, row of taps]."""
    batches, columns, depth, taps = weights.shape
    parts = weights.reshape(batches, columns, depth, taps // row, row)
    return parts.transpose(0, 1, 4, 2, 3).reshape(batches, columns, row * depth, taps // row)


def pack_panels(weights: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Weights [batch, column, depth, tap] as [batch, panel, tap, step, vector, lane, number], zero beyond the edges."""
    batches, panels, taps, units, vectors, lanes, together = shape
    padded = np.zeros((batches, panels * vectors * lanes, units * together, taps), weights.dtype)
    padded[:, : weights.shape[1], : weights.shape[2]] = weights
    parts = padded.reshape(batches, panels, vectors, lanes, units, together, taps)
    return np.ascontiguousarray(parts.transpose(0, 1, 6, 4, 2, 3, 5))


def column_scales(weights: np.ndarray, stretch: int) -> np.ndarray:
    """What weights [batch, column, depth, tap] are divided by, [batch, column, 1, 1]: a power of two for each column.

    The sizes of any `stretch` numbers of what is left never exceed 1/2 in all. 1 for a column of zeros, and for one so
    small or so large that the power would be no normal float32.
    """
    largest = np.abs(weights).max(axis=(2, 3), keepdims=True).astype(np.float64) * (2 * stretch)
    usable = (largest >= LEAST_SCALE) & (largest <= MOST_SCALE)
    return np.asarray(np.exp2(np.ceil(np.log2(np.where(usable, largest, 1.0)))).astype(np.float32))


def column_sums(packed: np.ndarray) -> np.ndarray:
    """The sums of the columns of packed weights, as [batch, panel, vector, lane]."""
    return np.asarray(packed.sum(axis=(2, 3, 6), dtype=np.int64).astype(np.int32))


def _row_major(index: Index, shape: tuple[int, ...]) -> Expr:
    offset: Expr = 0
    for position, extent in zip(index, shape, strict=True):
        offset = offset * extent + position
    return offset
