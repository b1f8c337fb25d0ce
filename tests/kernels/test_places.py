"""ArgMax and ArgMin agree with ONNX Runtime: ties, infinities, any axis, any length, any layout, with neighbours."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import helper

from autofuse.kernels.families.registry import is_own, kind_of, nests_of
from tests.kernels.conftest import Array, Bench, Small, parsed, real

Shape = tuple[int, ...]
KINDS = ["ArgMax", "ArgMin"]


def place(kind: str, x: Array, axis: int, **attributes: Any) -> Small:
    return Small([helper.make_node(kind, ["x"], ["y"], axis=axis, **attributes)], {"x": x}, ["y"])


def few(*shape: int) -> Array:
    """Numbers of which many are equal."""
    return np.random.default_rng(5).integers(-2, 3, shape).astype("float32")


SHAPES = [(1,), (5,), (8,), (13,), (3, 5), (3, 40), (4, 77), (5, 1), (1, 9, 1), (2, 3, 70), (2, 21, 5, 7), (40, 130)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_of_equal_ones_the_first_or_the_last_is_taken(bench: Bench, kind: str, shape: Shape) -> None:
    for axis, last in product(range(len(shape)), (0, 1)):
        bench.check(place(kind, few(*shape), axis, keepdims=last, select_last_index=last))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_width_of_vectors_agrees(bench: Bench, axis: int, lanes: int) -> None:
    for kind in KINDS:
        bench.check(place(kind, real(5, 67, 83), axis), lanes=lanes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("length", [3, 20])
def test_infinities_lie_on_the_axis(bench: Bench, kind: str, last: int, length: int) -> None:
    worst = -np.inf if kind == "ArgMax" else np.inf
    x = np.full((4, length), worst, "float32")
    x[1, 2], x[2, 1], x[3, :2] = 0.0, -worst, -worst
    for axis, array in ((1, x), (0, np.ascontiguousarray(x.T))):
        bench.check(place(kind, array, axis, select_last_index=last))


def test_blocked_layouts_agree(bench: Bench) -> None:
    for axis in range(4):
        bench.check(place("ArgMax", few(2, 16, 3, 5), axis), {"x": "c8"})


@pytest.mark.parametrize("axis", [1, 2])
def test_what_stands_before_and_behind_it_is_computed_in_its_loops(bench: Bench, axis: int) -> None:
    nodes = parsed(f"s = Sigmoid (x); a = ArgMax <axis={axis}, keepdims=0> (s); y = Cast <to=1> (a)")
    small = Small(nodes, {"x": real(2, 30, 40)}, ["y"])
    workload = bench.bind(small).workload
    assert [kind_of(workload, nest) for nest in nests_of(workload)] == ["reduction"]
    bench.check(small)


def test_other_types_are_left_to_tvm(bench: Bench) -> None:
    assert is_own(bench.bind(place("ArgMax", few(2, 3), 1)).workload)
    assert not is_own(bench.bind(place("ArgMax", few(2, 3).astype("int64"), 1)).workload)
