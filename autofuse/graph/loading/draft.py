"""A graph while it is being loaded: operators that change, and what is known of shapes so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from autofuse.errors import InputError, UncoveredError
from autofuse.graph.loading.limits import FoldBudget
from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import SUPPORTED_DTYPES, dtype_name, make_model
from autofuse.graph.own.bfloat16 import is_of_bfloat16, plain
from autofuse.graph.own.byte_lookup import in_its_type, is_byte_lookup
from autofuse.graph.own.weight_only import as_dense, is_weight_only
from autofuse.values.names import BFLOAT16

_EMBEDDED_ELEMENTS = 4096
"""Constants up to here are handed to shape inference with their values, since they may be shapes."""
_LONG_VECTOR, _NO_SIZE = 1 << 20, 2**31 - 1
"""Elements of a vector that is long; numbers from the second on stand for "to the end" in a Slice."""
_AS_INPUT = frozenset(("GroupNormalization", "MeanVarianceNormalization"))


@dataclass
class Draft:
    """A graph while it is loaded: operators in topological order; `tensors` holds whatever has a static shape
    already; `halves`, `widened`, `float16`: see `Graph`. `open_sizes`: whether a size of it stays open. `unfolded`:
    results that stay as they are, though all that they are made of is known.
    """

    source: str
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    operators: list[Operator]
    constants: dict[str, NDArray[np.generic]]
    opset: int
    tensors: dict[str, Tensor] = field(default_factory=dict)
    folding: FoldBudget = field(init=False)
    taken: set[str] = field(default_factory=set)
    halves: frozenset[str] = frozenset()
    widened: bool = False
    float16: frozenset[str] = frozenset()
    open_sizes: bool = False
    unfolded: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.folding = FoldBudget.of(sum(array.nbytes for array in self.constants.values()))
        self.taken |= set(self.inputs) | set(self.outputs) | set(self.constants)
        self.taken |= {name for operator in self.operators for name in (*operator.inputs, *operator.outputs)}

    @cached_property
    def returned(self) -> frozenset[str]:
        """Names of the outputs."""
        return frozenset(self.outputs)

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

    def readers(self) -> dict[str, list[Operator]]:
        """Operators that read each tensor now, in their order, each once."""
        found: dict[str, list[Operator]] = {}
        for operator in self.operators:
            for name in dict.fromkeys(operator.inputs):
                found.setdefault(name, []).append(operator)
        return found

    def infer(self, strict: bool = False) -> None:
        """Fill `tensors` by ONNX's shape inference (with data propagation)."""
        tensors = {**self.inputs, **{k: Tensor(k, v.shape, v.dtype.name) for k, v in self.constants.items()}}
        used = {name for operator in self.operators for name in operator.inputs if name in self.constants}
        small = {name: self.constants[name] for name in used if self.constants[name].size <= _EMBEDDED_ELEMENTS}
        large = [tensors[name] for name in used if name not in small]
        known = [*self.inputs.values(), *large]
        plain: list[Operator] = []
        for operator in self.operators:
            stand_ins, read = _with_schema(operator)
            plain += stand_ins
            known += read
        model = make_model("infer", plain, known, (), small, self.opset)
        try:
            inferred = infer_model(model, strict)
        except Exception as error:  # onnx raises several unrelated classes here
            raise InputError(f"{self.source}: shapes cannot be inferred: {_first_lines(error)}") from error
        found = (static_tensor(value) for value in inferred.graph.value_info)
        tensors.update((tensor.name, tensor) for tensor in found if tensor is not None)
        self.tensors = tensors


def _with_schema(operator: Operator) -> tuple[list[Operator], list[Tensor]]:
    """(operators whose schemas infer the types of an operator's results, tensors that they read besides)."""
    if is_weight_only(operator):
        return as_dense(operator)
    if is_byte_lookup(operator):
        return [in_its_type(operator)], []
    if is_of_bfloat16(operator):
        return [plain(operator)], []
    if operator.op_type in _AS_INPUT:  # their schemas have no shape inference, although the result is as the input
        return [replace(operator, op_type="Identity", inputs=operator.inputs[:1], attributes={})], []
    return [operator], []


def infer_model(model: onnx.ModelProto, strict: bool = False, check_type: bool = False) -> onnx.ModelProto:
    """`model` with its shapes, by ONNX; values of shapes are followed through their operators where that is needed.

    Following them, ONNX makes an entry for each element of every vector. So it is left out where vectors are long; then
    folding finds the same values, round by round.
    """
    inferred = onnx.shape_inference.infer_shapes(model, check_type=check_type, strict_mode=strict)
    made = {name for node in model.graph.node for name in node.output if name}
    tensors = [tensor for value in inferred.graph.value_info if (tensor := static_tensor(value)) is not None]
    if made <= {tensor.name for tensor in tensors} or not _short_vectors(model, tensors):
        return inferred
    return onnx.shape_inference.infer_shapes(model, check_type=check_type, strict_mode=strict, data_prop=True)


def _short_vectors(model: onnx.ModelProto, tensors: Iterable[Tensor]) -> bool:
    """Whether no vector is long, and no constant may be the size of one."""
    given = [tensor for value in model.graph.input if (tensor := static_tensor(value)) is not None]
    if any(len(tensor.shape) == 1 and tensor.elements > _LONG_VECTOR for tensor in (*given, *tensors)):
        return False
    for tensor in model.graph.initializer:
        if tensor.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32):
            sizes = numpy_helper.to_array(tensor).reshape(-1)
            if bool(np.any((sizes > _LONG_VECTOR) & (sizes < _NO_SIZE))):
                return False
    return True


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
        check_weight_dtype(name, array.dtype.name, source)
        array.setflags(write=False)
    return dict(arrays)


def check_weight_dtype(name: str, dtype: str, source: str) -> None:
    """InputError for a weight of an element type that is not supported; texts are refused before they are read."""
    if dtype not in SUPPORTED_DTYPES | {BFLOAT16}:
        raise UncoveredError(
            f"{source}: weight {name!r} has element type {dtype}, which is not supported "
            f"(supported: {', '.join(sorted(SUPPORTED_DTYPES))}); convert the model, e.g. to float32"
        )


def _first_lines(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400] or type(error).__name__


def scalars_of(model: onnx.ModelProto) -> set[str]:
    """Values that are scalars, by ONNX: its runtime describes those of unknown rank in the same way."""
    try:
        inferred = infer_model(model)
    except Exception:  # noqa: BLE001  # onnx raises several unrelated classes; what it cannot infer is no scalar
        return set()
    values = (*inferred.graph.input, *inferred.graph.output, *inferred.graph.value_info)
    return {v.name for v in values if v.type.tensor_type.HasField("shape") and not v.type.tensor_type.shape.dim}
