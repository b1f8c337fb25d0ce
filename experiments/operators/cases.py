"""Single operators that whole networks hang on: convolutions, products, softmax and normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Build = Callable[[], onnx.ModelProto]


def _model(
    nodes: Sequence[onnx.NodeProto], x: tuple[int, ...], y: tuple[int, ...], constants: Mapping[str, tuple[int, ...]]
) -> onnx.ModelProto:
    """A network of one operator, or of one and its activation, from "x" to "y"; its constants are normal numbers."""
    generator = np.random.default_rng(0)
    held = [
        numpy_helper.from_array(generator.standard_normal(shape, np.float32) / np.float32(max(shape) ** 0.5), name)
        for name, shape in constants.items()
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", x), ("y", y))]
    graph = helper.make_graph(nodes, "operator", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def dense(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A fully connected layer, its weights as PyTorch exports them (one row a column of the result)."""
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    return _model([node], (rows, depth), (rows, columns), {"w": (columns, depth), "b": (columns,)})


def dense_gelu(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A fully connected layer and its GELU."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["d"], transB=1),
        helper.make_node("Div", ["d", "root"], ["r"]),
        helper.make_node("Erf", ["r"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["a"]),
        helper.make_node("Mul", ["d", "a"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["y"]),
    ]
    made = _model(nodes, (rows, depth), (rows, columns), {"w": (columns, depth), "b": (columns,)})
    for name, value in {"root": 2**0.5, "one": 1.0, "half": 0.5}.items():
        made.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    return made


def conv(size: int, image: int, into: int, out_of: int, stride: int = 1, depthwise: bool = False) -> onnx.ModelProto:
    """A convolution of `into` channels of a square image to `out_of`; its window keeps the size where it can."""
    result, pad = -(-image // stride), (size - 1) // 2
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], kernel_shape=[size, size], pads=[pad] * 4, strides=[stride] * 2,
        group=into if depthwise else 1,
    )  # fmt: skip
    weights = out_of, 1 if depthwise else into, size, size
    return _model([node], (1, into, image, image), (1, out_of, result, result), {"w": weights, "b": (out_of,)})


def softmax(*shape: int) -> onnx.ModelProto:
    """Softmax over the last dimension."""
    return _model([helper.make_node("Softmax", ["x"], ["y"], axis=-1)], shape, shape, {})


def layer_norm(*shape: int) -> onnx.ModelProto:
    """LayerNormalization over the last dimension."""
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)
    return _model([node], shape, shape, {"s": shape[-1:], "b": shape[-1:]})


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
WINDOWS: Mapping[str, Build] = {
    **{
        f"conv 3x3 {c}->{c}@{image}": partial(conv, 3, image, c, c)
        for c, image in ((64, 56), (128, 28), (256, 14), (512, 7))
    },
    "conv 7x7 s2 3->64@224": partial(conv, 7, 224, 3, 64, 2),
    "conv 3x3 s2 3->32@224": partial(conv, 3, 224, 3, 32, 2),
}
POINTWISE: Mapping[str, Build] = {
    f"conv 1x1 {a}->{b}@{image}": partial(conv, 1, image, a, b)
    for a, b, image in (
        (64, 256, 56), (256, 64, 56), (128, 512, 28), (512, 128, 28), (256, 1024, 14), (1024, 256, 14),
        (512, 2048, 7), (32, 16, 112), (96, 24, 56), (320, 1280, 7),
    )
}  # fmt: skip
DEPTHWISE: Mapping[str, Build] = {
    f"depthwise 3x3 {c}@{image}": partial(conv, 3, image, c, c, depthwise=True)
    for c, image in ((32, 112), (144, 56), (192, 28), (384, 14), (576, 14), (960, 7))
}
DENSE: Mapping[str, Build] = {
    "dense 128x768x768": partial(dense, 128, 768, 768),
    "dense 128x3072x768": partial(dense, 128, 3072, 768),
    "dense 128x768x3072+GELU": partial(dense_gelu, 128, 768, 3072),
}
FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "windows": WINDOWS, "pointwise": POINTWISE, "depthwise": DEPTHWISE, "dense": DENSE, "skinny": SKINNY, "rows": ROWS,
}  # fmt: skip
