"""Single operators that networks hang on: convolutions, products, weights of four bits, softmax, normalisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx
from onnx import helper

from experiments.architectures.decomposed import gelu
from experiments.architectures.draft import IR_VERSION, OPSET, Draft

Build = Callable[[], onnx.ModelProto]
LAYERS = 8
"""Of a chain; even."""
BLOCK = 128
"""Weights of four bits that share a scale."""
MANY, FEW = 40, 8
"""Matrices of 4096 by 4096 weights in 4 bits: 357 MB, more than the last cache of any server here, and 71 MB."""


def dense(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A fully connected layer, its weights as PyTorch exports them (one row a column of the result)."""
    draft = Draft("operator", 0)
    _linear(draft, depth, columns)
    return draft.model({"x": (rows, depth)}, "y", (rows, columns))


def dense_gelu(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    """A fully connected layer and its GELU."""
    draft = Draft("operator", 0)
    gelu(draft, "gelu", _linear(draft, depth, columns))
    return draft.model({"x": (rows, depth)}, "y", (rows, columns))


def _linear(draft: Draft, depth: int, columns: int) -> str:
    weights = draft.constant("w", draft.normal((columns, depth), depth**-0.5))
    return draft.node("Gemm", "dense", ["x", weights, draft.constant("b", draft.normal((columns,), 0.1))], transB=1)


def conv(size: int, image: int, into: int, out_of: int, stride: int = 1, depthwise: bool = False) -> onnx.ModelProto:
    """A convolution of `into` channels of a square image to `out_of`; its window keeps the size where it can."""
    draft, result = Draft("operator", 0), -(-image // stride)
    shape = out_of, 1 if depthwise else into, size, size
    draft.convolution("conv", "x", shape, stride, into if depthwise else 1, bias=0.0)
    return draft.model({"x": (1, into, image, image)}, "y", (1, out_of, result, result))


def chain(size: int, image: int, a: int, b: int, depthwise: bool = False) -> onnx.ModelProto:
    """Convolutions from `a` channels to `b` and back, one behind the other."""
    draft, x = Draft("operator", 0), "x"
    for number in range(LAYERS):
        into, out_of = (b, a) if number % 2 else (a, b)
        shape = out_of, 1 if depthwise else into, size, size
        x = draft.convolution(f"conv{number}", x, shape, 1, into if depthwise else 1, bias=0.0)
    return draft.model({"x": (1, a, image, image)}, "y", (1, a, image, image))


def softmax(*shape: int) -> onnx.ModelProto:
    """Softmax over the last dimension."""
    draft = Draft("operator", 0)
    draft.node("Softmax", "softmax", ["x"], axis=-1)
    return draft.model({"x": shape}, "y", shape)


def layer_norm(*shape: int) -> onnx.ModelProto:
    """LayerNormalization over the last dimension."""
    draft = Draft("operator", 0)
    parts = [draft.constant(name, draft.normal(shape[-1:], 1.0)) for name in ("s", "b")]
    draft.node("LayerNormalization", "norm", ["x", *parts], axis=-1)
    return draft.model({"x": shape}, "y", shape)


def nibbles(layers: int, width: int, level: int) -> onnx.ModelProto:
    """Products of one row by square matrices of 4 bits (MatMulNBits), one behind the other, as a decoder has them.

    `level`: the least accuracy that is asked for (`accuracy_level`): 1 of float32 sums, 4 of activations in bytes.
    """
    draft, x = Draft("operator", 0), "x"
    for number in range(layers):
        codes = draft.random.integers(0, 256, (width, width // BLOCK, BLOCK // 2), np.uint8)
        scales = draft.random.uniform(0.1, 0.3, (width, width // BLOCK)).astype(np.float32) * np.float32(width**-0.5)
        weights = [draft.constant(f"{name}{number}", array) for name, array in (("codes", codes), ("scales", scales))]
        x = draft.node(
            "MatMulNBits", f"product{number}", [x, *weights], domain="com.microsoft", K=width, N=width, bits=4,
            block_size=BLOCK, accuracy_level=level,
        )  # fmt: skip
    draft.nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, width)) for name in ("x", "y")]
    graph = helper.make_graph(draft.nodes, draft.name, ends[:1], ends[1:], draft.weights)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


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
THREES = (64, 56), (128, 28), (256, 14), (512, 7)
"""Channels and pixels of ResNet's 3x3 convolutions."""
DEPTHWISE_MAPS = (32, 112), (144, 56), (192, 28), (384, 14), (576, 14), (960, 7)
"""The same of MobileNetV2's depthwise ones."""
WINDOWS: Mapping[str, Build] = {
    **{f"conv 3x3 {c}->{c}@{image}": partial(conv, 3, image, c, c) for c, image in THREES},
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
    f"depthwise 3x3 {c}@{image}": partial(conv, 3, image, c, c, depthwise=True) for c, image in DEPTHWISE_MAPS
}
DENSE: Mapping[str, Build] = {
    "dense 128x768x768": partial(dense, 128, 768, 768),
    "dense 128x3072x768": partial(dense, 128, 3072, 768),
    "dense 128x768x3072+GELU": partial(dense_gelu, 128, 768, 3072),
}
CHAINS: Mapping[str, Build] = {
    **{
        f"{LAYERS} x conv 3x3 {c}->{c}@{image}": partial(chain, 3, image, c, c)
        for c, image in THREES
    },
    **{
        f"{LAYERS} x conv 1x1 {a}<->{b}@{image}": partial(chain, 1, image, a, b)
        for a, b, image in (
            (64, 256, 56), (128, 512, 28), (256, 1024, 14), (512, 2048, 7), (32, 16, 112), (96, 24, 56), (320, 1280, 7),
        )
    },
    **{
        f"{LAYERS} x depthwise 3x3 {c}@{image}": partial(chain, 3, image, c, c, depthwise=True)
        for c, image in DEPTHWISE_MAPS
    },
}  # fmt: skip
"""As inside a network, where maps stand in whatever layout suits; the single ones begin and end in ONNX's."""
NIBBLES: Mapping[str, Build] = {
    f"{layers} x int4 1x4096x4096, level {level}": partial(nibbles, layers, 4096, level)
    for layers in (FEW, MANY)
    for level in (1, 4)
}
"""Decoding with weights of 4 bits: the limit is the bandwidth of the memory that they come from."""
FAMILIES: Mapping[str, Mapping[str, Build]] = {
    "windows": WINDOWS, "pointwise": POINTWISE, "depthwise": DEPTHWISE, "dense": DENSE, "skinny": SKINNY, "rows": ROWS,
    "chains": CHAINS, "nibbles": NIBBLES,
}  # fmt: skip
