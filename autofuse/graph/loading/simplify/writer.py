"""Writes operators in place of one that is decomposed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.model import AttributeValue, Operator


class NotCoveredError(Exception):
    """What an operator has that a rule does not cover, as its text says."""


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

    def several(
        self, op_type: str, label: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: AttributeValue
    ) -> None:
        """Writes an operator with the named ones of several results."""
        name = f"{self.operator.name}/{label}" if label else self.operator.name
        last = max(place for place, output in enumerate(outputs) if output)
        self.made.append(Operator(name, op_type, tuple(inputs), tuple(outputs[: last + 1]), attributes))

    def input(self, place: int) -> str:
        """An input of the operator; "" where it is absent."""
        return self.operator.inputs[place] if place < len(self.operator.inputs) else ""

    def given(self, most: int) -> tuple[str, ...]:
        """The first inputs, without those that are absent at the end."""
        return self.operator.inputs[: max(place for place in range(most) if self.input(place)) + 1]

    def result(self, place: int) -> str:
        """A result of the operator; "" where nobody wants it."""
        return self.operator.outputs[place] if place < len(self.operator.outputs) else ""

    def number_of(self, attribute: str, default: float) -> float:
        """An attribute that is a number."""
        value = self.operator.attributes.get(attribute, default)
        assert isinstance(value, int | float)
        return float(value)

    def flag(self, attribute: str) -> bool:
        """An attribute that is 0 or 1, and 0 where it is absent."""
        return bool(self.operator.attributes.get(attribute, 0))

    def known(self, place: int) -> bool:
        """Whether an input is absent, or its type is known."""
        return not self.input(place) or self.input(place) in self.draft.tensors

    def shape(self, place: int) -> tuple[int, ...]:
        """Shape of an input that is known."""
        return self.draft.tensors[self.input(place)].shape

    def scalar(self, place: int, default: int) -> int | None:
        """An integer input: `default` where it is absent, None where it is no constant."""
        if not self.input(place):
            return default
        values = self.draft.vector(self.operator, place)
        return values[0] if values is not None and len(values) == 1 else None
