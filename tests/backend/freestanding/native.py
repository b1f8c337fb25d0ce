"""A free-standing library from Python, through its C interface alone."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.freestanding.description import network_name
from autofuse.backend.freestanding.source import FUNCTIONS

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


def _placed(array: Array, offset: int) -> Array:
    block = np.zeros(array.nbytes + 128, np.uint8)
    start = -block.ctypes.data % 64 + offset
    made = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _pointers(arrays: Sequence[Array]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
