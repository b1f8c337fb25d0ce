"""Rounding to bfloat16, and contractions of operands that are rounded so, whose sums are float32.

Operators of the domain `autofuse` on float32: `RoundToBfloat16` gives the nearest bfloat16 as float32, half to even.
`Bfloat16Conv` and `Bfloat16MatMul` have the inputs and attributes of Conv and MatMul, and compute what these do once
the first two operands are rounded; a bias is added as it is.

In a model for others a rounding is a Cast to bfloat16 and one back, in front of ONNX's own operator.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

from autofuse.graph.model import Graph, Operator
from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS, DOMAIN, ROUND
from autofuse.graph.own.rounding import is_rounded

LEAST_GROUP = 8
"""Results of each group of a Bfloat16Conv, at least: of fewer, vectors of columns would be mostly empty."""
_MOVES = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "Neg", "Relu", "Reshape", "Slice",
        "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose results are numbers of their first input, zeros, or their negatives."""
_OF_ALL = frozenset({"Clip", "Concat", "Max", "Min"})
"""Operators whose results are numbers of any of their inputs."""
_PLAIN = {rounded: plain for plain, rounded in BFLOAT16_CONTRACTIONS.items()}


def is_of_bfloat16(operator: Operator) -> bool:
    """Whether an operator is one of those above."""
    return operator.domain == DOMAIN and (operator.op_type == ROUND or operator.op_type in _PLAIN)


def is_round(operator: Operator | None) -> bool:
    """Whether an operator rounds to bfloat16."""
    return operator is not None and operator.domain == DOMAIN and operator.op_type == ROUND


def rounded_tensors(
    operators: Iterable[Operator], constants: Mapping[str, NDArray[Any]], given: Iterable[str]
) -> set[str]:
    """Names of the tensors that hold nothing but bfloat16: `given` ones, and those that operators make of such."""
    found = set(given)
    for operator in operators:
        if is_round(operator) or keeps(operator, constants, found):
            found |= {name for name in operator.outputs if name}
    return found


def keeps(operator: Operator, constants: Mapping[str, NDArray[Any]], found: Container[str]) -> bool:
    """Whether an operator makes bfloat16 of tensors that were `found` to hold such."""
    if operator.domain or operator.op_type not in _MOVES | _OF_ALL:
        return False
    sources = operator.inputs[:1] if operator.op_type in _MOVES else operator.inputs
    names = [name for name in sources if name]
    return any(name in found for name in names) and all(
        name in found or (name in constants and is_rounded(np.asarray(constants[name]))) for name in names
    )


def in_float32(graph: Graph) -> Graph:
    """The graph that computes the same without rounding anything."""
    operators = tuple(plain(operator) if is_of_bfloat16(operator) else operator for operator in graph.operators)
    return replace(graph, operators=operators)


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
