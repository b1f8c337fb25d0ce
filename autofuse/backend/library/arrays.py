"""The arrays that go into a library: as numpy has them, as TVM sees them, checked, aligned, made up."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.container.container import ALIGNMENT
from autofuse.backend.container.metadata import InputSpec
from autofuse.backend.library.runtime import boolean_tensor, empty_tensor
from autofuse.errors import InputError
from autofuse.ort.bound import is_value

Array = NDArray[np.generic]

Kept = dict[int, tuple[Array, Any]]
"""Copies of inputs by place, each as numpy and as TVM have it: memory that is new costs more than the copying."""
_DLPACK_KINDS = "fiu"
"""numpy's kinds of elements that it and TVM hand to each other as they are; booleans pass as bytes."""


def tensor_over(array: Array, kept: Kept | None = None, place: int = 0) -> Any:
    """The array as TVM's tensor: the same memory when it is contiguous, writable and aligned, else a copy.

    `kept`: memory of copies, by place; a copy of the same shape is made where the last one lay.
    """
    kind = array.dtype.kind
    if kind not in _DLPACK_KINDS and kind != "b":
        import tvm

        return tvm.runtime.tensor(np.asarray(array, order="C"))
    if not array.size:
        return empty_tensor(array.shape, array.dtype.name)
    over = boolean_tensor if kind == "b" else _over()
    if array.flags.carray:
        tensor = over(array)
        if not tensor.data_ptr() % ALIGNMENT:  # numpy takes twenty times as long to say where an array lies
            return tensor
    if kept is None:
        return over(_aligned_copy(array))
    found = kept.get(place)
    if found is None or found[0].shape != array.shape or found[0].dtype != array.dtype:
        made = _aligned(array.shape, array.dtype)
        found = kept[place] = made, over(made)
    found[0][...] = array
    return found[1]


@cache
def _over() -> Any:
    """What makes a tensor over another's memory."""
    from tvm_ffi import from_dlpack

    return from_dlpack


def _aligned_copy(array: Array) -> Array:
    made = _aligned(array.shape, array.dtype)
    made[...] = array
    return made


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = math.prod(shape) * dtype.itemsize
    block = np.empty(size + ALIGNMENT, np.uint8)
    start = -_over()(block).data_ptr() % ALIGNMENT
    return block[start : start + size].view(dtype).reshape(shape)


def aligned_zeros(spec: InputSpec) -> Array:
    """Zeros for an input, where a library reads them without a copy."""
    made = _aligned(spec.shape, np.dtype(spec.dtype))
    made[...] = 0
    return made


def as_array(given: Any) -> Array:
    """What was given as an array; anything with `__dlpack__` shares its memory. InputError for what is none."""
    if isinstance(given, np.ndarray):
        return given
    try:
        if is_value(given):
            return np.asarray(given.numpy())
        return np.from_dlpack(given) if hasattr(given, "__dlpack__") else np.asarray(given)
    except (ValueError, TypeError, BufferError, RuntimeError, OverflowError) as error:
        raise InputError(f"an input of type {type(given).__name__} is no array: {error}") from error


def refuse_values(spec: InputSpec, wanted: np.dtype[Any], array: Array) -> None:
    """InputError for elements that the program does not take."""
    if array.dtype != wanted and array.dtype.newbyteorder("=") == wanted:
        raise InputError(
            f"input {spec.name!r}: its numbers are stored in the other byte order ({array.dtype.str}): "
            f"convert it with array.astype({spec.dtype!r})"
        )
    if array.dtype != wanted:
        raise InputError(f"input {spec.name!r}: dtype {array.dtype.name}, the model takes {spec.dtype}")
    table = spec.table
    if table is None or not array.size:
        return
    least, most = np.minimum.reduce(array, axis=None), np.maximum.reduce(array, axis=None)
    if least < -table or most >= table:
        raise InputError(
            f"input {spec.name!r}: values from {least} to {most}, but it indexes a table of {table}: "
            f"allowed are {-table} to {table - 1}"
        )


def example(spec: InputSpec, generator: np.random.Generator) -> Array:
    """Values that an input may have: normal numbers, integers inside the table that they index, ones."""
    dtype = np.dtype(spec.dtype)
    if spec.example is not None:
        return generator.integers(*spec.example, size=spec.shape, endpoint=True).astype(dtype)
    if dtype.kind == "f":
        return generator.standard_normal(spec.shape).astype(dtype)
    return np.ones(spec.shape, dtype)
