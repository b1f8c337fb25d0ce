"""Reductions in one pass: Reduce*, global pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt, prod
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.kernels.families.elementwise import is_long
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.scalar_rules import dtype_of, is_nan
from autofuse.kernels.nest.tiles import spans
from autofuse.kernels.tir.emit import Emitter, Expr, Index, const
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Knobs = Mapping[str, int | str]
Fold = Callable[[Expr, Expr], Expr]


def _add(total: Expr, x: Expr) -> Expr:
    return total + x


def _extreme(pick: Fold) -> Fold:
    """The greater or the smaller of two, NaN where either is: `pick(total, x)` is x where either is."""

    def fold(total: Expr, x: Expr) -> Expr:
        chosen = pick(total, x)
        return tirx.Select(is_nan(total), total, chosen) if dtype_of(total).startswith("float") else chosen

    return fold


# operator -> (first value, what an element contributes, how two partial results combine)
REDUCE: Mapping[str, tuple[float, Callable[[Expr], Expr], Fold]] = {
    "ReduceSum": (0.0, lambda x: x, _add),
    "ReduceMean": (0.0, lambda x: x, _add),
    "GlobalAveragePool": (0.0, lambda x: x, _add),
    "ReduceL1": (0.0, tirx.abs, _add),
    "ReduceL2": (0.0, lambda x: x * x, _add),
    "ReduceSumSquare": (0.0, lambda x: x * x, _add),
    "ReduceProd": (1.0, lambda x: x, lambda total, x: total * x),
    "ReduceMax": (float("-inf"), lambda x: x, _extreme(tirx.Max)),
    "GlobalMaxPool": (float("-inf"), lambda x: x, _extreme(tirx.Max)),
    "ReduceMin": (float("inf"), lambda x: x, _extreme(tirx.Min)),
}


INTEGRAL = frozenset({"ReduceMax", "ReduceMin", "ReduceSum"})
"""Those that are known of integers, too."""


def first_value(kind: str, dtype: str) -> float:
    """What a reduction of such elements begins with: of the least and the largest integers there are, for extremes."""
    first = REDUCE[kind][0]
    if dtype.startswith("float") or np.isfinite(first):
        return first
    bounds = np.iinfo(dtype)
    return bounds.min if first < 0 else bounds.max


def reduced_axes(workload: Workload, operator: WorkloadOperator) -> tuple[int, ...]:
    """Non-negative axes that a reduction removes, ascending."""
    rank = len(workload.values[operator.inputs[0]].shape)
    if operator.op_type.startswith("Global"):
        return tuple(range(2, rank))
    axes = operator.attribute("axes")
    if axes is None and len(operator.inputs) > 1 and operator.inputs[1] >= 0:
        axes = tuple(int(a) for a in workload.values[operator.inputs[1]].literal_array().reshape(-1))
    if not axes:
        return () if operator.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    assert isinstance(axes, tuple)
    return tuple(sorted(int(a) % rank for a in axes))


class ReductionEmitter:
    """Any single-pass reduction; lanes run over a kept dimension where there is one, else over the reduced ones."""

    def __init__(self, scope: Scope, nest: Nest, knobs: Knobs) -> None:
        assert nest.anchor is not None
        self.scope, self.nest, self.operator = scope, nest, nest.anchor
        self.emitter: Emitter = scope.emitter
        self.x = nest.anchor.inputs[0]
        self.shape = scope.shape(self.x)
        self.axes = reduced_axes(scope.workload, nest.anchor)
        self.kept = tuple(axis for axis in range(len(self.shape)) if axis not in self.axes)
        _, self.contribute, self.fold = REDUCE[nest.anchor.op_type]
        self.dtype = scope.workload.values[self.x].dtype
        self.first = first_value(nest.anchor.op_type, self.dtype)
        self.beside = CHAINS * 2 if is_long(scope.workload) else CHAINS

    def emit(self) -> None:
        """Emits the whole nest."""
        lane_axis = self._lane_axis()
        if lane_axis is None:
            self.over_reduced()
        else:
            self.over_kept(lane_axis)

    def _blocked(self) -> int:
        """Channels of a block of what is reduced, or is read to compute it; 0 where there are no blocks."""
        array = self.scope.arrays.get(self.x)
        blocked = array.block if array else 0
        return blocked or max((v.block for v in self.scope.workload.values if v.shape == self.shape), default=0)

    def _lane_axis(self) -> int | None:
        if self._blocked() and 1 in self.kept:
            return 1
        last = len(self.shape) - 1
        return last if last in self.kept and self.shape[last] >= self.emitter.lanes else None

    def over_kept(self, lane_axis: int) -> None:
        """Lanes over a dimension that stays."""
        emitter, lanes = self.emitter, self.emitter.lanes
        outer = tuple(self.shape[axis] for axis in self.kept if axis != lane_axis)
        full, rest = divmod(self.shape[lane_axis], lanes)
        for blocks, width, begin in ((full, lanes, 0), (1 if rest else 0, rest, full * lanes)):
            if not blocks:
                continue
            with emitter.parallel(prod(outer) * blocks) as task:
                others = [axis for axis in self.kept if axis != lane_axis]
                position = dict(zip(others, delinear(task // blocks, outer), strict=True))
                first = begin + task % blocks * lanes

                def at(lane: Expr, reduced: Index, position: Any = position, first: Expr = first) -> Index:
                    position = position | {lane_axis: first + lane}
                    position |= dict(zip(self.axes, reduced, strict=True))
                    return tuple(emitter.simplify(position[axis]) for axis in range(len(self.shape)))

                def element(k: Expr, lane: Expr, at: Callable[[Expr, Index], Index] = at) -> Expr:
                    reduced = delinear(k, tuple(self.shape[axis] for axis in self.axes))
                    return self.contribute(self.scope.read(self.x, at(lane, reduced)))

                count = prod(self.shape[axis] for axis in self.axes)
                total = self._columns(count, width, element)
                with emitter.vector(width) as lane:
                    self.finish(at(lane, (0,) * len(self.axes)), total[lane])

    def _columns(self, count: int, width: int, element: Callable[[Expr, Expr], Expr]) -> Any:
        """The folds of `width` lanes; neighbours of a block, which follow each other in memory, side by side."""
        emitter, side = self.emitter, self.beside
        if self._blocked() != width or count < side:
            return fold_columns(self.scope, count, width, self.first, element, self.fold, self.dtype)

        def spread(k: Expr, lane: Expr) -> Expr:
            return element(emitter.simplify(k * side + lane // width), emitter.simplify(lane % width))

        done = count // side * side
        total = fold_columns(self.scope, count // side, side * width, self.first, spread, self.fold, self.dtype)
        across(emitter, total, 1, side * width, self.fold, width)
        for k in range(done, count):
            with emitter.vector(width) as lane, self.scope.point():
                emitter.put(total, lane, self.fold(total[lane], element(k, lane)))
        return total

    def over_reduced(self) -> None:
        """Lanes over what is reduced: partial results, then one horizontal fold."""
        emitter = self.emitter
        outer = tuple(self.shape[axis] for axis in self.kept)
        extents = tuple(self.shape[axis] for axis in self.axes)
        with emitter.parallel(max(1, prod(outer))) as task:
            position = dict(zip(self.kept, delinear(task, outer), strict=True)) if outer else {}

            def element(k: Expr) -> Expr:
                index = position | dict(zip(self.axes, delinear(k, extents), strict=True))
                index_tuple = tuple(emitter.simplify(index[axis]) for axis in range(len(self.shape)))
                return self.contribute(self.scope.read(self.x, index_tuple))

            total = fold_row(self.scope, prod(extents), self.first, element, self.fold, self.beside, self.dtype)
            index = position | dict.fromkeys(self.axes, 0)
            self.finish(tuple(index[axis] for axis in range(len(self.shape))), total)

    def finish(self, index: Index, total: Expr) -> None:
        """The operator's last step, at the index of its result."""
        kind = self.operator.op_type
        count = prod(self.shape[axis] for axis in self.axes)
        if kind in ("ReduceMean", "GlobalAveragePool"):
            total = total * const(1.0 / count, "float32")
        elif kind == "ReduceL2":
            total = tirx.sqrt(total)
        if len(self.nest.space) != len(self.shape):
            index = tuple(index[axis] for axis in self.kept)
        self.scope.finish(self.nest, index, total)


