"""Depthwise convolutions of bytes by an instruction that takes four taps of a row at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.kernels.families.narrow.depthwise.emitter import DepthwiseEmitter, Knobs, Place
from autofuse.kernels.families.narrow.depthwise.form import QUAD, Depthwise, unsigned
from autofuse.kernels.families.narrow.instructions import SIGN, Multiplier
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.tir.emit import Array, Expr, const
from autofuse.kernels.tir.features import has_feature

_PERMUTE, _PERMUTED = "llvm.x86.avx512.permvar.qi.512", 16
"""One instruction that brings bytes of vectors of so many lanes into any order. A constant order becomes eleven: LLVM
takes it for the one in which several rows are written side by side, so it is an argument."""


class QuadsEmitter(DepthwiseEmitter):
    """Four taps of a row at a time, by one instruction."""

    sums_dtype = "int32"

    def __init__(self, scope: Scope, nest: Nest, form: Depthwise, knobs: Knobs, multiplier: Multiplier) -> None:
        super().__init__(scope, nest, form, knobs)
        self.multiplier, self.row_dtype = multiplier, multiplier.left
        self.held_zero = unsigned(form, self.zero) - (SIGN if multiplier.left == "int8" else 0)
        self.permutes = self.lanes == _PERMUTED and has_feature(self.emitter.target, "avx512vbmi")
        self.pixels += self.pixels % 2  # the places of windows in their quads alternate

    @property
    def row_size(self) -> int:
        """See DepthwiseEmitter."""
        return self.form.pairs * self.lanes * QUAD

    def declare(self) -> None:
        """See DepthwiseEmitter."""
        form, workload, lanes = self.form, self.scope.workload, self.lanes
        shape = (self.blocks, form.height.taps, form.shifts, form.quads, lanes, QUAD)
        name = "_".join(map(str, (f"quads{form.w}", *shape)))
        self.weights = self.scope.declare_constant(
            name, lambda c: form.in_quads(workload.array_of(form.w, c), lanes), shape, "int8"
        ).buffer
        self.begins: Any = None
        bias, zero, width = self.take_bias(), self.held_zero, self.blocks * lanes
        if bias >= 0 or zero:
            self.begins = self.scope.declare_constant(
                f"begins{form.w}_{bias}_{width}",
                lambda c: form.begins(
                    workload.array_of(form.w, c), workload.array_of(bias, c) if bias >= 0 else None, zero, lanes
                ),
                (width,),
                "int32",
            ).buffer

    def take_bias(self) -> int:
        """The value that is added to each channel's sums first, which they begin with instead; -1: there is none."""
        nest, workload = self.nest, self.scope.workload
        if nest.start in nest.stores or not nest.epilogue or self.scope.uses.get(nest.start, 0) > 1:
            return -1
        (operator, place), *rest = nest.epilogue
        other = workload.values[operator.inputs[1 - place]] if operator.op_type == "Add" else None
        if other is None or other.kind not in ("constant", "literal") or other.dtype != "int32":
            return -1
        if other.shape not in ((self.form.channels, 1, 1), (1, self.form.channels, 1, 1)):
            return -1
        self.nest = replace(nest, start=operator.outputs[0], epilogue=rest)
        return operator.inputs[1 - place]

    def bring_inside(self, place: Place, lanes: int, ring: Any, line: Any, source: Expr, slot: Expr) -> None:
        """See DepthwiseEmitter: quads are read where they lie, if they lie side by side."""
        form, array = self.form, self.scope.arrays.get(self.form.x)
        near = form.x in self.scope.ready and array is not None and array.block == self.lanes
        if not near or array is None or form.width.size < QUAD:
            super().bring_inside(place, lanes, ring, line, source, slot)
            return
        pad = form.width.pad_begin
        low = min(-(-pad // 2), form.pairs)
        high = max(low, min((form.width.size + pad - QUAD) // 2 + 1, form.pairs))
        start = array.offset((place[0], place[1] * self.lanes, source, 0))
        for pair in (*range(low), *range(high, form.pairs)):
            self.edge_quad(ring, slot, pair, array, start)
        if low < high:
            with self.emitter.serial(high - low) as step:
                at = start + (2 * (step + low) - pad) * self.lanes
                four = self.four(array.buffer, at, array.dtype)
                self.put_quad(ring, slot, step + low, self.quad_of(four, range(QUAD)))

    def edge_quad(self, ring: Any, slot: Expr, pair: int, array: Array, start: Expr) -> None:
        """A quad with padding among its positions."""
        size = self.form.width.size
        first = 2 * pair - self.form.width.pad_begin
        base = max(0, min(first, size - QUAD))
        columns = [first + place for place in range(QUAD)]
        four = self.four(array.buffer, start + base * self.lanes, array.dtype)
        chosen = [column - base if 0 <= column < size else QUAD for column in columns]
        self.put_quad(ring, slot, pair, self.quad_of(four, chosen))

    def quad_of(self, four: Expr, positions: Sequence[int]) -> Expr:
        """Bytes [position, channel] as [channel, place], of the position of each place; the fifth is padding."""
        lanes = self.lanes
        order = [position * lanes + channel for channel in range(lanes) for position in positions]
        if self.permutes:
            size = QUAD * lanes
            inside = [place % size for place in order]
            name = "order_" + "_".join(map(str, positions))
            places = self.scope.declare_constant(name, lambda _: np.asarray(inside, np.uint8), (size,), "uint8")
            held = self.emitter.vector_at(places.buffer, 0, size)
            four = tirx.call_llvm_pure_intrin(f"uint8x{size}", _PERMUTE, four, held)
            if max(positions) < QUAD:
                return four
            order = [place if inside[place] == at else place + size for place, at in enumerate(order)]
        sources = [four, self.blanks()] if max(positions) == QUAD else [four]
        return tirx.Shuffle(sources, [const(place, "int32") for place in order])

    def four(self, source: Any, at: Expr, dtype: str) -> Expr:
        """The unsigned bytes of four neighbouring positions."""
        size = QUAD * self.lanes
        found = self.emitter.vector_at(source, at, size)
        if dtype == "uint8":
            return found
        return tirx.bitwise_xor(tirx.reinterpret(f"uint8x{size}", found), tirx.Broadcast(const(SIGN, "uint8"), size))

    def blanks(self) -> Expr:
        """Four positions of padding."""
        return tirx.Broadcast(const(unsigned(self.form, self.zero), "uint8"), QUAD * self.lanes)

    def put_quad(self, ring: Any, slot: Expr, pair: Expr, quad: Expr) -> None:
        """Writes a quad of all channels, its unsigned bytes as the instruction takes them."""
        size = QUAD * self.lanes
        if self.multiplier.left == "int8":
            flipped = tirx.bitwise_xor(quad, tirx.Broadcast(const(SIGN, "uint8"), size))
            quad = tirx.reinterpret(f"int8x{size}", flipped)
        self.emitter.put_vector(ring, slot + pair * size, quad, size)

    def arrange(self, ring: Any, slot: Expr, line: Any, first: int, end: int) -> None:
        """See DepthwiseEmitter."""
        with self.emitter.serial((end - first - QUAD) // 2 + 1) as step:
            pair = step + first // 2
            four = self.four(line, pair * 2 * self.lanes, "uint8")
            self.put_quad(ring, slot, pair, self.quad_of(four, range(QUAD)))

    def blank_row(self, ring: Any, slot: Expr) -> None:
        """See DepthwiseEmitter."""
        with self.emitter.serial(self.form.pairs) as pair:
            self.put_quad(ring, slot, pair, self.blanks())

    def tile(self, block: Expr, ring: Any, slots: list[Expr], start: Expr, sums: list[Any]) -> None:
        """See DepthwiseEmitter."""
        emitter, form, lanes = self.emitter, self.form, self.lanes
        begin: Expr = tirx.Broadcast(const(0, "int32"), lanes)
        if self.begins is not None:
            begin = emitter.bind(emitter.vector_at(self.begins, block * lanes, lanes))
        for one in sums:
            emitter.put_vector(one, 0, begin, lanes)
        base = emitter.simplify(start // 2 if form.width.stride == 1 else start)
        for tap, slot in enumerate(slots):
            for quad, users in self.users(len(sums)):
                at = slot + (base + quad) * (lanes * QUAD)
                four = emitter.bind(emitter.vector_at(ring, at, lanes * QUAD))
                for pixel, shift, number in users:
                    place = ((block * form.height.taps + tap) * form.shifts + shift) * form.quads + number
                    weights = emitter.vector_at(self.weights, place * (lanes * QUAD), lanes * QUAD)
                    added = self.multiplier.add(emitter.vector_at(sums[pixel], 0, lanes), four, weights)
                    emitter.put_vector(sums[pixel], 0, added, lanes)

    def users(self, width: int) -> list[tuple[int, list[tuple[int, int, int]]]]:
        """Quads that a tile reads, each with (pixel, shift, which of its quads) of those that have taps in it."""
        form = self.form
        found: dict[int, list[tuple[int, int, int]]] = {}
        for pixel in range(width):
            shift = form.shift(pixel)
            for number in range(-(-(form.width.taps + shift) // QUAD)):
                found.setdefault(form.first_quad(pixel) + 2 * number, []).append((pixel, shift, number))
        return sorted(found.items())
