"""Folding BatchNormalization into the operator after it: for what `fold` finds no operator before.

BatchNormalization -> Conv(w, b)   becomes   Conv(w', b'), with x -> s * x + t for the BatchNormalization:
w' = w * s (by input channel), b' = b + sum of w * t. A pixel of padding is 0, not t: so either no window reaches into
padding, or every t is 0. Gemm likewise, by rows of its matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor

Array64 = NDArray[np.float64]


def forward_refusal(graph: Graph, name: str) -> str | None:
    """Why a BatchNormalization cannot be folded into the operator after it; None when it can."""
    norm = graph.by_name.get(name)
    if norm is None or norm.op_type != "BatchNormalization":
        return "it is no BatchNormalization"
    if norm.attributes.get("training_mode", 0) or sum(bool(out) for out in norm.outputs) != 1:
        return "it is in training mode"
    result = norm.outputs[0]
    readers = graph.consumers[result]
    if result in graph.outputs or len(readers) != 1:
        return f"{result} is needed by others than one operator"
    consumer = readers[0]
    if consumer.op_type not in ("Conv", "Gemm") or consumer.inputs.count(result) != 1 or consumer.inputs[0] != result:
        return f"its reader is {consumer.name} ({consumer.op_type})"
    open_inputs = [n for n in (*norm.inputs[1:], *consumer.inputs[1:]) if n and n not in graph.constants]
    if open_inputs:
        return f"{open_inputs[0]} is not constant"
    if consumer.op_type == "Gemm" and (len(graph.tensors[result].shape) != 2 or consumer.attributes.get("transA", 0)):
        return f"{consumer.name} reads it transposed"
    scale, shift = affine(graph, norm)
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return "its statistics are not finite, or a variance is negative"
    if consumer.op_type == "Conv" and shift.any() and _padded(consumer):
        return f"{consumer.name} pads its input"
    return None


def _padded(conv: Operator) -> bool:
    pads = conv.attributes.get("pads", ())
    assert isinstance(pads, tuple)
    return any(pads) or conv.attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")


def fold_forward(graph: Graph, name: str) -> Graph:
    """The graph with one BatchNormalization folded into its reader, which `forward_refusal` has allowed."""
    norm = graph.by_name[name]
    consumer = graph.consumers[norm.outputs[0]][0]
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    fresh = {}
    for label, array in _folded_constants(graph, norm, consumer).items():
        key = unused(f"{consumer.name}/folded_{label}", tensors)
        array.setflags(write=False)
        constants[key], tensors[key] = array, Tensor(key, array.shape, array.dtype.name)
        fresh[key] = array
    inputs = (norm.inputs[0], *fresh)
    folded = replace(consumer, inputs=inputs, attributes=without_beta(consumer))
    operators = tuple(folded if op.name == consumer.name else op for op in graph.operators if op.name != name)
    return pruned(graph, operators, tensors, constants)


def _folded_constants(graph: Graph, norm: Operator, consumer: Operator) -> dict[str, NDArray[np.generic]]:
    scale, shift = affine(graph, norm)
    weight = np.asarray(graph.constants[consumer.inputs[1]])
    exact = weight.astype(np.float64)
    given = consumer.inputs[2] if len(consumer.inputs) > 2 else ""
    bias = np.asarray(graph.constants[given], dtype=np.float64) if given else np.zeros(())
    if consumer.op_type == "Gemm":
        bias = bias * number(consumer, "beta", 1.0)
        transposed = bool(consumer.attributes.get("transB", 0))
        factor, rows = (scale[None, :], exact.T) if transposed else (scale[:, None], exact)
        moved = number(consumer, "alpha", 1.0) * (shift @ rows)
    else:
        groups = int(number(consumer, "group", 1))
        channels = weight.shape[1]  # of one group
        ones = (1,) * (weight.ndim - 2)
        factor = np.repeat(scale.reshape(groups, channels), weight.shape[0] // groups, axis=0)
        shifts = np.repeat(shift.reshape(groups, channels), weight.shape[0] // groups, axis=0)
        moved = (exact * shifts.reshape(*shifts.shape, *ones)).reshape(weight.shape[0], -1).sum(axis=1)
        factor = factor.reshape(*factor.shape, *ones)
    return {"weight": (exact * factor).astype(weight.dtype), "bias": (bias + moved).astype(weight.dtype)}


def affine(graph: Graph, norm: Operator) -> tuple[Array64, Array64]:
    """(scale, shift) of each channel: BatchNormalization(x) = scale * x + shift."""
    gamma, beta, mean, variance = (np.asarray(graph.constants[n], dtype=np.float64) for n in norm.inputs[1:5])
    epsilon = norm.attributes.get("epsilon", 1e-5)
    assert isinstance(epsilon, float)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(np.where(variance < 0, np.nan, variance) + epsilon)
        return scale, beta - mean * scale


def number(operator: Operator, name: str, default: float) -> float:
    """A numeric attribute."""
    value = operator.attributes.get(name, default)
    assert isinstance(value, int | float)
    return value


def without_beta(operator: Operator) -> Mapping[str, AttributeValue]:
    """Attributes of an operator whose new bias holds Gemm's factor beta already."""
    return {name: value for name, value in operator.attributes.items() if name != "beta"}


def unused(name: str, tensors: Mapping[str, Tensor]) -> str:
    """`name`, or `name` with a number that no tensor has."""
    count, found = 0, name
    while found in tensors:
        count += 1
        found = f"{name}_{count}"
    return found


def pruned(
    graph: Graph,
    operators: tuple[Operator, ...],
    tensors: Mapping[str, Tensor],
    constants: Mapping[str, NDArray[np.generic]],
) -> Graph:
    """The graph with other operators, and of the tensors and constants what they still use."""
    used = dict.fromkeys(graph.inputs)
    used.update((name, None) for op in operators for name in (*op.inputs, *op.outputs) if name)
    return replace(
        graph,
        operators=operators,
        tensors={name: tensors[name] for name in used},
        constants={name: constants[name] for name in used if name in constants},
    )