CHAINS = 4
"""Independent partial results, so that the latency of the fold is hidden; twice as many where functions are computed
ahead of it (see `autofuse.kernels.families.elementwise`)."""
STRETCH = 16
"""Steps of a chain that are folded by themselves before they meet the whole, at least: a register that takes thousands
of numbers of about one size rounds most of them the same way (the mean of 3,136 near 0.57 was off by 4e-5 of it)."""


def fold_columns(
    scope: Scope, count: int, width: int, first: float, element: Callable[[Expr, Expr], Expr], fold: Fold,
    dtype: str = "float32",
) -> Any:  # fmt: skip
    """`width` folds side by side, of element(0, lane) ... element(count - 1, lane) each; where they lie."""
    emitter = scope.emitter
    chains = max(1, min(CHAINS if width <= emitter.lanes else 1, count))
    total, partial = emitter.scratch(width, dtype), emitter.scratch(chains * width, dtype)
    steps = count // chains
    length = max(STRETCH, isqrt(steps))  # about as many stretches as each has steps

    def start(memory: Any, at: Expr) -> None:
        with emitter.vector(width) as lane:
            emitter.put(memory, at + lane, const(first, dtype))

    def take(memory: Any, at: Expr, k: Expr) -> None:
        with emitter.vector(width) as lane, scope.point():
            emitter.put(memory, at + lane, fold(memory[at + lane], element(emitter.simplify(k), lane)))

    start(total, 0)
    for begin, stretches, size in spans(steps, length, steps % length):
        with emitter.serial(stretches) as stretch:
            for chain in range(chains):
                start(partial, chain * width)
            with emitter.serial(size) as step:
                for chain in range(chains):
                    take(partial, chain * width, (begin + stretch * size + step) * chains + chain)
            across(emitter, partial, chains, width, fold, width)
            with emitter.vector(width) as lane:
                emitter.put(total, lane, fold(total[lane], partial[lane]))
    for k in range(steps * chains, count):
        take(total, 0, k)
    return total


