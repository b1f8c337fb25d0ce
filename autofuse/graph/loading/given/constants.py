"""Inputs that the user gives a value: they become constants of the model, before anything else is done with it."""

from __future__ import annotations

import json
import math
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto, numpy_helper

from autofuse.errors import InputError
from autofuse.graph.nodes import SUPPORTED_DTYPES, dtype_name
from autofuse.values.arguments import Constant, Given, Shapes

INPUTS_OF_ALL_WEIGHTS = 3
"""Up to this IR version every weight of a file stands among its inputs, too."""
_KINDS = {"b": "true or false", "i": "integers", "u": "integers", "f": "numbers", "V": "numbers"}


def shapes_of(given: Given | None) -> Shapes:
    """The shapes in what is given."""
    return {name: one for name, one in (given or {}).items() if not isinstance(one, Constant)}


def constants_of(given: Given | None) -> dict[str, Constant]:
    """The values in what is given."""
    return {name: one for name, one in (given or {}).items() if isinstance(one, Constant)}


def bind_constants(model: ModelProto, given: Given | None, source: str) -> None:
    """Make constants of the inputs of `model` that are given a value, in place.

    A named size of such an input is known from then on, for the others, too. An input with a default in the file gets
    the value instead. InputError when the model has no such input, or when type, shape or a number do not fit it.
    """
    constants = constants_of(given)
    if not constants:
        return
    graph = model.graph
    declared = {value.name: value for value in graph.input}
    weights = {tensor.name for tensor in graph.initializer}
    for name, constant in constants.items():
        if name not in declared:
            known = ", ".join(other for other in declared if other not in weights) or "none"
            raise InputError(f"{source}: --constant {name}: the model has no such input; its inputs: {known}")
        array = _fitted(declared[name], constant, source)
        _set_named_sizes(model, declared[name], array.shape)
        for place in reversed([place for place, tensor in enumerate(graph.initializer) if tensor.name == name]):
            del graph.initializer[place]
        graph.initializer.append(numpy_helper.from_array(array, name))
    if model.ir_version > INPUTS_OF_ALL_WEIGHTS:
        for place in reversed([place for place, value in enumerate(graph.input) if value.name in constants]):
            del graph.input[place]


def model_sha256(content: bytes, given: Given | None) -> str:
    """SHA-256 of a model: of its file's content, and of the constants that are given for inputs."""
    own = sha256(content).hexdigest()
    constants = constants_of(given)
    if not constants:
        return own
    rows = [[name, list(one.shape), [_plain(number) for number in one.numbers]] for name, one in constants.items()]
    return sha256(f"{own} {json.dumps(sorted(rows), separators=(',', ':'))}".encode()).hexdigest()


def _plain(number: bool | int | float) -> int | str:
    """One text for one number, however it was written."""
    whole = math.isfinite(number) and int(number) == number
    return int(number) if whole else repr(number)


def _fitted(value: ValueInfoProto, constant: Constant, source: str) -> NDArray[np.generic]:
    """The constant as the input wants it."""
    kind = value.type.tensor_type
    dtype = dtype_name(kind.elem_type) if value.type.WhichOneof("value") == "tensor_type" else ""
    where = f"{source}: --constant {value.name}"
    if dtype not in SUPPORTED_DTYPES:
        what = f"tensors of {dtype}" if dtype else f"{value.type.WhichOneof('value') or 'what has no type'}"
        raise InputError(f"{where}: the input takes {what}; only tensors of numbers can be given")
    if constant.dtype and constant.dtype != dtype:
        raise InputError(f"{where}: the array is of {constant.dtype}, the input takes {dtype}; convert the array")
    shape = _shape(value, constant, where)
    array = np.empty(shape, np.dtype(dtype))
    array.reshape(-1)[:] = [_number(number, array.dtype, dtype, where) for number in constant.numbers]
    return array


def _number(number: bool | int | float, wanted: np.dtype[np.generic], dtype: str, where: str) -> bool | int | float:
    """A number of a constant, when an element of that type holds it."""
    given = "b" if isinstance(number, bool) else "i" if isinstance(number, int) else "f"
    if given not in {"b": "b", "i": "i", "u": "i"}.get(wanted.kind, "if"):
        raise InputError(f"{where}: got {_written(number)}, the input takes {_KINDS[wanted.kind]} ({dtype})")
    if wanted.kind in "iu":
        limits = np.iinfo(wanted.name)
        if not limits.min <= number <= limits.max:
            raise InputError(f"{where}: {_written(number)} is no {dtype} ({limits.min} to {limits.max})")
    elif wanted.kind != "b" and math.isfinite(number):
        with np.errstate(over="ignore"):
            if not np.isfinite(np.asarray(number, np.float64).astype(wanted).astype(np.float64)):
                raise InputError(f"{where}: {_written(number)} is too large for {dtype}")
    return number


def _shape(value: ValueInfoProto, constant: Constant, where: str) -> tuple[int, ...]:
    """The shape that the input gets: that of the constant; a number alone fits every input of one element."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return constant.shape
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if not constant.shape and all(dim in (None, 1) for dim in dims):
        return (1,) * len(dims)
    pairs = zip(dims, constant.shape, strict=False)
    if len(dims) != len(constant.shape) or any(dim not in (None, size) for dim, size in pairs):
        shown = ",".join(str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
                         for dim in tensor.shape.dim)  # fmt: skip
        raise InputError(
            f"{where}: a value of shape [{','.join(map(str, constant.shape))}] is given, the input takes [{shown}]"
        )
    return constant.shape


def _set_named_sizes(model: ModelProto, value: ValueInfoProto, shape: tuple[int, ...]) -> None:
    dims = zip(value.type.tensor_type.shape.dim, shape, strict=False)
    sizes = {dim.dim_param: size for dim, size in dims if dim.dim_param}
    for other in model.graph.input:
        for dim in other.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def _written(number: bool | int | float) -> str:
    return json.dumps(number)
