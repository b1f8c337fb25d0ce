"""Emits weight-only products of rows in bytes: each block of a row becomes whole numbers up to 127, with a scale.

That is what ONNX Runtime computes at the accuracy level 4. A panel of weights is unpacked to bytes less their zero
points, then all rows meet it: the sums of a block are exact in int32, and scaled by both scales into float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from autofuse.kernels.families.narrow.instructions import SIGN
from autofuse.kernels.families.narrow.weight_only.byte_operands import ByteRows, ByteWeights
from autofuse.kernels.families.narrow.weight_only.emitter import Knobs, WeightOnlyEmitter
from autofuse.kernels.families.narrow.weight_only.form import WeightOnly
from autofuse.kernels.families.narrow.weight_only.multipliers import SmallBytes, byte_multiplier
from autofuse.kernels.families.narrow.weight_only.operands import Rows, Weights
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Window, runs
from autofuse.kernels.tir.emit import Expr, const

Weight = Callable[[int, int], Expr]
"""Weights of a vector of columns, so many steps behind the first of some."""


class BytesEmitter(WeightOnlyEmitter):
    """Emits one nest of a weight-only product by an instruction on bytes."""

    def __init__(self, scope: Scope, nest: Nest, form: WeightOnly, knobs: Knobs) -> None:
        super().__init__(scope, nest, form, knobs)
        multiplier = byte_multiplier(self.emitter.target, form.bits)
        assert multiplier is not None
        self.multiplier = multiplier
        self.shifted = multiplier.left == "uint8"
        self.width = self.vectors * self.lanes

    def emit(self) -> None:
        """Emits the whole nest: rows to bytes, then panels in parallel."""
        emitter, form = self.emitter, self.form
        self.weights = Weights(self.scope, form, self.vectors, real=False)
        self.codes = ByteWeights(self.scope, self.weights)
        self.rows = Rows(self.scope, form, False)
        self.levels = ByteRows(emitter, form, self.rows.buffer, self.multiplier.left, self.codes.order)
        with emitter.parallel(self.weights.packing.panels) as panel:
            part = emitter.scratch(form.padded_depth * self.width, "int8")
            starts = emitter.scratch(form.blocks * self.width, "int32") if self.shifted else None
            totals = emitter.scratch(self.tile_rows * self.width)
            self.to_bytes(panel, part, starts)
            for run in runs(Window(form.rows, 1, outputs=form.rows), self.tile_rows):
                with emitter.serial(run.count) as tile:
                    self.rows_in_bytes(panel, tile * run.width + run.start, run.width, part, starts, totals)

    def to_bytes(self, panel: Expr, part: Any, starts: Any) -> None:
        """Unpacks a panel, and finds what the sums of each block start at: rows are shifted to bytes without a sign."""
        emitter, codes, lanes, size = self.emitter, self.codes, self.lanes, 4 * self.lanes
        words = self.form.block // self.form.together
        with emitter.serial(self.form.blocks) as block:
            zeros = [codes.zeros(panel, block, v) for v in range(self.vectors)]
            sums = [emitter.scratch(lanes, "int32") for _ in range(self.vectors if self.shifted else 0)]
            self.clear(sums, [tirx.Broadcast(const(0, "int32"), lanes)] * len(sums))
            with emitter.serial(words) as step:
                at = block * words + step
                if self.ahead:
                    self.prefetch(self.weights.word_offset(panel, at, 0))
                for v in range(self.vectors):
                    parts = codes.parts(emitter.bind(self.weights.word(panel, at, v)))
                    for place, numbers in enumerate(parts):
                        weights = emitter.bind(numbers if zeros[v] is None else numbers - zeros[v])
                        offset = ((at * len(parts) + place) * self.vectors + v) * size
                        emitter.put_vector(part, offset, weights, size)
                        if sums:
                            shift = tirx.Broadcast(const(SIGN, "uint8"), size)
                            added = self.multiplier.add(emitter.vector_at(sums[v], 0, lanes), shift, weights)
                            emitter.put_vector(sums[v], 0, added, lanes)
            for v, one in enumerate(sums):
                none = tirx.Broadcast(const(0, "int32"), lanes)
                at = (block * self.vectors + v) * lanes
                emitter.put_vector(starts, at, none - emitter.vector_at(one, 0, lanes), lanes)

    def clear(self, sums: list[Any], values: list[Expr]) -> None:
        """Sets vectors of sums."""
        for one, value in zip(sums, values, strict=True):
            self.emitter.put_vector(one, 0, value, self.lanes)

    def rows_in_bytes(self, panel: Expr, start: Expr, width: int, part: Any, starts: Any, totals: Any) -> None:
        """Some rows times a panel: exact sums of a block, then scaled."""
        emitter, lanes, form = self.emitter, self.lanes, self.form
        start = emitter.simplify(start)
        tile = [(v, r) for v in range(self.vectors) for r in range(width)]
        for place in range(len(tile)):
            emitter.put_vector(totals, place * lanes, self.zero(), lanes)
        sums = [emitter.scratch(lanes, "int32") for _ in tile]
        with emitter.serial(form.blocks) as block:
            first = [self.first(starts, block, v) for v in range(self.vectors)]
            self.clear(sums, [first[v] for v, _ in tile])
            self.products(sums, block, start, width, part)
            scales = [emitter.bind(self.weights.factor(self.weights.scales, panel, block, v))
                      for v in range(self.vectors)]  # fmt: skip
            own = [emitter.bind(self.levels.scale(start + r, block, lanes)) for r in range(width)]
            for place, (v, r) in enumerate(tile):
                whole = tirx.Cast(f"float32x{lanes}", emitter.vector_at(sums[place], 0, lanes))
                total = emitter.vector_at(totals, place * lanes, lanes)
                emitter.put_vector(totals, place * lanes, total + whole * (scales[v] * own[r]), lanes)
        for place, (v, r) in enumerate(tile):
            self.deliver(panel, v, start + r, totals, place * lanes)

    def first(self, starts: Any, block: Expr, v: int) -> Expr:
        """What the sums of a block start at."""
        if starts is None:
            return tirx.Broadcast(const(0, "int32"), self.lanes)
        return self.emitter.bind(self.emitter.vector_at(starts, (block * self.vectors + v) * self.lanes, self.lanes))

    def products(self, sums: list[Any], block: Expr, start: Expr, width: int, part: Any) -> None:
        """Adds the products of a block, as many steps at a time as the instruction wants."""
        emitter, size = self.emitter, self.multiplier.steps
        steps = self.form.block // 4
        with emitter.serial(steps // size) as group:
            at = emitter.simplify(block * steps + group * size)

            def weights(v: int, place: int) -> Expr:
                lanes = 4 * self.lanes
                return emitter.vector_at(part, ((at + place) * self.vectors + v) * lanes, lanes)

            if isinstance(self.multiplier, SmallBytes):
                self.several_steps(self.multiplier, sums, (start, at, width), weights)
            else:
                self.each_step(sums, (start, at, width), weights)

    def each_step(self, sums: list[Any], tile: tuple[Expr, Expr, int], weights: Weight) -> None:
        """Steps one after the other. `tile`: first row, first step, rows."""
        emitter, lanes, size = self.emitter, self.lanes, self.multiplier.steps
        start, at, width = tile
        rows = [emitter.bind(self.levels.numbers(start + r, at, 4 * size)) for r in range(width if size > 1 else 0)]
        for place in range(size):
            held = [emitter.bind(weights(v, place)) for v in range(self.vectors)]
            for r in range(width):
                spread = self.multiplier.spread_lane(rows[r], place) if rows else self.spread(start + r, at)
                spread = emitter.bind(spread)
                for v in range(self.vectors):
                    one = sums[v * width + r]
                    added = self.multiplier.add(emitter.vector_at(one, 0, lanes), spread, held[v])
                    emitter.put_vector(one, 0, added, lanes)

    def several_steps(self, small: SmallBytes, sums: list[Any], tile: tuple[Expr, Expr, int], weights: Weight) -> None:
        """Steps whose products are added before they are sums of int32. `tile`: as in `each_step`."""
        emitter, lanes, steps = self.emitter, self.lanes, range(small.steps)
        start, at, width = tile
        for r in range(width):
            spread = [emitter.bind(self.spread(start + r, at + place)) for place in steps]
            for v in range(self.vectors):
                one = sums[v * width + r]
                found = [weights(v, place) for place in steps]
                emitter.put_vector(one, 0, small.add_steps(emitter.vector_at(one, 0, lanes), spread, found), lanes)

    def spread(self, row: Expr, step: Expr) -> Expr:
        """Four neighbours of a row in every lane."""
        return self.multiplier.spread(self.levels.numbers(row, step, 4))
