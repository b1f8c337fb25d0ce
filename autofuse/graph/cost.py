"""What operators cost by themselves: floating-point operations and bytes moved.

Conventions: a multiply-add is 2 FLOPs; an elementwise operator is 1 per output element, whatever its
function; moving data (Reshape, Transpose, Concat, Gather, ...) is 0. Bytes are those of dense tensors,
each tensor read once and written once; an operator that picks elements (Slice, Split, Gather, ...)
reads as many as it writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.graph.mapping import POINTWISE
from autofuse.graph.model import Graph, Operator

_EXPENSIVE = """
    Acos Acosh Asin Asinh Atan Atanh BiasGelu ByteLookup Celu Cos Cosh Elu Erf Exp FastGelu Gelu Log Mish Mod Pow Selu
    Sigmoid Sin Sinh Softplus SwiGLU Swish Tan Tanh
"""
EXPENSIVE = frozenset(_EXPENSIVE.split())
"""Pointwise operators that take ten operations or more an element: recomputing them below a broadcast can lose, and one
behind another waits for it."""
_PER_ELEMENT = {
    "BatchNormalization": 2,  # one scale, one shift: the rest is known beforehand
    "DequantizeLinear": 2,
    "DynamicQuantizeLinear": 4,
    "GroupNormalization": 8,
    "Hardmax": 2,
    "InstanceNormalization": 8,
    "LayerNormalization": 8,  # mean 1, centre 1, square and sum 2, scale by 1/std 1, gamma 1, beta 1, root and eps ~1
    "LogSoftmax": 5,
    "LpNormalization": 3,
    "LRN": 5,
    "MeanVarianceNormalization": 6,
    "PRelu": 2,
    "QuantizeLinear": 3,
    "RMSNormalization": 5,
    "SkipLayerNormalization": 9,
    "Softmax": 5,  # maximum, subtract, exp, sum, divide
}
_STEPS_OF_A_GATE = 3
"""Of a recurrence beside its product: the input's part, the activation, its part in the new state."""
_PICKERS = frozenset(("Gather", "GatherElements", "GatherND", "Slice", "Split"))
_VARIADIC = frozenset(("Sum", "Max", "Min", "Mean"))
_FREE = frozenset(("Identity", "Cast", "CastLike", "BitCast"))


@dataclass(frozen=True)
class Cost:
    """A cost: `flops`, floating-point operations; `bytes_read`, `bytes_written`, of dense tensors."""

    flops: int
    bytes_read: int
    bytes_written: int


def operator_cost(graph: Graph, operator: Operator) -> Cost:
    """Cost of one operator run alone."""
    written = written_bytes(graph, operator)
    sizes = {name: graph.tensors[name].size_bytes for name in operator.inputs if name}
    read = sum(min(size, written) if _picks(operator, name) else size for name, size in sizes.items())
    return Cost(flops(graph, operator), read, written)


def group_cost(graph: Graph, operators: Sequence[str], *, weights: bool = True) -> Cost:
    """Cost of operators run as one kernel: their FLOPs, the bytes of the tensors at the boundary.

    `weights`: whether constants are read, too.
    """
    reads, writes = graph.boundary(operators)
    nodes = [graph.by_name[name] for name in operators]
    read = 0
    for name in reads:
        if not weights and name in graph.constants:
            continue
        users = [node for node in nodes if name in node.inputs]
        picked = sum(written_bytes(graph, node) for node in users if _picks(node, name))
        whole = graph.tensors[name].size_bytes
        read += min(picked, whole) if all(_picks(node, name) for node in users) else whole
    written = sum(graph.tensors[name].size_bytes for name in writes)
    return Cost(sum(flops(graph, node) for node in nodes), read, written)


def intermediate_bytes(graph: Graph) -> int:
    """Bytes of all results of operators that are not outputs of the graph (the paper's IRS)."""
    outputs = set(graph.outputs)
    made = (name for operator in graph.operators for name in operator.outputs if name and name not in outputs)
    return sum(graph.tensors[name].size_bytes for name in made)


def written_bytes(graph: Graph, operator: Operator) -> int:
    """Bytes of all that an operator makes."""
    return sum(graph.tensors[name].size_bytes for name in operator.outputs if name)


def _picks(operator: Operator, name: str) -> bool:
    """Whether the operator reads only some elements of `name`."""
    return operator.op_type in _PICKERS and operator.inputs[0] == name and name not in operator.inputs[1:]


