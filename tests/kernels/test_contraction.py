"""Convolutions and matrix products of every kind agree with ONNX Runtime, whatever surrounds them in their kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from autofuse.kernels.families.registry import is_own
from tests.kernels.conftest import Array, Bench, Small, real

node = helper.make_node
SHORT = {"contraction.vectors": 1, "contraction.pixels": 2, "contraction.rows_per_task": 2}
"""A schedule with little code, where the schedule is not what is tested."""


def conv(x: tuple[int, ...], w: tuple[int, ...], bias: bool = True, **attributes: Any) -> Small:
    """One convolution from input "x" to "y"."""
    constants = {"w": real(*w, seed=1)} | ({"b": real(w[0], seed=2)} if bias else {})
    nodes = [node("Conv", ["x", *constants], ["y"], **attributes)]
    return Small(nodes, {"x": real(*x)}, ["y"], constants)


CONVOLUTIONS = {
    "3x3": conv((1, 8, 7, 7), (8, 8, 3, 3), pads=[1, 1, 1, 1]),
    "3x3 without padding": conv((1, 8, 6, 5), (8, 8, 3, 3)),
    "1d": conv((2, 5, 11), (7, 5, 3), pads=[1, 1]),
    "1d strided, dilated": conv((1, 8, 17), (8, 8, 3), strides=[2], dilations=[2], pads=[2, 1]),
    "1d point": conv((1, 8, 9), (9, 8, 1)),
    "3d": conv((1, 3, 4, 5, 6), (4, 3, 3, 2, 3), pads=[1, 0, 1, 1, 1, 0]),
    "3d point": conv((1, 8, 2, 3, 4), (8, 8, 1, 1, 1)),
    "point": conv((1, 16, 5, 6), (12, 16, 1, 1)),
    "point, strided": conv((1, 8, 7, 9), (8, 8, 1, 1), strides=[2, 3]),
    "stem": conv((1, 3, 15, 13), (16, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]),
    "strides differ": conv((1, 4, 9, 10), (8, 4, 3, 3), strides=[1, 3], pads=[1, 1, 1, 1]),
    "dilated": conv((1, 4, 9, 9), (8, 4, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2]),
    "dilations differ": conv((1, 4, 11, 9), (8, 4, 3, 2), dilations=[3, 2], pads=[2, 1, 3, 1]),
    "dilated, strided": conv((1, 4, 12, 11), (8, 4, 3, 3), dilations=[2, 3], strides=[3, 2], pads=[3, 2, 1, 4]),
    "grouped": conv((1, 16, 6, 6), (24, 4, 3, 3), group=4, pads=[1, 1, 1, 1]),
    "grouped, odd": conv((1, 6, 5, 5), (9, 2, 3, 3), group=3, pads=[1, 1, 1, 1]),
    "grouped point": conv((2, 16, 3, 5), (16, 8, 1, 1), group=2),
    "asymmetric padding": conv((1, 5, 6, 7), (8, 5, 3, 4), pads=[0, 3, 2, 1]),
    "wide padding": conv((1, 4, 3, 3), (8, 4, 5, 5), pads=[2, 2, 2, 2]),
    "taps that only see padding": conv((1, 4, 2, 2), (8, 4, 5, 5), pads=[3, 3, 3, 3]),
    "same upper": conv((1, 4, 7, 8), (8, 4, 3, 4), auto_pad="SAME_UPPER", strides=[2, 2]),
    "same lower": conv((1, 4, 7, 8), (8, 4, 3, 4), auto_pad="SAME_LOWER", strides=[2, 1]),
    "valid": conv((1, 4, 7, 8), (8, 4, 3, 4), auto_pad="VALID", strides=[2, 1]),
    "tails": conv((1, 13, 5, 5), (21, 13, 3, 3), pads=[1, 1, 1, 1]),
    "one channel in, one out": conv((1, 1, 5, 7), (1, 1, 3, 3), pads=[1, 1, 1, 1]),
    "one pixel": conv((1, 10, 1, 1), (11, 10, 1, 1)),
    "one result from a window": conv((1, 8, 3, 3), (8, 8, 3, 3)),
    "width 1": conv((1, 8, 9, 1), (8, 8, 3, 1), pads=[1, 0, 1, 0]),
    "height 1": conv((1, 8, 1, 9), (8, 8, 1, 3), pads=[0, 1, 0, 1]),
    "even kernel": conv((1, 8, 6, 6), (8, 8, 2, 2), strides=[2, 2]),
    "batch": conv((3, 8, 5, 5), (8, 8, 3, 3), pads=[1, 1, 1, 1]),
    "no bias": conv((1, 8, 5, 5), (8, 8, 3, 3), bias=False),
    "a weight of one element": conv((1, 1, 4, 5), (1, 1, 1, 1)),
    "a multiplier of one channel": conv((1, 1, 4, 5), (12, 1, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_agrees(bench: Bench, name: str) -> None:
    bench.check(CONVOLUTIONS[name], schedule=SHORT)


BLIND = {
    "points": conv((1, 8, 4, 4), (8, 8, 1, 1), pads=[1, 0, 0, 2]),
    "a wide window": conv((1, 4, 2, 2), (8, 4, 2, 2), pads=[3, 3, 2, 4]),
    "dilated": conv((1, 8, 2, 3), (8, 8, 2, 2), pads=[3, 3, 3, 3], dilations=[4, 5], strides=[1, 2]),
}


@pytest.mark.parametrize("name", BLIND)
def test_where_a_window_lies_in_the_padding_the_bias_stands(bench: Bench, name: str) -> None:
    bench.check(BLIND[name], schedule=SHORT)


def test_a_convolution_of_nothing_but_padding_is_not_ours(bench: Bench) -> None:
    nothing = conv((1, 8, 1, 4), (8, 8, 2, 1), pads=[2, 0, 2, 0], dilations=[4, 1])
    assert not is_own(bench.bind(nothing).workload)


COPIED = SHORT | {"contraction.order": "copied", "contraction.panels_per_task": 0}
COPIES = (
    "3x3", "1d strided, dilated", "3d", "stem", "dilated, strided", "grouped, odd", "asymmetric padding",
    "taps that only see padding", "tails", "batch", "point",
)  # fmt: skip


STRIDED_POINTS = {
    "points": conv((1, 20, 9, 11), (8, 20, 1, 1), strides=[2, 2]),
    "padded by their step": conv((1, 16, 9, 12), (8, 16, 1, 1), strides=[2, 3], pads=[2, 3, 1, 4]),
    "padded by less": conv((1, 16, 9, 12), (8, 16, 1, 1), strides=[2, 3], pads=[1, 1, 1, 1]),
    "in a line": conv((2, 17, 21), (8, 17, 1), strides=[4]),
    "of a wide row": conv((1, 8, 5, 300), (8, 8, 1, 1), strides=[1, 3]),
    "in a volume": conv((1, 8, 5, 6, 7), (8, 8, 1, 1, 1), strides=[2, 2, 2]),
    "across rows": conv((1, 12, 9, 11), (8, 12, 3, 1), strides=[2, 2]),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_convolution_that_copies_its_rows_agrees(bench: Bench, name: str) -> None:
    bench.check(CONVOLUTIONS[name], schedule=COPIED)


@pytest.mark.parametrize("name", STRIDED_POINTS)
def test_of_a_row_only_what_strided_points_read_is_copied(bench: Bench, name: str) -> None:
    small = STRIDED_POINTS[name]
    for layouts, lanes in (({}, 8), ({"x": "c8", "y": "c8"}, 8), ({"x": "c4", "y": "c4"}, 4)):
        fits = all(small.inputs["x"].shape[1] % int(form[1:]) == 0 for form in layouts.values())
        if fits:
            bench.check(small, layouts, COPIED, lanes=lanes)


@pytest.mark.parametrize("name", ["3x3", "grouped", "3d"])
def test_a_prologue_is_copied_with_the_rows(bench: Bench, name: str) -> None:
    small = MAPS[name]
    nodes = [node("Relu", ["x"], ["r"]), node("Conv", ["r", *small.constants], ["y"], **attributes_of(small))]
    before = Small(nodes, small.inputs, small.outputs, small.constants)
    for layouts, lanes in (({"x": "c8", "y": "c8"}, 8), ({"x": "c4", "y": "c4"}, 4), ({}, 8)):
        bench.check(before, layouts, COPIED, lanes=lanes)


def attributes_of(small: Small) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in small.nodes[0].attribute}


@pytest.mark.parametrize("name", ["3x3", "grouped", "3d", "point", "stem"])
def test_weights_computed_at_run_time_are_packed_first(bench: Bench, name: str) -> None:
    small = CONVOLUTIONS[name]
    bench.check(Small(small.nodes, {**small.inputs, **small.constants}, small.outputs), schedule=SHORT)


LAYOUTS = [
    ({"x": "c8", "y": "c8"}, 8),
    ({"x": "c8"}, 8),
    ({"y": "c8"}, 8),
    ({"x": "c4", "y": "c4"}, 4),
    ({"x": "c4", "y": "c8"}, 8),
    ({"x": "c8", "y": "c4"}, 8),
    ({"x": "c8", "y": "c8"}, 4),
    ({"x": "c4", "y": "c4"}, 8),
]
MAPS = {
    "3x3": conv((2, 16, 5, 6), (24, 16, 3, 3), pads=[1, 1, 1, 1]),
    "point": conv((2, 16, 3, 5), (16, 16, 1, 1)),
    "grouped": conv((1, 16, 5, 4), (32, 4, 3, 3), group=4, pads=[1, 1, 1, 1], strides=[2, 1]),
    "1d": conv((2, 16, 9), (16, 16, 3), pads=[1, 1]),
    "3d": conv((1, 8, 3, 4, 4), (8, 8, 2, 2, 2), pads=[1, 0, 0, 0, 1, 1]),
}


IN_TURNS = [(name, *LAYOUTS[(3 * number + offset) % 8]) for number, name in enumerate(MAPS) for offset in range(3)]


@pytest.mark.parametrize(("name", "layouts", "lanes"), IN_TURNS)
def test_input_and_output_may_be_blocked_by_themselves(
    bench: Bench, name: str, layouts: dict[str, str], lanes: int
) -> None:
    bench.check(MAPS[name], layouts, SHORT, lanes)


def matmul(a: tuple[int, ...], b: tuple[int, ...] | Array) -> Small:
    """A product of input "x" with an input, or with a constant, to "y"."""
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    if isinstance(b, tuple):
        return Small(nodes, {"x": real(*a), "w": real(*b, seed=1)}, ["y"])
    return Small(nodes, {"x": real(*a)}, ["y"], {"w": b})


PRODUCTS = {
    "matrix": matmul((5, 16), real(16, 24)),
    "tails": matmul((7, 13), real(13, 21)),
    "one row": matmul((1, 40), real(40, 10)),
    "one column": matmul((9, 16), real(16, 1)),
    "one term": matmul((9, 1), real(1, 12)),
    "all one": matmul((1, 1), real(1, 1)),
    "three dimensions": matmul((2, 5, 16), real(16, 24)),
    "four dimensions": matmul((2, 3, 5, 8), real(8, 12)),
    "computed": matmul((5, 16), (16, 24)),
    "computed, tails": matmul((3, 5, 7), (7, 11)),
    "batched": matmul((2, 3, 5, 8), (2, 3, 8, 16)),
    "batched, tails": matmul((3, 5, 9), (3, 9, 7)),
    "batched, constant": matmul((3, 5, 9), real(3, 9, 17)),
    "batched, four constant dimensions": matmul((2, 3, 5, 8), real(2, 3, 8, 8)),
    "the left side broadcasts": matmul((1, 3, 5, 8), (2, 1, 8, 8)),
    "the left side lacks a dimension": matmul((5, 8), (3, 8, 9)),
    "the left side lacks a dimension, constant": matmul((5, 8), real(3, 8, 9)),
    "the right side lacks a dimension": matmul((2, 3, 5, 8), (3, 8, 9)),
    "the right side broadcasts": matmul((2, 3, 5, 8), (2, 1, 8, 9)),
    "the right side broadcasts, constant": matmul((2, 3, 5, 8), real(2, 1, 8, 9)),
    "the right side has a batch of 1": matmul((3, 5, 8), real(1, 8, 9)),
    "the left side has a batch of 1": matmul((1, 5, 8), real(3, 8, 9)),
}
VECTORS = {
    "a vector on the left": matmul((8,), (8, 9)),
    "a vector on the right": matmul((5, 8), (8,)),
    "a vector on the left of a batch": matmul((8,), (3, 8, 5)),
    "a constant matrix behind a vector": matmul((8,), real(8, 9)),
    "a constant batch behind a vector": matmul((8,), real(3, 8, 9)),
    "a vector behind a batch": matmul((2, 3, 5, 8), (8,)),
    "two vectors": matmul((8,), (8,)),
    "a constant vector on the right": matmul((2, 5, 8), real(8)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_matrix_product_agrees(bench: Bench, name: str) -> None:
    bench.check(PRODUCTS[name], schedule=SHORT)


@pytest.mark.parametrize("name", VECTORS)
def test_a_product_with_a_vector_agrees(bench: Bench, name: str) -> None:
    bench.check(VECTORS[name], schedule=SHORT)


def gemm(a: tuple[int, int], b: tuple[int, int], c: Array | None, constant: bool = True, **attributes: Any) -> Small:
    """A Gemm from input "x" to "y"; C is a constant, or an input with the right-hand side."""
    others = {"w": real(*b, seed=1)} | ({} if c is None else {"c": c})
    nodes = [node("Gemm", ["x", *others], ["y"], **attributes)]
    x = {"x": real(*a)}
    return Small(nodes, x, ["y"], others) if constant else Small(nodes, x | others, ["y"])


SCALAR = np.array(0.75, "float32")
GEMMS = {
    "plain": gemm((5, 8), (8, 12), None),
    "bias of a row": gemm((5, 8), (8, 12), real(12)),
    "bias of one row": gemm((5, 8), (8, 12), real(1, 12)),
    "bias of a column": gemm((5, 8), (8, 12), real(5, 1)),
    "bias of a matrix": gemm((5, 8), (8, 12), real(5, 12)),
    "bias of one number": gemm((5, 8), (8, 12), real(1)),
    "bias of a scalar": gemm((5, 8), (8, 12), SCALAR),
    "bias of one by one": gemm((5, 8), (8, 12), real(1, 1)),
    "left transposed": gemm((8, 5), (8, 12), real(12), transA=1),
    "right transposed": gemm((5, 8), (12, 8), real(12), transB=1),
    "both transposed": gemm((8, 5), (12, 8), real(12), transA=1, transB=1),
    "scaled": gemm((5, 8), (8, 12), real(12), alpha=0.5, beta=-2.0),
    "without its bias": gemm((5, 8), (8, 12), real(12), beta=0.0),
    "nothing but its bias": gemm((5, 8), (8, 12), real(12), alpha=0.0),
    "scaled, transposed, tails": gemm((13, 5), (11, 13), real(5, 11), transA=1, transB=1, alpha=1.5, beta=0.25),
    "computed": gemm((5, 8), (8, 12), real(12), constant=False),
    "computed, transposed": gemm((13, 5), (11, 13), real(5, 1), constant=False, transA=1, transB=1, beta=3.0),
    "classifier": gemm((1, 64), (30, 64), real(30), transB=1),
}


@pytest.mark.parametrize("name", GEMMS)
def test_a_gemm_agrees(bench: Bench, name: str) -> None:
    bench.check(GEMMS[name], schedule=SHORT)


def test_a_bias_of_infinity_without_weight_leaves_no_trace(bench: Bench) -> None:
    infinite = np.full(12, np.inf, "float32")
    bench.check(gemm((5, 8), (8, 12), infinite, beta=0.0), schedule=SHORT)


def test_a_blocked_input_with_more_channels_than_lanes_multiplies(bench: Bench) -> None:
    bench.check(matmul((2, 16, 5, 8), real(8, 8)), {"x": "c8", "y": "c8"}, SHORT)
