"""TVM's runtime without its compiler: all that a process needs that only runs libraries.

`import tvm` maps the compiler with LLVM as well, which costs about 200 MB of memory and a second. A process that has
imported tvm, or does so later, shares the one runtime.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_extra.so")
"""The virtual machine and its thread pool; sorting and random numbers."""

_CPU, _NAIVE, _POOLED = 1, 1, 2
"""The device type of DLPack; the allocators of TVM's virtual machine, the second of which keeps what is freed."""


@cache
def ffi() -> Any:
    """TVM's foreign function interface, the functions of its runtime registered."""
    spec = find_spec("tvm") if "tvm" not in sys.modules else None
    folder = Path(spec.origin).parent / "lib" if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / _LIBRARIES[0]).exists():
        import tvm  # noqa: F401  # registers them, or says what is missing
        import tvm_ffi

        return tvm_ffi
    import tvm_ffi

    for name in _LIBRARIES:
        if (folder / name).exists():
            ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
    return tvm_ffi


def global_function(name: str) -> Any:
    """A function that the runtime registers."""
    return ffi().get_global_func(name)


def load_module(path: Path) -> Any:
    """The code in a shared library."""
    return ffi().load_module(str(path))


class Machine:
    """A virtual machine of TVM's over the code of a library; not for several threads at once.

    `pooled`: freed memory is kept for results of the same size.
    """

    def __init__(self, module: Any, pooled: bool = True) -> None:
        self._module = module["vm_load_executable"]()
        self._module["vm_initialization"](_CPU, 0, _POOLED if pooled else _NAIVE)

    def __getitem__(self, name: str) -> Any:
        """A function of the library, or one that was saved."""
        return self._module[name]

    def find(self, name: str) -> Any:
        """A function of the library; None where there is none of this name."""
        try:
            return self._module[name]
        except AttributeError:
            return None

    def save(self, name: str, saved: str, arguments: list[Any]) -> None:
        """Binds a function to its arguments under the name `saved`."""
        self._module["save_function"](name, saved, 1, *arguments)

    def instrument(self, note: Any) -> None:
        """Calls `note(function, symbol, before, result, *arguments)` around each call; 0 lets it happen."""
        self._module["set_instrument"](note)


def boolean_tensor(array: NDArray[np.generic]) -> Any:
    """Booleans as TVM's tensor over the same memory, which must be contiguous, writable and aligned.

    DLPack of numpy has no booleans, so they pass as bytes.
    """
    data = ffi().from_dlpack(array.view(np.uint8))
    return global_function("runtime.TVMTensorCreateView")(data, ffi().Shape(array.shape), ffi().dtype("bool"), 0)


def empty_tensor(shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor of TVM's without elements. Steps between them, as numpy has even there, TVM would not take."""
    data = ffi().from_dlpack(np.zeros(8, np.uint8))
    return global_function("runtime.TVMTensorCreateView")(data, ffi().Shape(shape), ffi().dtype(dtype), 0)


def copied(tensor: Any) -> NDArray[np.generic]:
    """The elements of a tensor in memory of their own."""
    if str(tensor.dtype) != "bool":
        return np.from_dlpack(tensor).copy()
    view = global_function("runtime.TVMTensorCreateView")
    data = view(tensor, ffi().Shape(tensor.shape), ffi().dtype("uint8"), 0)
    return np.from_dlpack(data).view(np.bool_).copy()