def fold_row(
    scope: Scope, count: int, first: float, element: Callable[[Expr], Expr], fold: Fold, beside: int,
    dtype: str = "float32",
) -> Expr:  # fmt: skip
    """The fold of element(0) ... element(count - 1): in lanes of vectors `beside` each other, then across them."""
    emitter, lanes = scope.emitter, scope.emitter.lanes
    total = emitter.scratch(1, dtype)
    emitter.put(total, 0, const(first, dtype))
    for begin, steps, width in spans(count, beside * lanes, lanes):

        def taken(k: Expr, lane: Expr, width: int = width, begin: int = begin) -> Expr:
            return element(emitter.simplify(begin + k * width + lane))

        partial = fold_columns(scope, steps, width, first, taken, fold, dtype)
        across(emitter, partial, 1, width, fold)
        emitter.put(total, 0, fold(total[0], partial[0]))
    for k in range(count - count % lanes, count):
        with scope.point():
            emitter.put(total, 0, fold(total[0], element(k)))
    return emitter.bind(total[0])


def across(emitter: Emitter, partial: Any, chains: int, lanes: int, fold: Fold, down_to: int = 1) -> None:
    """Folds chains, then halves of the lanes, into the first ones: a tree, for a chain would wait on itself."""
    for chain in range(1, chains):
        with emitter.vector(lanes) as lane:
            emitter.put(partial, lane, fold(partial[lane], partial[chain * lanes + lane]))
    while lanes > down_to:
        lanes //= 2
        with emitter.vector(lanes) as lane:
            emitter.put(partial, lane, fold(partial[lane], partial[lanes + lane]))
