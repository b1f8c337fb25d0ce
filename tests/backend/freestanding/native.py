"""A free-standing library from Python, through its C interface alone."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.freestanding.description import network_name
from autofuse.backend.freestanding.source import FUNCTIONS, OPEN_FUNCTIONS

Array = NDArray[Any]


class Tensor(ctypes.Structure):
    """NAME_tensor of the header."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("bytes", ctypes.c_size_t),
    ]


class Native:
    """The functions of a library."""

    def __init__(self, path: Path) -> None:
        self._library, self._name = ctypes.CDLL(str(path)), network_name(path)
        self.create, self.destroy, self.run, self.input, self.output, self.threads, self.error = (
            self._library[f"{self._name}_{name}"] for name in FUNCTIONS
        )
        self.error.restype = ctypes.c_char_p
        self.input.restype = self.output.restype = ctypes.POINTER(Tensor)

    def described(self, kind: str, shapes: int = 0) -> list[tuple[str, str, tuple[int, ...]]]:
        """Name, type and shape of each input or output."""
        found = []
        while one := getattr(self, kind)(shapes, len(found)):
            shape = tuple(one[0].shape[axis] for axis in range(one[0].rank))
            assert one[0].bytes == int(np.prod(shape)) * np.dtype(one[0].type.decode()).itemsize
            found.append((one[0].name.decode(), one[0].type.decode(), shape))
        return found

    def why(self) -> str:
        """Why the last call failed."""
        return bytes(self.error()).decode()


class NativeSession:
    """A session of a library; `code` is what `create` returned."""

    def __init__(self, native: Native, threads: int = 1, shapes: int = 0) -> None:
        self.native, self.shapes = native, shapes
        self.handle = ctypes.c_void_p()
        self.code = native.create(ctypes.byref(self.handle), shapes, threads)

    def __enter__(self) -> NativeSession:
        assert self.code == 0, self.native.why()
        return self

    def __exit__(self, *_: object) -> None:
        self.native.destroy(self.handle)

    def run(self, inputs: Sequence[Array], offset: int = 0) -> list[Array]:
        """The outputs; all memory begins `offset` bytes behind a multiple of 64."""
        given = [_placed(array, offset) for array in inputs]
        made = [
            _placed(np.zeros(shape, dtype), offset) for _, dtype, shape in self.native.described("output", self.shapes)
        ]
        code = self.native.run(self.handle, _pointers(given), _pointers(made))
        assert code == 0, self.native.why()
        return made


class Range(ctypes.Structure):
    """NAME_range of the header."""

    _fields_ = [("name", ctypes.c_char_p), ("low", ctypes.c_int64), ("high", ctypes.c_int64)]


class OpenNative(Native):
    """The functions of a library with open sizes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.open_size, self.set_size, self.size, self.input_now, self.output_now, self.cache, self.cache_memory = (
            self._library[f"{self._name}_{name}"] for name in OPEN_FUNCTIONS
        )
        self.open_size.restype = ctypes.POINTER(Range)
        self.size.restype = ctypes.c_int64
        self.input_now.restype = self.output_now.restype = self.cache.restype = ctypes.POINTER(Tensor)
        self.cache_memory.restype = ctypes.c_void_p

    @property
    def ranges(self) -> list[tuple[str, int, int]]:
        """Name, smallest and largest of each open size."""
        found = []
        while one := self.open_size(len(found)):
            found.append((one[0].name.decode(), one[0].low, one[0].high))
        return found


class OpenSession(NativeSession):
    """A session of a library with open sizes."""

    native: OpenNative

    def set_size(self, name: str, size: int) -> int:
        """The code that the library returns."""
        return int(self.native.set_size(self.handle, name.encode(), ctypes.c_int64(size)))

    def size(self, name: str) -> int:
        """An open size now."""
        return int(self.native.size(self.handle, name.encode()))

    def now(self, kind: str) -> list[tuple[str, tuple[int, ...], int]]:
        """Name, shape and bytes of each input or output now."""
        found = []
        while one := getattr(self.native, f"{kind}_now")(self.handle, len(found)):
            shape = tuple(one[0].shape[axis] for axis in range(one[0].rank))
            found.append((one[0].name.decode(), shape, int(one[0].bytes)))
        return found

    def call(self, inputs: Sequence[Array], offset: int = 0) -> tuple[int, list[Array]]:
        """The code of a run at the sizes of now, and the outputs; behind each output stands what nobody may write."""
        types = [one[1] for one in self.native.described("output")]
        given = [_placed(array, offset) for array in inputs]
        sizes = zip(self.now("output"), types, strict=True)
        made = [_placed(np.zeros(shape, dtype), offset, 64) for (_, shape, _), dtype in sizes]
        code = int(self.native.run(self.handle, _pointers(given), _pointers(made)))
        for array in made:
            assert (_behind(array) == UNTOUCHED).all()
        return code, made

    def cache(self, index: int) -> Array:
        """The memory of a cache, at the largest size."""
        one = self.native.cache(index)[0]
        block = (ctypes.c_uint8 * one.bytes).from_address(self.native.cache_memory(self.handle, index))
        shape = [one.shape[axis] for axis in range(one.rank)]
        return np.ctypeslib.as_array(block).view(one.type.decode()).reshape(shape)


UNTOUCHED = 0xA5


def _behind(array: Array) -> Array:
    """The bytes behind an array of `_placed`."""
    block = array
    while isinstance(block.base, np.ndarray):
        block = block.base
    start = array.ctypes.data - block.ctypes.data + array.nbytes
    return block[start : start + 64]


def _placed(array: Array, offset: int, behind: int = 0) -> Array:
    block = np.full(array.nbytes + 128 + behind, UNTOUCHED, np.uint8)
    start = -block.ctypes.data % 64 + offset
    made = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
