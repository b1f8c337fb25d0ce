"""Transposes that move the innermost axis are turned in registers, and agree with ONNX Runtime whatever the sizes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autofuse.kernels.families.moves.transposes import Axis, merged, sides_of
from tests.kernels.conftest import Bench, Small

Shape = tuple[int, ...]


def transpose(shape: Shape, perm: Shape, dtype: str = "float32") -> Small:
    values = np.arange(prod(shape)).reshape(shape)
    return Small([helper.make_node("Transpose", ["x"], ["y"], perm=perm)], {"x": values.astype(dtype)}, ["y"])


CASES = {
    "squares": ((16, 32), (1, 0)),
    "odd sizes": ((37, 29), (1, 0)),
    "a batch": ((3, 20, 24), (0, 2, 1)),
    "all axes": ((6, 9, 12), (2, 1, 0)),
    "heads": ((1, 12, 3, 8), (0, 2, 3, 1)),
    "channels to the end": ((1, 8, 5, 7), (0, 2, 3, 1)),
    "channels to the front": ((2, 5, 7, 8), (0, 3, 1, 2)),
    "three channels to the end": ((2, 3, 7, 11), (0, 2, 3, 1)),
    "three channels to the front": ((2, 7, 11, 3), (0, 3, 1, 2)),
    "pairs": ((5, 2, 40), (0, 2, 1)),
    "three channels that stay apart": ((3, 4, 40), (2, 1, 0)),
    "too small": ((3, 2), (1, 0)),
    "rows stay": ((6, 10, 16), (1, 0, 2)),
    "ones": ((1, 9, 1, 17), (3, 2, 1, 0)),
    "many tasks": ((128, 300), (1, 0)),
}


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", CASES)
def test_any_sizes_agree(bench: Bench, name: str, lanes: int) -> None:
    bench.check(transpose(*CASES[name]), lanes=lanes)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float64", "bool", "float16"])
@pytest.mark.parametrize("name", ["odd sizes", "three channels to the end", "three channels to the front"])
def test_any_type_agrees(bench: Bench, name: str, dtype: str) -> None:
    bench.check(transpose(*CASES[name], dtype))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_merged_axes_reach_every_element_of_the_result(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    axes = merged(shape, perm)
    source, result = np.zeros(1, int), np.zeros(1, int)
    for axis in axes:
        steps = np.arange(axis.size)
        source = (source[:, None] + steps * axis.source).reshape(-1)
        result = (result[:, None] + steps * axis.result).reshape(-1)
    assert (result == np.arange(prod(shape))).all()
    assert (source == np.arange(prod(shape)).reshape(shape).transpose(perm).reshape(-1)).all()


def test_a_tile_is_a_square_or_as_narrow_as_what_lies_together() -> None:
    assert sides_of(Axis(100, 50, 1), Axis(50, 1, 100), 16) == (16, 16)
    assert sides_of(Axis(5, 50, 1), Axis(50, 1, 5), 16) == (4, 4)
    assert sides_of(Axis(3, 50, 1), Axis(50, 1, 3), 16) == (3, 16)
    assert sides_of(Axis(50, 3, 1), Axis(3, 1, 50), 16) == (16, 3)
    assert sides_of(Axis(3, 50, 1), Axis(50, 1, 12), 16) is None  # four such rows lie between
    assert sides_of(Axis(3, 2, 1), Axis(2, 1, 3), 16) is None
