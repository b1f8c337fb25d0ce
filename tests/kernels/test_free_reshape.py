"""Which groups cost no kernel, checked against what the arrays really look like in memory."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.packing import to_physical
from autofuse.kernels.workload.workload import PLAIN, Value, Workload, WorkloadOperator

Shape = tuple[int, ...]


def reshape(before: Shape, after: Shape, layout: str = PLAIN, result: str = PLAIN) -> Workload:
    target = Value("literal", (len(after),), "int64", literal=json.dumps(list(after)))
    values = (Value("input", before, "float32", layout), target, Value("output", after, "float32", result))
    return Workload(values, (WorkloadOperator("Reshape", (0, 1), (2,)),), 17)


def transpose(before: Shape, order: Shape) -> Workload:
    after = tuple(before[axis] for axis in order)
    values = (Value("input", before, "float32"), Value("output", after, "float32"))
    return Workload(values, (WorkloadOperator("Transpose", (0,), (1,), (("perm", order),)),), 17)


def test_a_plain_reshape_is_a_view() -> None:
    assert is_free_reshape(reshape((2, 12), (4, 6)))


def test_pooled_blocked_channels_become_a_row_for_free() -> None:
    assert is_free_reshape(reshape((2, 16, 1, 1), (2, 16), layout="c8"))


def test_blocked_channels_with_pixels_do_not() -> None:
    assert not is_free_reshape(reshape((1, 16, 2, 2), (1, 64), layout="c8"))


def test_blocked_channels_may_flatten_their_pixels() -> None:
    assert is_free_reshape(reshape((2, 16, 3, 4), (2, 16, 12), layout="c8", result="c8"))


def test_blocks_of_different_size_are_not_the_same_order() -> None:
    assert not is_free_reshape(reshape((1, 16, 2, 2), (1, 16, 4), layout="c8", result="c16"))


def test_other_operators_are_no_views() -> None:
    values = (Value("input", (4,), "float32"), Value("output", (4,), "float32"))
    assert not is_free_reshape(Workload(values, (WorkloadOperator("Relu", (0,), (1,)),), 17))


def test_a_cast_is_no_view() -> None:
    values = (Value("input", (4,), "float32"), Value("output", (4,), "int32"))
    assert not is_free_reshape(Workload(values, (WorkloadOperator("Identity", (0,), (1,)),), 17))


def test_a_chain_with_two_results_is_a_view() -> None:
    values = (
        Value("input", (2, 1, 3), "float32"),
        Value("output", (6,), "float32"),
        Value("output", (1, 6), "float32"),
    )
    flatten = WorkloadOperator("Identity", (1,), (2,))
    squeeze = WorkloadOperator("Squeeze", (0,), (1,))
    assert is_free_reshape(Workload(values, (squeeze, flatten), 17))


def test_two_activations_are_no_view() -> None:
    values = (
        Value("input", (6,), "float32"),
        Value("input", (2,), "int64"),
        Value("output", (2, 3), "float32"),
    )
    assert not is_free_reshape(Workload(values, (WorkloadOperator("Reshape", (0, 1), (2,)),), 17))


@pytest.mark.parametrize("layout", [PLAIN, "c8"])
@pytest.mark.parametrize("result", [PLAIN, "c8"])
@pytest.mark.parametrize("after", [(2, 16), (2, 16, 1), (2, 16, 4), (2, 16, 2, 2), (4, 8, 4), (128,)])
@pytest.mark.parametrize("before", [(2, 16, 1, 1), (2, 16, 2, 2), (2, 16, 4), (4, 8, 4), (1, 128)])
def test_a_reshape_that_is_a_view_leaves_memory_as_it_is(before: Shape, after: Shape, layout: str, result: str) -> None:
    blocked = result == "c8" and (len(after) < 2 or after[1] % 8)
    if np.prod(before) != np.prod(after) or blocked:
        pytest.skip("no such reshape")
    workload = reshape(before, after, layout, result)
    array = np.arange(np.prod(before), dtype="float32").reshape(before)
    stored = to_physical(array, workload.values[0]).ravel()
    wanted = to_physical(array.reshape(after), workload.values[2]).ravel()
    if is_free_reshape(workload):
        assert (stored == wanted).all()
    elif layout == result == PLAIN:
        raise AssertionError("a plain reshape must be a view")


@given(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_transpose_is_a_view_exactly_when_the_order_in_memory_stays(shape: list[int], random: object) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    array = np.arange(np.prod(shape)).reshape(shape)
    assert is_free_reshape(transpose(tuple(shape), tuple(order))) == bool(
        (array.transpose(order).ravel() == array.ravel()).all()
    )
