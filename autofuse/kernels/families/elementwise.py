"""Elementwise nests: any composition of scalar and index functions, several results in one loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import ClassVar

from autofuse.kernels.families.protocol import Case, Declared, Family, Knob, Schedule, Unit, Values
from autofuse.kernels.families.transposes import MoveEmitter, move_of
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import MIN_TASK_ELEMENTS, tiles_per_task
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload

Knobs = Mapping[str, int | str]


class ElementwiseEmitter:
    """Walks the physical order of the first result; `vectors`: vectors a step, `tasks`: parallel chunks."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs) -> None:
        self.scope, self.nest, self.knobs = scope, nest, knobs
        self.emitter: Emitter = scope.emitter
        self.shape = nest.space
        first = nest.stores[0] if nest.start < 0 else nest.start
        self.block = self._block(first)

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
            full, rest_elements = divmod(inner, lanes)
            if full:
                with emitter.serial(full) as vector, emitter.vector(lanes) as lane:
                    self.point(self.logical(base, vector * lanes + lane, extents, physical))
            if rest_elements:
                with emitter.vector(rest_elements) as lane:
                    self.point(self.logical(base, full * lanes + lane, extents, physical))

    def _inner(self, extents: tuple[int, ...]) -> int:
        """Elements of a contiguous inner row: the last dimensions, until a few vectors are filled."""
        inner, dimension = extents[-1] if extents else 1, len(extents) - 1
        while dimension > 0 and inner < self.emitter.lanes * 2 and not self.block:
            dimension -= 1
            inner *= extents[dimension]
        return inner

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


class Elementwise(Family):
    """Nests without an anchor."""

    name = "elementwise"
    knobs: ClassVar[Declared] = {"tasks": Knob((8, 2, 32), "parallel chunks of an elementwise loop")}

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        return isinstance(unit, Nest) and unit.anchor is None

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family: as many tasks as have enough to do."""
        assert isinstance(unit, Nest)
        size = prod(unit.space)
        return [value for value in values if isinstance(value, int) and size >= MIN_TASK_ELEMENTS * value]

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        move = move_of(scope, unit)
        if move is not None:
            MoveEmitter(scope, unit, move, self.chosen(schedule)).emit()
        else:
            ElementwiseEmitter(scope, unit, self.chosen(schedule)).emit()


ELEMENTWISE = Elementwise()
