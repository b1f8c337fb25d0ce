"""Elementwise nests: any composition of scalar and index functions, several results in one loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import ClassVar

from autofuse.graph.cost import EXPENSIVE
from autofuse.graph.own.names import BYTE_LOOKUP
from autofuse.kernels.families.moves.lookups import LookupEmitter, lookup_of
from autofuse.kernels.families.moves.transposes import MoveEmitter, move_of
from autofuse.kernels.families.protocol import Case, Declared, Family, Knob, Schedule, Unit, Values
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.quantized.quantization import TAKEN as QUANTIZATION
from autofuse.kernels.nest.resize import samplers
from autofuse.kernels.nest.scalar import SCALAR
from autofuse.kernels.nest.tiles import MIN_TASK_ELEMENTS, divisors, spans, tiles_per_task
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Knobs = Mapping[str, int | str]
BY_AXIS = frozenset({*QUANTIZATION, "BatchNormalization"})
"""Elementwise operators that read some inputs by one axis of the result."""
RESIZES = frozenset({"Resize", "Upsample"})
LONGEST = 64
"""Results of a stretch that are computed together at most."""
ROW = 8
"""Steps of a row, at least, where rows can be joined: what fills no step of several vectors costs as much as one."""


class ElementwiseEmitter:
    """Walks the physical order of the first result; `vectors`: vectors a step, `tasks`: parallel chunks.

    A chain of functions waits for its own results: a core looks ahead over one or two vectors of it. Several vectors a
    step, operator by operator, hide that.
    """

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs) -> None:
        self.scope, self.nest, self.knobs = scope, nest, knobs
        self.emitter: Emitter = scope.emitter
        self.shape = nest.space
        first = nest.stores[0] if nest.start < 0 else nest.start
        self.block = self._block(first)
        self.reads = leaves(scope, nest)
        self.vectors = int(knobs["vectors"]) if is_long(scope.workload) else 1

    def _block(self, value: int) -> int:
        """The channel block to walk in: that of the result, or of what is read."""
        if value in self.scope.arrays:
            return self.scope.arrays[value].block
        arrays = self.scope.arrays
        blocks = [arrays[v].block for v in arrays if arrays[v].shape == self.shape and arrays[v].block]
        return blocks[0] if blocks else 0

    def emit(self) -> None:
        """Emits the whole nest."""
        emitter = self.emitter
        # LLVM has no vectors of bool in memory: such results are written one by one.
        dtypes = {self.scope.workload.values[value].dtype for value in self.nest.stores}
        lanes = 1 if "bool" in dtypes else emitter.lanes
        physical = Array(None, self.shape, "", self.block)
        if self.block:
            head, channels, *rest = self.shape
            extents = (head, channels // self.block, *rest, self.block)
        else:
            extents = self.shape
        total = prod(extents)
        inner = self._inner(extents)
        outer = total // inner
        per_task = tiles_per_task(outer, int(self.knobs["tasks"]), inner)
        with emitter.parallel(outer // per_task) as task, emitter.serial(per_task) as step:
            base = (task * per_task + step) * inner
            for first, count, width in self._steps(inner, lanes, extents):
                with emitter.serial(count) as vector, emitter.vector(width) as lane:
                    self.point(self.logical(base, first + vector * width + lane, extents, physical))

    def _steps(self, inner: int, lanes: int, extents: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """(first, how many, elements) of the steps of a row: several vectors at a time, those that are left together,
        and a rest. Of a row that is made of fewer elements, all results between the same two together."""
        if lanes > 1 and not self.block and extents and inner == extents[-1]:
            stretch = stretched(self.scope, inner)
            if stretch is not None:
                first, size = stretch
                count = (inner - first) // size
                parts = (0, 1, first), (first, count, size), (first + count * size, 1, inner - first - count * size)
                yield from (part for part in parts if part[1] and part[2])
                return
        widest = lanes * self.vectors if lanes > 1 else 1
        yield from spans(inner, widest, inner % widest // lanes * lanes, inner % lanes)

    def _inner(self, extents: tuple[int, ...]) -> int:
        """Elements of a contiguous inner row: the last dimensions, until a few vectors are filled, or a part of them,
        where fewer rows than tasks would be left."""
        inner, dimension = extents[-1] if extents else 1, len(extents) - 1
        while dimension > 0 and inner < self.emitter.lanes * 2 and not self.block:
            dimension -= 1
            inner *= extents[dimension]
        wanted, row, tasks = ROW * self.emitter.lanes * self.vectors, inner, int(self.knobs["tasks"])
        while dimension > 0 and inner < wanted and self._alike(dimension - 1, extents):
            dimension -= 1
            inner *= extents[dimension]
        if inner == row or prod(extents) >= tasks * inner:
            return inner
        share = max(wanted, prod(extents) // tasks)
        return min((part for part in divisors(inner) if part >= row), key=lambda part: abs(part - share))

    def _alike(self, dimension: int, extents: tuple[int, ...]) -> bool:
        """Whether all that is read lies in memory as the result does from a dimension of it on, or is one number there,
        and nothing is moved: then rows may be joined, and vectors lie across their ends."""
        if self.reads is None:
            return False
        rank = len(extents) - dimension
        for value in self.reads:
            shape, array = self.scope.shape(value), self.scope.arrays.get(value)
            if prod(shape) == 1:
                continue
            if (array.block if array is not None else 0) != self.block:
                return False
            tail = ((1,) * (len(self.shape) - len(shape)) + shape)[-rank:]
            if shape != self.shape if self.block else prod(tail) > 1 and tail != self.shape[-rank:]:
                return False
        return True

    def logical(self, base: Expr, inner: Expr, extents: tuple[int, ...], physical: Array) -> Index:
        """Logical index of element `inner` of the row that starts at `base`."""
        simplify = self.emitter.simplify
        index = tuple(simplify(part) for part in delinear(base + inner, extents)) if extents else ()
        if not physical.block:
            return index
        head, channel, *rest, lane = index
        return (head, simplify(channel * physical.block + lane), *rest)

    def point(self, index: Index) -> None:
        """Computes and stores every result at one index."""
        scope = self.scope
        with scope.point():
            if self.nest.start >= 0:
                scope.finish(self.nest, index, scope.read(self.nest.start, index))
                return
            results = [(value, scope.name(scope.read(value, index))) for value in self.nest.stores]
            for value, result in results:
                self.emitter.store(scope.arrays[value], index, result)


def stretched(scope: Scope, length: int) -> tuple[int, int] | None:
    """(first, size) of the stretches of a row of so many results, each of which a Resize of the workload that is
    evaluated where it is read makes of the same elements; None where there is none, or several differ.

    Elements that are the same for a whole vector are read once and spread; others a CPU gathers one by one.
    """
    found = set()
    for operator in scope.workload.operators:
        output = operator.outputs[0]
        shape = scope.shape(output)
        if operator.op_type in RESIZES and output not in scope.ready and shape and shape[-1] == length:
            axes = samplers(operator, scope.workload)
            found.add(None if isinstance(axes, str) else axes[-1].stretches(LONGEST))
    return found.pop() if len(found) == 1 else None


def leaves(scope: Scope, nest: Nest) -> tuple[int, ...] | None:
    """What stands in memory and is read by a nest of nothing but elementwise operators; None where it has others."""
    operators = [operator for operator, _ in nest.epilogue]
    inside = {value for operator in operators for value in operator.outputs}
    waiting = [nest.start] if nest.start >= 0 else list(nest.stores)
    waiting += [value for operator in operators for value in element_inputs(operator) if value not in inside]
    found: dict[int, None] = {}
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if value < 0 or value in seen:
            continue
        seen.add(value)
        operator = None if value in scope.ready else scope.producer.get(value)
        if operator is None:
            found[value] = None
        else:
            operators.append(operator)
            waiting += element_inputs(operator)
    plain = all(operator.op_type in SCALAR and operator.op_type not in BY_AXIS for operator in operators)
    return tuple(found) if plain else None


def element_inputs(operator: WorkloadOperator) -> tuple[int, ...]:
    """Inputs of an elementwise operator whose elements it reads: not a table."""
    return operator.inputs[:1] if operator.op_type == BYTE_LOOKUP else operator.inputs


def is_long(workload: Workload) -> bool:
    """Whether several functions may be computed one after another."""
    return sum(operator.op_type in EXPENSIVE for operator in workload.operators) > 1


def ends_in_chain(nest: Nest) -> bool:
    """Whether functions that wait for one another stand behind the anchor of a nest."""
    return sum(operator.op_type in EXPENSIVE for operator, _ in nest.epilogue) > 1


class Elementwise(Family):
    """Nests without an anchor."""

    name = "elementwise"
    knobs: ClassVar[Declared] = {
        "tasks": Knob((8, 2, 32), "parallel chunks of an elementwise loop"),
        "vectors": Knob((8, 4, 2, 1), "vectors side by side in a chain of functions"),
    }

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        return isinstance(unit, Nest) and unit.anchor is None

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family: as many tasks as have enough to do, and several vectors of what waits for itself."""
        assert isinstance(unit, Nest)
        size = prod(unit.space)
        if knob == "vectors":
            return values if is_long(case.workload) else values[:1]
        return [value for value in values if isinstance(value, int) and size >= MIN_TASK_ELEMENTS * value]

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        move, lookup = move_of(scope, unit), lookup_of(scope, unit)
        if move is not None:
            MoveEmitter(scope, unit, move, self.chosen(schedule)).emit()
        elif lookup is not None:
            LookupEmitter(scope, lookup, self.chosen(schedule)).emit()
        else:
            ElementwiseEmitter(scope, unit, self.chosen(schedule)).emit()


ELEMENTWISE = Elementwise()
