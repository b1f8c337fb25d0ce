"""The shapes of a model's inputs: fixed in the file, or given by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ValueInfoProto

from autofuse.errors import InputError, UncoveredError
from autofuse.graph.model import Tensor
from autofuse.graph.nodes import SUPPORTED_DTYPES, dtype_name
from autofuse.values.arguments import Shapes
from autofuse.values.names import BFLOAT16

_Dim = int | str


class NamedShape(tuple[int, ...]):
    """A shape that was made of sizes by name, which may be 0: that of a cache, say, which is empty at first."""


class OpenInputsError(InputError):
    """Sizes of inputs are neither fixed in the file nor given."""


def bind_shapes(inputs: Sequence[ValueInfoProto], shapes: Shapes | None, source: str) -> dict[str, Tensor]:
    """Static input tensors by name, in the model's order.

    A dimension that has a name takes its size from any input whose shape is given. InputError when an
    input is no tensor of a supported type, when a shape is given for no input, has another rank,
    contradicts a fixed or a named dimension, or when a dimension stays open. A size of 0 in the file
    stays 0: such an input has no elements; some exporters mean an open size, so `--shape` may give it another.
    """
    given = dict(shapes or {})
    known = {value.name: value for value in inputs}
    for name in given:
        if name not in known:
            raise InputError(f"{source}: --shape {name}: the model has no such input; its inputs: {_list(known)}")
    dims = {name: _dims(value, given.get(name), source) for name, value in known.items()}
    sizes: dict[str, int] = {}
    for name, shape in given.items():
        _bind(name, dims[name], shape, sizes, source)
    result: dict[str, Tensor] = {}
    for name, value in known.items():
        own = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in dims[name])
        bound: tuple[_Dim, ...] = given.get(name, own)
        if all(isinstance(dim, int) for dim in bound):
            result[name] = Tensor(name, tuple(int(dim) for dim in bound), dtype_name(value.type.tensor_type.elem_type))
    if len(result) < len(known):
        raise OpenInputsError(_open_message({n: dims[n] for n in known if n not in result}, source))
    return result


def _dims(value: ValueInfoProto, given: tuple[int, ...] | None, source: str) -> tuple[_Dim, ...]:
    if value.type.WhichOneof("value") != "tensor_type":
        kind = value.type.WhichOneof("value") or "untyped"
        raise UncoveredError(f"{source}: input {value.name!r} is no tensor ({kind}); only tensors are supported")
    tensor = value.type.tensor_type
    dtype = dtype_name(tensor.elem_type)
    if dtype not in SUPPORTED_DTYPES | {BFLOAT16}:
        raise UncoveredError(
            f"{source}: input {value.name!r} has element type {dtype}, which is not supported "
            f"(supported: {', '.join(sorted(SUPPORTED_DTYPES))}); convert the model, e.g. to float32"
        )
    if not tensor.HasField("shape"):
        if given is None:
            raise InputError(
                f"{source}: input {value.name!r} has no shape: give it one, e.g. --shape {value.name}=1,3,224,224"
            )
        return ("?",) * len(given)
    return tuple(
        int(dim.dim_value)
        if dim.dim_value > 0 or (given is None and dim.HasField("dim_value"))
        else (dim.dim_param or f"?{value.name}.{axis}")
        for axis, dim in enumerate(tensor.shape.dim)
    )


def _bind(name: str, dims: tuple[_Dim, ...], shape: tuple[int, ...], sizes: dict[str, int], source: str) -> None:
    text = f"{source}: --shape {name}={','.join(map(str, shape))}"
    if len(shape) != len(dims):
        raise InputError(
            f"{text}: the input has {len(dims)} dimensions ({_list(map(_shown, dims))}), {len(shape)} are given"
        )
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if size < (0 if isinstance(shape, NamedShape) else 1):
            raise InputError(f"{text}: dimension {axis} must be at least 1")
        if isinstance(dim, int) and dim != size:
            raise InputError(f"{text}: the model fixes dimension {axis} to {dim}")
        if isinstance(dim, str) and not dim.startswith("?") and sizes.setdefault(dim, size) != size:
            raise InputError(f"{text}: dimension {axis} is {dim!r}, which another --shape sets to {sizes[dim]}")


def _open_message(dims: Mapping[str, tuple[_Dim, ...]], source: str) -> str:
    inputs = "; ".join(f"{name!r} ({_list(map(_shown, shape))})" for name, shape in dims.items())
    example = " ".join(
        f"--shape {name}={_list(dim if isinstance(dim, int) else 1 for dim in shape)}" for name, shape in dims.items()
    )
    return f"{source}: the shape of these inputs is not fixed: {inputs}; give it, e.g. {example.replace(', ', ',')}"


def _shown(dim: _Dim) -> str:
    return "?" if isinstance(dim, str) and dim.startswith("?") else str(dim)


def _list(items: object) -> str:
    return ", ".join(map(str, items))  # type: ignore[call-overload]
