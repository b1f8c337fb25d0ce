"""Writes operators in place of one that is decomposed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.model import AttributeValue, Operator


class Writer:
    """A writer of operators, in the order in which they are made; names begin with that of the operator they stand
    for."""

    def __init__(self, draft: Draft, operator: Operator) -> None:
        self.draft, self.operator = draft, operator
        self.made: list[Operator] = []

    def op(self, op_type: str, label: str, *inputs: str, output: str = "", **attributes: AttributeValue) -> str:
        """Writes an operator with one result, and gives that; `label` "" has the name of the operator itself."""
        name = f"{self.operator.name}/{label}" if label else self.operator.name
        output = output or self.draft.fresh(name)
        self.made.append(Operator(name, op_type, inputs, (output,), attributes))
        return output

    def integers(self, label: str, values: Sequence[int]) -> str:
        """A constant vector of int64."""
        return self.draft.add_constant(f"{self.operator.name}/{label}", np.asarray(values, np.int64))

    def number(self, label: str, value: float) -> str:
        """A constant of the element type of the operator's first input."""
        dtype = self.draft.tensors[self.operator.inputs[0]].dtype
        return self.draft.add_constant(f"{self.operator.name}/{label}", np.asarray(value, dtype))

    def like(self, label: str, value: float, tensor: str) -> str:
        """A number of the element type of a tensor, which may not be known yet."""
        plain = self.draft.add_constant(f"{self.operator.name}/{label}", np.asarray(value, np.float32))
        return self.op("CastLike", f"{label}/like", plain, tensor)
