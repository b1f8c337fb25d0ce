"""Evaluates values of a workload at an index: prologues and epilogues from one definition an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from tvm import tirx

from autofuse.graph.own.names import BYTE_LOOKUP, ROUND
from autofuse.kernels.nest.index import FORWARD, READ
from autofuse.kernels.nest.nest import RESHAPES, Nest
from autofuse.kernels.nest.quantized.byte_tables import Words, packed_table, reads_words, table_bytes
from autofuse.kernels.nest.quantized.quantization import TAKEN as QUANTIZATION
from autofuse.kernels.nest.scalar import JOINED, SCALAR
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, const
from autofuse.kernels.tir.features import multiplies_and_adds
from autofuse.kernels.tir.lanes import holds_let
from autofuse.kernels.tir.math import LetBinder
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Pack = Callable[[Sequence[NDArray[np.generic]]], NDArray[np.generic]]
Store = Callable[[Array, Index, Expr], None]
"""Writes an element of an array at a logical index."""
GUARDED = frozenset({"Concat", "Pad"})
"""Data movements that read some elements only under a condition; the others read where something stands."""


def broadcast(index: Index, shape: Sequence[int]) -> Index:
    """The index into a tensor of `shape` that broadcasting gives to `index` of the result."""
    tail = index[len(index) - len(shape) :]
    return tuple(0 if extent == 1 else position for position, extent in zip(tail, shape, strict=True))


class Scope:
    """Reads values of one workload while its kernel is emitted.

    `arrays`: the values that have a place in memory; `ready`: those of them that are written by now.
    `declare_constant(pack, shape, dtype)` gives the
    array of a packed constant, which becomes an argument of the kernel.
    """

    def __init__(
        self,
        workload: Workload,
        emitter: Emitter,
        arrays: dict[int, Array],
        declare_constant: Callable[[str, Pack, tuple[int, ...], str], Array],
    ) -> None:
        self.workload = workload
        self.emitter = emitter
        self.arrays = arrays
        self.declare_constant = declare_constant
        self.producer = {out: op for op in workload.operators for out in op.outputs if out >= 0}
        self.uses = _uses(workload)
        self.ready = set(workload.of_kind("input"))
        self._memo: dict[tuple[int, tuple[int, ...]], tuple[Expr, Index]] = {}
        self._bind: Callable[[Expr], Expr] = emitter.bind

    def shape(self, value: int) -> tuple[int, ...]:
        """Logical shape of a value."""
        return self.workload.values[value].shape

    @contextmanager
    def point(self) -> Iterator[None]:
        """The body of one innermost loop: values named inside it are not known outside."""
        outer, self._memo = self._memo, {}
        try:
            yield
        finally:
            self._memo = outer

    def read(self, value: int, index: Index) -> Expr:
        """The element of `value` at a logical index, computed from what stands in memory."""
        spec = self.workload.values[value]
        if value in self.ready:
            return self.emitter.load(self.arrays[value], index)
        if spec.kind == "literal" and int(np.prod(spec.shape, dtype=np.int64)) == 1:
            return const(spec.literal_array().reshape(-1)[0].item(), spec.dtype)
        if spec.kind in ("constant", "literal"):
            return self.emitter.load(self.constant(value), index)
        key = (value, tuple(id(position) for position in index))
        if key not in self._memo:
            expression = self.compute(self.producer[value], value, index)
            if self.uses.get(value, 0) > 1:
                expression = self.name(expression)
            self._memo[key] = (expression, index)
        return self._memo[key][0]

    def in_rows(self, value: int) -> bool:
        """Whether neighbours along the last dimension of an activation are neighbours in memory."""
        return in_rows(self.workload, value, lambda known: known in self.ready and not self.arrays[known].block)

    def lanes_together(self, nest: Nest, lanes: int) -> int:
        """How many of `lanes` neighbouring channels are neighbours in memory in all that the end of `nest` touches."""
        made = {nest.start, *(value for operator, _ in nest.epilogue for value in operator.outputs)}
        read = {value for operator, _ in nest.epilogue for value in operator.inputs if value >= 0} - made
        for value in {*nest.stores, *read}:
            if self.workload.values[value].kind in ("constant", "literal"):
                continue
            block = self.arrays[value].block if value in self.arrays else self.emitter.lanes
            lanes = min(lanes, block or lanes)
        return lanes

    def name(self, expression: Expr) -> Expr:
        """`expression`, computed once however often it is used; a boolean as 0.0 or 1.0.

        TVM's integer analysis breaks on the name of a vector of booleans (or of integers made of them).
        """
        if getattr(expression, "ty", None) is None or str(expression.ty.dtype) != "bool":
            return self._bind(expression)
        flag = tirx.Select(expression, const(1.0, "float32"), const(0.0, "float32"))
        return self._bind(flag) > const(0.0, "float32")

    def constant(self, value: int) -> Array:
        """The unpacked array of a constant or of a literal with several elements."""
        spec = self.workload.values[value]
        if spec.kind == "literal":
            data = spec.literal_array()
            return self.declare_constant(f"literal{value}", lambda _: data, spec.shape, spec.dtype)
        place = self.workload.of_kind("constant").index(value)
        return self.declare_constant(f"constant{value}", lambda c: c[place], spec.shape, spec.dtype)

    def table(self, value: int) -> Array:
        """A constant table of bytes, as the target looks it up."""
        target, dtype = self.emitter.target, self.workload.values[value].dtype
        place = self.workload.of_kind("constant").index(value)
        size = table_bytes(target)
        return self.declare_constant(f"table{value}", lambda c: packed_table(c[place], target), (size,), dtype)

    def words(self, value: int) -> Array | Words:
        """A constant table of bytes as numbers that are computed with are looked up in it."""
        if not reads_words(self.emitter.target, self.emitter.extent):
            return self.table(value)
        place = self.workload.of_kind("constant").index(value)
        words = self.declare_constant(f"words{value}", lambda c: c[place].view("int32"), (Words.COUNT,), "int32")
        return Words(words.buffer, self.emitter.lane)

    def compute(self, operator: WorkloadOperator, value: int, index: Index) -> Expr:
        """The element of an operator's result that stands nowhere in memory."""
        if operator.op_type in SCALAR:
            arguments = [self.argument(operator, place, index) for place in range(len(operator.inputs))]
            return self.scalar(operator, arguments)
        reads = [self.reader(operator, place) for place in range(len(operator.inputs))]
        output = operator.outputs.index(value)
        element = READ[operator.op_type](reads, operator, self.workload, index, output, self._bind)
        # TVM's vectorizer visits the factor of a constant twice, and fails on a `Let` inside the second time.
        return self._bind(element) if operator.op_type in GUARDED and holds_let(element) else element

    def reader(self, operator: WorkloadOperator, place: int) -> Callable[[Index], Expr]:
        """Reads one input of a data movement; inside a guard nothing may be computed ahead of the guard."""
        value = operator.inputs[place]
        read = self.read_alone if operator.op_type in GUARDED else self.read
        return lambda index: read(value, index)

    def read_alone(self, value: int, index: Index) -> Expr:
        """Like `read`, in one expression that names nothing outside itself: safe below a guard."""
        binder, outer, memo = LetBinder(), self._bind, self._memo
        self._bind, self._memo = binder, {}
        try:
            return binder.wrap(self.read(value, index))
        finally:
            self._bind, self._memo = outer, memo

    def argument(self, operator: WorkloadOperator, place: int, index: Index) -> Expr | Array | Words | None:
        """Operand `place` of an elementwise operator at the index of its result; all of a table."""
        value = operator.inputs[place]
        if value < 0:
            return None
        if place and operator.op_type == BYTE_LOOKUP:
            last = self.uses[operator.outputs[0]] == 1 and operator.outputs[0] in self.workload.of_kind("output")
            return self.table(value) if last else self.words(value)
        shape = self.shape(value)
        if place and operator.op_type == "BatchNormalization":
            return self.read(value, (index[1] if len(index) > 1 else 0,))
        if place and operator.op_type in QUANTIZATION and len(shape) == 1:
            axis = operator.attribute("axis", 1)
            assert isinstance(axis, int)
            return self.read(value, (0 if shape[0] == 1 else index[axis % len(index)],))
        return self.read(value, broadcast(index, shape))

    def scalar(self, operator: WorkloadOperator, arguments: list[Expr | None]) -> Expr:
        """Applies the scalar definition of an elementwise operator."""
        dtype = self.workload.values[operator.outputs[0]].dtype
        table = JOINED if multiplies_and_adds(self.emitter.target) else SCALAR
        return table[operator.op_type](arguments, operator, dtype, self._bind)

    def finish(self, nest: Nest, index: Index, value: Expr, store: Store | None = None) -> None:
        """Runs the epilogue of `nest` on the element `value` of its start, and stores what is wanted, by `store`."""
        store = store or self.emitter.store
        with self.point():
            start = nest.start
            held: dict[int, tuple[Expr, Index]] = {start: (self.name(value), index)}
            for operator, place in nest.epilogue:
                self._step(operator, place, held)
                output = operator.outputs[0]
                if output in nest.stores:
                    store(self.arrays[output], held[output][1], held[output][0])
            if start in nest.stores:
                store(self.arrays[start], index, held[start][0])

    def _step(self, operator: WorkloadOperator, place: int, held: dict[int, tuple[Expr, Index]]) -> None:
        output = operator.outputs[0]
        inner, index = held[operator.inputs[place]]
        if operator.op_type == "Concat":
            held[output] = (inner, self._slice_of(operator, place, index))
            return
        if operator.op_type in FORWARD:
            held[output] = (inner, FORWARD[operator.op_type](operator, self.workload, index))
            return
        shape = self.shape(output)
        source = self.shape(operator.inputs[place])
        index = index if len(source) == len(shape) else _aligned(index, source, shape)
        arguments = [
            held[value][0] if value in held else self.argument(operator, position, index)
            for position, value in enumerate(operator.inputs)
        ]
        if operator.op_type == ROUND and self._rounded_when_stored(output):
            held[output] = (arguments[0], index)
            return
        expression = self.scalar(operator, arguments)
        if self.uses.get(output, 0) > 1:
            expression = self.name(expression)
        held[output] = (expression, index)

    def _rounded_when_stored(self, value: int) -> bool:
        """Whether nothing reads what a rounding gives but the memory of bfloat16, which is written rounded."""
        array = self.arrays.get(value)
        return self.emitter.rounds and array is not None and array.half and self.uses.get(value, 0) == 1

    def _slice_of(self, operator: WorkloadOperator, place: int, index: Index) -> Index:
        """Where an element of input `place` of a Concat stands in its result."""
        axis = operator.attribute("axis", 0)
        assert isinstance(axis, int)
        axis %= len(index)
        before = sum(self.shape(value)[axis] for value in operator.inputs[:place])
        return (*index[:axis], index[axis] + before, *index[axis + 1 :])


