"""The arrays that go into a library: as numpy has them, as TVM sees them, checked, aligned, made up."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.container.container import ALIGNMENT
from autofuse.backend.container.metadata import InputSpec, Program
from autofuse.backend.library.runtime import boolean_tensor, empty_tensor
from autofuse.errors import InputError
from autofuse.graph.own.rounding import rounded
from autofuse.ort.bound import array_of, is_value
from autofuse.values.names import BFLOAT16, numpy_dtype

Array = NDArray[np.generic]

Kept = dict[int, tuple[Array, Any]]
"""Copies of inputs by place, each as numpy and as TVM have it: memory that is new costs more than the copying."""
_DLPACK_KINDS = "fiu"
"""numpy's kinds of elements that it and TVM hand to each other as they are; booleans pass as bytes."""


def tensor_over(array: Array, kept: Kept | None = None, place: int = 0) -> Any:
    """The array as TVM's tensor: the same memory when it is contiguous, writable and aligned, else a copy.

    `kept`: memory of copies, by place; a copy of the same shape is made where the last one lay.
    """
    array = bits_of_halves(array)
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


def bits_of_halves(array: Array) -> Array:
    """bfloat16 as its bits, which is how TVM and code have it; any other array as it is."""
    return array.view(np.uint16) if array.dtype.name == BFLOAT16 else array


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
    made = _aligned(spec.shape, numpy_dtype(spec.dtype))
    made[...] = 0
    return made


def as_array(given: Any) -> Array:
    """What was given as an array; anything with `__dlpack__` shares its memory. InputError for what is none."""
    if isinstance(given, np.ndarray):
        return given
    try:
        if is_value(given):
            return array_of(given)
        return np.from_dlpack(given) if hasattr(given, "__dlpack__") else np.asarray(given)
    except (ValueError, TypeError, BufferError, RuntimeError, OverflowError) as error:
        raise InputError(f"an input of type {type(given).__name__} is no array: {error}") from error


def accepted(spec: InputSpec, wanted: np.dtype[Any], array: Array) -> Array:
    """The array as the program takes it, which it is but for bfloat16: that may come as its bits, in uint16 or in the
    two bytes that numpy reads from a file, and float32 is rounded to it. InputError for other elements."""
    if spec.dtype == BFLOAT16 and array.dtype != wanted:
        if array.dtype in (np.uint16, np.dtype("V2")):
            return array.view(wanted)
        return np.asarray(rounded(array), wanted) if array.dtype == np.float32 else _refused(spec, array)
    _check_values(spec, wanted, array)
    return array


def _refused(spec: InputSpec, array: Array) -> Array:
    more = "; float32 is rounded, uint16 taken for its bits" if spec.dtype == BFLOAT16 else ""
    raise InputError(f"input {spec.name!r}: dtype {array.dtype.name}, the model takes {spec.dtype}{more}")


def _check_values(spec: InputSpec, wanted: np.dtype[Any], array: Array) -> None:
    if array.dtype != wanted and array.dtype.newbyteorder("=") == wanted:
        raise InputError(
            f"input {spec.name!r}: its numbers are stored in the other byte order ({array.dtype.str}): "
            f"convert it with array.astype({spec.dtype!r})"
        )
    if array.dtype != wanted:
        _refused(spec, array)
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
    dtype = numpy_dtype(spec.dtype)
    if spec.example is not None:
        return generator.integers(*spec.example, size=spec.shape, endpoint=True).astype(dtype)
    if dtype.kind == "f" or spec.dtype == BFLOAT16:
        return generator.standard_normal(spec.shape).astype(dtype)
    return np.ones(spec.shape, dtype)


class Caches:
    """What a library keeps between calls, of one sequence: tensors that each call reads, and extends in place.

    `symbol`: the size that says their length; `size`: the rows that each has. `caches["past.0.key"]` are these, as a
    view that the next call does not change.
    """

    def __init__(self, program: Program) -> None:
        opened = program.opened
        assert opened is not None
        places = zip(program.inputs, opened.inputs, strict=True)
        known = {spec.name: (spec, axes[0]) for spec, axes in places if axes}
        self.names = opened.kept
        self._axes = {name: known[name][1].axis for name in self.names}
        self._whole = {name: aligned_zeros(known[name][0]) for name in self.names}
        along = known[self.names[0]][1]
        self._added, self._high, self.symbol = along.more, opened.sizes[along.size].high, opened.names[along.size]
        self._lock = threading.Lock()
        self.size = 0

    def __getitem__(self, name: str) -> Array:
        if name not in self._whole:
            raise InputError(f"the library has no cache {name!r}; its caches: {', '.join(self.names)}")
        return self._rows(name, self.size)

    def fill(self, rows: Mapping[str, Any]) -> None:
        """Takes the rows of all caches, as a model of the prompt gives them. InputError where they do not fit."""
        arrays = {name: as_array(rows[name]) for name in self.names if name in rows}
        if arrays.keys() != rows.keys() or len(arrays) < len(self.names):
            raise InputError(f"fill the caches all together, and nothing else: {', '.join(self.names)}")
        axis = self._axes[self.names[0]]
        size = arrays[self.names[0]].shape[axis] if arrays[self.names[0]].ndim > axis else 0
        for name, array in arrays.items():
            wanted = self._whole[name]
            shape = (*wanted.shape[: self._axes[name]], size, *wanted.shape[self._axes[name] + 1 :])
            if array.shape != shape or array.dtype != wanted.dtype or size > self._high + self._added:
                raise InputError(
                    f"cache {name!r}: {array.dtype.name} of shape {array.shape} does not fit into {wanted.dtype.name} "
                    f"of shape {wanted.shape}, or not beside the others"
                )
        with self._lock:
            for name, array in arrays.items():
                self._rows(name, size)[...] = array
            self.size = size

    def keep(self, size: int) -> None:
        """Forgets all rows but the first ones; all of them for 0, where a new sequence begins."""
        with self._lock:
            if not 0 <= size <= self.size:
                raise InputError(f"the caches have {self.size} rows; {size} cannot be kept")
            self.size = size

    @contextmanager
    def extended(self) -> Iterator[None]:
        """A call that adds rows; those of other threads wait. Where it fails, nothing is added."""
        with self._lock:
            yield
            self.size += self._added

    def given(self) -> dict[str, Array]:
        """The inputs of a call: memory of a longer tensor that says to be of this call's size. Its kernels know where
        the rows of the longer one lie."""
        if self.size > self._high:
            raise InputError(
                f"the caches are full: {self.symbol} is {self.size}, the library takes {self._high} at most: forget "
                f"some (keep), or compile it with a wider range, --sizes {self.symbol}=LOW:HIGH"
            )
        made = {}
        for name, whole in self._whole.items():
            axis = self._axes[name]
            shape = (*whole.shape[:axis], self.size + self._added, *whole.shape[axis + 1 :])
            made[name] = whole.reshape(-1)[: math.prod(shape)].reshape(shape)
        return made

    def _rows(self, name: str, size: int) -> Array:
        return self._whole[name][(slice(None),) * self._axes[name] + (slice(0, size),)]
