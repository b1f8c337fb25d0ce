"""Depthwise convolutions and pools between maps in rows of pixels: the lanes run over pixels.

A channel's rows are copied side by side with their padding; then a tap is one shift of all of them, whatever their
width, and what falls on the padding is computed for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

from tvm import tirx

from autofuse.kernels.families.elementwise import ends_in_chain, is_long
from autofuse.kernels.families.windows import convolution_windows
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import FORWARD, Nest
from autofuse.kernels.nest.tiles import divisor_near, vector_spans
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

UNROLLED = 25
"""Taps that are unrolled; of more, those of a row, if these are no more. So many columns of padding are, too."""


CHAINED, JOINED = 4, 8
"""Vectors side by side in a chain of functions within a row, and across rows; see the elementwise family."""


def rows_refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    """Why the lanes of a depthwise convolution or of a pool cannot run over pixels (None: they may)."""
    x = workload.values[operator.inputs[0]]
    if operator.op_type not in ROWS or len(x.shape) != 4:
        return "it is no convolution or pool of images"
    if x.dtype != "float32":
        return "it is not of float32"
    if any(value.block for value in workload.values):
        return "maps lie in blocks of channels"
    if any(window.stride != 1 for window in convolution_windows(workload, operator)):
        return "neighbouring results do not read neighbours"
    return None


class RowsEmitter:
    """Emits one nest; `pixels`: vectors of neighbouring results in registers. Subclasses say what a tap does."""

    nothing = 0.0
    """What a result starts at, and what the padding holds."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Mapping[str, int | str]) -> None:
        assert nest.anchor is not None
        self.scope, self.nest, self.operator = scope, nest, nest.anchor
        self.emitter: Emitter = scope.emitter
        self.lanes = self.emitter.target.lanes
        self.beside = CHAINED if is_long(scope.workload) else 1
        # A chain of functions runs across the ends of rows, unless its results are moved, which may part neighbours.
        self.joined = ends_in_chain(nest) and not any(operator.op_type in FORWARD for operator, _ in nest.epilogue)
        self.high, self.wide = convolution_windows(scope.workload, nest.anchor)
        self.x = nest.anchor.inputs[0]
        self.images, self.channels = nest.space[:2]
        self.multiplier = self.channels // scope.shape(self.x)[1]
        self.rows = divisor_near(self.high.outputs, int(knobs["rows_per_task"]))
        self.held = self.rows + (self.high.taps - 1) * self.high.dilation
        self.width = self.wide.outputs + (self.wide.taps - 1) * self.wide.dilation
        vectors = -(-self.rows * self.width // self.lanes)
        self.together = min(int(knobs["pixels"]), vectors)
        self.tiles = -(-vectors // self.together)
        self.vectors = self.tiles * self.together

    def emit(self) -> None:
        """Emits the whole nest: a task has some rows of one channel."""
        emitter = self.emitter
        grid = (self.images, self.channels, self.high.outputs // self.rows)
        reach = (self.held - self.rows) * self.width + self.width - self.wide.outputs
        with emitter.parallel(grid[0] * grid[1] * grid[2]) as task:
            image, channel, number = delinear(task, grid)
            place = (image, emitter.simplify(channel), emitter.simplify(number * self.rows))
            padded = emitter.scratch(self.vectors * self.lanes + reach)
            sums = emitter.scratch(self.vectors * self.lanes)
            with emitter.serial(self.held) as row:
                self.copy_row(place, row, padded)
            with emitter.serial(self.tiles) as tile:
                self.tile(place[1], emitter.simplify(tile * self.together * self.lanes), padded, sums)
            if self.joined:
                self.finish_chain(place, sums)
                return
            with emitter.serial(self.rows) as row:
                self.finish_row(place, row, sums)

    def copy_row(self, place: Index, row: Expr, padded: Expr) -> None:
        """A row of the input between its padding; one that is padding itself is zero."""
        emitter, empty = self.emitter, const(self.nothing, "float32")
        image, channel, first = place
        at, y = emitter.simplify(row * self.width), emitter.simplify(first + row - self.high.pad_begin)

        def pixels(start: Expr, width: int) -> None:
            with emitter.vector(width) as lane, self.scope.point():
                x = emitter.simplify(start + lane)
                index = (image, emitter.simplify(channel // self.multiplier), y, x)
                emitter.put(padded, at + self.wide.pad_begin + x, self.scope.read(self.x, index))

        def nothing(start: Expr, width: int) -> None:
            with emitter.vector(width) as lane:
                emitter.put(padded, at + start + lane, empty)

        begin, end = self.wide.pad_begin, self.wide.pad_begin + self.wide.size
        with emitter.when(y >= 0), emitter.when(y < self.high.size):
            if self.width - self.wide.size <= UNROLLED:
                for column in (*range(begin), *range(end, self.width)):
                    emitter.put(padded, at + column, empty)
            else:
                self.over(begin, nothing)
                self.over(self.width - end, lambda start, width: nothing(end + start, width))
            self.over(self.wide.size, pixels)
        for outside in (y < 0, y >= self.high.size):
            with emitter.when(outside):
                self.over(self.width, nothing)

    def over(self, width: int, visit: Callable[[Expr, int], None]) -> None:
        """Calls `visit` with each vector of a row (of a chain: with several): where it starts, and its pixels."""
        lanes = self.lanes * self.beside
        for first, count, pixels in vector_spans(width, lanes):
            with self.emitter.serial(count) as number:
                visit(self.emitter.simplify(first + number * pixels), pixels)

    def tile(self, channel: Expr, first: Expr, padded: Expr, sums: Expr) -> None:
        """Some vectors of results, of all rows side by side: every tap, shifted."""
        emitter, lanes = self.emitter, self.lanes
        totals = emitter.registers(self.together, lanes)
        for total in totals:
            with emitter.vector(lanes) as lane:
                emitter.put(total, lane, const(self.nothing, "float32"))

        def take(i: Expr, j: Expr) -> None:
            shift = emitter.simplify(i * self.high.dilation * self.width + j * self.wide.dilation)
            for number, total in enumerate(totals):
                with emitter.vector(lanes) as lane, self.scope.point():
                    x = padded[emitter.simplify(first + number * lanes + shift + lane)]
                    emitter.put(total, lane, self.combine(total[lane], x, (channel, 0, i, j)))

        if self.high.taps * self.wide.taps <= UNROLLED:
            for i, j in product(range(self.high.taps), range(self.wide.taps)):
                take(i, j)
        else:
            with emitter.serial(self.high.taps) as i:
                if self.wide.taps <= UNROLLED:
                    for j in range(self.wide.taps):
                        take(i, j)
                else:
                    with emitter.serial(self.wide.taps) as j:
                        take(i, j)
        for number, total in enumerate(totals):
            with emitter.vector(lanes) as lane:
                emitter.put(sums, first + number * lanes + lane, total[lane])

    def finish_row(self, place: Index, row: Expr, sums: Expr) -> None:
        """Bias and epilogue of a row of results."""
        emitter = self.emitter
        image, channel, first = place

        def pixels(start: Expr, width: int) -> None:
            with emitter.vector(width) as lane:
                index = (image, channel, emitter.simplify(first + row), emitter.simplify(start + lane))
                value = self.result(sums[emitter.simplify(row * self.width + start + lane)], index)
                self.scope.finish(self.nest, index, value)

        self.over(self.wide.outputs, pixels)

    def finish_chain(self, place: Index, sums: Expr) -> None:
        """Epilogue of all rows of results, in steps of several vectors: see the elementwise family."""
        emitter, across = self.emitter, self.wide.outputs
        image, channel, first = place
        total = self.rows * across
        results = emitter.scratch(total)

        def index(row: Expr, column: Expr) -> Index:
            return image, channel, emitter.simplify(first + row), emitter.simplify(column)

        with emitter.serial(self.rows) as row:

            def keep(start: Expr, width: int) -> None:
                with emitter.vector(width) as lane:
                    held = sums[emitter.simplify(row * self.width + start + lane)]
                    emitter.put(results, row * across + start + lane, self.result(held, index(row, start + lane)))

            self.over(across, keep)
        for begin, steps, wide in vector_spans(total, self.lanes, JOINED):
            with emitter.serial(steps) as step, emitter.vector(wide) as lane:
                at = emitter.simplify(begin + step * wide + lane)
                self.scope.finish(self.nest, index(at // across, at % across), results[at])

    def combine(self, total: Expr, x: Expr, weight: Index) -> Expr:
        """The sum, or what stands for it, after one more element; `weight`: index of the tap's."""
        raise NotImplementedError

    def result(self, total: Expr, index: Index) -> Expr:
        """The operator's result at an index, from what its taps made."""
        del index
        return total


class DepthwiseRowsEmitter(RowsEmitter):
    """A convolution of one input channel a group."""

    def combine(self, total: Expr, x: Expr, weight: Index) -> Expr:
        """See RowsEmitter."""
        return total + x * self.scope.read(self.operator.inputs[1], weight)

    def result(self, total: Expr, index: Index) -> Expr:
        """See RowsEmitter: plus the bias."""
        bias = self.operator.inputs[2] if len(self.operator.inputs) > 2 else -1
        return total + self.scope.read(bias, (index[1],)) if bias >= 0 else total


class MaxPoolRowsEmitter(RowsEmitter):
    """MaxPool: padding never wins."""

    nothing = float("-inf")

    def combine(self, total: Expr, x: Expr, weight: Index) -> Expr:
        """See RowsEmitter."""
        return tirx.Max(total, x)


class AveragePoolRowsEmitter(RowsEmitter):
    """AveragePool: divides by the real elements of the window, or by all of them (`count_include_pad`)."""

    def combine(self, total: Expr, x: Expr, weight: Index) -> Expr:
        """See RowsEmitter."""
        return total + x

    def result(self, total: Expr, index: Index) -> Expr:
        """See RowsEmitter."""
        padded = self.operator.attribute("count_include_pad", 0)
        count: Expr = 1
        for window, position in zip((self.high, self.wide), index[2:], strict=True):
            low, high = (0, window.covered(position)) if padded else window.tap_range(position)
            count = count * (high - low)
        if isinstance(count, int):
            return total * const(1.0 / count, "float32")
        return total / tirx.Cast("float32", self.emitter.simplify(count))


ROWS: Mapping[str, type[RowsEmitter]] = {
    "Conv": DepthwiseRowsEmitter,
    "MaxPool": MaxPoolRowsEmitter,
    "AveragePool": AveragePoolRowsEmitter,
}
"""What emits an operator whose lanes run over pixels."""
