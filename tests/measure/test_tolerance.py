import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autofuse.measure.checking.tolerance import Verdict, compare, poisoned

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]


def floats(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array(values, dtype)


def test_the_error_is_measured_against_the_range_of_the_reference():
    verdict = compare(floats(0, 10.0005, 5), floats(0, 10, 5))
    assert verdict.ok
    assert verdict.max_rel_error == pytest.approx(5e-5, rel=0.01)


def test_an_error_beyond_the_limit_names_the_element_and_both_values():
    verdict = compare(floats(0, 10.01, 5), floats(0, 10, 5))
    assert not verdict.ok
    assert "(1,)" in verdict.reason
    assert "10.0" in verdict.reason


def test_a_stricter_limit_refuses_what_the_default_takes():
    actual, expected = floats(0, 10.0005, 5), floats(0, 10, 5)
    assert compare(actual, expected).ok
    assert not compare(actual, expected, 1e-6).ok


def test_a_constant_output_is_measured_against_its_size():
    assert compare(floats(1.00005, 1.00005), floats(1, 1)).ok
    assert not compare(floats(1.01, 1.01), floats(1, 1)).ok


def test_rounding_of_large_values_with_a_tiny_range_is_not_an_error():
    expected = floats(1000, 1000.0005)
    assert compare(np.nextafter(expected, np.float32(2000)), expected).ok
    assert not compare(expected + np.float32(0.05), expected).ok


def test_an_all_zero_reference_is_compared_absolutely():
    assert compare(floats(0, 1e-6), floats(0, 0)).ok
    assert not compare(floats(0, 1e-2), floats(0, 0)).ok


@pytest.mark.parametrize(
    ("actual", "expected", "ok"),
    [
        ((np.nan, 1), (np.nan, 1), True),
        ((np.nan, 1), (2, 1), False),
        ((2, 1), (np.nan, 1), False),
        ((np.inf, 1), (np.inf, 1), True),
        ((-np.inf, 1), (np.inf, 1), False),
        ((np.inf, 1), (3e38, 1), False),
        ((np.nan, np.nan), (np.nan, np.nan), True),
        ((np.nan, 1.5, 3), (np.nan, 1, 3), False),
    ],
)
def test_nan_and_infinities_must_stand_in_the_same_places(actual, expected, ok):
    assert compare(floats(*actual), floats(*expected)).ok is ok


def test_the_index_of_an_error_behind_a_nan_is_right():
    verdict = compare(floats(np.nan, 1, 3.5), floats(np.nan, 1, 3))
    assert "(2,)" in verdict.reason


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_and_bools_must_be_equal(dtype):
    expected = np.array([0, 1, 1], dtype)
    assert compare(expected.copy(), expected).ok
    verdict = compare(np.array([0, 1, 0], dtype), expected)
    assert not verdict.ok
    assert "1 of 3 elements differ, first at (2,)" in verdict.reason


def test_another_shape_or_dtype_is_wrong():
    assert "float64[2]" in compare(floats(1, 2, dtype="float64"), floats(1, 2)).reason
    assert not compare(floats(1, 2).reshape(2, 1), floats(1, 2)).ok


def test_complex_numbers_compare_by_their_parts():
    assert compare(np.array([1 + 2j]), np.array([1 + 2j])).ok
    assert not compare(np.array([1 + 2.5j]), np.array([1 + 2j])).ok


def test_empty_arrays_are_equal():
    assert compare(np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32")).ok


@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_a_poisoned_output_with_any_element_left_unwritten_is_wrong(data, dtype):
    expected = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
    result = poisoned(expected)
    assert result.dtype == expected.dtype
    unwritten = data.draw(st.integers(0, expected.size - 1))
    written = np.arange(expected.size).reshape(expected.shape) != unwritten
    result = np.where(written, expected, result).astype(dtype)
    assert not compare(result, expected).ok


@given(expected=hnp.arrays("float32", 5, elements=st.floats(width=32)))
def test_every_array_equals_itself(expected):
    verdict = compare(expected.copy(), expected)
    assert verdict.ok
    assert verdict.max_rel_error == 0.0


def test_few_levels_may_be_one_off_where_a_rounding_is_ambiguous():
    expected = np.arange(200, dtype="uint8")
    near = expected.copy()
    near[[3, 77]] += 1
    assert not compare(near, expected).ok
    assert compare(near, expected, ambiguous=True).ok


@pytest.mark.parametrize(("places", "by"), [((3,), 2), (tuple(range(0, 200, 20)), 1)])
def test_two_levels_or_many_elements_are_wrong_even_there(places, by):
    expected = np.arange(200, dtype="uint8")
    other = expected.copy()
    other[list(places)] += by
    assert not compare(other, expected, ambiguous=True).ok


def test_numbers_behind_an_ambiguous_rounding_may_be_a_level_off_in_few_elements():
    expected = np.linspace(0, 255, 256, dtype="float32")
    near = expected.copy()
    near[[5, 9]] += 1
    assert not compare(near, expected).ok
    assert compare(near, expected, ambiguous=True).ok
    near[5] += 2
    assert not compare(near, expected, ambiguous=True).ok
    assert not compare(expected + 1, expected, ambiguous=True).ok
    near[5] = np.nan
    assert not compare(near, expected, ambiguous=True).ok


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_never_written_is_wrong_even_behind_an_ambiguous_rounding(dtype):
    expected = np.arange(64).astype(dtype)
    assert not compare(poisoned(expected), expected, ambiguous=True).ok


def test_an_error_below_the_normal_numbers_does_not_count_where_kernels_write_0_there() -> None:
    tiny = np.array([1e-39, -2e-41], np.float32)
    assert compare(np.zeros_like(tiny), tiny) == Verdict(0.0, True)
    assert not compare(np.zeros_like(tiny), np.array([1e-37, 0.0], np.float32)).ok
    assert not compare(np.full_like(tiny, np.nan), tiny).ok
    assert not compare(np.zeros(2, np.float16), np.array([5e-6, 1e-6], np.float16)).ok
