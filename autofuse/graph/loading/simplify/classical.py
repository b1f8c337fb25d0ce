"""Operators of ai.onnx.ml that are arithmetic, written as such: kernels fuse them, and types are known behind.

Scaler(x)   becomes   (x - offset) * scale, for float32; of other numbers ONNX Runtime rounds elsewhere.
"""

from __future__ import annotations

from itertools import count

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

DOMAIN = "ai.onnx.ml"


def with_plain_scalers(model: ModelProto) -> ModelProto:
    """The model with the scalers of float32 numbers replaced; itself where it has none."""
    if not any(_is_scaler(node) for node in model.graph.node):
        return model
    made = ModelProto()
    made.CopyFrom(model)
    write_scalers(made.graph)
    return made


def write_scalers(graph: GraphProto) -> None:
    """Replace the scalers of float32 numbers, in place."""
    if not any(_is_scaler(node) for node in graph.node):
        return
    floats = _floats(graph)
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes += _written(node, taken) if _is_scaler(node) and node.input[0] in floats else [node]
    del graph.node[:]
    graph.node.extend(nodes)


def _is_scaler(node: NodeProto) -> bool:
    named = {one.name: len(one.floats) for one in node.attribute}
    return (node.domain, node.op_type) == (DOMAIN, "Scaler") and bool(named.get("offset") and named.get("scale"))


def _floats(graph: GraphProto) -> set[str]:
    """Names of float32 tensors, as far as the file says it."""
    values = (*graph.input, *graph.value_info)
    found = {value.name for value in values if value.type.tensor_type.elem_type == TensorProto.FLOAT}
    casts = (node for node in graph.node if node.op_type == "Cast" and node.domain in ("", "ai.onnx"))
    return found | {node.output[0] for node in casts if node.attribute[0].i == TensorProto.FLOAT}


def _written(node: NodeProto, taken: set[str]) -> list[NodeProto]:
    values = {one.name: np.asarray(one.floats, np.float32) for one in node.attribute}
    offset, scale, moved = (_fresh(f"{node.output[0]}/{what}", taken) for what in ("offset", "scale", "moved"))
    label = node.name or node.output[0]
    return [
        helper.make_node("Constant", [], [offset], f"{label}/offset", value=numpy_helper.from_array(values["offset"])),
        helper.make_node("Constant", [], [scale], f"{label}/scale", value=numpy_helper.from_array(values["scale"])),
        helper.make_node("Sub", [node.input[0], offset], [moved], f"{label}/moved"),
        helper.make_node("Mul", [moved, scale], [node.output[0]], node.name),
    ]


def _fresh(name: str, taken: set[str]) -> str:
    found = next(one for number in count() if (one := f"{name}{number or ''}") not in taken)
    taken.add(found)
    return found
