"""The two sides of a weight-only product while its kernel is emitted."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from autofuse.kernels.families.narrow.weight_only.form import Packing, WeightOnly
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.tir.emit import Expr, const
from autofuse.kernels.tir.features import has_feature
from autofuse.kernels.tir.offsets import delinear

TABLE_LANES = 16
"""Lanes of the vectors whose lowest four bits choose one of as many numbers."""
_LOOK_UP = "llvm.x86.avx512.permvar.sf.512"


class Weights:
    """Codes in words of 32 bits, scales, and what zero points add; see `Packing`.

    `real`: whether codes become real numbers; else they are read as they are.
    """

    def __init__(self, scope: Scope, form: WeightOnly, vectors: int, real: bool = True) -> None:
        self.emitter, self.form = scope.emitter, form
        target = scope.emitter.target
        self.lanes = target.lanes
        self.by_table = form.bits == 4 and self.lanes == TABLE_LANES and has_feature(target, "avx512f")
        self.packing = Packing(form, vectors, self.lanes, not self.by_table)
        packing, workload = self.packing, scope.workload
        name = "_".join(map(str, (f"codes{form.codes}", *packing.words, packing.flipped)))
        words = scope.declare_constant(
            name, lambda c: packing.codes(workload.array_of(form.codes, c)), packing.words, "int32"
        )
        shape = packing.factors
        name = "_".join(map(str, (f"scales{form.scales}", *shape)))
        scales = scope.declare_constant(
            name, lambda c: packing.scales(workload.array_of(form.scales, c)), shape, "float32"
        )
        self.words, self.scales, self.shifts = words.buffer, scales.buffer, None
        if real and form.zeros >= 0:
            name = "_".join(map(str, (f"shifts{form.scales}_{form.zeros}", *shape)))
            self.shifts = scope.declare_constant(
                name,
                lambda c: packing.shifts(workload.array_of(form.scales, c), workload.array_of(form.zeros, c)),
                shape,
                "float32",
            ).buffer
        self.table: Expr = None
        if real and self.by_table:
            codes = np.arange(TABLE_LANES, dtype=np.float32) - form.middle
            table = scope.declare_constant("codes_as_numbers", lambda _: codes, codes.shape, "float32")
            self.table_buffer = table.buffer

    def word(self, panel: Expr, step: Expr, vector: int) -> Expr:
        """A vector of words: so many neighbours of the depth of each of its columns."""
        return self.emitter.vector_at(self.words, self.word_offset(panel, step, vector), self.lanes)

    def word_offset(self, panel: Expr, step: Expr, vector: int) -> Expr:
        """Where a vector of words stands."""
        _, steps, vectors, lanes = self.packing.words
        return ((panel * steps + step) * vectors + vector) * lanes

    def factor(self, buffer: Any, panel: Expr, block: Expr, vector: int) -> Expr:
        """Scales, or what zero points add, of a vector of columns in a block."""
        at = (panel * self.form.blocks + block) * self.packing.width + vector * self.lanes
        return self.emitter.vector_at(buffer, at, self.lanes)

    def numbers(self, word: Expr, place: int) -> Expr:
        """Of each column the code at a place in its word, less half the range, as a real number."""
        bits = self.form.bits
        if self.by_table:
            index = tirx.reinterpret(f"uint32x{self.lanes}", word) >> self._all(bits * place, "uint32")
            index = tirx.reinterpret(f"int32x{self.lanes}", index) if place else word
            table = self.emitter.vector_at(self.table_buffer, 0, self.lanes)
            return tirx.call_llvm_pure_intrin(f"float32x{self.lanes}", _LOOK_UP, table, index)
        left = 32 - bits * (place + 1)
        cut = word << self._all(left, "int32") if left else word
        return tirx.Cast(f"float32x{self.lanes}", cut >> self._all(32 - bits, "int32"))

    def _all(self, value: int, dtype: str) -> Expr:
        return tirx.Broadcast(const(value, dtype), self.lanes)


class Rows:
    """The left operand [row, depth], zero behind its end, and the sums of its blocks where zero points want them."""

    def __init__(self, scope: Scope, form: WeightOnly, summed: bool) -> None:
        self.scope, self.emitter, self.form = scope, scope.emitter, form
        self.lanes = scope.emitter.target.lanes
        array = scope.arrays.get(form.x)
        plain = array is not None and not array.block and not array.half
        lies = form.x in scope.ready and plain and form.depth == form.padded_depth
        self.buffer = array.buffer if lies and array is not None else self._copied()
        self.sums = self._summed() if summed else None

    def number(self, row: Expr, depth: Expr) -> Expr:
        """An element in every lane."""
        at = self.emitter.simplify(row * self.form.padded_depth + depth)
        return tirx.Broadcast(self.buffer[at], self.lanes)

    def sum(self, row: Expr, block: Expr) -> Expr:
        """The sum of a block in every lane."""
        assert self.sums is not None
        return tirx.Broadcast(self.sums[self.emitter.simplify(row * self.form.blocks + block)], self.lanes)

    def _copied(self) -> Any:
        """The rows computed once, with zeros behind them."""
        form, emitter = self.form, self.emitter
        buffer = emitter.scratch(form.rows * form.padded_depth)
        vectors, rest = divmod(form.depth, self.lanes)
        with emitter.parallel(form.rows) as row:
            lead = tuple(emitter.simplify(part) for part in delinear(row, form.lead))
            for count, first, lanes in ((vectors, 0, self.lanes), (1, vectors * self.lanes, rest)):
                if not count or not lanes:
                    continue
                with emitter.serial(count) as step, self.scope.point(), emitter.vector(lanes) as lane:
                    depth = emitter.simplify(first + step * lanes + lane)
                    emitter.put(buffer, row * form.padded_depth + depth, self.scope.read(form.x, (*lead, depth)))
            behind = form.padded_depth - form.depth
            if behind:
                with emitter.vector(behind) as lane:
                    emitter.put(buffer, row * form.padded_depth + form.depth + lane, const(0.0, "float32"))
        return buffer

    def _summed(self) -> Any:
        """The sums of the blocks of each row."""
        form, emitter, lanes = self.form, self.emitter, min(self.lanes, self.form.block)
        sums = emitter.scratch(form.rows * form.blocks)
        with emitter.parallel(form.rows) as row, emitter.serial(form.blocks) as block:
            part = emitter.scratch(lanes)
            start = row * form.padded_depth + block * form.block
            emitter.put_vector(part, 0, emitter.vector_at(self.buffer, start, lanes), lanes)
            with emitter.serial(form.block // lanes - 1) as step:
                more = emitter.vector_at(self.buffer, start + (step + 1) * lanes, lanes)
                emitter.put_vector(part, 0, emitter.vector_at(part, 0, lanes) + more, lanes)
            total = part[0]
            for lane in range(1, lanes):
                total = total + part[lane]
            emitter.put(sums, row * form.blocks + block, total)
        return sums
