"""Models in ONNX Runtime that take and give values without a copy, for parts of a model that run one after another."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.ort.session import first_line, numpy_name, ort_value, value_type
from autofuse.values.names import BFLOAT16, numpy_dtype

Array = NDArray[np.generic]
BFLOAT16_TYPE = 16
"""ONNX's number of bfloat16."""


class BoundModel:
    """A session for one thread at a time, whose outputs named in `held` are always written to that memory.

    Other outputs are memory of their own at each call. All inputs and outputs are tensors of numbers.
    """

    def __init__(self, session: Any, held: Mapping[str, Any]) -> None:
        self._session = session
        self._inputs = [value.name for value in session.get_inputs()]
        outputs = [value.name for value in session.get_outputs()]
        self._binding = session.io_binding()
        for name in outputs:
            if name in held:
                self._binding.bind_ortvalue_output(name, held[name])
            else:
                self._binding.bind_output(name)
        self._free = [name for name in outputs if name not in held]
        self._fixed = None if self._free else [held[name] for name in outputs]

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for inputs in the model's order, both as ONNX Runtime's values.

        InputError when ONNX Runtime does not compute it.
        """
        binding = self._binding
        for name, value in zip(self._inputs, values):  # noqa: B905  # as many; `strict` costs time
            binding.bind_ortvalue_input(name, value)
        for name in self._free:  # else it writes into what it made at the last call
            binding.bind_output(name)
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise run_error(error) from error
        return self._fixed or binding.get_outputs()


class Prebound:
    """A session on inputs that are bound once; outputs are written to the same memory as long as they fit there.

    ONNX Runtime would take memory anew for each output at each call. An output of open size stays where the first run
    put it; a run that makes another size of it is refused by ONNX Runtime, and done again with new memory. All inputs
    and outputs are tensors of numbers.
    """

    def __init__(self, session: Any, given: Mapping[str, Any]) -> None:
        self._session, self._binding = session, session.io_binding()
        for name, value in given.items():
            self._binding.bind_ortvalue_input(name, value if is_value(value) else value_over(value))
        self._names, self._open, self._ran = [], [], False
        for output in session.get_outputs():
            memory = _memory_of(output)
            self._names.append(output.name)
            if memory is None:
                self._open.append(output.name)
                self._binding.bind_output(output.name)
            else:
                self._binding.bind_ortvalue_output(output.name, memory)

    def run(self) -> None:
        """One inference. InputError when ONNX Runtime does not compute it."""
        if self._ran:
            try:
                self._session.run_with_iobinding(self._binding)
            except Exception as error:
                if not self._open:
                    raise run_error(error) from error
            else:
                return
            for name in self._open:
                self._binding.bind_output(name)
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise run_error(error) from error
        made = dict(zip(self._names, self._binding.get_outputs(), strict=True))
        for name in self._open:
            self._binding.bind_ortvalue_output(name, made[name])
        self._ran = True

    def outputs(self) -> dict[str, Any] | None:
        """ONNX Runtime's values of the last run, by name, which the next one may change; None before the first."""
        return dict(zip(self._names, self._binding.get_outputs(), strict=True)) if self._ran else None


def _memory_of(output: Any) -> Any:
    """Memory for an output of fixed size; None for any other, and for what may be a scalar.

    ONNX Runtime describes a value of unknown rank as it does a scalar.
    """
    found = value_type(output)
    if not found.shape or not all(isinstance(size, int) and size > 0 for size in found.shape):
        return None
    import onnxruntime

    dtype = np.dtype(numpy_name(found.text)).type
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(found.shape), dtype)


class Alone:
    """A whole model in ONNX Runtime, called as it is; `results`: names of its outputs, some perhaps twice."""

    def __init__(self, session: Any, results: Sequence[str]) -> None:
        self._session, self._names = session, list(dict.fromkeys(results))
        self._run = partial(_run_on_values, session) if _has_bfloat16(session) else session.run
        self._places = None if self._names == list(results) else [self._names.index(name) for name in results]

    def __call__(self, given: Any) -> list[Any]:
        """The outputs for arrays by name, as numpy has them. InputError when ONNX Runtime does not compute it."""
        try:
            made: list[Any] = self._run(self._names, given)
        except Exception as error:
            raise run_error(error) from error
        return made if self._places is None else [made[place] for place in self._places]

    def prebound(self, given: Mapping[str, Any]) -> Prebound | None:
        """The model on these inputs, bound once; None where not all of its values are tensors of numbers."""
        return Prebound(self._session, given) if plain_types(self._session) else None


def run_open(session: Any, values: Sequence[Any]) -> list[Any]:
    """The outputs for inputs in the model's order, where some are texts, sequences or others; as numpy has them.

    Values are arrays or whatever Python objects ONNX Runtime takes. InputError when it does not compute it.
    """
    names = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    run = partial(_run_on_values, session) if _has_bfloat16(session) else session.run
    try:
        return list(run(outputs, dict(zip(names, values, strict=True))))
    except Exception as error:
        raise run_error(error) from error


def _has_bfloat16(session: Any) -> bool:
    return any(value.type == f"tensor({BFLOAT16})" for value in (*session.get_inputs(), *session.get_outputs()))


def _run_on_values(session: Any, names: Sequence[str], given: Mapping[str, Any]) -> list[Any]:
    """`session.run` of a model with tensors of bfloat16, of which ONNX Runtime takes and gives no arrays."""
    values = {name: value if is_value(value) else value_over(value) for name, value in given.items()}
    return [array_of(value) for value in session.run_with_ort_values(list(names), values)]


def run_error(error: Exception) -> InputError:
    """What ONNX Runtime says of a call that failed, as an error that a user may see."""
    return InputError(f"ONNX Runtime cannot run its part of the model: {first_line(error)}")


def is_value(value: object) -> bool:
    """Whether this is one of ONNX Runtime's values."""
    return type(value).__name__ == "OrtValue"


def array_of(value: Any) -> Array:
    """The array over the memory of one of ONNX Runtime's values, which says that it has none of bfloat16."""
    if value.data_type() != f"tensor({BFLOAT16})":
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    block = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    block.value = value  # the memory lives as long as the array over it
    found: Array = np.ctypeslib.as_array(block).reshape(shape).view(numpy_dtype(BFLOAT16))
    return found


def value_over(given: Any) -> Any:
    """ONNX Runtime's value over the memory of an array, or of anything with `__dlpack__`."""
    import onnxruntime

    shares = onnxruntime.OrtValue, "from_dlpack"
    if isinstance(given, np.ndarray) and given.dtype.name == BFLOAT16:
        bits = np.require(given.view(np.uint16), requirements=["C", "W"])
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BFLOAT16_TYPE)
    if isinstance(given, np.ndarray):
        if not given.flags.carray or not given.dtype.isnative or not hasattr(*shares):
            return ort_value(
                np.require(given.astype(given.dtype.newbyteorder("="), copy=False), requirements=["C", "W"])
            )
    elif not hasattr(*shares):
        return ort_value(np.from_dlpack(given))
    return onnxruntime.OrtValue.from_dlpack(given)


def plain_types(session: Any) -> bool:
    """Whether all inputs and outputs are tensors of numbers that numpy has."""
    return all(numpy_name(value.type) for value in (*session.get_inputs(), *session.get_outputs()))