def flops(graph: Graph, operator: Operator) -> int:
    """Floating-point operations of one operator; integer operators count the same way."""
    if not any(operator.outputs):
        return 0
    out = graph.tensors[next(name for name in operator.outputs if name)].elements
    first = graph.tensors[operator.inputs[0]] if operator.inputs and operator.inputs[0] else None
    kind = operator.op_type
    if kind in _FREE or first is None:
        return 0
    if kind in POINTWISE:
        steps = sum(1 for name in operator.inputs if name) - 1 if kind in _VARIADIC else 1
        return out * max(1, steps)
    if kind in _PER_ELEMENT:
        return first.elements * _PER_ELEMENT[kind]
    if kind.startswith("Reduce"):
        return first.elements * (2 if kind in ("ReduceL2", "ReduceLogSumExp", "ReduceSumSquare") else 1)
    if kind.startswith("Global") or kind in ("ArgMax", "ArgMin", "CumSum", "CumProd"):
        return first.elements
    return _structured_flops(graph, operator, out)


def _structured_flops(graph: Graph, operator: Operator, out: int) -> int:
    shapes = [graph.tensors[name].shape if name else () for name in operator.inputs]
    match operator.op_type:
        case "Conv" | "Bfloat16Conv":
            return out * (2 * math.prod(shapes[1][1:]) + _has(operator, 2))
        case "ConvInteger" | "DeformConv":
            return out * 2 * math.prod(shapes[1][1:])
        case "QLinearConv":
            return out * 2 * math.prod(shapes[3][1:])
        case "ConvTranspose":
            return 2 * math.prod(shapes[0]) * math.prod(shapes[1][1:]) + out * _has(operator, 2)
        case "Gemm":
            inner = shapes[0][0 if operator.attributes.get("transA", 0) else 1]
            return out * (2 * inner + _has(operator, 2))
        case "MatMul" | "MatMulInteger" | "MatMulInteger16" | "QLinearMatMul" | "WeightOnlyMatMul" | "Bfloat16MatMul":
            return out * 2 * shapes[0][-1]
        case "LSTMRecurrence" | "GRURecurrence" | "RNNRecurrence":
            return math.prod(shapes[0]) * (2 * shapes[1][-1] + _STEPS_OF_A_GATE)
        case "Einsum":
            return _einsum_flops(operator, shapes)
        case "Attention":
            return _attention_flops(shapes)
    return _window_flops(operator, shapes, out)


def _window_flops(operator: Operator, shapes: list[tuple[int, ...]], out: int) -> int:
    match operator.op_type:
        case "AveragePool" | "MaxPool" | "LpPool":
            kernel = operator.attributes.get("kernel_shape", ())
            assert isinstance(kernel, tuple)
            return out * math.prod(int(size) for size in kernel)
        case "Resize" | "Upsample":
            mode = operator.attributes.get("mode", "nearest")
            spatial = max(len(shapes[0]) - 2, 1)
            return 0 if mode == "nearest" else out * 2 * (2 if mode == "linear" else 4) ** spatial
        case "RoiAlign" | "GridSample":
            return out * 8
        case "ScatterND" | "ScatterElements":
            return math.prod(shapes[2]) if operator.attributes.get("reduction", "none") != "none" else 0
    return 0


def _has(operator: Operator, index: int) -> int:
    return 1 if len(operator.inputs) > index and operator.inputs[index] else 0


def _einsum_flops(operator: Operator, shapes: list[tuple[int, ...]]) -> int:
    """A multiply-add for every combination of index values, once for each operand but the first."""
    equation = str(operator.attributes.get("equation", "")).replace(" ", "")
    sizes: dict[str, int] = {}
    rest = 1
    for term, shape in zip(equation.split("->")[0].split(","), shapes, strict=False):
        before, dots, after = term.partition("...")
        sizes.update(zip(before, shape, strict=False))
        if dots:
            sizes.update(zip(after, shape[len(shape) - len(after) :], strict=False))
            rest = max(rest, math.prod(shape[len(before) : len(shape) - len(after)]))
    return 2 * max(len(shapes) - 1, 1) * rest * math.prod(sizes.values())


def _attention_flops(shapes: list[tuple[int, ...]]) -> int:
    """Scores and their product with the values, and a softmax; 4-d (batch, heads, length, size) or 3-d inputs."""
    query, key, value = shapes[0], shapes[1], shapes[2]
    scores = 2 * int(np.prod(query)) * key[-2]
    results = 2 * int(np.prod(query[:-1])) * key[-2] * value[-1]
    return scores + results + 5 * int(np.prod(query[:-1])) * key[-2]
