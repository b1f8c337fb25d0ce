"""ArgMax and ArgMin: the best value and where it stands, carried together through one pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from tvm import tirx

from autofuse.kernels.families.reductions.reduction import CHAINS, across
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import MIN_TASK_ELEMENTS, divisor_near, spans
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import WorkloadOperator

PLACES = frozenset({"ArgMax", "ArgMin"})


def place_axis(operator: WorkloadOperator, rank: int) -> int:
    """The axis along which the best value is looked for."""
    return int(operator.attribute("axis", 0) or 0) % rank  # type: ignore[arg-type]


class PlaceEmitter:
    """Lanes run over the axes inside of the one that is searched, where there are any, else along it."""

    def __init__(self, scope: Scope, nest: Nest) -> None:
        assert nest.anchor is not None
        self.scope, self.nest = scope, nest
        self.emitter: Emitter = scope.emitter
        self.x = nest.anchor.inputs[0]
        self.shape = scope.shape(self.x)
        self.axis = place_axis(nest.anchor, len(self.shape))
        self.count = self.shape[self.axis]
        self.largest = nest.anchor.op_type == "ArgMax"
        self.last = bool(nest.anchor.attribute("select_last_index", 0))
        self.outer, self.inner = self.shape[: self.axis], self.shape[self.axis + 1 :]

    def emit(self) -> None:
        """Emits the whole nest."""
        if prod(self.inner) == 1:
            self.along_rows()
        else:
            self.along_columns()

    def along_columns(self) -> None:
        """Neighbours inside of the axis, a few vectors at a time."""
        emitter = self.emitter
        total, lanes = prod(self.inner), emitter.lanes
        for first, blocks, width in spans(total, CHAINS * lanes, lanes, total % lanes):
            with self._tasks(prod(self.outer) * blocks, width) as task:
                outer, start = task // blocks, first + task % blocks * width
                best, place = emitter.scratch(width), emitter.scratch(width, "int32")
                with emitter.vector(width) as lane:
                    emitter.put(best, lane, self._worst())
                    emitter.put(place, lane, const(0, "int32"))
                with emitter.serial(self.count) as step, emitter.vector(width) as lane, self.scope.point():
                    x = self.scope.name(self.scope.read(self.x, self._index(outer, step, start + lane)))
                    self._take(best, place, lane, x, step)
                with emitter.vector(width) as lane:
                    self._finish(outer, start + lane, place[lane])

    def along_rows(self) -> None:
        """Along a row, in lanes of several chains; then the best of the lanes, and the few elements behind them."""
        emitter, lanes = self.emitter, self.emitter.lanes
        full, rest = divmod(self.count, lanes)
        chains = min(CHAINS, full)
        with self._tasks(max(1, prod(self.outer)), 1) as row:
            total, found = emitter.scratch(1), emitter.scratch(1, "int32")
            emitter.put(total, 0, self._worst())
            emitter.put(found, 0, const(0, "int32"))
            if full:
                self._lanes(row, full, chains, total, found)
            for k in range(self.count - rest, self.count):
                with self.scope.point():
                    x = self.scope.name(self.scope.read(self.x, self._index(row, k, 0)))
                    self._take(total, found, 0, x, const(k, "int32"))
            self._finish(row, 0, found[0])

    def _lanes(self, row: Expr, full: int, chains: int, total: Expr, found: Expr) -> None:
        """The best of the `full` vectors of a row. A lane keeps the number of a step, not its whole place."""
        emitter, lanes = self.emitter, self.emitter.lanes
        best, place = emitter.scratch(chains * lanes), emitter.scratch(chains * lanes, "int32")
        for chain in range(chains):
            with emitter.vector(lanes) as lane:
                emitter.put(best, chain * lanes + lane, self._worst())
                emitter.put(place, chain * lanes + lane, const(0, "int32"))

        def take(step: Expr, chain: int) -> None:
            with emitter.vector(lanes) as lane, self.scope.point():
                k = emitter.simplify((step * chains + chain) * lanes + lane)
                x = self.scope.name(self.scope.read(self.x, self._index(row, k, 0)))
                self._take(best, place, chain * lanes + lane, x, step)

        with emitter.serial(full // chains) as step:
            for chain in range(chains):
                take(step, chain)
        for chain in range(full % chains):
            take(const(full // chains, "int32"), chain)
        top = emitter.scratch(chains * lanes)
        for chain in range(chains):
            with emitter.vector(lanes) as lane:
                emitter.put(top, chain * lanes + lane, best[chain * lanes + lane])
        across(emitter, top, chains, lanes, tirx.Max if self.largest else tirx.Min)
        emitter.put(total, 0, top[0])
        value = emitter.bind(top[0])
        none = const(-1 if self.last else self.count, "int32")
        for chain in range(chains):
            with emitter.vector(lanes) as lane:
                here = chain * lanes + lane
                k = (place[here] * chains + chain) * lanes + lane
                emitter.put(place, here, tirx.Select(best[here] == value, k, none))
        across(emitter, place, chains, lanes, tirx.Max if self.last else tirx.Min)
        emitter.put(found, 0, place[0])

    @contextmanager
    def _tasks(self, count: int, results: int) -> Iterator[Expr]:
        """A loop over pieces of work that make so many results each; a task has several where they are small."""
        emitter = self.emitter
        least = MIN_TASK_ELEMENTS // (results * self.count)
        per_task = divisor_near(count, max(1, min(least, count)))
        with emitter.parallel(count // per_task) as task, emitter.serial(per_task) as step:
            yield emitter.simplify(task * per_task + step)

    def _index(self, outer: Expr, k: Expr, inner: Expr) -> Index:
        """Logical index of element k of the axis at a position outside of it and one inside."""
        before = delinear(outer, self.outer) if self.outer else ()
        after = delinear(inner, self.inner) if self.inner else ()
        return tuple(self.emitter.simplify(part) for part in (*before, k, *after))

    def _finish(self, outer: Expr, inner: Expr, place: Expr) -> None:
        index = self._index(outer, 0, inner)
        if len(self.nest.space) != len(self.shape):
            index = (*index[: self.axis], *index[self.axis + 1 :])
        self.scope.finish(self.nest, index, tirx.Cast("int64", place))

    def _worst(self) -> Expr:
        return const(float("-inf") if self.largest else float("inf"), "float32")

    def _take(self, best: Expr, place: Expr, at: Expr, x: Expr, k: Expr) -> None:
        """Takes x for the best so far, with its place, where it is better; of equal ones the first or the last."""
        if self.largest:
            better = x >= best[at] if self.last else x > best[at]
        else:
            better = x <= best[at] if self.last else x < best[at]
        self.emitter.put(place, at, tirx.Select(better, k, place[at]))
        self.emitter.put(best, at, tirx.Select(better, x, best[at]))
