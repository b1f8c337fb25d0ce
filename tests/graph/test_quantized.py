"""Quantised models come into one form, whose bits are those of ONNX Runtime's fused kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.measure.checking.reference import run_reference

Array = NDArray[Any]
INTEGER_FORM = {"ConvInteger", "MatMulInteger"}


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


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("zero", [0, 13])
def test_a_convolution_between_levels(dtype: str, zero: int) -> None:
    net = Net(dtype)
    x = net.real(net.given("x", 1, 8, 9, 9), 0.03, zero)
    net.quantised(convolution(net, x, 8, 20, 0.03), 1.7, zero, "y")
    graph = same_bits(net, "y")
    assert kinds(graph) == {"ConvInteger": 1, "Add": 1, "DequantizeLinear": 1, "QuantizeLinear": 1}
    (sums,) = (operator for operator in graph.operators if operator.op_type == "ConvInteger")
    assert graph.constants[sums.inputs[1]].dtype == np.int8
    assert (len(sums.inputs) > 2) == bool(zero)


@pytest.mark.parametrize("output_zero", [0, 20])
def test_an_activation_goes_where_the_levels_bound_it_anyhow(output_zero: int) -> None:
    net = Net()
    x = net.real(net.given("x", 1, 8, 9, 9), 0.03, 7)
    net.quantised(net.op("Relu", convolution(net, x, 8, 20, 0.03)), 1.7, output_zero, "y")
    graph = same_bits(net, "y")
    assert kinds(graph)["Relu"] == (output_zero > 0)


@pytest.mark.parametrize(("bound", "stays"), [(255 * 0.5, False), (200 * 0.5, True)])
def test_a_clip_within_the_levels_stays(bound: float, stays: bool) -> None:
    net = Net()
    x = net.real(net.given("x", 1, 8, 9, 9), 0.03, 7)
    clip = net.op(
        "Clip", convolution(net, x, 8, 20, 0.03), net.constant(np.float32(0)), net.constant(np.float32(bound))
    )
    net.quantised(clip, 0.5, 0, "y")
    assert kinds(same_bits(net, "y"))["Clip"] == stays


def test_a_depthwise_convolution_sums_integers_in_float32() -> None:
    net = Net()
    x = net.real(net.given("x", 1, 16, 9, 9), 0.03, 7)
    net.quantised(convolution(net, x, 16, 16, 0.03, group=16), 1.7, 3, "y")
    graph = same_bits(net, "y")
    assert kinds(graph)["Conv"] == 1 and not INTEGER_FORM & set(kinds(graph))
    (depthwise,) = (operator for operator in graph.operators if operator.op_type == "Conv")
    weights = graph.constants[depthwise.inputs[1]]
    assert weights.dtype == np.float32 and (weights == np.rint(weights)).all()


def test_many_channels_in_a_narrow_group_are_summed_as_integers() -> None:
    """9 * 128 * 255 * 127 exceeds 2^24, up to which float32 is exact."""
    net = Net()
    x = net.real(net.given("x", 1, 256, 4, 4), 0.03, 7)
    net.quantised(convolution(net, x, 256, 8, 0.03, group=2), 40.0, 128, "y")
    assert kinds(same_bits(net, "y"))["ConvInteger"] == 1


@pytest.mark.parametrize("zero", [128, 100])
def test_unsigned_weights_lose_a_zero_point_that_a_signed_byte_can_take(zero: int) -> None:
    net = Net()
    x = net.real(net.given("x", 6, 40), 0.03, 7)
    weights = net.weights(levels("uint8", 40, 24), np.float32(0.01), 0, np.array(zero))
    net.quantised(net.op("MatMul", x, weights), 2.3, 128, "y")
    graph = same_bits(net, "y")
    (sums,) = (operator for operator in graph.operators if operator.op_type == "MatMulInteger")
    assert graph.constants[sums.inputs[1]].dtype == ("int8" if zero == 128 else "uint8")
    assert len(sums.inputs) == (3 if zero == 128 else 4)


@pytest.mark.parametrize("turned", [0, 1])
def test_a_gemm_with_a_bias(turned: int) -> None:
    net = Net()
    x = net.real(net.given("x", 6, 40), 0.03, 7)
    weights = net.weights(np.maximum(levels("int8", *((24, 40) if turned else (40, 24))), -127), np.float32(0.01), 0)
    bias = net.op("DequantizeLinear", net.constant(levels("int32", 24) // 2**18), net.constant(np.float32(0.03 * 0.01)))
    net.quantised(net.op("Gemm", x, weights, bias, transB=turned), 2.3, 128, "y")
    assert kinds(same_bits(net, "y"))["MatMulInteger"] == 1


def test_a_product_of_two_computed_tensors() -> None:
    net = Net()
    q, k = net.real(net.given("q", 2, 6, 16), 0.03, 7), net.real(net.given("k", 2, 16, 9), 0.02, 130)
    net.quantised(net.op("MatMul", q, k), 1.1, 100, "y")
    graph = same_bits(net, "y")
    (sums,) = (operator for operator in graph.operators if operator.op_type == "MatMulInteger")
    assert len(sums.inputs) == 4


def test_a_product_whose_result_stays_real() -> None:
    """Its bias is added to numbers, not to integers, and nothing is rounded."""
    net = Net()
    x = net.real(net.given("x", 6, 40), 0.03, 7)
    weights = net.weights(np.maximum(levels("int8", 40, 24), -127), np.float32(0.01), 0)
    net.op("Add", net.op("MatMul", x, weights), net.constant(np.linspace(-3, 3, 24, dtype="float32")), output="y")
    model = net.model("y")
    graph = from_model(model, "net")
    assert kinds(graph) == {"MatMulInteger": 1, "DequantizeLinear": 1, "Add": 1}
    found, wanted = run_reference(graph, net.inputs)["y"], fused(model, net.inputs)[0]
    assert np.abs(np.asarray(found, "float64") - np.asarray(wanted, "float64")).max() < 1e-4


def test_operators_on_quantised_tensors_are_written_out() -> None:
    net = Net()
    net.given("x", 1, 8, 9, 9)
    scales = np.linspace(0.004, 0.02, 12, dtype="float32")
    weights = [net.constant(np.maximum(levels("int8", 12, 8, 3, 3), -127)), net.constant(scales),
               net.constant(np.zeros(12, "int8"))]  # fmt: skip
    bias = net.constant(levels("int32", 12) // 2**18)
    map_ = net.op("QLinearConv", "x", *net.parameters(0.03, 9), *weights, *net.parameters(1.9, 12), bias,
                  pads=[1, 1, 1, 1])  # fmt: skip
    rows = net.op("Reshape", map_, net.constant(np.array([12, 81])))
    right = [net.constant(levels("uint8", 81, 10)), *net.parameters(0.02, 128)]
    net.op("QLinearMatMul", rows, *net.parameters(1.9, 12), *right, *net.parameters(60.0, 128), output="y")
    graph = same_bits(net, "y")
    assert kinds(graph)["ConvInteger"] == kinds(graph)["MatMulInteger"] == 1
    assert not {"QLinearConv", "QLinearMatMul"} & set(kinds(graph))


def test_movements_between_equal_levels_move_integers() -> None:
    net = Net()
    net.given("x", 2, 12, 8)
    turned = net.quantised(net.op("Transpose", net.real("x", 0.03, 7), perm=[0, 2, 1]), 0.03, 7)
    net.quantised(net.op("Reshape", net.real(turned, 0.03, 7), net.constant(np.array([8, 24]))), 0.03, 7, "y")
    assert kinds(same_bits(net, "y")) == {"Transpose": 1, "Reshape": 1}


def test_movements_between_other_levels_do_not() -> None:
    net = Net()
    net.given("x", 2, 12, 8)
    net.quantised(net.op("Transpose", net.real("x", 0.03, 7), perm=[0, 2, 1]), 0.04, 7, "y")
    assert kinds(same_bits(net, "y"))["QuantizeLinear"] == 1


def test_weights_whose_columns_have_zero_points_of_their_own_stay_real() -> None:
    net = Net()
    x = net.real(net.given("x", 6, 40), 0.03, 7)
    weights = net.weights(levels("uint8", 40, 24), np.full(24, 0.01), 1, np.arange(24) * 9)
    net.op("MatMul", x, weights, output="y")
    graph = from_model(net.model("y"), "net")
    assert kinds(graph) == {"DequantizeLinear": 1, "MatMul": 1}


@pytest.mark.parametrize("scale", [0.0, float("inf"), float("nan"), -0.1])
def test_scales_that_are_no_positive_numbers_stay(scale: float) -> None:
    net = Net()
    x = net.real(net.given("x", 6, 40), scale, 7)
    net.op("MatMul", x, net.weights(levels("int8", 40, 24), np.float32(0.01), 0), output="y")
    assert not INTEGER_FORM & set(kinds(from_model(net.model("y"), "net")))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_random_quantised_networks(seed: int) -> None:
    """Convolutions, activations, sums of two branches and a product, with scales that reach the limits of the levels.

    A sum of two branches is computed in float32 by both, whose compilers may join a product with it: there, and
    behind it, a number that lies between two integers may fall to either side.
    """
    rng = np.random.default_rng(seed)
    net = Net(str(rng.choice(["int8", "uint8"])))
    low = np.iinfo(net.dtype).min

    def zero() -> int:
        return int(rng.choice([low, low + int(rng.integers(1, 255))]))

    channels, scale, point = int(rng.integers(1, 12)), float(rng.uniform(0.01, 0.05)), zero()
    name = net.given("x", 1, channels, int(rng.integers(3, 9)), int(rng.integers(3, 9)))
    for number in range(int(rng.integers(1, 4))):
        columns = int(rng.integers(1, 20))
        group = channels if rng.random() < 0.3 else 1
        columns = channels if group > 1 else columns
        real = convolution(net, net.real(name, scale, point), channels, columns, scale, seed + number, group=group)
        if rng.random() < 0.5:
            real = net.op("Relu", real)
        channels, scale, point = columns, float(rng.uniform(0.2, 4)), zero()
        name = net.quantised(real, scale, point)
    model = net.model(name)
    graph = from_model(model, "net")
    found = run_reference(graph, net.inputs)[name].astype(int)
    wanted = fused(model, net.inputs)[0].astype(int)
    apart = np.abs(found - wanted)
    relu_stays = kinds(graph)["Relu"] > 0  # ONNX Runtime then computes the convolution in float32
    assert apart.max(initial=0) <= (1 if relu_stays else 0)


def test_a_zero_point_without_a_dimension_fits_one_scale() -> None:
    """As ONNX Runtime's quantiser writes biases."""
    net = Net()
    x = net.real(net.given("x", 6, 40), 0.03, 7)
    weights = net.weights(np.maximum(levels("int8", 40, 24), -127), np.float32(0.01), 0)
    parts = [levels("int32", 24) // 2**18, np.array([0.03 * 0.01], "float32"), np.array(0, "int32")]
    bias = net.op("DequantizeLinear", *map(net.constant, parts))
    net.quantised(net.op("Gemm", x, weights, bias), 2.3, 128, "y")
    graph = same_bits(net, "y")
    assert kinds(graph)["MatMulInteger"] == 1
