"""Weights of four bits in a file: graphs hold them as int8, which stands for the same numbers, files as int4."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

LOW, HIGH = -8, 7
"""The integers that four bits hold."""
_INT4 = helper.tensor_dtype_to_np_dtype(TensorProto.INT4)


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
                tensor.CopyFrom(numpy_helper.from_array(codes.astype(_INT4), tensor.name))


def _takes(node: NodeProto, name: str) -> bool:
    """Whether a node dequantises a tensor around 0 in blocks."""
    blocked = any(attribute.name == "block_size" for attribute in node.attribute)
    return node.op_type == "DequantizeLinear" and blocked and list(node.input[:1]) == [name] and len(node.input) == 2
