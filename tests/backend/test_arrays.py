"""Arrays as TVM sees them: the same memory where that is right, a copy where it is not, the same values always."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autofuse.backend.container.metadata import InputSpec
from autofuse.backend.library.arrays import Array, Kept, accepted, aligned_zeros, as_array, tensor_over
from autofuse.backend.library.runtime import copied
from autofuse.errors import InputError


def aligned(*shape: int) -> Array:
    made = aligned_zeros(InputSpec("x", shape, "float32"))
    made[...] = np.arange(made.size, dtype="float32").reshape(shape)
    return made


def moved(array: Array) -> Array:
    """At an address that is no multiple of 64."""
    return aligned(array.size + 1)[1:].reshape(array.shape)


def frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3, 5), (2, 3, 4, 5)])
def test_aligned_memory_is_shared(shape: tuple[int, ...]) -> None:
    array = aligned(*shape)
    view = np.from_dlpack(tensor_over(array))
    np.testing.assert_array_equal(view, array)
    if array.size:
        array[...] = 7
        assert np.all(view == 7)


def test_aligned_booleans_are_shared_too() -> None:
    array = aligned_zeros(InputSpec("x", (3, 5), "bool"))
    tensor = tensor_over(array)
    array[1:] = True
    np.testing.assert_array_equal(copied(tensor), array)
    again = tensor_over(array[:, ::2])
    array[...] = False
    assert copied(again).any(), "what is not contiguous is a copy"


@pytest.mark.parametrize("change", [moved, frozen, np.asfortranarray, lambda array: array[::2]])
def test_other_memory_is_copied(change: Callable[[Array], Array]) -> None:
    array = change(aligned(6, 6))
    before = array.copy()
    view = np.from_dlpack(tensor_over(array))
    if array.flags.writeable:
        array[...] = -1
    np.testing.assert_array_equal(view, before)
    assert view.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64", "uint8"])
def test_every_type_of_element_arrives(dtype: str) -> None:
    array = np.array([[0, 1, 2], [3, 0, 1]]).astype(dtype)
    np.testing.assert_array_equal(np.from_dlpack(tensor_over(array)), array)


def test_lists_and_tensors_become_arrays() -> None:
    array = aligned(4)
    assert as_array(array) is array
    assert np.shares_memory(as_array(tensor_over(array)), array)
    np.testing.assert_array_equal(as_array([1, 2]), [1, 2])


@pytest.mark.parametrize(("values", "good"), [([-5, 4], True), ([5], False), ([-6, 0], False), ([], True)])
def test_indices_stay_inside_their_table(values: list[int], good: bool) -> None:
    spec, array = InputSpec("ids", (len(values),), "int64", table=5), np.array(values, "int64")
    if good:
        accepted(spec, np.dtype("int64"), array)
    else:
        with pytest.raises(InputError, match="'ids'.*table of 5.*-5 to 4"):
            accepted(spec, np.dtype("int64"), array)
    with pytest.raises(InputError, match="dtype int32, the model takes int64"):
        accepted(spec, np.dtype("int64"), array.astype("int32"))


def test_a_copy_lies_where_a_longer_one_lay() -> None:
    kept: Kept = {}
    addresses = set()
    for rows in (7, 3, 5, 7):
        array = moved(aligned(rows, 5))
        tensor = tensor_over(array, kept, 0)
        np.testing.assert_array_equal(np.from_dlpack(tensor), array)
        addresses.add(tensor.data_ptr())
    assert len(addresses) == 1


def test_a_longer_copy_lies_where_a_shorter_one_lay_if_that_is_known_ahead() -> None:
    """So a size that is larger than all before touches no more memory than it adds."""
    kept: Kept = {}
    addresses = [tensor_over(moved(aligned(rows, 5)), kept, 0, 7 * 5 * 4).data_ptr() for rows in (3, 5, 7)]
    assert len(set(addresses)) == 1
