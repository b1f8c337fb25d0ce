"""A graph while it is being loaded: operators that change, and what is known of shapes so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import SUPPORTED_DTYPES, dtype_name, make_model

_EMBEDDED_ELEMENTS = 4096
"""Constants up to here are handed to shape inference with their values, since they may be shapes."""
_AS_INPUT = frozenset(("GroupNormalization", "MeanVarianceNormalization"))


@dataclass
class Draft:
    """Operators in topological order; `tensors` holds whatever has a static shape already."""

    source: str
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    operators: list[Operator]
    constants: dict[str, NDArray[np.generic]]
    opset: int
    tensors: dict[str, Tensor] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.taken |= set(self.inputs) | set(self.outputs) | set(self.constants)
        self.taken |= {name for operator in self.operators for name in (*operator.inputs, *operator.outputs)}

    def fresh(self, base: str) -> str:
        """A tensor name that nothing uses yet."""
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    def add_constant(self, base: str, array: NDArray[np.generic]) -> str:
        """Name of a new constant."""
        name = self.fresh(base)
        self.set_constant(name, array)
        return name

    def set_constant(self, name: str, array: NDArray[np.generic]) -> None:
        """Give the tensor `name` a constant value."""
        self.constants[name] = array
        self.tensors[name] = Tensor(name, array.shape, array.dtype.name)

    def with_input(self, operator: Operator, index: int, label: str, values: Iterable[int]) -> Operator:
        """`operator` with an int64 vector as input `index`; itself when it has just that."""
        array = np.asarray(tuple(values), dtype=np.int64)
        inputs = list(operator.inputs) + [""] * (index + 1 - len(operator.inputs))
        old = self.constants.get(inputs[index])
        if old is not None and old.dtype == np.int64 and np.array_equal(old, array):
            return operator
        inputs[index] = self.add_constant(f"{operator.name}/{label}", array)
        return replace(operator, inputs=tuple(inputs))

    def vector(self, operator: Operator, index: int) -> tuple[int, ...] | None:
        """Value of a constant integer input; None when it is absent or no constant."""
        array = self.constants.get(operator.inputs[index]) if index < len(operator.inputs) else None
        return None if array is None else tuple(int(item) for item in array.reshape(-1))

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Static shape of a tensor, if known."""
        tensor = self.tensors.get(name)
        return tensor.shape if tensor else None

    def infer(self, strict: bool = False) -> None:
        """Fill `tensors` by ONNX's shape inference (with data propagation)."""
        tensors = {**self.inputs, **{k: Tensor(k, v.shape, v.dtype.name) for k, v in self.constants.items()}}
        used = {name for operator in self.operators for name in operator.inputs if name in self.constants}
        small = {name: self.constants[name] for name in used if self.constants[name].size <= _EMBEDDED_ELEMENTS}
        large = [tensors[name] for name in used if name not in small]
        added: dict[str, Tensor] = {}
        while True:
            known = [*self.inputs.values(), *large]
            model = make_model("infer", self.operators, known, (), small, self.opset, tuple(added.values()))
            try:
                inferred = onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=True)
            except Exception as error:  # onnx raises several unrelated classes here
                raise InputError(f"{self.source}: shapes cannot be inferred: {_first_lines(error)}") from error
            found = (static_tensor(value) for value in inferred.graph.value_info)
            tensors.update((tensor.name, tensor) for tensor in found if tensor is not None)
            more = self._not_inferred_by_onnx(tensors)
            if not more:
                break
            added.update(more)
            tensors.update(more)
        self.tensors = tensors

    def _not_inferred_by_onnx(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Results of operators whose schema has no shape inference although their result is as their input."""
        pairs = [(op.inputs[0], op.outputs[0]) for op in self.operators if op.op_type in _AS_INPUT]
        return {
            result: replace(tensors[data], name=result)
            for data, result in pairs
            if data in tensors and result not in tensors
        }


def static_tensor(value: onnx.ValueInfoProto) -> Tensor | None:
    """The tensor that a value's type describes; None when it is no tensor or its shape is not static."""
    kind = value.type.tensor_type
    if value.type.WhichOneof("value") != "tensor_type" or not kind.HasField("shape"):
        return None
    if not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return Tensor(value.name, tuple(int(dim.dim_value) for dim in kind.shape.dim), dtype_name(kind.elem_type))


def as_constants(arrays: Mapping[str, NDArray[np.generic]], source: str) -> dict[str, NDArray[np.generic]]:
    """Weights of supported element types, made read-only; InputError for others."""
    for name, array in arrays.items():
        if array.dtype.name not in SUPPORTED_DTYPES:
            raise InputError(
                f"{source}: weight {name!r} has element type {array.dtype.name}, which is not supported "
                f"(supported: {', '.join(sorted(SUPPORTED_DTYPES))}); convert the model, e.g. to float32"
            )
        array.setflags(write=False)
    return dict(arrays)


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400] or type(error).__name__
