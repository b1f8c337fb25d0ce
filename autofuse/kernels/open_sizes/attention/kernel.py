"""The kernel of an attention of which queries, keys, or both are counted when it runs.

Many queries are tiles of a fixed count, over all keys in turn; the last tile is moved back to the last queries, and
computes some of them again. Keys and values of a head are copied first, so that neighbours are read together. A few
queries are computed one after the other, and read keys and values where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.attention import Attention
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.open_sizes.attention.single_query import SingleQuery
from autofuse.kernels.open_sizes.attention.tiles import QueryTile, ScoreTile, TileProduct, Tokens, tile_queries
from autofuse.kernels.open_sizes.open_cache import shared_parts
from autofuse.kernels.open_sizes.open_function import Argument, Arguments, TailArray, open_function, whole_arrays
from autofuse.kernels.tir.emit import Array, Emitter, Expr
from autofuse.kernels.workload.workload import Workload, WorkloadOperator


@dataclass(frozen=True, kw_only=True)
class AttentionForm:
    """What a kernel of attention is given. `rows`: its inputs and outputs, by index, whose open axis has an extent that
    is read when the kernel runs. `repeated`: those of which each sequence has its own. `wide`: those that lie in memory
    as they do at the largest size. `tails`: inputs with as many places along that axis as there are keys at most, of
    which the last ones are meant. `along`: see `open_function`."""

    rows: Mapping[int, OpenAxis]
    repeated: Collection[int] = ()
    wide: Collection[int] = ()
    tails: Mapping[int, int] | None = None
    along: Mapping[int, int] = field(default_factory=dict)


def attention_kernel(
    workload: Workload, attention: Attention, form: AttentionForm, target: Target, threads: int = 1
) -> Kernel:
    """The kernel of `workload`, an attention at the largest size, for so many threads. Packed constants are those of
    the largest size."""
    scores = next(
        one for one, name in zip(workload.operators, attention.operators, strict=True) if name == attention.scores
    )
    queries, keys = workload.values[scores.outputs[0]].shape[-2:]
    in_tiles = queries >= tile_queries(target) and not form.wide and not form.tails
    emits = _Tiled if attention.queries is not None or in_tiles else _Single

    def emit(given: Arguments, constants: Constants) -> None:
        counts = [_counted(given, *one) for one in ((attention.queries, queries), (attention.keys, keys))]

        def arrays(arguments: Mapping[int, Argument]) -> dict[int, Array]:
            found = whole_arrays(workload, arguments, form.wide)
            for index, axis in (form.tails or {}).items():
                buffer, shape = found[index].buffer, found[index].shape
                found[index] = TailArray(buffer, shape, found[index].dtype, axis=axis, before=shape[axis] - counts[1])
            return found

        scope = Scope(workload, Emitter(target), arrays(given.one), constants.declare)
        emits(scope, attention, *counts).emit(given, arrays, threads)

    apart = {index: prod(workload.values[index].shape) for index in form.wide}
    return open_function(workload, form.rows, emit, repeated=form.repeated, apart=apart, along=form.along)


def _counted(given: Arguments, where: OpenAxis | None, fixed: int) -> Expr:
    """How many queries, or keys, there are."""
    return fixed if where is None else builder.bind(given.counts[where.size] + where.more)


Arrays = Callable[[Mapping[int, Argument]], dict[int, Array]]
"""Arguments as the arrays of a workload."""


class _Tiled(Tokens):
    """Emits an attention of many queries."""

    def emit(self, given: Arguments, arrays: Arrays, _threads: int) -> None:
        """Heads in parallel, of all sequences, each with all its tiles of queries."""
        with self.emitter.parallel_parts(self.heads, given.repeats) as (sequence, head):
            if given.repeats is not None:
                self.scope.arrays = arrays(given.of(sequence))
            if not self.few_to_many:
                self.emit_tiles(head)
                return
            with self.emitter.when(self.query_count >= self.tile):
                self.emit_tiles(head)
            with self.emitter.when(self.query_count < self.tile), self.emitter.serial(self.query_count) as query:
                SingleQuery(self, head, query, 1).emit()

    def emit_tiles(self, head: Expr) -> None:
        """All queries of a head, to copies of its keys and values."""
        keys, values = self.copied_keys(head), self.copied_values(head)
        known = self.scope.ready, self.scope.arrays
        for product in self.beside:
            self.multiply_beside(product, head)
        for first, queries in self.tiles():
            QueryTile(self, head, first, queries, keys, values).emit()
        self.scope.ready, self.scope.arrays = known

    def tiles(self) -> Iterator[tuple[Expr, int]]:
        """(first query, queries) of each tile, inside of the loop over such tiles: whole ones, the last moved back, or
        single queries where there are fewer."""
        emitter, count = self.emitter, self.query_count
        if isinstance(count, int):
            yield from self.whole_tiles()
            return
        with emitter.when(count >= self.tile):
            yield from self.whole_tiles()
        with emitter.when(count < self.tile), emitter.serial(count) as first:
            yield first, 1

    def whole_tiles(self) -> Iterator[tuple[Expr, int]]:
        """Those of a tile or more."""
        with self.emitter.serial((self.query_count + (self.tile - 1)) // self.tile) as step:
            yield self.hidden(tirx.min(step * self.tile, self.query_count - self.tile)), self.tile

    def multiply_beside(self, product: WorkloadOperator, head: Expr) -> None:
        """A product of the tokens of a head with what has none, which is kept until all its tiles are done."""
        made, scope = product.outputs[0], self.scope
        width = self.shape(made)[-1]
        padded = -(-width // self.block) * self.block
        kept = self.emitter.scratch(self.most * padded)
        for first, tokens in self.tiles():
            TileProduct(self, head, first, tokens).multiply_beside(product, kept, padded)
        held = ScoreTile(kept, self.shape(made), "float32", 0, 0, padded)
        scope.ready, scope.arrays = scope.ready | {made}, {**scope.arrays, made: held}

    def hidden(self, first: Expr) -> Expr:
        """The first query of a tile by a name of which only its bounds are known."""
        name = self.emitter.hidden(first)
        if not isinstance(name, int):
            self.emitter.analyzer.bind(name, tvm.ir.Range(0, self.most_queries - self.tile + 1))
        return name


class _Single(Tokens):
    """Emits an attention of a few queries, a fixed number of them."""

    def emit(self, given: Arguments, arrays: Arrays, threads: int) -> None:
        """Heads, which so many threads share where there are keys enough; each query by itself."""
        emitter, queries = self.emitter, self.query_count

        def attend(head: Expr) -> None:
            with emitter.serial(queries) as first:
                SingleQuery(self, head, first, 1).emit()

        with given.each() as arguments:
            self.scope.arrays = arrays(arguments)
            work = self.key_count * (queries * (self.depth + self.width))
            shared_parts(emitter, self.heads, work, threads, attend)
