"""Offsets of indices: what was cut into an index is put together again, and nothing else is."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.ir import Range
from tvm.sym.analyzer import Analyzer

from autofuse.kernels.tir.offsets import delinear, linear


def variable(extent: int) -> tuple[Any, Analyzer]:
    """A loop variable over [0, extent), and who knows that."""
    found, analyzer = tirx.Var("v", "int32"), Analyzer()
    analyzer.bind(found, Range(0, extent))
    return found, analyzer


def value(expression: Any, variable: Any, number: int) -> int:
    """What an expression is where the variable is `number`."""
    if isinstance(expression, int):
        return expression
    analyzer = Analyzer()
    analyzer.bind(variable, tirx.const(number, "int32"))
    return int(analyzer.simplify(expression))


def has_rest(expression: Any) -> bool:
    return "%" in str(expression)


@pytest.mark.parametrize("start", [0, 4, 16, 32, 48, 1000])
@pytest.mark.parametrize("shape", [(16, 12), (14, 14), (5, 7, 9), (1, 28, 28)])
def test_neighbours_of_a_flat_place_stay_neighbours(start: int, shape: tuple[int, ...]) -> None:
    flat, analyzer = variable(64)
    index = [part if isinstance(part, int) else analyzer.simplify(part) for part in delinear(flat + start, shape)]
    offset = analyzer.simplify(linear(index, shape))
    assert not has_rest(offset)
    assert [value(offset, flat, number) for number in (0, 1, 63)] == [start, start + 1, start + 63]


def test_a_place_inside_a_larger_tensor_is_put_together_where_it_was_cut() -> None:
    flat, analyzer = variable(64)
    rows, columns = (analyzer.simplify(part) for part in delinear(flat + 16, (14, 12)))
    offset = linear((3, rows, columns, 5), (4, 14, 12, 16))
    assert not has_rest(analyzer.simplify(offset))
    assert value(offset, flat, 7) == ((3 * 14 * 12) + 7 + 16) * 16 + 5


def test_quotient_and_rest_of_different_numbers_stay_apart() -> None:
    flat, analyzer = variable(64)
    offset = linear((flat // 12, (flat + 1) % 12), (6, 12))
    assert has_rest(analyzer.simplify(offset))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.integers(0, 100),
    st.integers(-3, 3),
    st.integers(1, 3),
)
def test_an_offset_is_that_of_its_index_whatever_the_parts_look_like(
    shape: list[int], start: int, more: int, step: int
) -> None:
    flat, analyzer = variable(40)
    parts = delinear(flat * step + start, shape)
    index = [part if isinstance(part, int) else analyzer.simplify(part) for part in (parts[0] + more, *parts[1:])]
    offset = linear(index, shape)
    for number in (0, 1, 17, 39):
        place = [value(part, flat, number) for part in index]
        assert value(offset, flat, number) == sum(part * prod(shape[axis + 1 :]) for axis, part in enumerate(place)), (
            shape,
            place,
        )


def test_integers_are_added_up() -> None:
    shape = (3, 4, 5)
    for index in product(*(range(extent) for extent in shape)):
        assert linear(index, shape) == np.ravel_multi_index(index, shape)
        assert delinear(linear(index, shape), shape) == index
