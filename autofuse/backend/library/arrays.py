"""The arrays that go into a library: as numpy has them, as TVM sees them, checked, aligned, made up."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.container.container import ALIGNMENT
from autofuse.backend.container.metadata import InputSpec, Program
from autofuse.backend.container.open_spec import SizeSpec
from autofuse.backend.library.runtime import boolean_tensor, empty_tensor
from autofuse.errors import InputError
from autofuse.graph.own.rounding import rounded
from autofuse.ort.bound import array_of, is_value
from autofuse.values.names import BFLOAT16, numpy_dtype

Array = NDArray[np.generic]

Kept = dict[int, tuple[Array, Any, Array]]
"""Copies of inputs by place, each as numpy and as TVM have it, and the memory that they lie in, which may be longer:
memory that is new costs more than the copying."""
AHEAD = 16
"""How many times as long a copy may be that a later call makes in the same memory: the largest size of a range may be
more than a system gives."""
_DLPACK_KINDS = "fiu"
"""numpy's kinds of elements that it and TVM hand to each other as they are; booleans pass as bytes."""


def tensor_over(array: Array, kept: Kept | None = None, place: int = 0, most: int = 0) -> Any:
    """The array as TVM's tensor: the same memory when it is contiguous, writable and aligned, else a copy.

    `kept`: memory of copies, by place; a copy is made where the last one lay, if it has room there. `most`: bytes of
    the longest copy that is made there. Memory that nobody has touched takes no room, so that it has as many at once,
    or `AHEAD` times those of this one.
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
        wanted = max(array.nbytes, min(most, AHEAD * array.nbytes))
        block = _block(wanted) if found is None or found[2].nbytes < array.nbytes else found[2]
        made = block[: array.nbytes].view(array.dtype).reshape(array.shape)
        found = kept[place] = made, over(made), block
    found[0][...] = array
    return found[1]


def lies_at(tensor: Any, array: Array) -> bool:
    """Whether a tensor reads the memory of an array, not a copy."""
    return int(tensor.data_ptr()) == int(array.__array_interface__["data"][0])


def bits_of_halves(array: Array) -> Array:
    """bfloat16 as its bits, which is how TVM and code have it; any other array as it is."""
    kind = array.dtype
    if kind.isbuiltin == 1:  # bfloat16 is none of numpy's own; a name takes numpy longer than the rest of a call takes
        return array
    return array.view(np.uint16) if kind.name == BFLOAT16 else array


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
    return _block(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)


def _block(size_bytes: int) -> Array:
    """So many bytes that begin where a library reads them without a copy."""
    block = np.empty(size_bytes + ALIGNMENT, np.uint8)
    start = -_over()(block).data_ptr() % ALIGNMENT
    return block[start : start + size_bytes]


def largest_bytes(program: Program) -> list[int]:
    """Bytes of each input of a program at the largest sizes."""
    shapes: Sequence[Sequence[int]] = [spec.shape for spec in program.inputs]
    if program.opened is not None:
        shapes = program.opened.input_shapes(program.inputs, {})
    return [
        math.prod(shape) * numpy_dtype(spec.dtype).itemsize for shape, spec in zip(shapes, program.inputs, strict=True)
    ]


def room(spec: InputSpec) -> Array:
    """Memory for an input that nobody writes, so that it takes no room. InputError where there is none."""
    try:
        return _aligned(spec.shape, numpy_dtype(spec.dtype))
    except (MemoryError, ValueError) as error:  # numpy counts no more than 2^63 elements
        raise InputError(f"input {spec.name!r}: no memory for {spec.dtype} of shape {spec.shape}") from error


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
    """What a library keeps between calls: tensors that each call reads, and extends in place.

    `symbol`: the size that says their length; `size`: the rows that each has. `caches["past.0.key"]` are these, as a
    view that the next call does not change. `several`: the size that says how many sequences there are, "" where that
    is not open; `sequences`: those that have rows, all of them as many. Where caches are empty, the next call may have
    any number of sequences, afterwards just so many.
    """

    def __init__(self, program: Program) -> None:
        opened = program.opened
        assert opened is not None
        places = zip(program.inputs, opened.inputs, strict=True)
        known = {spec.name: (spec, axes) for spec, axes in places if axes}
        self.names = opened.kept
        rows = {name: next(one for one in known[name][1] if one.more) for name in self.names}
        along = rows[self.names[0]]
        self._axes = {name: one.axis for name, one in rows.items()}
        self._each = {
            name: (one.axis, one.factor) for name in self.names for one in known[name][1] if one.size != along.size
        }
        self._whole = {name: aligned_zeros(known[name][0]) for name in self.names}
        counting = [one.size for name in self.names for one in known[name][1] if one.size != along.size]
        self._counted = opened.sizes[counting[0]] if counting else SizeSpec("", 1, 1)
        self.several, self.sequences = self._counted.name, self._counted.low
        self._added, self._high, self.symbol = along.more, opened.sizes[along.size].high, opened.names[along.size]
        self._lock = threading.Lock()
        self.size = 0

    def __getitem__(self, name: str) -> Array:
        if name not in self._whole:
            raise InputError(f"the library has no cache {name!r}; its caches: {', '.join(self.names)}")
        return self._rows(name, self.size, self.sequences)

    @property
    def sizes(self) -> dict[str, int]:
        """The open sizes that the next call has; the number of sequences only where they have rows."""
        found = {self.symbol: self.size}
        return {**found, self.several: self.sequences} if self.several and self.size else found

    def fill(self, rows: Mapping[str, Any]) -> None:
        """Takes the rows of all caches, as a model of the prompt gives them. InputError where they do not fit."""
        arrays = {name: as_array(rows[name]) for name in self.names if name in rows}
        if arrays.keys() != rows.keys() or len(arrays) < len(self.names):
            raise InputError(f"fill the caches all together, and nothing else: {', '.join(self.names)}")
        first, axis = arrays[self.names[0]], self._axes[self.names[0]]
        size = first.shape[axis] if first.ndim > axis else 0
        sequences = self._sequences_of(self.names[0], first)
        for name, array in arrays.items():
            wanted = self._whole[name]
            fits = size <= self._high + self._added and not self._counted.refusal(sequences)
            if array.shape != self._shape(name, size, sequences) or array.dtype != wanted.dtype or not fits:
                raise InputError(
                    f"cache {name!r}: {array.dtype.name} of shape {array.shape} does not fit into {wanted.dtype.name} "
                    f"of shape {wanted.shape}, or not beside the others"
                )
        with self._lock:
            for name, array in arrays.items():
                self._rows(name, size, sequences)[...] = array
            self.size, self.sequences = size, sequences

    def keep(self, size: int, sequences: Sequence[int] | None = None) -> None:
        """Forgets all rows but the first ones; all of them for 0, where new sequences begin.

        `sequences`: numbers of those that stay, in their new order; one may stand there several times, as beams of a
        search do. All as they are, if None. InputError for a number that is not there.
        """
        with self._lock:
            if not 0 <= size <= self.size:
                raise InputError(f"the caches have {self.size} rows; {size} cannot be kept")
            if sequences is not None:
                self._reorder(size, list(sequences))
            self.size = size

    def _reorder(self, size: int, sequences: list[int]) -> None:
        wrong = [number for number in sequences if not 0 <= number < self.sequences]
        if wrong or self._counted.refusal(len(sequences)):
            raise InputError(
                f"the caches have {self.sequences} sequences, and the library takes {self._counted}: {sequences} "
                "cannot be kept"
            )
        for name, (axis, factor) in self._each.items():
            rows = self._rows(name, size, self.sequences)
            places = [number * factor + one for number in sequences for one in range(factor)]
            self._rows(name, size, len(sequences))[...] = np.take(rows, places, axis)
        self.sequences = len(sequences)

    @contextmanager
    def extended(self) -> Iterator[None]:
        """A call that adds rows; those of other threads wait. Where it fails, nothing is added."""
        with self._lock:
            yield
            self.size += self._added

    def given(self, sequences: int | None = None) -> dict[str, Array]:
        """The inputs of a call of so many sequences: memory of a longer tensor that says to be of this call's size. Its
        kernels know where the rows of the longer one lie. InputError where the caches are full, or have rows of another
        number of sequences."""
        if self.size > self._high:
            raise InputError(
                f"the caches are full: {self.symbol} is {self.size}, the library takes {self._high} at most: forget "
                f"some (keep), or compile it with a wider range, --sizes {self.symbol}=LOW:HIGH"
            )
        if sequences is not None:
            refusal = self._counted.refusal(sequences)
            if refusal:
                raise InputError(refusal)
            if self.size and sequences != self.sequences:
                raise InputError(
                    f"{self.several} is {sequences}, but the caches have rows of {self.sequences} sequences: say which "
                    "of them go on (caches.keep(size, sequences)), or begin new ones (caches.keep(0))"
                )
            self.sequences = sequences
        made = {}
        for name, whole in self._whole.items():
            shape = self._shape(name, self.size + self._added, self.sequences)
            made[name] = whole.reshape(-1)[: math.prod(shape)].reshape(shape)
        return made

    def _shape(self, name: str, size: int, sequences: int) -> tuple[int, ...]:
        """The shape of a cache with so many rows of so many sequences."""
        found = list(self._whole[name].shape)
        found[self._axes[name]] = size
        if name in self._each:
            axis, factor = self._each[name]
            found[axis] = factor * sequences
        return tuple(found)

    def _sequences_of(self, name: str, array: Array) -> int:
        """How many sequences an array that is to be a cache has."""
        axis, factor = self._each.get(name, (0, 0))
        return array.shape[axis] // factor if factor and array.ndim > axis else self.sequences

    def _rows(self, name: str, size: int, sequences: int) -> Array:
        return self._whole[name][tuple(slice(0, extent) for extent in self._shape(name, size, sequences))]
