"""Functions of one byte become tables where that pays, with the bits that ONNX Runtime's operators give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.fusion.legality import check_plan
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.measure.checking.reference import run_reference
from tests.graph.levels import Net, convolution, kinds

SCALE, ZERO = 0.05, 20
EVERY_BYTE = (2, 4, 4, 8)
FUNCTIONS: dict[str, Callable[[Net, str], str]] = {
    **{
        name: (lambda net, x, name=name: net.op(name, x))
        for name in ("Sigmoid", "Tanh", "Erf", "Exp", "HardSwish", "LeakyRelu", "Elu", "Softplus", "Mish")
    },
    "Gelu": lambda net, x: net.op("Gelu", x, domain="com.microsoft"),
    "gelu of parts": lambda net, x: net.op(
        "Mul", x, net.op("Add", net.op("Erf", net.op("Mul", x, net.constant(np.float32(0.7071)))),
                         net.constant(np.ones((1, 1, 1), "float32")))
    ),
    "swish": lambda net, x: net.op("Mul", x, net.op("Sigmoid", x)),
}  # fmt: skip
CHEAP: dict[str, Callable[[Net, str], str]] = {
    "Relu": lambda net, x: net.op("Relu", x),
    "Clip": lambda net, x: net.op("Clip", x, net.constant(np.float32(-1)), net.constant(np.float32(1))),
    "nothing": lambda net, x: x,
}


def every_byte(net: Net, *shape: int) -> str:
    net.inputs["x"] = np.resize(np.arange(256, dtype="uint8").view(net.dtype), shape or EVERY_BYTE)
    return "x"


def same_bits_apart(net: Net, *outputs: str, opset: int = 18) -> Graph:
    """The loaded graph, once it has the bits of ONNX Runtime's operators one by one, and a plan that is legal."""
    model = net.model(*outputs, opset=opset)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    graph = from_model(model, "net")
    found = run_reference(graph, net.inputs)
    for name, array in zip(outputs, session.run(list(outputs), net.inputs), strict=True):
        np.testing.assert_array_equal(found[name], array)
    check_plan(graph, default_plan(graph))
    return graph


def levelled(net: Net, x: str, scale: float = 0.01, zero: int = 3) -> str:
    return net.real(net.quantised(x, scale, zero), scale, zero)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_byte_is_one_table(name: str, dtype: str) -> None:
    net = Net(dtype)
    net.quantised(FUNCTIONS[name](net, net.real(every_byte(net), SCALE, ZERO)), 0.04, 11, "y")
    graph = same_bits_apart(net, "y")
    assert kinds(graph) == {"ByteLookup": 1}
    assert graph.tensors["y"].dtype == dtype


@pytest.mark.parametrize(("source", "result"), [("int8", "uint8"), ("uint8", "int8")])
def test_a_table_goes_from_either_type_to_either(source: str, result: str) -> None:
    net = Net(source)
    x = net.op("Tanh", net.real(every_byte(net), SCALE, ZERO))
    net.op("QuantizeLinear", x, net.constant(np.float32(0.01)), net.constant(np.array(3, result)), output="y")
    graph = same_bits_apart(net, "y")
    assert kinds(graph) == {"ByteLookup": 1}
    assert graph.tensors["y"].dtype == result


@pytest.mark.parametrize("name", CHEAP)
def test_what_is_cheap_is_computed(name: str) -> None:
    net = Net()
    net.quantised(CHEAP[name](net, net.real(every_byte(net), SCALE, ZERO)), 0.04, 11, "y")
    assert "ByteLookup" not in kinds(same_bits_apart(net, "y"))


def test_a_swish_through_bytes_is_one_table_and_the_convolutions_around_stay_integers() -> None:
    net = Net()
    x = net.real(net.given("x", 1, 8, 9, 9), 0.03, 7)
    x = levelled(net, convolution(net, x, 8, 16, 0.03), 0.06, 100)
    x = levelled(net, net.op("Mul", x, levelled(net, net.op("Sigmoid", x), 1 / 256, 0)), 0.05, 6)
    net.quantised(convolution(net, x, 16, 8, 0.05, seed=2), 1.7, 7, "y")
    graph = from_model(net.model("y"), "net")
    assert kinds(graph) == {"ConvInteger": 2, "Add": 2, "DequantizeLinear": 2, "QuantizeLinear": 2, "ByteLookup": 1}
    groups = default_plan(graph).groups
    names = [[graph.by_name[name].op_type for name in group.operators] for group in groups]
    assert ["ConvInteger", "Add", "DequantizeLinear", "QuantizeLinear", "ByteLookup"] in names


@pytest.mark.parametrize(("name", "tabled"), [("LeakyRelu", False), ("Sigmoid", True)])
def test_numbers_behind_what_is_hardly_dear_are_computed_without_a_table(name: str, tabled: bool) -> None:
    net = Net()
    x = net.real(every_byte(net), SCALE, ZERO)
    other = net.real(net.given("x2", *EVERY_BYTE), SCALE, ZERO)
    net.quantised(net.op("Add", levelled(net, net.op(name, x)), other), 0.04, 11, "y")
    assert kinds(same_bits_apart(net, "y"))["ByteLookup"] == tabled


