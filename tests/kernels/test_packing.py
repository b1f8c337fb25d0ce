import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.errors import InputError
from autofuse.kernels.workload.packing import to_logical, to_physical
from autofuse.kernels.workload.workload import Value


@given(st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(1, 4), max_size=3), st.sampled_from([4, 8, 16]))
def test_a_blocked_array_holds_each_channel_in_its_lane_and_comes_back(batch, blocks, tail, block):
    value = Value("input", (batch, blocks * block, *tail), "float32", f"c{block}")
    array = np.arange(value_size(value), dtype="float32").reshape(value.shape)
    stored = to_physical(array, value)
    assert stored.shape == value.physical_shape
    assert stored.flags.c_contiguous
    for channel in range(blocks * block):
        assert np.array_equal(stored[:, channel // block, ..., channel % block], array[:, channel])
    assert np.array_equal(to_logical(stored, value), array)


def test_the_plain_layout_changes_nothing():
    value = Value("input", (2, 3), "int64")
    array = np.arange(6).reshape(2, 3)
    assert np.array_equal(to_physical(array, value), array)
    assert np.array_equal(to_logical(array, value), array)


def test_a_scalar_stays_without_dimensions():
    value = Value("input", (), "float32")
    assert to_physical(np.array(1.5, "float32"), value).shape == ()
    assert to_logical(np.array(1.5, "float32"), value).shape == ()


def test_a_strided_array_becomes_contiguous():
    value = Value("input", (3, 2), "float64")
    assert to_physical(np.arange(6.0).reshape(2, 3).T, value).flags.c_contiguous


@pytest.mark.parametrize(("shape", "layout"), [((1, 12, 2), "c8"), ((8,), "c8")])
def test_a_block_that_does_not_divide_the_channels_is_refused(shape, layout):
    with pytest.raises(InputError, match="does not fit"):
        to_physical(np.zeros(shape, "float32"), Value("input", shape, "float32", layout))


def test_an_array_of_another_shape_is_refused():
    value = Value("input", (1, 8, 2), "float32", "c8")
    with pytest.raises(InputError, match="its value says"):
        to_physical(np.zeros((1, 2, 8), "float32"), value)
    with pytest.raises(InputError, match="its value says"):
        to_logical(np.zeros((1, 8, 2), "float32"), value)


def value_size(value: Value) -> int:
    return int(np.prod(value.shape))
