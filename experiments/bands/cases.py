"""Neighbouring convolutions of public networks, in their own sizes, with their weights folded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import ModelProto

from experiments.architectures.small import SmallModel


def _conv(model: SmallModel, x: str, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    shape = (outputs, inputs // groups, kernel, kernel)
    weight = model.constant(model.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))
    bias = model.constant(model.random.standard_normal(outputs) * 0.1)
    return model.node(
        "Conv", x, weight, bias, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2, group=groups
    )


def _relu6(model: SmallModel, x: str) -> str:
    return model.node("Clip", x, model.constant(np.float32(0)), model.constant(np.float32(6)))


def separable(channels: int, outputs: int, size: int, stride: int = 1) -> ModelProto:
    """Depthwise 3x3, then pointwise, as in MobileNetV1."""
    model = SmallModel(f"separable_{channels}_{size}")
    x = _conv(model, model.input("x", 1, channels, size, size), channels, channels, 3, stride, channels)
    x = _conv(model, model.node("Relu", x), channels, outputs, 1)
    return model.build(model.node("Relu", x), 1, outputs, size // stride, size // stride)


def inverted_residual(channels: int, size: int, expansion: int = 6) -> ModelProto:
    """Pointwise, depthwise 3x3, pointwise and the sum with the input, as in MobileNetV2."""
    model = SmallModel(f"inverted_residual_{channels}_{size}")
    x = model.input("x", 1, channels, size, size)
    wide = channels * expansion
    y = _relu6(model, _conv(model, x, channels, wide, 1))
    y = _relu6(model, _conv(model, y, wide, wide, 3, 1, wide))
    return model.build(model.node("Add", _conv(model, y, wide, channels, 1), x), 1, channels, size, size)


def basic_block(channels: int, size: int) -> ModelProto:
    """Two 3x3 convolutions and the sum with the input, as in ResNet-18."""
    model = SmallModel(f"basic_block_{channels}_{size}")
    x = model.input("x", 1, channels, size, size)
    y = _conv(model, model.node("Relu", _conv(model, x, channels, channels, 3)), channels, channels, 3)
    return model.build(model.node("Relu", model.node("Add", y, x)), 1, channels, size, size)


def pooled(inputs: int, channels: int, size: int) -> ModelProto:
    """A 3x3 convolution and the pool behind it, as in VGG."""
    model = SmallModel(f"pooled_{channels}_{size}")
    x = _conv(model, model.input("x", 1, inputs, size, size), inputs, channels, 3)
    x = model.node("MaxPool", model.node("Relu", x), kernel_shape=[2, 2], strides=[2, 2])
    return model.build(x, 1, channels, size // 2, size // 2)


CASES: dict[str, Callable[[], ModelProto]] = {
    "separable_32_112": lambda: separable(32, 64, 112),
    "separable_128_56": lambda: separable(128, 128, 56),
    "separable_512_14": lambda: separable(512, 512, 14),
    "inverted_residual_24_56": lambda: inverted_residual(24, 56),
    "inverted_residual_96_14": lambda: inverted_residual(96, 14),
    "basic_block_64_56": lambda: basic_block(64, 56),
    "basic_block_256_14": lambda: basic_block(256, 14),
    "pooled_64_224": lambda: pooled(3, 64, 224),
    "pooled_128_112": lambda: pooled(64, 128, 112),
}
