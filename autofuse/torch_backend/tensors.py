"""torch's tensors as the rest of the backend sees them: facts, bytes, arrays and back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.torch_backend.refusals import NUMPY_TYPES, TensorFacts

Array = NDArray[np.generic]


def facts_of(tensor: Any) -> TensorFacts:
    """What counts of a tensor."""
    memory = 0
    version: int | str | None = version_of(tensor)
    if tensor.device.type == "cpu" and str(tensor.layout) == "torch.strided":
        memory = tensor.untyped_storage().data_ptr()
        if version is None and type_name(tensor) in NUMPY_TYPES:
            version = hashlib.sha256(bytes_of(tensor)).hexdigest()
    return TensorFacts(
        type(tensor).__name__, tensor.device.type, type_name(tensor), str(tensor.layout), memory, version
    )


def type_name(tensor: Any) -> str:
    """The type of its elements as numpy calls it, such as "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def version_of(tensor: Any) -> int | None:
    """How often its content was changed, as torch counts; None for tensors of inference mode, which are not counted."""
    return None if tensor.is_inference() else int(tensor._version)


def array_of(tensor: Any) -> Array:
    """The tensor as an array over the same memory; a copy where it stands for other numbers than its memory holds."""
    array: Array = tensor.numpy(force=True)
    return array


def tensor_of(array: Array) -> Any:
    """A tensor over the memory of an array that belongs to the caller."""
    import torch

    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def bytes_of(tensor: Any) -> memoryview:
    """The elements of a tensor as bytes."""
    return np.ascontiguousarray(array_of(tensor)).reshape(-1).view(np.uint8).data


def described(name: object, tensor: Any) -> str:
    """What a tensor is, without its content."""
    return f"{name} {type_name(tensor)}{list(tensor.shape)}"


def sizes_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """Shapes of tensors, and all other arguments as they are."""
    import torch

    return tuple([tuple(one.shape) if isinstance(one, torch.Tensor) else one for one in args])
