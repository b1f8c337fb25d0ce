"""ScatterND by rows: what an update writes, or is folded into, lies side by side (messages of a graph's edges)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

from tvm import tirx

from autofuse.kernels.families.protocol import Family, Schedule, Unit
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.index import looked_up
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import vector_spans
from autofuse.kernels.tir.emit import Emitter, Expr, Index
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

REDUCTIONS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda _, update: update,
    "add": lambda old, update: old + update,
    "mul": lambda old, update: old * update,
    "max": tirx.Max,
    "min": tirx.Min,
}
BESIDE = 4
"""Vectors of a row that are copied or folded at once."""


def _reduction(operator: WorkloadOperator) -> str:
    value = operator.attribute("reduction", "none")
    return value.decode() if isinstance(value, bytes) else str(value)


class ScatterEmitter:
    """A task has some columns of all rows, so that no two write one element: it copies them, then takes each update."""

    def __init__(self, scope: Scope, operator: WorkloadOperator) -> None:
        self.scope, self.operator = scope, operator
        self.emitter: Emitter = scope.emitter
        self.data, self.indices, self.updates = operator.inputs[:3]
        *self.places, depth = scope.shape(self.indices)
        self.shape = scope.shape(self.data)
        self.outer, self.inner = self.shape[:depth], self.shape[depth:]
        self.fold = REDUCTIONS[_reduction(operator)]

    def emit(self) -> None:
        """Emits the whole operator."""
        emitter, columns = self.emitter, prod(self.inner)
        parts = next((n for n in range(emitter.target.cores, 1, -1) if columns % (n * emitter.lanes) == 0), 1)
        with emitter.parallel(parts) as task:
            first, width = task * (columns // parts), columns // parts
            with emitter.serial(prod(self.outer)) as row:
                self.copy(delinear(row, self.outer), first, width)
            with emitter.serial(prod(self.places)) as number, self.scope.point():
                self.update(delinear(number, tuple(self.places)) if self.places else (), first, width)

    def copy(self, row: Index, first: Expr, width: int) -> None:
        """A row as it is given."""
        result = self.scope.arrays[self.operator.outputs[0]]
        for column, lanes in self.columns(first, width):
            with self.emitter.vector(lanes) as lane, self.scope.point():
                index = self.index(row, column + lane)
                self.emitter.store(result, index, self.scope.read(self.data, index))

    def update(self, number: Index, first: Expr, width: int) -> None:
        """An update, on the row that its indices say."""
        emitter, result = self.emitter, self.scope.arrays[self.operator.outputs[0]]
        found = [self.scope.read(self.indices, (*number, place)) for place in range(len(self.outer))]
        row = tuple(looked_up(at, size, emitter.bind) for at, size in zip(found, self.outer, strict=True))
        for column, lanes in self.columns(first, width):
            with emitter.vector(lanes) as lane, self.scope.point():
                index = self.index(row, column + lane)
                update = self.scope.read(self.updates, self.index(number, column + lane))
                emitter.store(result, index, self.fold(emitter.load(result, index), update))

    def columns(self, first: Expr, width: int) -> Iterator[tuple[Expr, int]]:
        """(first element, lanes) of the vectors of a row's `width` columns from `first` on."""
        for start, count, lanes in vector_spans(width, self.emitter.lanes, BESIDE):
            with self.emitter.serial(count) as step:
                yield self.emitter.simplify(first + start + step * lanes), lanes

    def index(self, row: Index, column: Expr) -> Index:
        """The logical index of a column of a row, or of an update."""
        inside = delinear(column, self.inner) if self.inner else ()
        return tuple(self.emitter.simplify(part) for part in (*row, *inside))


class Scatter(Family):
    """ScatterND of rows, with or without a reduction."""

    name = "scatter"
    anchors = frozenset({"ScatterND"})
    closed = True

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family."""
        if _reduction(operator) not in REDUCTIONS:
            return f"ScatterND by {_reduction(operator)!r} has no definition here"
        if workload.values[operator.inputs[2]].dtype != "float32" or not workload.values[operator.inputs[1]].shape[-1]:
            return "ScatterND of other updates than float32, or without indices, has no definition here"
        return None

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        ScatterEmitter(scope, unit.anchor).emit()


SCATTER = Scatter()
