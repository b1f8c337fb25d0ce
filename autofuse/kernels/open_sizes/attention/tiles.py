"""A tile of queries of one head of an attention: scores, what is done to them, their softmax, products with values.

Of the scores only those of one tile of queries ever exist. What lies in registers has a fixed size; loops over keys
have a count that may be read when the kernel runs. What is done to queries, keys, scores and values is computed where
they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.attention import Attention
from autofuse.kernels.nest.evaluate import Scope, broadcast
from autofuse.kernels.nest.index import FORWARD
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.tir.emit import Array, Expr, Index, const
from autofuse.kernels.tir.math import exp_below
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import WorkloadOperator

LOWEST = float(tvm.tirx.min_value("float32").value)
"""A score that is below all others."""
VECTORS = 2
"""Vectors of scores, or of a result, that are held in registers for each query."""


@dataclass(frozen=True)
class ScoreTile(Array):
    """The scores of some queries of one head, which never exist as a whole; `stride`: from one query to the next."""

    first: Expr = 0
    stride: int = 0

    def offset(self, index: Index) -> Expr:
        """See Array."""
        return (index[-2] - self.first) * self.stride + index[-1]


def tile_queries(target: Target) -> int:
    """Queries of a tile, whose sums are in registers."""
    return 8 if target.registers >= 32 else 4


class Tokens:
    """Emits an attention of `queries` to `keys`, of which one number at least is read when the kernel runs."""

    def __init__(self, scope: Scope, attention: Attention, queries: Expr, keys: Expr) -> None:
        self.scope, self.workload, self.emitter = scope, scope.workload, scope.emitter
        self.query_count, self.key_count = queries, keys
        asking, seen = attention.queries, attention.keys
        self.few_to_many = asking is not None and (seen is None or asking.size != seen.size)
        named = dict(zip(attention.operators, self.workload.operators, strict=True))
        self.scores, self.softmax, self.product = (
            named[name] for name in (attention.scores, attention.softmax, attention.product)
        )
        self.after: list[WorkloadOperator] = [named[name] for name in attention.after]
        self.beside: list[WorkloadOperator] = [named[name] for name in attention.beside]
        self.result = (self.after or [self.product])[-1].outputs[0]
        self.behind = self.computing_behind()
        *lead, _, self.width = self.shape(self.product.outputs[0])
        self.most_queries, self.most = self.shape(self.softmax.outputs[0])[-2:]
        self.heads, self.depth = prod(lead), self.shape(self.scores.inputs[0])[-1]
        self.lanes = self.emitter.lanes
        self.tile = tile_queries(self.emitter.target)
        self.block = VECTORS * self.lanes
        self.stride = -(-self.most // self.block) * self.block
        self.padded = -(-self.width // self.lanes) * self.lanes
        for count, most in ((queries, self.most_queries), (keys, self.most)):
            if not isinstance(count, int):
                self.emitter.analyzer.bind(count, tvm.ir.Range(0, most + 1))
        blocks = (keys + self.block - 1) // self.block
        self.blocks = blocks if isinstance(blocks, int) else builder.bind(blocks)

    def shape(self, value: int) -> tuple[int, ...]:
        return self.workload.values[value].shape

    def computing_behind(self) -> Nest | None:
        """What is computed of each element of the product; None where it is only moved."""
        if all(operator.op_type in FORWARD for operator in self.after):
            return None
        start = self.product.outputs[0]
        made = [start, *(operator.outputs[0] for operator in self.after)]
        steps = [(one, one.inputs.index(read)) for one, read in zip(self.after, made, strict=False)]
        return Nest(None, self.shape(start), start, steps, [self.result])

    def read(self, value: int, head: Expr, row: Expr, column: Expr) -> Expr:
        """An element of a matrix of one head, computed from what stands in memory."""
        shape = self.shape(value)
        if prod(shape[:-2]) == self.heads:
            return self.scope.read(value, (*self.batch(shape[:-2], head), row, column))
        whole = self.shape(self.product.outputs[0])
        return self.scope.read(value, broadcast((*self.batch(whole[:-2], head), row, column), shape))

    def batch(self, lead: Sequence[int], head: Expr) -> Index:
        """Where a head stands among the axes before its matrix."""
        return tuple(self.emitter.simplify(part) for part in delinear(head, lead))

    def copied_keys(self, head: Expr) -> Any:
        """Keys as blocks of columns, [block of tokens][depth][token]; the last block is zero behind the last key."""
        emitter, block = self.emitter, self.block
        keys = emitter.scratch(self.stride * self.depth)

        def place(token: Expr, depth: Expr) -> Expr:
            return (token // block * self.depth + depth) * block + token % block

        last = self.blocks - 1
        if isinstance(self.query_count, int):  # there may be no keys
            last = tirx.max(last, 0)
        with emitter.serial(self.depth) as depth, emitter.vector(block) as lane:
            emitter.put(keys, (last * self.depth + depth) * block + lane, const(0.0, "float32"))
        with emitter.serial(self.key_count) as token, emitter.serial(self.depth) as depth, self.scope.point():
            emitter.put(keys, place(token, depth), self.read(self.scores.inputs[1], head, depth, token))
        return keys

    def copied_values(self, head: Expr) -> Any:
        """Values as rows of whole vectors, filled up with zeros."""
        emitter = self.emitter
        values = emitter.scratch(self.most * self.padded)
        with emitter.serial(self.key_count) as token:
            for column, lanes in self.columns(self.width):
                with emitter.vector(lanes) as lane, self.scope.point():
                    value = self.read(self.product.inputs[1], head, token, column + lane)
                    emitter.put(values, token * self.padded + column + lane, value)
            for column in range(self.width, self.padded):
                emitter.put(values, token * self.padded + column, const(0.0, "float32"))
        return values

    def columns(self, width: int) -> Iterator[tuple[int, int]]:
        """(first column, lanes) of the vectors of a row."""
        for column in range(0, width, self.lanes):
            yield column, min(self.lanes, width - column)


class TileProduct:
    """Products of `queries` tokens of one head from number `first` on, with sums in registers."""

    def __init__(self, tokens: Tokens, head: Expr, first: Expr, queries: int) -> None:
        self.tokens, self.head, self.first, self.queries = tokens, head, first, queries
        self.emitter, self.scope, self.lanes = tokens.emitter, tokens.scope, tokens.lanes
        self.stride, self.block = tokens.stride, tokens.block

    @contextmanager
    def accumulated(self, vectors: int) -> Iterator[list[list[Any]]]:
        """Sums in registers, for each query so many vectors, from zero on."""
        sums = [self.emitter.registers(vectors, self.lanes) for _ in range(self.queries)]
        for one in (one for row in sums for one in row):
            with self.emitter.vector(self.lanes) as lane:
                self.emitter.put(one, lane, const(0.0, "float32"))
        yield sums

    def add(self, sums: list[list[Any]], left: Callable[[int], Expr], right: Callable[[int, Expr], Expr]) -> None:
        """Adds one product of each query with each vector."""
        for row, held in enumerate(sums):
            for vector, one in enumerate(held):
                with self.emitter.vector(self.lanes) as lane:
                    self.emitter.put(one, lane, one[lane] + right(vector, lane) * left(row))

    def store(self, sums: list[list[Any]], buffer: Any, start: Callable[[int], Expr]) -> None:
        for row, held in enumerate(sums):
            for vector, one in enumerate(held):
                with self.emitter.vector(self.lanes) as lane:
                    self.emitter.put(buffer, start(row) + vector * self.lanes + lane, one[lane])

    def held(self, value: int, depth: int) -> Any:
        """A copy of the rows of the tokens in a matrix of so many columns."""
        tokens, emitter = self.tokens, self.emitter
        held = emitter.scratch(self.queries * depth)
        for row in range(self.queries):
            for column, lanes in tokens.columns(depth):
                with emitter.vector(lanes) as lane, self.scope.point():
                    element = tokens.read(value, self.head, self.first + row, column + lane)
                    emitter.put(held, row * depth + column + lane, element)
        return held

    def multiply_beside(self, product: WorkloadOperator, kept: Any, padded: int) -> None:
        """Their products with a matrix that has no tokens, a block of its columns at a time; rows of `padded`."""
        tokens, emitter, (left, right) = self.tokens, self.emitter, product.inputs
        depth, width = tokens.shape(right)[-2:]
        held = self.held(left, depth)
        for column in range(0, padded, self.block):
            with self.accumulated(VECTORS) as sums:
                with emitter.serial(depth) as place:

                    def factor(vector: int, lane: Expr, column: int = column, place: Expr = place) -> Expr:
                        at = column + vector * self.lanes + lane
                        inside = at if column + self.block <= width else tirx.min(at, width - 1)
                        with self.scope.point():
                            return tokens.read(right, self.head, place, inside)

                    self.add(sums, lambda row, place=place: held[emitter.simplify(row * depth + place)], factor)  # type: ignore[misc]
                self.store(sums, kept, lambda row, column=column: (self.first + row) * padded + column)  # type: ignore[misc]


class QueryTile(TileProduct):
    """`queries` of one head from number `first` on; `keys`, `values`: the copies of these, where it reads such."""

    def __init__(
        self, tokens: Tokens, head: Expr, first: Expr, queries: int, keys: Any = None, values: Any = None
    ) -> None:
        super().__init__(tokens, head, first, queries)
        self.keys, self.values = keys, values
        self.scores = self.emitter.scratch(queries * self.stride)

    def emit(self) -> None:
        """Scores, what is done to them, their softmax, and its product with the values."""
        tokens = self.tokens
        self.multiply_keys()
        self.change(tokens.scores.outputs[0], tokens.softmax.inputs[0])
        self.fill_up()
        shares = self.exponentiate(self.largest())
        if tokens.product.inputs[0] != tokens.softmax.outputs[0]:
            shares = self.normalise(shares)
            self.change(tokens.softmax.outputs[0], tokens.product.inputs[0])
        self.finish(self.multiply_values(), shares)

    def multiply_keys(self) -> None:
        """Scores of the tile: queries x keys, a block of keys at a time in registers."""
        tokens, emitter, depth = self.tokens, self.emitter, self.tokens.depth
        held = self.held(tokens.scores.inputs[0], depth)
        with emitter.serial(tokens.blocks) as step, self.accumulated(VECTORS) as sums:
            with emitter.serial(depth) as place:
                self.add(
                    sums,
                    lambda row: held[emitter.simplify(row * depth + place)],
                    lambda vector, lane: self.keys[
                        emitter.simplify((step * depth + place) * self.block + vector * self.lanes + lane)
                    ],
                )
            self.store(sums, self.scores, lambda row: row * self.stride + step * self.block)

    def change(self, made: int, read: int) -> None:
        """What stands between two that mix tokens: a scale, masks. In place, whole vectors and then the rest."""
        tokens, emitter, scope = self.tokens, self.emitter, self.scope
        if made == read:
            return
        ready, arrays = scope.ready, scope.arrays
        tile = ScoreTile(self.scores, tokens.shape(made), "float32", 0, self.first, self.stride)
        scope.ready, scope.arrays = ready | {made}, {**arrays, made: tile}
        whole = tokens.key_count // self.lanes

        def changed(row: int, column: Expr) -> None:
            value = tokens.read(read, self.head, self.first + row, column)
            emitter.put(self.scores, row * self.stride + column, value)

        for row in range(self.queries):
            with emitter.serial(whole) as step, emitter.vector(self.lanes) as lane, scope.point():
                changed(row, step * self.lanes + lane)
            rest = tokens.key_count - whole * self.lanes
            if isinstance(rest, int) and not rest:
                continue
            with emitter.serial(rest) as step, scope.point():
                changed(row, whole * self.lanes + step)
        scope.ready, scope.arrays = ready, arrays

    def fill_up(self) -> None:
        """Scores behind the last key, which are no key's: the softmax goes over whole vectors."""
        tokens, emitter = self.tokens, self.emitter
        missing = tokens.blocks * self.block - tokens.key_count
        if isinstance(missing, int) and not missing:
            return
        with emitter.serial(missing) as more:
            for row in range(self.queries):
                emitter.put(self.scores, row * self.stride + tokens.key_count + more, const(LOWEST, "float32"))

    def folded(
        self, first: float, element: Callable[[int, Expr], Expr], fold: Callable[[Expr, Expr], Expr]
    ) -> list[Expr]:
        """For each query the fold of element(query, column) over all columns, in lanes and then across them."""
        emitter, lanes = self.emitter, self.lanes
        partial = [emitter.scratch(lanes) for _ in range(self.queries)]
        for one in partial:
            with emitter.vector(lanes) as lane:
                emitter.put(one, lane, const(first, "float32"))
        with emitter.serial(self.tokens.blocks * VECTORS) as step:
            for row, one in enumerate(partial):
                with emitter.vector(lanes) as lane:
                    emitter.put(one, lane, fold(one[lane], element(row, step * lanes + lane)))
        while lanes > 1:
            lanes //= 2
            for one in partial:
                with emitter.vector(lanes) as lane:
                    emitter.put(one, lane, fold(one[lane], one[lanes + lane]))
        return [emitter.bind(one[0]) for one in partial]

    def score(self, row: int, column: Expr) -> Expr:
        return self.scores[self.emitter.simplify(row * self.stride + column)]

    def largest(self) -> list[Expr]:
        """The largest score of each query."""
        return self.folded(LOWEST, self.score, tirx.max)

    def exponentiate(self, largest: list[Expr]) -> list[Expr]:
        """exp(score - largest) in place of each score; for each query one through their sum."""
        emitter = self.emitter

        def element(row: int, column: Expr) -> Expr:
            value = exp_below(self.score(row, column) - largest[row], emitter.bind)
            value = emitter.bind(tirx.Select(column < self.tokens.key_count, value, const(0.0, "float32")))
            emitter.put(self.scores, row * self.stride + column, value)
            return value

        totals = self.folded(0.0, element, lambda total, value: total + value)
        return [emitter.bind(const(1.0, "float32") / total) for total in totals]

    def normalise(self, shares: list[Expr]) -> list[Expr]:
        """The softmax in place of the exponentials; what is left to multiply the sums of values with: one."""
        emitter = self.emitter
        with emitter.serial(self.tokens.blocks * VECTORS) as step:
            for row, share in enumerate(shares):
                with emitter.vector(self.lanes) as lane:
                    column = step * self.lanes + lane
                    emitter.put(self.scores, row * self.stride + column, self.score(row, column) * share)
        return [const(1.0, "float32")] * len(shares)

    def multiply_values(self) -> Any:
        """The sums of values, each times the exponential of its score: rows of whole vectors."""
        tokens, emitter, padded = self.tokens, self.emitter, self.tokens.padded
        made = emitter.scratch(self.queries * padded)
        for column in range(0, padded, self.block):
            vectors = min(self.block, padded - column) // self.lanes
            with self.accumulated(vectors) as sums:
                with emitter.serial(tokens.key_count) as token:
                    self.add(
                        sums,
                        lambda row, token=token: self.score(row, token),  # type: ignore[misc]
                        lambda vector, lane, token=token, column=column: self.values[  # type: ignore[misc]
                            emitter.simplify(token * padded + column + vector * self.lanes + lane)
                        ],
                    )
                self.store(sums, made, lambda row, column=column: row * padded + column)  # type: ignore[misc]
        return made

    def finish(self, made: Any, shares: list[Expr]) -> None:
        """Writes the rows where they belong."""
        tokens, emitter = self.tokens, self.emitter
        lead = tokens.batch(tokens.shape(tokens.product.outputs[0])[:-2], self.head)
        target = tokens.scope.arrays[tokens.result]
        for row, share in enumerate(shares):
            for column, lanes in tokens.columns(tokens.width):
                with emitter.vector(lanes) as lane:
                    index: Index = (*lead, self.first + row, column + lane)
                    value = made[row * tokens.padded + column + lane] * share
                    if tokens.behind is not None:
                        self.scope.finish(tokens.behind, index, value)
                        continue
                    for operator in tokens.after:
                        index = FORWARD[operator.op_type](operator, tokens.workload, index)
                    emitter.store(target, index, value)
