"""MobileNetV2 (Sandler et al., 2018, Table 2) as ONNX with random weights: numpy and onnx are all it needs.

BatchNormalization stays in the graph, with statistics that are not trivial, so that folding it is a real decision.
`python experiments/demo/mobilenet_v2.py mobilenet_v2.onnx`
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 18
INPUT, OUTPUT = "image", "scores"

# expansion, output channels, repeats, stride of the first
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM_CHANNELS, HEAD_CHANNELS, CLASSES = 32, 1280, 1000


@dataclass
class _Network:
    """Nodes and weights so far; each method appends operators and returns the name of their result."""

    random: np.random.Generator
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: NDArray[np.float32]) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op_type: str, name: str, inputs: list[str], **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    def convolution(self, name: str, x: str, shape: tuple[int, int, int, int], stride: int = 1, groups: int = 1) -> str:
        """Convolution without bias; weights keep the scale of their input."""
        fan_in = shape[1] * shape[2] * shape[3]
        values = self.random.standard_normal(shape, np.float32) * np.float32(np.sqrt(2.0 / fan_in))
        pad = shape[2] // 2
        return self.node(
            "Conv",
            name,
            [x, self.constant(f"{name}.weight", values)],
            kernel_shape=list(shape[2:]),
            strides=[stride, stride],
            pads=[pad] * 4,
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

    def relu6(self, name: str, x: str) -> str:
        return self.node("Clip", name, [x, "zero", "six"])

    def unit(
        self, name: str, x: str, sizes: tuple[int, int], kernel: int, stride: int = 1, depthwise: bool = False
    ) -> str:
        """Convolution, BatchNormalization, ReLU6."""
        channels_in, channels_out = sizes
        shape = (channels_out, 1 if depthwise else channels_in, kernel, kernel)
        x = self.convolution(f"{name}.conv", x, shape, stride, channels_in if depthwise else 1)
        return self.relu6(f"{name}.relu6", self.normalization(f"{name}.bn", x, channels_out))

    def block(self, name: str, x: str, sizes: tuple[int, int], expansion: int, stride: int) -> str:
        """Inverted residual: expand, filter depthwise, project; added to its input where shapes agree."""
        channels_in, channels_out = sizes
        hidden = channels_in * expansion
        y = x if expansion == 1 else self.unit(f"{name}.expand", x, (channels_in, hidden), 1)
        y = self.unit(f"{name}.depthwise", y, (hidden, hidden), 3, stride, depthwise=True)
        y = self.convolution(f"{name}.project.conv", y, (channels_out, hidden, 1, 1))
        y = self.normalization(f"{name}.project.bn", y, channels_out)
        return self.node("Add", f"{name}.add", [x, y]) if stride == 1 and channels_in == channels_out else y


def build(width: float = 1.0, size: int = 224, classes: int = CLASSES, seed: int = 0) -> ModelProto:
    """The network for one image of `size` x `size` pixels; `width` scales its channels (to multiples of 8)."""
    network = _Network(np.random.default_rng(seed))
    network.constant("zero", np.array(0, np.float32))
    network.constant("six", np.array(6, np.float32))
    channels = scaled(STEM_CHANNELS, width)
    x = network.unit("stem", INPUT, (3, channels), 3, stride=2)
    number = 0
    for expansion, out, repeats, first_stride in BLOCKS:
        for repeat in range(repeats):
            sizes = (channels, scaled(out, width))
            x = network.block(f"block{number}", x, sizes, expansion, first_stride if repeat == 0 else 1)
            channels, number = sizes[1], number + 1
    head = max(HEAD_CHANNELS, scaled(HEAD_CHANNELS, width))
    x = network.unit("head", x, (channels, head), 1)
    x = network.node("GlobalAveragePool", "pool", [x])
    x = network.node("Flatten", "flatten", [x], axis=1)
    weight = network.random.standard_normal((classes, head), np.float32) * np.float32(np.sqrt(1.0 / head))
    bias = network.random.standard_normal(classes, np.float32)
    inputs = [x, network.constant("classifier.weight", weight), network.constant("classifier.bias", bias)]
    network.nodes.append(helper.make_node("Gemm", inputs, [OUTPUT], name="classifier", transB=1))
    graph = helper.make_graph(
        network.nodes,
        "mobilenet_v2",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 3, size, size])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, classes])],
        network.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def scaled(channels: int, width: float, multiple: int = 8) -> int:
    """Channels of a wider or narrower network: the nearest multiple of 8 that is at least 90 % of the product."""
    wanted = channels * width
    rounded = max(multiple, int(wanted + multiple / 2) // multiple * multiple)
    return rounded + multiple if rounded < 0.9 * wanted else rounded


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "mobilenet_v2.onnx")
    onnx.save(build(), target)
    print(f"wrote {target}")
