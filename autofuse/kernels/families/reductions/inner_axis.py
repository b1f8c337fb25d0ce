"""Softmax and LogSoftmax over a dimension that has others inside it (classes of pixels): the lanes run over those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from tvm import tirx

from autofuse.kernels.families.elementwise import is_long
from autofuse.kernels.families.reductions.last_axis import row_axis
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import MIN_TASK_ELEMENTS, divisor_near, vector_spans
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.tir.math import exp_below, log
from autofuse.kernels.tir.offsets import delinear

Knobs = Mapping[str, int | str]
CHAINED = 4
"""Vectors of columns that are worked on at once."""
HELD_BYTES = 16 << 10
"""Bytes of elements that they hold between the passes."""


class InnerAxisEmitter:
    """A vector of neighbouring columns at a time; its elements are held in cache between the passes."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs) -> None:
        assert nest.anchor is not None
        self.scope, self.nest, self.operator = scope, nest, nest.anchor
        self.emitter: Emitter = scope.emitter
        axis = row_axis(nest.anchor, len(nest.space))
        self.outer, self.count, self.inner = nest.space[:axis], nest.space[axis], nest.space[axis + 1 :]

    def emit(self) -> None:
        """Emits the whole nest: whole vectors of columns, then the columns that fill none.

        Where a chain of functions stands before or behind the softmax, several vectors side by side (see the
        elementwise family), as many as the first cache holds.
        """
        lanes, total = self.emitter.lanes, prod(self.inner)
        held = min(CHAINED, max(1, HELD_BYTES // (4 * self.count * lanes)))
        beside = held if is_long(self.scope.workload) else 1
        for first, vectors, width in vector_spans(total, lanes, beside):
            self.vectors(first, vectors, width)

    def vectors(self, first: int, vectors: int, width: int) -> None:
        """`vectors` vectors of `width` columns each, from column `first` on."""
        emitter = self.emitter
        total = prod(self.outer) * vectors
        least = MIN_TASK_ELEMENTS // (self.count * width)
        per_task = divisor_near(total, max(1, min(least, total // (2 * emitter.target.cores))))
        with emitter.parallel(total // per_task) as task:
            held = emitter.scratch(self.count * width)
            largest, denominator = emitter.scratch(width), emitter.scratch(width)
            with emitter.serial(per_task) as step:
                number = emitter.simplify(task * per_task + step)
                outer = delinear(number // vectors, self.outer)
                start = first + number % vectors * width

                def at(k: Expr, lane: Expr, outer: Index = outer, start: Expr = start) -> Index:
                    index = (*outer, k, *delinear(start + lane, self.inner))
                    return tuple(emitter.simplify(part) for part in index)

                self.columns(at, width, (held, largest, denominator))

    def columns(self, at: Callable[[Expr, Expr], Index], width: int, memory: tuple[Expr, Expr, Expr]) -> None:
        """exp(x - max) / sum, or x - max - log(sum), of one vector of columns."""
        emitter, scope = self.emitter, self.scope
        held, largest, denominator = memory
        logarithm = self.operator.op_type == "LogSoftmax"
        with emitter.vector(width) as lane:
            emitter.put(largest, lane, const(float("-inf"), "float32"))
        with emitter.serial(self.count) as k, emitter.vector(width) as lane, scope.point():
            x = scope.name(scope.read(self.operator.inputs[0], at(k, lane)))
            emitter.put(held, k * width + lane, x)
            emitter.put(largest, lane, tirx.Max(largest[lane], x))
        with emitter.vector(width) as lane:
            emitter.put(denominator, lane, const(0.0, "float32"))
        with emitter.serial(self.count) as k, emitter.vector(width) as lane, scope.point():
            place = emitter.simplify(k * width + lane)
            share = emitter.bind(exp_below(held[place] - largest[lane], emitter.bind))
            emitter.put(denominator, lane, denominator[lane] + share)
            if not logarithm:
                emitter.put(held, place, share)
        with emitter.vector(width) as lane:
            total = emitter.bind(denominator[lane])
            value = log(total, emitter.bind) if logarithm else const(1.0, "float32") / total
            emitter.put(denominator, lane, value)
        with emitter.serial(self.count) as k, emitter.vector(width) as lane, scope.point():
            value = held[emitter.simplify(k * width + lane)]
            value = (value - largest[lane]) - denominator[lane] if logarithm else value * denominator[lane]
            scope.finish(self.nest, at(k, lane), value)
