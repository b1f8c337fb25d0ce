"""Rounding to bfloat16, and contractions of operands that are rounded so, whose sums are float32.

Operators of the domain `autofuse` on float32: `RoundToBfloat16` gives the nearest bfloat16 as float32, half to even.
`Bfloat16Conv` and `Bfloat16MatMul` have the inputs and attributes of Conv and MatMul, and compute what these do once
the first two operands are rounded; a bias is added as it is.

In a model for others a rounding is a Cast to bfloat16 and one back, in front of ONNX's own operator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onnx import NodeProto, TensorProto, helper

from autofuse.graph.model import Operator
from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS, DOMAIN, ROUND

LEAST_GROUP = 8
"""Results of each group of a Bfloat16Conv, at least: of fewer, vectors of columns would be mostly empty."""
_PLAIN = {rounded: plain for plain, rounded in BFLOAT16_CONTRACTIONS.items()}


def is_of_bfloat16(operator: Operator) -> bool:
    """Whether an operator is one of those above."""
    return operator.domain == DOMAIN and (operator.op_type == ROUND or operator.op_type in _PLAIN)


def plain(operator: Operator) -> Operator:
    """The ONNX operator of the same types, shapes and attributes."""
    return replace(operator, op_type=_PLAIN.get(operator.op_type, "Identity"), domain="")


def bfloat16_nodes(operator: Operator) -> list[NodeProto]:
    """The ONNX nodes that compute it."""
    if operator.op_type == ROUND:
        return _rounding(operator.name, operator.inputs[0], operator.outputs[0])
    nodes: list[NodeProto] = []
    inputs = list(operator.inputs)
    for place in range(2):
        rounded = f"{operator.outputs[0]}/operand{place}"
        nodes += _rounding(f"{operator.name}/operand{place}", inputs[place], rounded)
        inputs[place] = rounded
    attributes: Any = dict(operator.attributes)
    node = helper.make_node(_PLAIN[operator.op_type], inputs, operator.outputs, operator.name, **attributes)
    return [*nodes, node]


def _rounding(name: str, source: str, result: str) -> list[NodeProto]:
    half = f"{result}/bfloat16"
    return [
        helper.make_node("Cast", [source], [half], f"{name}/narrow", to=TensorProto.BFLOAT16),
        helper.make_node("Cast", [half], [result], f"{name}/wide", to=TensorProto.FLOAT),
    ]