def in_rows(workload: Workload, value: int, stored: Callable[[int], bool]) -> bool:
    """Whether neighbours along the last dimension of `value` are neighbours in memory.

    `stored`: whether a value lies in memory in row-major order. Views and transposes that leave the last dimension
    alone, and parts of a tensor, are read where they are.
    """
    if stored(value):
        return True
    producer = next((operator for operator in workload.operators if value in operator.outputs), None)
    if producer is None or producer.op_type not in (*RESHAPES, "Transpose", "Split", "Slice"):
        return False
    source = producer.inputs[0]
    before, after = workload.values[source].shape, workload.values[value].shape
    if not before or not after or not in_rows(workload, source, stored):
        return False
    if producer.op_type == "Transpose":
        order = producer.attribute("perm") or tuple(reversed(range(len(before))))
        assert isinstance(order, tuple)
        return int(order[-1]) % len(before) == len(before) - 1
    if producer.op_type == "Slice":
        steps = workload.values[producer.inputs[4]].literal_array() if len(producer.inputs) > 4 else np.ones(1)
        return bool((steps == 1).all())
    return producer.op_type == "Split" or before[-1] % after[-1] == 0


def _aligned(index: Index, source: Sequence[int], shape: Sequence[int]) -> Index:
    """`index` of `source` as an index of `shape`, which differs in leading ones only."""
    if len(shape) > len(source):
        return (0,) * (len(shape) - len(source)) + index
    return index[len(source) - len(shape) :]


def _uses(workload: Workload) -> dict[int, int]:
    uses: dict[int, int] = {}
    for operator in workload.operators:
        for value in operator.inputs:
            uses[value] = uses.get(value, 0) + 1
    for value in workload.of_kind("output"):
        uses[value] = uses.get(value, 0) + 1
    return uses
