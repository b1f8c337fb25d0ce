"""Inputs that are valid for a model: indices inside their tables, masks of zeros and ones.

Backward tracing. Every operand that indexes a table (Gather, GatherElements, GatherND, Scatter*,
OneHot) must lie in [0, n - 1] of the axis it indexes. The range is traced from there to the graph's
inputs: operators that only move or convert values hand it on; sums, differences, products, Min, Max,
Where, CumSum and Mod hand on a range for each operand that keeps the result inside for certain. Where
several ranges meet at an input, their intersection holds. What an operator bounds by itself (ArgMax,
TopK, a comparison) ends the trace, and so does any operator not named here. An integer or boolean
input under no such range is taken for a mask, or for a flag.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.mapping import names
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.own.recurrence import LENGTHS, is_batch_first
from autofuse.graph.own.rounding import rounded

MASK_DENSITY = 0.9
_IMAGE_DTYPES = ("uint8",)


@dataclass(frozen=True)
class Range:
    """A range of integers, `low` to `high`, both included."""

    low: int
    high: int

    def meet(self, other: Range | None) -> Range:
        """Intersection; self where there is no other."""
        return self if other is None else Range(max(self.low, other.low), min(self.high, other.high))


_NOTHING = Range(1, 0)
_MOVERS = names(
    """BitCast Cast CastLike Ceil DepthToSpace Dropout Expand Flatten Floor Identity Pad Reshape Round SpaceToDepth
    Squeeze Tile Transpose Trilu Unsqueeze Slice Split Gather GatherElements GatherND Relu Clip ReduceMax ReduceMin
    ReduceMean"""
)
"""Operators whose first input's values reach the result (perhaps with zeros, which any table has)."""


def index_ranges(graph: Graph) -> dict[str, Range]:
    """Range that each graph input must keep so that no index leaves its table; absent: no table depends on it."""
    wanted: dict[str, Range] = {}
    for operator in reversed(graph.operators):
        for name, bound in _index_operands(graph, operator):
            wanted[name] = bound.meet(wanted.get(name))
        bounds = [wanted[out] for out in operator.outputs if out in wanted]
        for bound in bounds:
            for name, limit in _through(graph, operator, bound):
                wanted[name] = limit.meet(wanted.get(name))
    return {name: wanted[name] for name in graph.inputs if name in wanted}


def generate_inputs(graph: Graph, seed: int) -> dict[str, NDArray[np.generic]]:
    """Reproducible valid inputs, by name.

    Floats are standard normal. An integer that (or a float whose integral value) indexes a table is
    uniform over its range (see the module); other bool and integer inputs are masks: ones with
    probability 0.9, the first element of each row always set; uint8 is uniform (an image). Inputs that are bfloat16 for
    callers are float32 numbers that are such.
    """
    ranges = index_ranges(graph)
    made: dict[str, NDArray[np.generic]] = {}
    for number, name in enumerate(graph.inputs):
        generator = np.random.default_rng((seed, number))
        values = _values(graph.tensors[name], ranges.get(name), generator)
        made[name] = rounded(values) if name in graph.halves else values
    return made


def _values(tensor: Tensor, bound: Range | None, generator: np.random.Generator) -> NDArray[np.generic]:
    dtype = np.dtype(tensor.dtype)
    if bound is not None and dtype.kind != "b":
        low, high = _clamped(bound, dtype)
        return generator.integers(low, high, size=tensor.shape, endpoint=True).astype(dtype)
    if dtype.kind == "f":
        return generator.standard_normal(tensor.shape).astype(dtype)
    if tensor.dtype in _IMAGE_DTYPES:
        return generator.integers(0, 255, size=tensor.shape, endpoint=True).astype(dtype)
    mask = np.asarray(generator.random(tensor.shape) < MASK_DENSITY)
    if mask.ndim:
        mask[..., :1] = True
    return mask.astype(dtype)


def _clamped(bound: Range, dtype: np.dtype[np.generic]) -> tuple[int, int]:
    """The range within the dtype; non-negative when it can be; one value when it is empty."""
    low, high = max(bound.low, 0) if bound.high >= 0 else bound.low, bound.high
    if dtype.kind in "iu":
        info = np.iinfo(dtype.name)
        low, high = max(low, int(info.min)), min(high, int(info.max))
    return (low, high) if low <= high else (max(high, 0), max(high, 0))


def _index_operands(graph: Graph, operator: Operator) -> list[tuple[str, Range]]:
    """(operand, range) of each input of `operator` that indexes one of its other inputs."""
    axis = operator.attributes.get("axis", 0)
    match operator.op_type:
        case "Gather" | "GatherElements" | "ScatterElements":
            assert isinstance(axis, int)
            return [(operator.inputs[1], Range(0, graph.tensors[operator.inputs[0]].shape[axis] - 1))]
        case "LSTMRecurrence" | "GRURecurrence" | "RNNRecurrence" if operator.inputs[LENGTHS:]:
            steps = graph.tensors[operator.inputs[0]].shape[int(is_batch_first(operator))]
            return [(operator.inputs[LENGTHS], Range(1, steps))]
        case "GatherND" | "ScatterND":
            batch = operator.attributes.get("batch_dims", 0)
            assert isinstance(batch, int)
            depth = graph.tensors[operator.inputs[1]].shape[-1]
            table = graph.tensors[operator.inputs[0]].shape[batch : batch + depth]
            return [(operator.inputs[1], Range(0, min(table, default=1) - 1))]
        case "OneHot":
            depth_value = graph.constants.get(operator.inputs[1])
            if depth_value is not None:
                return [(operator.inputs[0], Range(0, int(depth_value.reshape(-1)[0]) - 1))]
        case "EmbedLayerNormalization":
            tables = {0: 2, 1: 4}
            return [
                (operator.inputs[i], Range(0, graph.tensors[operator.inputs[t]].shape[0] - 1))
                for i, t in tables.items()
                if operator.inputs[i] and operator.inputs[t]
            ]
    return []


