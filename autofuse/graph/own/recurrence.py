"""Recurrences: what is left of LSTM, GRU and RNN once the products of all their inputs are computed ahead.

An operator `LSTMRecurrence`, `GRURecurrence` or `RNNRecurrence` of the domain `autofuse` reads
`projected` [S, B, D*G*H] (the input products of all steps, biases added; S steps, batch B, D directions, G gates of H
hidden units), the recurrent weights [D, G*H, H], the bias [D, H] of the product that a GRU resets after it
(linear_before_reset), sequence_lens, initial_h, initial_c and the peepholes, the absent ones "". Its results and its
attributes are those of the ONNX operator. Where `layout` is 1 the batch stands in front of all: `projected`
[B, S, D*G*H], states [B, D, H], and the result Y [B, S, D, H].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from autofuse.graph.model import Operator
from autofuse.graph.own.names import DOMAIN

GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Recurrent ONNX operators, and gates of a hidden unit in each."""
RECURRENCES: Mapping[str, str] = {f"{cell}Recurrence": cell for cell in GATES}
"""Recurrence -> the ONNX operator that it belongs to."""

LENGTHS = 3
"""Input of a recurrence that says how many steps each sequence of the batch has."""
STATES = 4, 5
"""Inputs of a recurrence that are states before the first step."""
STEPS_FIRST, STATES_FIRST, BATCH_FIRST = (1, 0, 2), (1, 0, 2), (2, 0, 1, 3)
"""Transpositions of X and of states between the two layouts, and that of Y which puts the batch in front."""


def is_recurrence(operator: Operator) -> bool:
    """Whether an operator is a recurrence."""
    return operator.domain == DOMAIN and operator.op_type in RECURRENCES


def is_batch_first(operator: Operator) -> bool:
    """Whether the sequences of a recurrence stand in front of all else."""
    return bool(operator.attributes.get("layout", 0))


def recurrence_nodes(operator: Operator) -> list[NodeProto]:
    """ONNX nodes that compute a recurrence: its ONNX operator with weights of ones and zeros for the inputs.

    Such a product is exact, so results are those of the operator that the model had, up to the order of sums. ONNX
    Runtime has no layout with the batch in front, so that this is transposed around it.
    """
    cell = RECURRENCES[operator.op_type]
    hidden = operator.attributes["hidden_size"]
    assert isinstance(hidden, int)
    directions = 2 if operator.attributes.get("direction") == "bidirectional" else 1
    projected, weights, bias, *rest = (*operator.inputs, "")
    chosen = _Nodes(operator.name)
    width = GATES[cell] * hidden
    taken = chosen.identity_parts(width, directions)
    if bias:
        zeros = chosen.zeros("no_bias", (directions, 5 * hidden))
        bias = chosen.node("Concat", "bias", [zeros, bias], axis=1)
    inputs = [projected, taken, weights, bias, *rest]
    outputs, after = list(operator.outputs), _Nodes(operator.name)
    if is_batch_first(operator):
        for place, label in ((0, "steps_first"), (5, "h_first"), (6, "c_first")):
            if inputs[place : place + 1] not in ([], [""]):
                inputs[place] = chosen.node("Transpose", label, [inputs[place]], perm=STEPS_FIRST)
        for place, name in enumerate(operator.outputs):
            if name:
                outputs[place] = f"{operator.name}/as_onnx/result{place}"
                perm = STATES_FIRST if place else BATCH_FIRST
                after.nodes.append(helper.make_node("Transpose", [outputs[place]], [name], outputs[place], perm=perm))
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node(cell, inputs, outputs, operator.name)
    given = {name: value for name, value in operator.attributes.items() if name != "layout"}
    node.attribute.extend(helper.make_attribute(name, value) for name, value in given.items())
    return [*chosen.nodes, node, *after.nodes]


class _Nodes:
    """A maker of nodes whose names begin with that of the operator they stand for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[NodeProto] = []

    def node(self, op_type: str, label: str, inputs: list[str], **attributes: Any) -> str:
        output = f"{self.name}/as_onnx/{label}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def integers(self, label: str, *values: int) -> str:
        return self.node("Constant", label, [], value=numpy_helper.from_array(np.asarray(values, np.int64)))

    def zeros(self, label: str, shape: tuple[int, int]) -> str:
        return self.node("ConstantOfShape", label, [self.integers(f"{label}/shape", *shape)])

    def identity_parts(self, width: int, directions: int) -> str:
        """[D, width, D * width]: each direction takes its own part of the projected inputs."""
        blank, axis = self.zeros("blank", (width, directions * width)), self.integers("axis", 0)
        parts = []
        for number in range(directions):
            part = self.node("EyeLike", f"part{number}", [blank], k=number * width, dtype=1)
            parts.append(self.node("Unsqueeze", f"taken{number}", [part, axis]))
        return self.node("Concat", "taken", parts, axis=0)
