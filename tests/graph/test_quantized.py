"""Quantised models come into one form, whose bits are those of ONNX Runtime's fused kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autofuse.graph.loading.load import from_model
from autofuse.measure.checking.reference import run_reference
from tests.graph.levels import Net, convolution, fused, kinds, levels, same_bits

INTEGER_FORM = {"ConvInteger", "MatMulInteger"}


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


@pytest.mark.parametrize("value", [None, 0.0, 0.4, -9.0, 1e9])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_padding_between_the_same_levels_is_that_of_bytes(mode: str, value: float | None) -> None:
    net = Net()
    x = net.real(net.given("x", 1, 8, 9, 9), 0.03, 7)
    more = [net.constant(np.float32(value))] if value is not None and mode == "constant" else []
    padded = net.op("Pad", x, net.constant(np.array([0, 0, 1, 2, 0, 0, 0, 1])), *more, mode=mode)
    net.quantised(padded, 0.03, 7, "y")
    assert kinds(same_bits(net, "y")) == {"Pad": 1}


@pytest.mark.parametrize(("bound", "stays"), [(255 * 0.5, False), (200 * 0.5, True)])
def test_a_clip_within_the_levels_stays(bound: float, stays: bool) -> None:
    net = Net()
    x = net.real(net.given("x", 1, 8, 9, 9), 0.03, 7)
    clip = net.op(
        "Clip", convolution(net, x, 8, 20, 0.03), net.constant(np.float32(0)), net.constant(np.float32(bound))
    )
    net.quantised(clip, 0.5, 0, "y")
    assert kinds(same_bits(net, "y"))["Clip"] == stays


@pytest.mark.parametrize("stride", [1, 2])
def test_a_depthwise_convolution_is_one_of_bytes(stride: int) -> None:
    net = Net()
    x = net.real(net.given("x", 1, 16, 9, 9), 0.03, 7)
    net.quantised(convolution(net, x, 16, 16, 0.03, group=16, strides=[stride] * 2), 1.7, 3, "y")
    graph = same_bits(net, "y")
    assert kinds(graph) == {"ConvInteger": 1, "Add": 1, "DequantizeLinear": 1, "QuantizeLinear": 1}


@pytest.mark.parametrize(("group", "options"), [(8, {}), (16, {"dilations": [2, 2]}), (16, {"strides": [3, 3]})])
def test_other_narrow_groups_sum_integers_in_float32(group: int, options: dict[str, list[int]]) -> None:
    net = Net()
    x = net.real(net.given("x", 1, 16, 9, 9), 0.03, 7)
    net.quantised(convolution(net, x, 16, 16, 0.03, group=group, **options), 1.7, 3, "y")
    graph = same_bits(net, "y")
    assert kinds(graph)["Conv"] == 1 and not INTEGER_FORM & set(kinds(graph))
    (narrow,) = (operator for operator in graph.operators if operator.op_type == "Conv")
    weights = graph.constants[narrow.inputs[1]]
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


def test_a_pool_and_a_nearest_resize_between_equal_levels_are_of_bytes() -> None:
    net = Net()
    net.given("x", 1, 4, 6, 8)
    pooled = net.op("MaxPool", net.real("x", 0.03, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    pooled = net.quantised(pooled, 0.03, 7)
    sizes = net.constant(np.array([1, 1, 2, 2], "float32"))
    large = net.op("Resize", net.real(pooled, 0.03, 7), "", sizes, mode="nearest")
    net.quantised(large, 0.03, 7, "y")
    assert kinds(same_bits(net, "y")) == {"MaxPool": 1, "Resize": 1}


def test_a_resize_that_mixes_neighbours_stays_one_of_numbers() -> None:
    net = Net()
    net.given("x", 1, 4, 6, 8)
    sizes = net.constant(np.array([1, 1, 2, 2], "float32"))
    net.quantised(net.op("Resize", net.real("x", 0.03, 7), "", sizes, mode="linear"), 0.03, 7, "y")
    assert kinds(from_model(net.model("y"), "net"))["DequantizeLinear"] == 1


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


MICROSOFT = "com.microsoft"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_operators_of_onnx_runtime_on_quantised_tensors(dtype: str) -> None:
    """Of all: what they compute is the operator on numbers, rounded once."""
    rng = np.random.default_rng(11)
    net = Net(dtype)

    def given(least: float = 0.01, most: float = 0.05) -> tuple[str, str]:
        limits = np.iinfo(dtype)
        return net.parameters(float(rng.uniform(least, most)), int(rng.integers(limits.min + 30, limits.max - 30)))

    a, b = (net.given("a", 2, 8, 9, 11), *given()), (net.given("b", 2, 8, 9, 11), *given())
    made = {
        "QLinearAdd": ((*a, *b, *given(0.02, 0.08)), {}),
        "QLinearMul": ((*a, *b, *given(0.02, 0.08)), {}),
        "QLinearWhere": ((net.constant(rng.random((9, 11)) < 0.5), *a, *b, *given()), {}),
        "QLinearSigmoid": ((*a, *given(0.004, 0.005)), {}),
        "QLinearLeakyRelu": ((*a, *given()), {"alpha": 0.1}),
        "QLinearConcat": ((*given(), *a, *b), {"axis": 1}),
        "QLinearGlobalAveragePool": ((*a, *given(0.001, 0.01)), {}),
        "QLinearAveragePool": ((*a, *given()), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    }
    names = [net.op(kind, *inputs, domain=MICROSOFT, **more) for kind, (inputs, more) in made.items()]
    graph = same_bits(net, *names)
    assert {operator.domain for operator in graph.operators} == {"", "autofuse"}


def test_a_quantised_softmax_is_at_most_one_level_off() -> None:
    """Its exponentials are rounded: a number that lies between two levels may fall to either side."""
    net = Net()
    net.given("x", 40, 100)
    net.op("QLinearSoftmax", "x", *net.parameters(0.02, 9), *net.parameters(1 / 256, 0), output="y", domain=MICROSOFT,
           axis=-1, opset=13)  # fmt: skip
    model = net.model("y")
    found, wanted = run_reference(from_model(model, "net"), net.inputs)["y"], fused(model, net.inputs)[0]
    apart = np.abs(found.astype(int) - wanted.astype(int))
    assert apart.max() <= 1 and (apart > 0).mean() < 1e-3


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("per_channel", [False, True])
def test_products_of_onnx_runtime_are_products_of_integers(turned: int, per_channel: bool) -> None:
    net = Net()
    net.given("x", 7, 40)
    scale = np.linspace(0.004, 0.02, 24, dtype="float32") if per_channel else np.array([0.01], "float32")
    weights = np.maximum(levels("int8", 40, 24), -127)
    bias = net.constant(levels("int32", 24) // 2**18)
    left = ["x", *net.parameters(0.03, 9)]
    right = [net.constant(weights.T.copy() if turned else weights), net.constant(scale),
             net.constant(np.zeros(scale.size, "int8"))]  # fmt: skip
    net.op("QGemm", *left, *right, bias, *net.parameters(1.9, 12), output="q", domain=MICROSOFT, transB=turned)
    net.op("QGemm", *left, *right, bias, output="r", domain=MICROSOFT, transB=turned)
    net.op("MatMulIntegerToFloat", "x", net.constant(weights), left[1], right[1], left[2], right[2],
           net.constant(np.linspace(-1, 1, 24, dtype="float32")), output="f", domain=MICROSOFT)  # fmt: skip
    model = net.model("q", "r", "f")
    graph = from_model(model, "net")
    assert kinds(graph)["MatMulInteger"] == 3 and not {"Gemm", "MatMul"} & set(kinds(graph))
    found = run_reference(graph, net.inputs)
    for name, wanted in zip(("q", "r", "f"), fused(model, net.inputs), strict=True):
        if name == "q":
            np.testing.assert_array_equal(found[name], wanted)
        else:
            np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["normal", "above", "below", "nothing"])
def test_levels_that_are_found_at_run_time(kind: str) -> None:
    """DynamicQuantizeLinear and a product of its integers, apart and as ONNX Runtime joins them."""
    net = Net()
    rng = np.random.default_rng(5)
    shape = (9, 40)
    x = {"normal": rng.normal(0, 3, shape), "above": rng.uniform(1, 4, shape), "below": rng.uniform(-9, -1, shape),
         "nothing": np.zeros(shape)}[kind]  # fmt: skip
    net.inputs["x"] = x.astype("float32")
    weights = net.constant(levels("int8", 40, 24))
    net.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]))
    net.op("MatMulInteger", "q", weights, "z", output="sums")
    scale = net.constant(np.linspace(0.004, 0.02, 24, dtype="float32"))
    bias = net.constant(np.linspace(-1, 1, 24, dtype="float32"))
    net.op("DynamicQuantizeMatMul", "x", weights, scale, "", bias, output="y", domain=MICROSOFT)
    model = net.model("q", "s", "z", "sums", "y")
    graph = from_model(model, "net")
    assert not {"DynamicQuantizeLinear", "DynamicQuantizeMatMul"} & set(kinds(graph))
    found = run_reference(graph, net.inputs)
    for name, wanted in zip(("q", "s", "z", "sums"), fused(model, net.inputs), strict=False):
        np.testing.assert_array_equal(found[name], wanted)
    np.testing.assert_allclose(found["y"], fused(model, net.inputs)[-1], rtol=1e-5, atol=1e-5)


def test_quantisation_of_onnx_runtimes_own_domain_is_onnxs() -> None:
    net = Net()
    net.given("x", 2, 12, 8)
    real = net.op("DequantizeLinear", "x", *net.parameters(0.03, 7), domain=MICROSOFT)
    net.op("QuantizeLinear", net.op("Neg", real), *net.parameters(0.04, 200), output="y", domain=MICROSOFT)
    assert kinds(same_bits(net, "y")) == {"DequantizeLinear": 1, "Neg": 1, "QuantizeLinear": 1}


@pytest.mark.parametrize("other", [7, 9])
def test_parts_of_equal_levels_are_joined_as_integers(other: int) -> None:
    net = Net()
    parts = [net.real(net.given(name, 2, size), 0.03, zero) for name, size, zero in (("a", 5, 7), ("b", 8, other))]
    net.quantised(net.op("Concat", *parts, axis=1), 0.03, 7, "y")
    wanted = {"Concat": 1} if other == 7 else {"Concat": 1, "DequantizeLinear": 2, "QuantizeLinear": 1}
    assert kinds(same_bits(net, "y")) == wanted


@pytest.mark.parametrize("other", [7, 9])
def test_a_tensor_is_split_as_integers_where_all_parts_have_its_levels(other: int) -> None:
    net = Net()
    real = net.real(net.given("x", 2, 12, 5), 0.03, 7)
    net.nodes.append(helper.make_node("Split", [real, net.constant(np.array([5, 7]))], ["a", "b"], axis=1))
    outputs = [net.quantised(name, 0.03, zero) for name, zero in (("a", 7), ("b", other))]
    wanted = {"Split": 1} if other == 7 else {"DequantizeLinear": 1, "Split": 1, "QuantizeLinear": 2}
    assert kinds(same_bits(net, *outputs)) == wanted
