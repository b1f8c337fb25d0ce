"""Inputs and outputs bound to memory before a run, as ONNX Runtime's `io_binding` has it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from autofuse.backend.container.metadata import DTYPES
from autofuse.backend.library.arrays import Array, as_array
from autofuse.backend.library.compiled import Library, Prepared
from autofuse.backend.library.parted import PartedLibrary
from autofuse.errors import InputError
from autofuse.ort.bound import value_over
from autofuse.ort.session import numpy_name
from autofuse.values.names import BFLOAT16, numpy_dtype

CPU = "cpu"


class IOBinding:
    """What `Session.run_with_iobinding` reads, and where it writes; `Session.io_binding` makes one.

    Inputs are read at each run where they lie, so they can be filled again between runs. An output that is bound to
    memory is written there; another one is fresh memory at each run. InputError for a name that the model does not
    have, a device other than the CPU, a type that is unknown.
    """

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._inputs, self._outputs = inputs, outputs
        self.feed: dict[str, Any] = {}
        self._bound: dict[str, Array | None] = {}
        self._results: list[Any] = []
        self._ready: tuple[Library | None, int, Prepared | None] = (None, 0, None)

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Read the input `name` from an array."""
        self.feed[known_name(name, self._inputs, "input")] = as_array(arr_on_cpu)
        self._ready = (None, 0, None)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Read the input `name` from a value of ONNX Runtime's."""
        self.bind_cpu_input(name, ortvalue)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: DTypeLike,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Read the input `name` from an address; whoever gives it keeps the memory."""
        _check_device(device_type, device_id)
        self.bind_cpu_input(name, _memory(element_type, shape, buffer_ptr))

    def bind_output(
        self,
        name: str,
        device_type: str = CPU,
        device_id: int = 0,
        element_type: DTypeLike | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Give the output `name`, at the address that is given, or else in memory of its own."""
        _check_device(device_type, device_id)
        if buffer_ptr is not None and (element_type is None or shape is None):
            raise InputError(f"output {name!r}: a buffer needs an element_type and a shape, too")
        given = None if buffer_ptr is None or shape is None else _memory(element_type, shape, buffer_ptr)
        self._bound[known_name(name, self._outputs, "output")] = given

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Write the output `name` into the memory of a value of ONNX Runtime's."""
        kind = ortvalue.data_type()
        element_type = BFLOAT16 if kind == f"tensor({BFLOAT16})" else numpy_name(kind)
        memory = _memory(element_type, ortvalue.shape(), ortvalue.data_ptr())
        self._bound[known_name(name, self._outputs, "output")] = memory

    def synchronize_inputs(self) -> None:
        """Nothing: all of this happens on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing: all of this happens on the CPU."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.feed.clear()
        self._ready = (None, 0, None)

    def clear_binding_outputs(self) -> None:
        """Forget the outputs, and what was computed."""
        self._bound.clear()
        self._results = []

    def get_outputs(self) -> list[Any]:
        """Results of the last run as ONNX Runtime's values, in the order in which outputs were bound."""
        return [value_over(result) for result in self._results]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Results of the last run as arrays, in the order in which outputs were bound."""
        return [result.copy() for result in self._results]

    def results(self, library: Library | PartedLibrary) -> list[Any]:
        """Outputs of one run of a library on the bound inputs, which are bound to it, too, where that can be.

        For each thread anew, since a virtual machine serves one at a time.
        """
        if not isinstance(library, Library):
            return library(self.feed)
        known, thread, prepared = self._ready
        if known is not library or thread != get_ident():
            prepared = library.bound(self.feed)
            self._ready = (library, get_ident(), prepared)
        return library(self.feed) if prepared is None else prepared.results()

    def deliver(self, results: Mapping[str, Any]) -> None:
        """Takes the results of a run. InputError where one does not fit the memory that it is bound to."""
        self._results = [_delivered(name, results[name], memory) for name, memory in self._bound.items()]


def _delivered(name: str, result: Any, memory: Array | None) -> Any:
    if memory is None:
        return result
    if (memory.shape, memory.dtype) != (result.shape, result.dtype):
        raise InputError(
            f"output {name!r}: {result.dtype.name} of shape {result.shape} does not fit what is bound: "
            f"{memory.dtype.name} of shape {memory.shape}"
        )
    memory[...] = result
    return memory


def known_name(name: str, names: Sequence[str], kind: str) -> str:
    """`name`, when it is one of the model's inputs or outputs (`kind`); else InputError."""
    if name not in names:
        raise InputError(f"{kind} {name!r} is unknown; the model's {kind}s: {', '.join(names)}")
    return name


def _check_device(device_type: str, device_id: int) -> None:
    if (device_type, device_id) != (CPU, 0):
        raise InputError(f"device {device_type!r} {device_id}: a library computes on the CPU; allowed: 'cpu', 0")


def _memory(element_type: DTypeLike | None, shape: Sequence[int], address: int) -> Array:
    """The array at an address of this process."""
    try:
        dtype = numpy_dtype(BFLOAT16) if element_type == BFLOAT16 else np.dtype(element_type or "")
    except TypeError as error:
        raise InputError(f"element_type: got {element_type!r}, allowed: numpy's types, such as 'float32'") from error
    if dtype.name not in DTYPES or any(size < 0 for size in shape):
        raise InputError(f"no memory can hold {dtype.name} of shape {tuple(shape)}")
    size_bytes = math.prod(shape) * dtype.itemsize
    block = (ctypes.c_uint8 * size_bytes).from_address(address)
    whole: Array = np.ctypeslib.as_array(block).view(dtype).reshape(tuple(shape))
    return whole