def test_a_table_behind_a_table_is_one() -> None:
    net = Net()
    x = levelled(net, net.op("Tanh", net.real(every_byte(net), SCALE, ZERO)))
    net.quantised(net.op("Sigmoid", x), 1 / 256, 0, "y")
    assert kinds(same_bits_apart(net, "y")) == {"ByteLookup": 1}


@pytest.mark.parametrize(
    ("text", "node", "more"),
    [("QLinearSigmoid", {}, 0), ("QLinearLeakyRelu", {"alpha": 0.3}, 0)],
)
def test_quantised_operators_of_onnx_runtime_are_tables(text: str, node: dict[str, Any], more: int) -> None:
    net = Net()
    levels = [*net.parameters(SCALE, ZERO), *net.parameters(1 / 64, more)]
    net.op(text, every_byte(net), *levels, output="y", domain="com.microsoft", **node)
    graph = from_model(net.model("y"), "net")
    assert kinds(graph) == {"ByteLookup": 1}


def test_what_others_read_too_is_computed() -> None:
    net = Net()
    gate = net.op("Sigmoid", net.real(every_byte(net), SCALE, ZERO))
    net.quantised(gate, 0.04, 11, "y")
    net.op("Neg", gate, output="z")
    assert kinds(same_bits_apart(net, "y", "z"))["ByteLookup"] == 0


def test_a_byte_that_others_read_too_is_where_a_second_table_begins() -> None:
    net = Net()
    middle = net.quantised(net.op("Tanh", net.real(every_byte(net), SCALE, ZERO)), 0.01, 3, "m")
    net.quantised(net.op("Sigmoid", net.real(middle, 0.01, 3)), 1 / 256, 0, "y")
    graph = same_bits_apart(net, "m", "y")
    assert kinds(graph) == {"ByteLookup": 2}
    assert [operator.inputs[0] for operator in graph.operators] == ["x", "m"]


def test_numbers_of_a_byte_may_have_other_readers() -> None:
    net = Net()
    x = net.real(every_byte(net), SCALE, ZERO)
    net.quantised(net.op("Tanh", x), 0.01, 3, "y")
    net.op("Neg", x, output="z")
    assert kinds(same_bits_apart(net, "y", "z")) == {"ByteLookup": 1, "DequantizeLinear": 1, "Neg": 1}


def test_functions_of_two_bytes_are_computed() -> None:
    net = Net()
    x, y = net.real(every_byte(net), SCALE, ZERO), net.real(net.given("x2", *EVERY_BYTE), SCALE, ZERO)
    net.quantised(net.op("Mul", x, net.op("Sigmoid", y)), 0.04, 11, "y")
    assert kinds(same_bits_apart(net, "y"))["ByteLookup"] == 0


@pytest.mark.parametrize("place", ["source", "middle", "result", "number"])
def test_scales_and_numbers_that_differ_by_channel_make_no_table(place: str) -> None:
    net = Net()
    scales = net.constant(np.linspace(0.02, 0.06, EVERY_BYTE[1], dtype="float32"))
    zeros = net.constant(np.arange(EVERY_BYTE[1], dtype="uint8"))
    by_channel, same = (scales, zeros), net.parameters(SCALE, ZERO)
    x = net.op("DequantizeLinear", every_byte(net), *(by_channel if place == "source" else same))
    x = net.op("Tanh", x)
    if place == "middle":
        x = net.op("DequantizeLinear", net.op("QuantizeLinear", x, *by_channel), *by_channel)
        x = net.op("Mul", x, net.real(net.inputs and "x", SCALE, ZERO))
    if place == "number":
        x = net.op("Mul", x, net.constant(np.linspace(0.5, 1.5, EVERY_BYTE[3], dtype="float32")))
    net.op("QuantizeLinear", x, *(by_channel if place == "result" else same), output="y")
    assert kinds(same_bits_apart(net, "y"))["ByteLookup"] == 0


def test_a_number_of_more_dimensions_makes_no_table() -> None:
    net = Net()
    x = net.op("Tanh", net.real(every_byte(net), SCALE, ZERO))
    net.quantised(net.op("Mul", x, net.constant(np.full((1, 1, 1, 1, 1), 2, "float32"))), 0.02, 3, "y")
    assert kinds(same_bits_apart(net, "y"))["ByteLookup"] == 0


_ONE = st.sampled_from(["Sigmoid", "Tanh", "Relu", "Abs", "HardSigmoid", "Neg", "Exp", "Softplus", "levels"])
_TWO = st.sampled_from(["Mul", "Add", "Sub", "Max", "Div"])


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_chains_of_any_operators_keep_their_bits(data: st.DataObject) -> None:
    net = Net(data.draw(st.sampled_from(["int8", "uint8"])))
    found = [net.real(every_byte(net), SCALE, ZERO)]
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            kind, x = data.draw(_ONE), data.draw(st.sampled_from(found))
            found.append(levelled(net, x, 0.03, 5) if kind == "levels" else net.op(kind, x))
        else:
            other = st.sampled_from([*found, net.constant(np.float32(1.3))])
            found.append(net.op(data.draw(_TWO), data.draw(st.sampled_from(found)), data.draw(other)))
    outputs = ["y"]
    net.quantised(found[-1], 0.04, 11, "y")
    if data.draw(st.booleans()):
        net.quantised(data.draw(st.sampled_from(found)), 0.02, 2, "z")
        outputs.append("z")
    same_bits_apart(net, *outputs)
