"""Single operators that whole networks hang on: products of few rows, softmax and normalisation of awkward widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Build = Callable[[], onnx.ModelProto]


def _model(
    node: onnx.NodeProto, x: tuple[int, ...], y: tuple[int, ...], constants: Mapping[str, tuple[int, ...]]
) -> onnx.ModelProto:
    """A network of one operator from "x" to "y"; its constants are normal numbers."""
    generator = np.random.default_rng(0)
    held = [
        numpy_helper.from_array(generator.standard_normal(shape, np.float32) / np.float32(max(shape) ** 0.5), name)
        for name, shape in constants.items()
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", x), ("y", y))]
    graph = helper.make_graph([node], "operator", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def dense(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A fully connected layer, its weights as PyTorch exports them (one row a column of the result)."""
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    return _model(node, (rows, depth), (rows, columns), {"w": (columns, depth), "b": (columns,)})


def softmax(*shape: int) -> onnx.ModelProto:
    """Softmax over the last dimension."""
    return _model(helper.make_node("Softmax", ["x"], ["y"], axis=-1), shape, shape, {})


def layer_norm(*shape: int) -> onnx.ModelProto:
    """LayerNormalization over the last dimension."""
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)
    return _model(node, shape, shape, {"s": shape[-1:], "b": shape[-1:]})


SKINNY: Mapping[str, Build] = {
    "vgg16 fc1 1x25088x4096": partial(dense, 1, 25088, 4096),
    "vgg16 fc2 1x4096x4096": partial(dense, 1, 4096, 4096),
    "vgg16 fc3 1x4096x1000": partial(dense, 1, 4096, 1000),
    "resnet50 1x2048x1000": partial(dense, 1, 2048, 1000),
    "mobilenet 1x1280x1000": partial(dense, 1, 1280, 1000),
    "gpt2 vocabulary 1x768x50257": partial(dense, 1, 768, 50257),
    "gpt2 vocabulary 8x768x50257": partial(dense, 8, 768, 50257),
    "dense 2x4096x4096": partial(dense, 2, 4096, 4096),
    "dense 4x4096x4096": partial(dense, 4, 4096, 4096),
    "dense 8x4096x4096": partial(dense, 8, 4096, 4096),
    "dense 16x4096x4096": partial(dense, 16, 4096, 4096),
}
ROWS: Mapping[str, Build] = {
    "softmax 12x128x128": partial(softmax, 1, 12, 128, 128),
    "softmax 12x384x384": partial(softmax, 1, 12, 384, 384),
    "softmax 128x768": partial(softmax, 128, 768),
    "softmax 256x1000": partial(softmax, 256, 1000),
    "softmax 256x1001": partial(softmax, 256, 1001),
    "softmax 12x197x197": partial(softmax, 1, 12, 197, 197),
    "layer_norm 128x768": partial(layer_norm, 128, 768),
    "layer_norm 128x312": partial(layer_norm, 128, 312),
    "layer_norm 384x1000": partial(layer_norm, 384, 1000),
}
FAMILIES: Mapping[str, Mapping[str, Build]] = {"skinny": SKINNY, "rows": ROWS}
