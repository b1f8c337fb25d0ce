"""LSTM, GRU and RNN, split into the product of all inputs at once and the recurrence that is left.

Y, ... = LSTM(X, W, R, B, lengths, h, c, P)   becomes
projected = Gemm(X, W) + (Wb + Rb) over all steps and directions, Y, ... = LSTMRecurrence(projected, R, "", lengths,
h, c, P).

A GRU that resets after its product (linear_before_reset) keeps that product's bias. Batches ahead of steps
(layout = 1) are transposed around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator
from autofuse.graph.own.names import DOMAIN
from autofuse.graph.own.recurrence import BATCH_FIRST, GATES, STATES, STATES_FIRST, STEPS_FIRST, is_recurrence


def split_recurrent(draft: Draft) -> bool:
    """Splits every LSTM, GRU and RNN of float32 whose shapes are known; True when the draft changed."""
    result: list[Operator] = []
    for operator in draft.operators:
        result += _Splitter(draft, operator).split() if _is_split(draft, operator) else [operator]
    changed = len(result) != len(draft.operators)
    draft.operators = result
    return changed


def leave_zero_states(draft: Draft) -> bool:
    """Leaves out states before the first step that are zero, as they are without; True when the draft changed."""
    changed = False
    for number, operator in enumerate(draft.operators):
        zero = [place for place in STATES if is_recurrence(operator) and _is_zero(draft, operator.inputs[place:])]
        if zero:
            inputs = ["" if place in zero else name for place, name in enumerate(operator.inputs)]
            while not inputs[-1]:
                inputs.pop()
            draft.operators[number] = replace(operator, inputs=tuple(inputs))
            changed = True
    return changed


def _is_zero(draft: Draft, inputs: Sequence[str]) -> bool:
    """Whether the first of some inputs is a constant of zeros."""
    array = draft.constants.get(inputs[0]) if inputs else None
    return array is not None and not np.any(array)


def _is_split(draft: Draft, operator: Operator) -> bool:
    if operator.op_type not in GATES or operator.domain:
        return False
    known = [draft.tensors.get(name) for name in (*operator.inputs[:3], *operator.outputs) if name]
    return all(tensor is not None and tensor.dtype == "float32" for tensor in known) and any(operator.outputs)


@dataclass(frozen=True)
class _Sizes:
    steps: int
    batch: int
    depth: int
    directions: int
    hidden: int
    gates: int

    @property
    def columns(self) -> int:
        """Columns of the projected inputs."""
        return self.directions * self.gates * self.hidden


class _Splitter:
    """Writes the operators that one recurrent operator is split into."""

    def __init__(self, draft: Draft, operator: Operator) -> None:
        self.write, self.operator = Writer(draft, operator), operator
        self.batch_first = bool(operator.attributes.get("layout", 0))
        first, second, depth = draft.tensors[operator.inputs[0]].shape
        steps, batch = (second, first) if self.batch_first else (first, second)
        directions, _, hidden = draft.tensors[operator.inputs[2]].shape
        self.sizes = _Sizes(steps, batch, depth, directions, hidden, GATES[operator.op_type])

    def input(self, place: int) -> str:
        return self.operator.inputs[place] if place < len(self.operator.inputs) else ""

    def split(self) -> list[Operator]:
        attributes = {name: value for name, value in self.operator.attributes.items() if name != "layout"}
        bias, inner_bias = self.biases()
        states = [self.state(5, "initial_h"), self.state(6, "initial_c")]
        inputs = [self.projected(bias), self.input(2), inner_bias, self.input(4), *states, self.input(7)]
        while not inputs[-1]:
            inputs.pop()
        outputs, after = self.results()
        recurrence = Operator(
            self.operator.name,
            f"{self.operator.op_type}Recurrence",
            tuple(inputs),
            outputs,
            {**attributes, "hidden_size": self.sizes.hidden},
            DOMAIN,
        )
        return [*self.write.made, recurrence, *after]

    def projected(self, bias: str) -> str:
        """[S, B, columns]: the inputs of all steps times the input weights of all directions."""
        write, sizes = self.write, self.sizes
        x = self.operator.inputs[0]
        if self.batch_first:
            x = write.op("Transpose", "steps_first", x, perm=STEPS_FIRST)
        rows = write.op("Reshape", "rows", x, write.integers("row_shape", [sizes.steps * sizes.batch, sizes.depth]))
        weights_shape = write.integers("weights_shape", [sizes.columns, sizes.depth])
        weights = write.op("Reshape", "weights", self.operator.inputs[1], weights_shape)
        operands = (rows, weights, bias) if bias else (rows, weights)
        product = write.op("Gemm", "input_product", *operands, transB=1)
        shape = write.integers("projected_shape", [sizes.steps, sizes.batch, sizes.columns])
        return write.op("Reshape", "projected", product, shape)

    def biases(self) -> tuple[str, str]:
        """(bias of the projected inputs, bias of the product that a GRU resets): "" where there is none."""
        if not self.input(3):
            return "", ""
        write, sizes = self.write, self.sizes
        width, shape = sizes.gates * sizes.hidden, write.integers("bias_shape", [sizes.columns])
        after_product = self.operator.op_type == "GRU" and bool(self.operator.attributes.get("linear_before_reset", 0))
        joined = width - sizes.hidden if after_product else width
        bias = write.op("Add", "bias_sum", self.bias("of_inputs", 0, joined), self.bias("of_state", width, joined))
        if not after_product:
            return write.op("Reshape", "bias", bias, shape), ""
        bias = write.op("Concat", "bias_of_gates", bias, self.bias("of_candidate", joined, sizes.hidden), axis=1)
        inner = self.bias("inside_reset", width + joined, sizes.hidden)
        return write.op("Reshape", "bias", bias, shape), inner

    def bias(self, label: str, first: int, count: int) -> str:
        """Columns of the operator's bias [D, 2 * G * H]."""
        bounds = [self.write.integers(f"{label}/{end}", [at]) for end, at in (("from", first), ("to", first + count))]
        axis = self.write.integers(f"{label}/axis", [1])
        return self.write.op("Slice", label, self.input(3), *bounds, axis)

    def state(self, place: int, label: str) -> str:
        """An initial state as [D, B, H]."""
        if not self.input(place) or not self.batch_first:
            return self.input(place)
        return self.write.op("Transpose", label, self.input(place), perm=STATES_FIRST)

    def results(self) -> tuple[tuple[str, ...], list[Operator]]:
        """The recurrence's outputs, and what makes the operator's own of them."""
        if not self.batch_first:
            return self.operator.outputs, []
        after = Writer(self.write.draft, self.operator)
        inner = []
        for name, label in zip(self.operator.outputs, ("y", "y_h", "y_c"), strict=False):
            inner.append(self.write.draft.fresh(f"{self.operator.name}/{label}_steps_first") if name else "")
            if name:
                perm = BATCH_FIRST if label == "y" else STATES_FIRST
                after.op("Transpose", label, inner[-1], output=name, perm=perm)
        return tuple(inner), after.made
