"""Folding BatchNormalization into the operator before it, or after it, site by site.

Conv(w, b) -> BatchNormalization   becomes   Conv(w', b'), with s = gamma / sqrt(var + eps):
w' = w * s, b' = (b - mean) * s + beta; ConvTranspose and Gemm likewise (for Gemm, b is beta * C).

Where that is impossible, forward (`autofuse.graph.transform.fold_forward`):

BatchNormalization -> Conv(w, b)   becomes   Conv(w', b'), if no window reaches into padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import PlanError
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.fold_forward import (
    affine,
    fold_forward,
    forward_refusal,
    number,
    pruned,
    unused,
    without_beta,
)

_PRODUCERS = ("Conv", "ConvTranspose", "Gemm")


def fold_sites(graph: Graph) -> tuple[str, ...]:
    """Names of the BatchNormalization operators that can be folded, in topological order."""
    norms = (operator.name for operator in graph.operators if operator.op_type == "BatchNormalization")
    return tuple(name for name in norms if fold_refusal(graph, name) is None)


def folds_forward(graph: Graph, name: str) -> bool:
    """Whether the operator, if it can be folded at all, is folded into the one after it."""
    return _backward_refusal(graph, name) is not None and forward_refusal(graph, name) is None


def fold_refusal(graph: Graph, name: str) -> str | None:
    """Why the operator can be folded neither backward nor forward; None when it can."""
    backward = _backward_refusal(graph, name)
    return None if backward is None or forward_refusal(graph, name) is None else backward


def _backward_refusal(graph: Graph, name: str) -> str | None:
    """Why the operator cannot be folded into the one before it; None when it can."""
    norm = graph.by_name.get(name)
    if norm is None:
        return "the graph has no such operator"
    if norm.op_type != "BatchNormalization":
        return f"it is {norm.op_type}, not BatchNormalization"
    if norm.attributes.get("training_mode", 0) or sum(bool(out) for out in norm.outputs) != 1:
        return "it is in training mode"
    producer = graph.producers.get(norm.inputs[0])
    if producer is None or producer.op_type not in _PRODUCERS:
        found = "an input of the graph" if producer is None else f"{producer.name} ({producer.op_type})"
        return f"its input comes from {found}, not from {', '.join(_PRODUCERS)}"
    if norm.inputs[0] in graph.outputs:
        return f"{norm.inputs[0]} is an output of the graph"
    readers = [user.name for user in graph.consumers[norm.inputs[0]]]
    if len(readers) != 1 or norm.inputs[0] in norm.inputs[1:]:
        return f"{norm.inputs[0]} is also read by {', '.join(user for user in readers if user != name)}"
    open_inputs = [n for n in (*norm.inputs[1:], *producer.inputs[1:]) if n and n not in graph.constants]
    if open_inputs:
        return f"{open_inputs[0]} is not constant"
    if producer.op_type == "Gemm" and len(graph.tensors[norm.inputs[0]].shape) != 2:
        return "its input is no matrix"
    scale, shift = affine(graph, norm)
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return "its statistics are not finite, or a variance is negative"
    return None


def fold(graph: Graph, names: Iterable[str]) -> Graph:
    """The graph with exactly these BatchNormalization operators folded.

    The producer keeps its name and takes over the BatchNormalization's result; it reads new constants
    `<producer>/folded_weight` and `<producer>/folded_bias`. (Folded forward, the consumer takes over its input and
    reads such constants.) Arithmetic is in float64, the result has
    the weight's dtype. PlanError for an operator that cannot be folded, with the reason.
    """
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        reason = fold_refusal(graph, name)
        if reason is not None:
            raise PlanError(f"cannot fold {name}: {reason}")
    forward = [name for name in wanted if folds_forward(graph, name)]
    for name in forward:
        graph = fold_forward(graph, name)
    wanted = [name for name in wanted if name not in forward]
    if not wanted:
        return graph
    replaced: dict[str, Operator] = {}
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    for name in wanted:
        norm = graph.by_name[name]
        producer = graph.producers[norm.inputs[0]]
        made = _folded_constants(graph, producer, norm)
        fresh = {unused(f"{producer.name}/folded_{label}", tensors): array for label, array in made.items()}
        for key, array in fresh.items():
            array.setflags(write=False)
            constants[key], tensors[key] = array, Tensor(key, array.shape, array.dtype.name)
        inputs = (producer.inputs[0], *fresh)
        replaced[producer.name] = replace(
            producer, inputs=inputs, outputs=norm.outputs, attributes=without_beta(producer)
        )
    gone = set(wanted)
    operators = tuple(replaced.get(op.name, op) for op in graph.operators if op.name not in gone)
    return pruned(graph, operators, tensors, constants)


def _folded_constants(graph: Graph, producer: Operator, norm: Operator) -> dict[str, NDArray[np.generic]]:
    scale, shift = affine(graph, norm)
    weight = graph.constants[producer.inputs[1]]
    given = producer.inputs[2] if len(producer.inputs) > 2 else ""
    bias = np.asarray(graph.constants[given], dtype=np.float64) if given else np.zeros(())
    if producer.op_type == "Gemm":
        bias = bias * number(producer, "beta", 1.0)
        factor = scale[:, None] if producer.attributes.get("transB", 0) else scale[None, :]
    elif producer.op_type == "ConvTranspose":
        groups = int(number(producer, "group", 1))
        rows = weight.shape[0] // groups
        factor = np.repeat(scale.reshape(groups, 1, -1), rows, axis=1).reshape(weight.shape[:2])
        factor = factor.reshape(*weight.shape[:2], *(1,) * (weight.ndim - 2))
    else:
        factor = scale.reshape(-1, *(1,) * (weight.ndim - 1))
    folded = bias * scale + shift  # a scalar, a vector of channels or a whole matrix C of Gemm
    product: NDArray[np.generic] = np.multiply(weight, factor, dtype=np.float64).astype(weight.dtype)
    return {"weight": product, "bias": folded.astype(weight.dtype)}
