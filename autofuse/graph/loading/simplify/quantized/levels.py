"""What DequantizeLinear says of a tensor: its integers, their scales and their zero points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.draft import Draft
from autofuse.graph.model import Operator

Array = NDArray[np.generic]
BYTES = frozenset({"int8", "uint8"})


def fits_signed(weights: NDArray[np.integer[Any]]) -> bool:
    """Whether integers fit signed bytes."""
    return weights.size == 0 or bool(weights.min() >= -128 and weights.max() <= 127)


@dataclass(frozen=True)
class Levels:
    """Real numbers (integers - `zero`) * `scale` of a tensor `name`; both flat: one number, or one for each of `axis`.

    `scale`: float32; `zero`: of the element type `dtype` of the integers.
    """

    name: str
    dtype: str
    scale: NDArray[np.float32]
    zero: Array
    axis: int

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and one zero point stand for all elements."""
        return self.scale.size == 1


class Known:
    """The operators of a draft by what they make and read, while none of them changes."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    @cached_property
    def producers(self) -> Mapping[str, Operator]:
        """Operator that writes each tensor."""
        return {name: operator for operator in self.draft.operators for name in operator.outputs if name}

    @cached_property
    def readers(self) -> Mapping[str, int]:
        """How often each tensor is read; an output of the graph once more."""
        read = Counter(name for operator in self.draft.operators for name in operator.inputs)
        return read + Counter(self.draft.outputs)

    def made_by(self, name: str, op_type: str) -> Operator | None:
        """The ONNX operator of a type that writes a tensor, or None."""
        operator = self.producers.get(name)
        return operator if operator is not None and operator.op_type == op_type and not operator.domain else None

    def only_read_here(self, name: str) -> bool:
        """Whether just one input of one operator is a tensor."""
        return self.readers[name] == 1

    def levels(self, operator: Operator, integers: str) -> Levels | None:
        """What a QuantizeLinear or DequantizeLinear says of a tensor of integers; None where it is not known.

        Scales in blocks, and other scales than float32, are not.
        """
        draft, inputs = self.draft, (*operator.inputs, "")
        scale: Any = draft.constants.get(inputs[1])
        if scale is None or scale.dtype != np.float32 or scale.ndim > 1 or operator.attributes.get("block_size", 0):
            return None
        dtype = self._dtype(operator, integers, inputs[2])
        zero = draft.constants.get(inputs[2]) if inputs[2] else np.zeros(scale.shape, dtype or "uint8")
        if dtype is None or zero is None or zero.size != scale.size:
            return None
        if not np.isfinite(scale).all() or not (scale > 0).all():
            return None
        axis = operator.attributes.get("axis", 1)
        assert isinstance(axis, int)
        return Levels(integers, dtype, scale.reshape(-1), zero.reshape(-1), axis)

    def dequantized(self, name: str) -> Levels | None:
        """Of the integers behind a tensor that DequantizeLinear makes; None where something else does."""
        operator = self.made_by(name, "DequantizeLinear")
        return None if operator is None else self.levels(operator, operator.inputs[0])

    def _dtype(self, operator: Operator, integers: str, zero: str) -> str | None:
        if integers in self.draft.constants:
            return str(self.draft.constants[integers].dtype.name)
        if zero in self.draft.constants:
            return str(self.draft.constants[zero].dtype.name)
        known = self.draft.tensors.get(integers)
        if known is not None:
            return known.dtype
        plain = operator.op_type == "QuantizeLinear" and not operator.attributes.get("output_dtype", 0)
        return "uint8" if plain else None
