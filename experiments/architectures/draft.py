"""A network under construction: nodes and random weights, until `model` makes an ONNX model of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9
HE = math.sqrt(2.0)
"""Gain of the weights before a ReLU: its results have the scale of what the convolution read."""


class Draft:
    """Each method appends operators and returns the name of their result; `seed` fixes every weight."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.random = name, np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def constant(self, name: str, value: NDArray[np.generic]) -> str:
        """A weight."""
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def scalar(self, name: str, value: float) -> str:
        """A constant without axes."""
        return self.constant(name, np.array(value, np.float32))

    def node(self, op_type: str, name: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Any operator with one result."""
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    def split(self, name: str, x: str, sizes: str, count: int, axis: int) -> tuple[str, ...]:
        """The parts of a tensor along an axis; `sizes`: a constant of their lengths."""
        results = tuple(f"{name}.out{number}" for number in range(count))
        self.nodes.append(helper.make_node("Split", [x, sizes], list(results), name=name, axis=axis))
        return results

    def normal(self, shape: Sequence[int], deviation: float) -> NDArray[np.float32]:
        """Normally distributed weights around zero."""
        return self.random.standard_normal(tuple(shape), np.float32) * np.float32(deviation)

    def convolution(
        self, name: str, x: str, shape: tuple[int, int, int, int], stride: int = 1, groups: int = 1,
        *, pad: int | None = None, bias: float | None = None, gain: float = HE,
    ) -> str:  # fmt: skip
        """Convolution with weights of `shape` (out, in a group, rows, columns).

        Pads to "same" unless `pad` says otherwise. `bias`: its mean; None for no bias.
        """
        inputs = [x, self.constant(f"{name}.weight", self.normal(shape, gain / math.sqrt(math.prod(shape[1:]))))]
        if bias is not None:
            inputs.append(self.constant(f"{name}.bias", self.normal(shape[:1], 0.1) + np.float32(bias)))
        return self.node(
            "Conv",
            name,
            inputs,
            kernel_shape=list(shape[2:]),
            strides=[stride, stride],
            pads=[shape[2] // 2 if pad is None else pad] * 4,
            group=groups,
        )

    def normalization(self, name: str, x: str, channels: int) -> str:
        """BatchNormalization in inference, with scale, shift, mean and variance of its own for each channel."""
        draw = self.random
        scale = draw.uniform(0.6, 1.4, channels).astype(np.float32)
        shift = draw.normal(0.1, 0.2, channels).astype(np.float32)
        mean = draw.normal(0.0, 0.2, channels).astype(np.float32)
        variance = draw.uniform(0.5, 1.5, channels).astype(np.float32)
        parts = {"scale": scale, "bias": shift, "mean": mean, "var": variance}
        return self.node(
            "BatchNormalization", name, [x, *(self.constant(f"{name}.{part}", value) for part, value in parts.items())]
        )

    def max_pool(self, name: str, x: str, *, pad: int = 0, ceil: bool = False) -> str:
        """The largest of 3 x 3 elements, at every other row and column."""
        return self.node("MaxPool", name, [x], kernel_shape=[3, 3], strides=[2, 2], pads=[pad] * 4, ceil_mode=int(ceil))

    def flat_mean(self, x: str) -> str:
        """One number a channel: [1, C, H, W] -> [1, C]."""
        return self.node("Flatten", "flatten", [self.node("GlobalAveragePool", "pool", [x])], axis=1)

    def classifier(self, x: str, channels: int, classes: int, gain: float = 1.0) -> str:
        """A fully connected layer (Gemm) over flat channels."""
        weight = self.constant("classifier.weight", self.normal((classes, channels), gain * math.sqrt(1.0 / channels)))
        bias = self.constant("classifier.bias", self.random.standard_normal(classes, np.float32))
        return self.node("Gemm", "classifier", [x, weight, bias], transB=1)

    def model(
        self, inputs: Mapping[str, Sequence[int]], output: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT,
        opset: int = OPSET,
    ) -> ModelProto:  # fmt: skip
        """The checked model; the last node's result becomes `output`. `dtype`: of every input."""
        last = self.nodes[-1].output
        last[0] = output
        graph = helper.make_graph(
            self.nodes,
            self.name,
            [helper.make_tensor_value_info(name, dtype, sizes) for name, sizes in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
        onnx.checker.check_model(model, full_check=True)
        return model


def int64(values: ArrayLike) -> NDArray[np.int64]:
    """A shape or a list of axes as ONNX wants it."""
    return np.asarray(values, np.int64)
