"""Softmax, LogSoftmax, LayerNormalization, RMSNormalization: several rows at once, so that their latencies overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from tvm import tirx

from autofuse.kernels.families.elementwise import ends_in_chain
from autofuse.kernels.nest.evaluate import Scope, broadcast
from autofuse.kernels.nest.nest import FORWARD, Nest
from autofuse.kernels.nest.tiles import MIN_TASK_ELEMENTS, divisor_near, vector_spans
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.tir.math import exp_below, log
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import WorkloadOperator

Knobs = Mapping[str, int | str]
Element = Callable[[int, Expr], Expr]
Fold = Callable[[Expr, Expr], Expr]

CHAINED = 8
"""Vectors that are finished side by side where a chain of functions does it."""
CHAINS = 4
"""Independent partial results that hide the latency of a fold, over all rows of a block."""


def _add(total: Expr, x: Expr) -> Expr:
    return total + x


def row_axis(operator: WorkloadOperator, rank: int) -> int:
    """First dimension of a row."""
    return int(operator.attribute("axis", -1) or 0) % rank  # type: ignore[arg-type]


def row_count(operator: WorkloadOperator, shape: Sequence[int]) -> int:
    """Rows of a tensor of `shape`."""
    return max(1, prod(shape[: row_axis(operator, len(shape))]))


def _alike(shape: Sequence[int], space: Sequence[int]) -> int:
    """Neighbours of `space` for which a tensor of `shape`, broadcast to it, has one number, or one for each of all."""
    padded = (1,) * (len(space) - len(shape)) + tuple(shape)
    if prod(padded) in (1, prod(space)):
        return prod(space)
    found = 1
    for extent, size in zip(reversed(padded), reversed(space), strict=True):
        if extent != 1:
            break
        found *= size
    return found


class LastAxisEmitter:
    """Rows are what lies in the dimensions from `axis` on; a block of `rows` of them is held in cache."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs) -> None:
        assert nest.anchor is not None
        self.scope, self.nest, self.operator = scope, nest, nest.anchor
        self.emitter: Emitter = scope.emitter
        self.shape = nest.space
        axis = row_axis(nest.anchor, len(self.shape))
        self.outer, self.inner = self.shape[:axis], self.shape[axis:]
        self.count = prod(self.inner)
        self.rows = int(knobs["rows"])
        # What lies in memory as it is needs no copy.
        self.copied = nest.anchor.inputs[0] not in scope.ready

    def emit(self) -> None:
        """Emits the whole nest: blocks of rows in parallel, then the rows that fill no block."""
        total = max(1, prod(self.outer))
        rows = min(self.rows, total)
        full, rest = divmod(total, rows)
        for first, blocks, width in ((0, full, rows), (full * rows, 1, rest)):
            if width:
                self.blocks(first, blocks, width)

    def blocks(self, first: int, blocks: int, width: int) -> None:
        """`blocks` blocks of `width` rows each, from row `first` on."""
        emitter = self.emitter
        least = MIN_TASK_ELEMENTS // (self.count * width)
        per_task = divisor_near(blocks, max(1, min(least, blocks // (2 * emitter.target.cores))))
        with emitter.parallel(blocks // per_task) as task:
            held = Rows(self, width)
            with emitter.serial(per_task) as step:
                start = first + (task * per_task + step) * width
                held.run([self.outer_index(emitter.simplify(start + row)) for row in range(width)], start)

    def outer_index(self, row: Expr) -> Index:
        """Logical index of row number `row`, without the dimensions inside it."""
        return tuple(self.emitter.simplify(part) for part in delinear(row, self.outer)) if self.outer else ()


class Rows:
    """The working memory of a block of `width` rows, and what is done with them."""

    def __init__(self, family: LastAxisEmitter, width: int) -> None:
        self.scope, self.nest, self.operator = family.scope, family.nest, family.operator
        self.emitter, self.inner, self.count, self.copied = family.emitter, family.inner, family.count, family.copied
        self.width, self.lanes = width, family.emitter.lanes
        self.chains = max(1, min(CHAINS // width, self.count // self.lanes))
        # Values are kept in the result where it is written as it is: its lines are fetched while exp is computed.
        self.result = self.scope.arrays[self.nest.start] if self.nest.stores == [self.nest.start] else None
        self.chained = ends_in_chain(family.nest)
        keeps = self.copied or self.operator.op_type == "Softmax" or self.chained
        self.row: Any = self.emitter.scratch(width * self.count) if keeps and self.result is None else None
        self.partial = self.emitter.scratch(width * self.chains * self.lanes)
        self.outer: Sequence[Index] = ()
        self.start: Expr | None = None

    def run(self, outer: Sequence[Index], start: Expr | None = None) -> None:
        """Reads the rows at `outer`, normalises them, finishes them. `start`: number of the first, where the others
        follow it."""
        self.outer, self.start = outer, start
        {"LayerNormalization": self.layer, "RMSNormalization": self.root_mean_square}.get(
            self.operator.op_type, self.softmax
        )()

    def index(self, row: int, k: Expr) -> Index:
        """Logical index of element `k` of a row."""
        return (*self.outer[row], *(self.emitter.simplify(part) for part in delinear(k, self.inner)))

    def first(self, row: int, k: Expr) -> Expr:
        """Element `k` of a row, read for the first time: kept when reading it again would compute it again."""
        value = self.scope.read(self.operator.inputs[0], self.index(row, k))
        if not self.copied:
            return value
        value = self.scope.name(value)
        self.keep(row, k, value)
        return value

    def again(self, row: int, k: Expr) -> Expr:
        """Element `k` of a row that was read before."""
        return self.kept(row, k) if self.copied else self.first(row, k)

    def keep(self, row: int, k: Expr, value: Expr) -> None:
        """Holds a value at element `k` of a row."""
        if self.result is None:
            self.emitter.put(self.row, row * self.count + k, value)
        else:
            self.emitter.store(self.result, self.index(row, k), value)

    def kept(self, row: int, k: Expr) -> Expr:
        """What `keep` held last."""
        if self.result is None:
            return self.row[self.emitter.simplify(row * self.count + k)]
        return self.emitter.load(self.result, self.index(row, k))

    def softmax(self) -> None:
        """exp(x - max) / sum, or x - max - log(sum): of large numbers max + log(sum) would lose the logarithm."""
        emitter = self.emitter
        largest = self.fold(float("-inf"), self.first, tirx.Max)
        if self.operator.op_type == "LogSoftmax":
            total = self.fold(0.0, lambda r, k: exp_below(self.again(r, k) - largest[r], emitter.bind), _add)
            offset = [emitter.bind(log(total[r], emitter.bind)) for r in range(self.width)]
            self.finish(lambda r, k: (self.again(r, k) - largest[r]) - offset[r])
            return

        def shifted(row: int, k: Expr) -> Expr:
            value = emitter.bind(exp_below(self.again(row, k) - largest[row], emitter.bind))
            self.keep(row, k, value)
            return value

        total = self.fold(0.0, shifted, _add)
        scale = [emitter.bind(const(1.0, "float32") / total[r]) for r in range(self.width)]
        self.finish(lambda r, k: self.kept(r, k) * scale[r])

    def layer(self) -> None:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias; two passes, as the definition."""
        emitter = self.emitter
        share = const(1.0 / self.count, "float32")
        mean = [emitter.bind(total * share) for total in self.fold(0.0, self.first, _add)]

        def deviation(row: int, k: Expr) -> Expr:
            distance = emitter.bind(self.again(row, k) - mean[row])
            return distance * distance

        scale = [self.inverse_root(total * share) for total in self.fold(0.0, deviation, _add)]
        self.finish(lambda r, k: self.scaled(r, k, (self.again(r, k) - mean[r]) * scale[r]))

    def root_mean_square(self) -> None:
        """x / sqrt(mean of squares + epsilon) * scale."""
        share = const(1.0 / self.count, "float32")

        def square(row: int, k: Expr) -> Expr:
            x = self.emitter.bind(self.first(row, k))
            return x * x

        scale = [self.inverse_root(total * share) for total in self.fold(0.0, square, _add)]
        self.finish(lambda r, k: self.scaled(r, k, self.again(r, k) * scale[r]))

    def inverse_root(self, variance: Expr) -> Expr:
        epsilon = float(self.operator.attribute("epsilon", 1e-5) or 0.0)  # type: ignore[arg-type]
        return self.emitter.bind(const(1.0, "float32") / tirx.sqrt(variance + const(epsilon, "float32")))

    def scaled(self, row: int, k: Expr, value: Expr) -> Expr:
        """`value` times the operator's scale, plus its bias."""
        index, inputs = self.index(row, k), self.operator.inputs
        value = value * self.scope.read(inputs[1], broadcast(index, self.scope.shape(inputs[1])))
        if len(inputs) > 2 and inputs[2] >= 0:
            value = value + self.scope.read(inputs[2], broadcast(index, self.scope.shape(inputs[2])))
        return value

    def finish(self, element: Element) -> None:
        """The epilogue on element(row, k) of every row."""
        if self.chained and self.start is not None:
            self.finish_chain(element, self.start * self.count)
            return
        for k, width in self.vectors(self.stretch()):
            for row in range(self.width):
                with self.emitter.vector(width) as lane, self.scope.point():
                    position = self.emitter.simplify(k + lane)
                    self.scope.finish(self.nest, self.index(row, position), element(row, position))

    def finish_chain(self, element: Element, begin: Expr) -> None:
        """As `finish`, several vectors side by side, across the ends of rows (see the elementwise family); `begin`: the
        number of the first element."""
        emitter, shape = self.emitter, self.scope.shape(self.nest.start)
        for k, width in self.vectors():
            for row in range(self.width):
                with emitter.vector(width) as lane, self.scope.point():
                    position = emitter.simplify(k + lane)
                    emitter.put(self.row, row * self.count + position, element(row, position))
        # Where results are moved, neighbours across the ends of rows may lie apart.
        moved = any(operator.op_type in FORWARD for operator, _ in self.nest.epilogue)
        size, lines = (self.count, self.width) if moved else (self.count * self.width, 1)
        for line in range(lines):
            for first, steps, wide in vector_spans(size, self.lanes, CHAINED):
                with emitter.serial(steps) as step, emitter.vector(wide) as lane:
                    place = emitter.simplify(line * size + first + step * wide + lane)
                    index = tuple(emitter.simplify(part) for part in delinear(begin + place, shape))
                    self.scope.finish(self.nest, index, self.row[place])

    def vectors(self, stretch: int = 0) -> Iterator[tuple[Expr, int]]:
        """(first element, lanes) of the vectors of a row, or of each of its stretches of so many elements: whole ones
        in a loop, the rest by itself."""
        size = stretch or self.count
        full, rest = divmod(size, self.lanes)
        with self.emitter.serial(self.count // size) as number:
            if full:
                with self.emitter.serial(full) as step:
                    yield number * size + step * self.lanes, self.lanes
            if rest:
                yield number * size + full * self.lanes, rest

    def stretch(self) -> int:
        """Neighbours of a row that what follows meets with one number each, such as the pixels of a channel in a
        GroupNormalization; 0 where these are whole vectors, fill none, or nothing of the kind follows.

        A vector across the end of such a stretch would read its numbers lane by lane.
        """
        for operator, _ in self.nest.epilogue:
            if operator.op_type in FORWARD:
                continue
            shape = self.scope.shape(operator.outputs[0])
            if prod(shape) != prod(self.scope.shape(self.nest.start)):
                return 0
            alike = min(_alike(self.scope.shape(value), shape) for value in operator.inputs if value >= 0)
            uneven = alike > self.lanes and alike % self.lanes and self.count % alike == 0
            return alike if uneven and alike < self.count else 0
        return 0

    def fold(self, first: float, element: Element, fold: Fold) -> list[Expr]:
        """For each row the fold of element(row, 0) ... element(row, count - 1): in lanes, then across them."""
        emitter, lanes, chains = self.emitter, self.lanes, self.chains
        for slot in range(self.width * chains):
            with emitter.vector(lanes) as lane:
                emitter.put(self.partial, slot * lanes + lane, const(first, "float32"))
        full, rest = divmod(self.count, lanes)

        def take(chain: int, k: Expr, width: int) -> None:
            for row in range(self.width):
                with emitter.vector(width) as lane, self.scope.point():
                    place = (row * chains + chain) * lanes + lane
                    emitter.put(
                        self.partial, place, fold(self.partial[place], element(row, emitter.simplify(k + lane)))
                    )

        if full // chains:
            with emitter.serial(full // chains) as step:
                for chain in range(chains):
                    take(chain, (step * chains + chain) * lanes, lanes)
        for chain in range(full % chains):
            take(chain, (full // chains * chains + chain) * lanes, lanes)
        if rest:
            take(0, full * lanes, rest)
        return self.across(fold)

    def across(self, fold: Fold) -> list[Expr]:
        """Folds the chains of each row, then halves of the lanes; rows in turn, so that none waits on itself."""
        emitter, lanes = self.emitter, self.lanes
        starts = [row * self.chains * lanes for row in range(self.width)]
        for chain in range(1, self.chains):
            for start in starts:
                with emitter.vector(lanes) as lane:
                    value = fold(self.partial[start + lane], self.partial[start + chain * lanes + lane])
                    emitter.put(self.partial, start + lane, value)
        while lanes > 1:
            lanes //= 2
            for start in starts:
                with emitter.vector(lanes) as lane:
                    value = fold(self.partial[start + lane], self.partial[start + lanes + lane])
                    emitter.put(self.partial, start + lane, value)
        return [emitter.bind(self.partial[start]) for start in starts]
