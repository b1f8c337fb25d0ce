"""Small quantised networks, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.measure.checking.reference import run_reference

Array = NDArray[Any]


def levels(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@dataclass
class Net:
    """A model that is written operator by operator."""

    dtype: str = "uint8"

    def __post_init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, Array] = {}

    def constant(self, array: Any, name: str = "") -> str:
        name = name or f"k{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def op(self, op_type: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], domain=domain, **attributes))
        return output

    def given(self, name: str, *shape: int) -> str:
        self.inputs[name] = levels(self.dtype, *shape)
        return name

    def parameters(self, scale: float, zero: int) -> tuple[str, str]:
        return self.constant(np.float32(scale)), self.constant(np.array(zero, self.dtype))

    def real(self, name: str, scale: float, zero: int) -> str:
        return self.op("DequantizeLinear", name, *self.parameters(scale, zero))

    def weights(self, array: Array, scales: Any, axis: int, zeros: Array | None = None) -> str:
        zero = np.zeros(scales.shape, array.dtype) if zeros is None else zeros.astype(array.dtype)
        names = [self.constant(item) for item in (array, scales.astype("float32"), zero)]
        return self.op("DequantizeLinear", *names, axis=axis)

    def quantised(self, name: str, scale: float, zero: int, output: str = "") -> str:
        return self.op("QuantizeLinear", name, *self.parameters(scale, zero), output=output)

    def model(self, *outputs: str, opset: int = 17) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                  for name, array in self.inputs.items()]  # fmt: skip
        graph = helper.make_graph(
            self.nodes, "net", inputs, [onnx.ValueInfoProto(name=name) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def fused(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX Runtime computes as it is shipped, with its own kernels for integers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


def same_bits(net: Net, *outputs: str) -> Graph:
    """The loaded graph, once its results are those of ONNX Runtime's fused kernels."""
    model = net.model(*outputs)
    graph = from_model(model, "net")
    found = run_reference(graph, net.inputs)
    for name, array in zip(outputs, fused(model, net.inputs), strict=True):
        np.testing.assert_array_equal(found[name], array)
    return graph


def kinds(graph: Graph) -> Counter[str]:
    return Counter(operator.op_type for operator in graph.operators)


def convolution(net: Net, x: str, channels: int, columns: int, scale: float, seed: int = 1, **attributes: Any) -> str:
    """A convolution of a real tensor, with scales for each channel and an int32 bias."""
    rng = np.random.default_rng(seed)
    group = attributes.get("group", 1)
    scales = rng.uniform(0.002, 0.02, columns).astype("float32")
    weights = net.weights(np.maximum(levels("int8", columns, channels // group, 3, 3, seed=seed), -127), scales, 0)
    names = [net.constant(a) for a in (rng.integers(-5000, 5000, columns).astype("int32"),
                                       (np.float32(scale) * scales).astype("float32"))]  # fmt: skip
    bias = net.op("DequantizeLinear", *names, axis=0)
    return net.op("Conv", x, weights, bias, pads=[1, 1, 1, 1], **attributes)