def _through(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    """Ranges of the inputs that keep the result of `operator` inside `bound`."""
    if operator.op_type in _MOVERS:
        return [(operator.inputs[0], bound)]
    rule = _RULES.get(operator.op_type)
    return rule(graph, operator, bound) if rule else []


def _span(graph: Graph, name: str) -> tuple[float, float] | None:
    """(least, greatest) value of a constant; None for other tensors."""
    array = graph.constants.get(name)
    if array is None or not array.size:
        return None
    least, greatest = float(np.min(array)), float(np.max(array))
    return (least, greatest) if math.isfinite(least) and math.isfinite(greatest) else None


def _add(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    left, right = operator.inputs[0], operator.inputs[1]
    for name, other in ((left, right), (right, left)):
        span = _span(graph, other)
        if span is not None:
            return [(name, Range(math.ceil(bound.low - span[0]), math.floor(bound.high - span[1])))]
    low, high = bound.low // 2, bound.high // 2
    return [(left, Range(low, high)), (right, Range(bound.low - low, bound.high - high))]


def _sub(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    left, right = operator.inputs[0], operator.inputs[1]
    span = _span(graph, right)
    if span is not None:
        return [(left, Range(math.ceil(bound.low + span[1]), math.floor(bound.high + span[0])))]
    span = _span(graph, left)
    if span is not None:
        return [(right, Range(math.ceil(span[1] - bound.high), math.floor(span[0] - bound.low)))]
    return [(left, Range(bound.high, bound.high)), (right, Range(0, bound.high - max(bound.low, 0)))]


def _mul(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    left, right = operator.inputs[0], operator.inputs[1]
    for name, other in ((left, right), (right, left)):
        span = _span(graph, other)
        if span is not None:
            return [(name, _divided(bound, *span))] if span[0] >= 0 and span[1] > 0 else []
    low = math.isqrt(bound.low - 1) + 1 if bound.low > 0 else 0
    return [(name, Range(low, math.isqrt(max(bound.high, 0)))) for name in (left, right)]


def _divided(bound: Range, least: float, greatest: float) -> Range:
    """Range of x such that x * c stays in `bound` for every c from `least` to `greatest` (not negative)."""
    high = math.floor(bound.high / greatest)
    if bound.low <= 0:
        return Range(math.ceil(bound.low / greatest), high)
    return Range(math.ceil(bound.low / least), high) if least > 0 else _NOTHING


def _div(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    span = _span(graph, operator.inputs[1])
    if span is None or span[0] <= 0:
        return []
    return [(operator.inputs[0], Range(math.ceil(max(bound.low, 0) * span[1]), math.floor(bound.high * span[0])))]


def _every(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    """Max, Min, Concat: each operand inside; nothing helps when a constant among them lies outside."""
    spans = [span for span in (_span(graph, name) for name in operator.inputs) if span is not None]
    low_matters, high_matters = operator.op_type != "Max", operator.op_type != "Min"
    outside = any(
        (low_matters and least < bound.low) or (high_matters and greatest > bound.high) for least, greatest in spans
    )
    return [(name, _NOTHING if outside else bound) for name in operator.inputs if name]


def _scatter(_: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    return [(operator.inputs[0], bound), (operator.inputs[2], bound)]


def _where(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    """Where(x < 0, x + n, x), the wrap of a negative index, asks of x only that it is no negative one."""
    condition, yes, no = operator.inputs
    test, wrapped = graph.producers.get(condition), graph.producers.get(yes)
    if test is not None and wrapped is not None and test.op_type == "Less" and test.inputs[0] == no:
        zero = _span(graph, test.inputs[1])
        if zero == (0.0, 0.0) and wrapped.op_type == "Add" and no in wrapped.inputs:
            return [(no, Range(max(bound.low, 0), bound.high))]
    return [(yes, bound), (no, bound)]


def _cum_sum(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    axis = graph.constants.get(operator.inputs[1])
    shape = graph.tensors[operator.inputs[0]].shape
    length = shape[int(axis.reshape(-1)[0])] if axis is not None else max(shape)
    if bound.low > 0 and operator.attributes.get("exclusive", 0):
        return [(operator.inputs[0], _NOTHING)]
    return [(operator.inputs[0], Range(max(bound.low, 0), bound.high // length))]


def _reduce_sum(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    data, result = graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
    count = max(data.elements // max(result.elements, 1), 1)
    return [(data.name, _divided(Range(max(bound.low, 0), bound.high), count, count))]


def _mod(graph: Graph, operator: Operator, bound: Range) -> list[tuple[str, Range]]:
    span = _span(graph, operator.inputs[1])
    if span is None or span[0] < 1:
        return [(operator.inputs[0], bound)]
    if bound.low <= 0 and span[1] <= bound.high + 1 and not operator.attributes.get("fmod", 0):
        return []
    return [(operator.inputs[0], Range(max(bound.low, 0), min(bound.high, math.floor(span[0]) - 1)))]


_RULES: Mapping[str, Callable[[Graph, Operator, Range], list[tuple[str, Range]]]] = {
    "Add": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Concat": _every,
    "Max": _every,
    "Min": _every,
    "Where": _where,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "CumSum": _cum_sum,
    "ReduceSum": _reduce_sum,
    "Mod": _mod,
}
