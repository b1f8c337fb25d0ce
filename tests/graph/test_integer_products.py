"""Zero points of constant weights come off when a model is read, where the difference fits a signed byte."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.levels import Array, Net, levels, same_bits

BYTES = ("int8", "uint8")


def centred(dtype: str, zeros: Array, *shape: int) -> Array:
    """Weights whose difference from their zero points reaches both ends of signed bytes, where they reach so far."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    wide = zeros.astype(int) + np.random.default_rng(1).integers(-128, 127, shape, endpoint=True)
    return np.clip(wide, least, most).astype(dtype)


def sums_of(net: Net) -> tuple[str, ...]:
    """Inputs of the only integer product, whose bits are those of ONNX Runtime; its weights by their element type."""
    graph = same_bits(net, "y")
    (sums,) = (one for one in graph.operators if one.op_type in ("MatMulInteger", "ConvInteger"))
    return (sums.inputs[0], str(graph.constants[sums.inputs[1]].dtype), *sums.inputs[2:])


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("shape", [(), (1,), (24,), (1, 24)])
@pytest.mark.parametrize("zero", [None, (), (1,)])
def test_zero_points_come_off(left: str, right: str, shape: tuple[int, ...], zero: tuple[int, ...] | None) -> None:
    net = Net(left)
    zeros = levels(right, *shape, seed=2)
    names = [net.given("x", 6, 40), net.constant(centred(right, zeros, 40, 24))]
    names += ["" if zero is None else net.constant(levels(left, *zero), "z"), net.constant(zeros)]
    net.op("MatMulInteger", *names, output="y")
    assert sums_of(net) == (("x", "int8") if zero is None else ("x", "int8", "z"))


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("shape", [(), (1,), (24,), (1, 24)])
def test_others_stay_and_are_right(left: str, right: str, shape: tuple[int, ...]) -> None:
    net = Net(left)
    zeros = levels(right, *shape, seed=2)
    names = [
        net.given("x", 6, 40),
        net.constant(levels(right, 40, 24)),
        net.constant(levels(left)),
        net.constant(zeros),
    ]
    net.op("MatMulInteger", *names, output="y")
    inputs = sums_of(net)
    assert inputs[1] == right and len(inputs) == 4


@pytest.mark.parametrize("right", BYTES)
def test_zero_points_of_each_matrix(right: str) -> None:
    net = Net()
    zeros = levels(right, 3, 1, 24, seed=2)
    names = [
        net.given("x", 3, 6, 40),
        net.constant(centred(right, zeros, 3, 40, 24)),
        net.constant(levels("uint8"), "z"),
    ]
    net.op("MatMulInteger", *names, net.constant(zeros), output="y")
    assert sums_of(net) == ("x", "int8", "z")


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("shape", [(), (1,)])
def test_zero_points_of_convolutions_come_off(left: str, right: str, shape: tuple[int, ...]) -> None:
    net = Net(left)
    zeros = levels(right, *shape, seed=2)
    weights = centred(right, zeros.reshape(()), 24, 8, 3, 3)
    names = [net.given("x", 1, 8, 9, 9), net.constant(weights), net.constant(levels(left), "z"), net.constant(zeros)]
    net.op("ConvInteger", *names, output="y", pads=[1, 1, 1, 1])
    assert sums_of(net) == ("x", "int8", "z")


def test_weights_of_several_products_are_made_once() -> None:
    net = Net()
    zeros = levels("uint8", 24, seed=2)
    weights, zero = net.constant(centred("uint8", zeros, 40, 24)), net.constant(zeros)
    for name in ("a", "b"):
        net.op("MatMulInteger", net.given(f"x{name}", 6, 40), weights, "", zero, output=name)
    graph = same_bits(net, "a", "b")
    assert len({one.inputs[1] for one in graph.operators}) == 1
