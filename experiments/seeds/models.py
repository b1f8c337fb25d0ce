"""The operators that the project began with, each as a model of its own.

- WeeNet (a thread in TVM's forum): Conv 3x3 with 64 channels on 1x64x128x128, BatchNorm, ReLU.
- TVM (OSDI'18, figure 4): conv+bn+relu 128x28x28 with 1x1x128x256, depthwise+bn+relu 512x14x14 with 3x3, an RNN cell
  and an LSTM cell of hidden size 128, written in primitive operators.
- Optimium: pre- and post-fusion around a convolution, three or four operators deep and more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from onnx import ModelProto

from experiments.architectures.small import SmallModel
from experiments.catalogue import build


def norm(model: SmallModel, x: str, channels: int) -> str:
    """BatchNormalization with statistics of its own."""
    draw = model.random
    parts = [draw.uniform(0.6, 1.4, channels), draw.normal(0.1, 0.2, channels), draw.normal(0, 0.2, channels)]
    names = [model.constant(part) for part in (*parts, draw.uniform(0.5, 1.5, channels))]
    return model.node("BatchNormalization", x, *names)


def conv(model: SmallModel, x: str, inputs: int, outputs: int, kernel: int, groups: int = 1) -> str:
    """A convolution that keeps the size of the picture."""
    shape = (outputs, inputs // groups, kernel, kernel)
    weight = model.constant(model.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))
    return model.node("Conv", x, weight, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, group=groups)


def conv_bn_relu(name: str, inputs: int, outputs: int, size: int, kernel: int, groups: int = 1) -> ModelProto:
    """Conv -> BatchNormalization -> Relu."""
    model = SmallModel(name)
    x = conv(model, model.input("x", 1, inputs, size, size), inputs, outputs, kernel, groups)
    return model.build(model.node("Relu", norm(model, x, outputs)), 1, outputs, size, size)


def rnn_cell(hidden: int = 128, batch: int = 1) -> ModelProto:
    """h' = tanh(x W + h U + b)."""
    model = SmallModel("rnn_cell")
    x, h = model.input("x", batch, hidden), model.input("h", batch, hidden)
    weights = [model.constant(model.random.standard_normal((hidden, hidden)) / np.sqrt(hidden)) for _ in range(2)]
    total = model.node("Add", model.node("MatMul", x, weights[0]), model.node("MatMul", h, weights[1]))
    bias = model.constant(model.random.standard_normal(hidden) * 0.1)
    return model.build(model.node("Tanh", model.node("Add", total, bias)), batch, hidden)


def lstm_cell(hidden: int = 128, batch: int = 1) -> ModelProto:
    """The four gates of an LSTM from two products, cut by Slice; the result is the new hidden state."""
    model = SmallModel("lstm_cell")
    x, h, c = (model.input(name, batch, hidden) for name in "xhc")
    weights = [model.constant(model.random.standard_normal((hidden, 4 * hidden)) / np.sqrt(hidden)) for _ in range(2)]
    total = model.node("Add", model.node("MatMul", x, weights[0]), model.node("MatMul", h, weights[1]))
    total = model.node("Add", total, model.constant(model.random.standard_normal(4 * hidden) * 0.1))
    gates = []
    for number, gate in enumerate(("Sigmoid", "Sigmoid", "Tanh", "Sigmoid")):
        bounds = [model.constant(np.array([value])) for value in (number * hidden, (number + 1) * hidden, 1)]
        gates.append(model.node(gate, model.node("Slice", total, *bounds)))
    kept = model.node("Add", model.node("Mul", gates[1], c), model.node("Mul", gates[0], gates[2]))
    return model.build(model.node("Mul", gates[3], model.node("Tanh", kept)), batch, hidden)


def optimium(before: str, after: tuple[str, ...], channels: int = 64, size: int = 56) -> ModelProto:
    """`before` a 3x3 convolution (Add, Pad), then the operators of `after` ("Residual": Add of another input)."""
    model = SmallModel(f"{before.lower()}_conv_{'_'.join(after).lower()}")
    shape = (1, channels, size, size)
    x = model.input("x", *shape)
    if before == "Pad":
        x = model.node("Pad", x, model.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
        weight = model.constant(model.random.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels))
        x = model.node("Conv", x, weight, kernel_shape=[3, 3])
    else:
        x = model.node("Add", x, model.constant(model.random.standard_normal((1, channels, 1, 1))))
        x = conv(model, x, channels, channels, 3)
    for kind in after:
        if kind == "Mul":
            x = model.node("Mul", x, model.constant(model.random.uniform(0.5, 1.5, (1, channels, 1, 1))))
        elif kind == "Residual":
            x = model.node("Add", x, model.input("residual", *shape))
        else:
            x = model.node(kind, x)
    return model.build(x, *shape)


MODELS: dict[str, Callable[[], ModelProto]] = {
    "weenet": partial(build, "weenet"),
    "conv_bn_relu": lambda: conv_bn_relu("conv_bn_relu", 128, 256, 28, 1),
    "depthwise_bn_relu": lambda: conv_bn_relu("depthwise_bn_relu", 512, 512, 14, 3, 512),
    "rnn_cell": rnn_cell,
    "lstm_cell": lstm_cell,
    "add_conv_mul_relu": lambda: optimium("Add", ("Mul", "Relu")),
    "pad_conv_relu": lambda: optimium("Pad", ("Relu",)),
    "add_conv_mul_residual_relu": lambda: optimium("Add", ("Mul", "Residual", "Relu")),
    "pad_conv_mul_residual_hardswish": lambda: optimium("Pad", ("Mul", "Residual", "HardSwish")),
}
