"""The two sides of a weight-only product of bytes: rows rounded to levels block by block, and weights unpacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.instructions import SIGN
from autofuse.kernels.families.narrow.weight_only.form import WeightOnly
from autofuse.kernels.families.narrow.weight_only.operands import Weights
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.tir.emit import Emitter, Expr, const, shuffled

HIGHEST = 127
"""The level of the largest number of a block, on either side of 0."""
_MAGNITUDE = 0x7FFFFFFF
"""All bits of a float32 but its sign; of numbers without a sign, the larger one has the larger bits."""


class ByteWeights:
    """Codes less their zero points as signed bytes, four neighbours of the depth in each lane of a vector.

    `order`: of eight neighbours of the depth, or of four, those that two vectors, or one, take one behind the other.
    """

    def __init__(self, scope: Scope, weights: Weights) -> None:
        self.emitter, self.form, self.packing = scope.emitter, weights.form, weights.packing
        self.size = 4 * weights.lanes
        self.order = (0, 2, 4, 6, 1, 3, 5, 7) if self.form.bits == 4 else (0, 1, 2, 3)
        self.buffer: Any = None
        if self.form.zeros >= 0:
            packing, workload, zeros = self.packing, scope.workload, self.form.zeros
            shape = (*packing.factors, 4)
            name = "_".join(map(str, (f"zeros{zeros}", *shape)))
            self.buffer = scope.declare_constant(
                name, lambda c: packing.zeros(workload.array_of(zeros, c)), shape, "int8"
            ).buffer

    def parts(self, words: Expr) -> list[Expr]:
        """The codes of a vector of words: of 4 bits as they are, of 8 bits less half their range."""
        lanes = self.size // 4
        if self.form.bits == 8:
            return [tirx.reinterpret(f"int8x{self.size}", words)]
        mask = tirx.Broadcast(const(0x0F0F0F0F, "uint32"), lanes)
        whole = tirx.reinterpret(f"uint32x{lanes}", words)
        if self.packing.flipped:
            whole = self.emitter.bind(tirx.bitwise_xor(whole, tirx.Broadcast(const(0x88888888, "uint32"), lanes)))
        shifted = whole >> tirx.Broadcast(const(4, "uint32"), lanes)
        return [tirx.reinterpret(f"int8x{self.size}", tirx.bitwise_and(half, mask)) for half in (whole, shifted)]

    def zeros(self, panel: Expr, block: Expr, vector: int) -> Expr | None:
        """What is taken off the codes of a vector of columns in a block; None: nothing."""
        form, packing = self.form, self.packing
        if self.buffer is None:
            return tirx.Broadcast(const(form.middle, "int8"), self.size) if form.bits == 4 else None
        at = (panel * form.blocks + block) * packing.width * 4 + vector * self.size
        return self.emitter.vector_at(self.buffer, at, self.size)


class ByteRows:
    """Rows as levels [row, depth] in the order of the weights, with a scale [row, block], computed ahead.

    A level is the nearest whole number of 127 parts of the largest number of its block, half to even; as a byte with a
    sign, or without (`dtype`) 128 more.
    """

    def __init__(self, emitter: Emitter, form: WeightOnly, numbers: Any, dtype: str, order: Sequence[int]) -> None:
        self.emitter, self.form, self.dtype = emitter, form, dtype
        self.buffer = emitter.scratch(form.rows * form.padded_depth, dtype)
        self.scales = emitter.scratch(form.rows * form.blocks)
        width = min(max(emitter.target.lanes, len(order)), form.block)
        places = [first + place for first in range(0, width, len(order)) for place in order]
        with emitter.parallel(form.rows) as row, emitter.serial(form.blocks) as block:
            start = emitter.simplify(row * form.padded_depth + block * form.block)
            largest = self._largest(numbers, start, width)
            one = const(1.0, "float32")
            nothing = largest == const(0.0, "float32")
            inverse = const(float(HIGHEST), "float32") / tirx.Select(nothing, one, largest)
            inverse = emitter.bind(tirx.Broadcast(inverse, width))
            emitter.put(self.scales, row * form.blocks + block, largest / const(float(HIGHEST), "float32"))
            with emitter.serial(form.block // width) as step:
                at = start + step * width
                emitter.put_vector(self.buffer, at, self._levels(numbers, at, inverse, places), width)

    def numbers(self, row: Expr, step: Expr, count: int) -> Expr:
        """So many neighbours of a row from a step of four on."""
        return self.emitter.vector_at(self.buffer, row * self.form.padded_depth + step * 4, count)

    def scale(self, row: Expr, block: Expr, lanes: int) -> Expr:
        """The scale of a block in every lane."""
        return tirx.Broadcast(self.scales[self.emitter.simplify(row * self.form.blocks + block)], lanes)

    def _largest(self, numbers: Any, start: Expr, width: int) -> Expr:
        """The largest number of a block without its sign."""
        emitter, kind = self.emitter, f"int32x{width}"
        found = emitter.scratch(width, "int32")
        emitter.put_vector(found, 0, tirx.Broadcast(const(0, "int32"), width), width)
        mask = tirx.Broadcast(const(_MAGNITUDE, "int32"), width)
        with emitter.serial(self.form.block // width) as step:
            bits = tirx.reinterpret(kind, emitter.vector_at(numbers, start + step * width, width))
            emitter.put_vector(
                found, 0, tirx.Max(emitter.vector_at(found, 0, width), tirx.bitwise_and(bits, mask)), width
            )
        largest = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.smax", emitter.vector_at(found, 0, width))
        return emitter.bind(tirx.reinterpret("float32", largest))

    def _levels(self, numbers: Any, at: Expr, inverse: Expr, places: Sequence[int]) -> Expr:
        """The levels of a vector of neighbours, in the order of `places`."""
        width = len(places)
        scaled = self.emitter.vector_at(numbers, at, width) * inverse
        rounded = tirx.call_llvm_pure_intrin(f"float32x{width}", "llvm.rint", scaled)
        whole = tirx.Cast(f"int32x{width}", rounded)
        if self.dtype == "uint8":
            whole = whole + tirx.Broadcast(const(SIGN, "int32"), width)
        return shuffled(self.emitter.bind(tirx.Cast(f"{self.dtype}x{width}", whole)), places)
