"""Weights of four bits in a file: graphs hold them as int8, which stands for the same numbers, files as int4."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

LOW, HIGH = -8, 7
"""The integers that four bits hold."""


def pack_nibbles(model: ModelProto) -> None:
    """Make int4, in place, of each int8 weight that four bits hold and that is only dequantised in blocks."""
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for tensor in model.graph.initializer:
        able = all(_takes(node, tensor.name) for node in readers.get(tensor.name, [NodeProto()]))
        if tensor.data_type == TensorProto.INT8 and able:
            codes = numpy_helper.to_array(tensor)
            if codes.size and codes.min() >= LOW and codes.max() <= HIGH:
                tensor.CopyFrom(_packed(tensor.name, codes))


def _takes(node: NodeProto, name: str) -> bool:
    """Whether a node dequantises a tensor around 0 in blocks."""
    blocked = any(attribute.name == "block_size" for attribute in node.attribute)
    return node.op_type == "DequantizeLinear" and blocked and list(node.input[:1]) == [name] and len(node.input) == 2


def _packed(name: str, codes: NDArray[Any]) -> TensorProto:
    flat = (codes.reshape(-1) & 15).astype(np.uint8)
    even = np.pad(flat, (0, flat.size % 2))
    return helper.make_tensor(name, TensorProto.INT4, codes.shape, (even[::2] | (even[1::2] << 4)).tobytes(), raw=True)
