"""Functions of one byte, as a table of what they give for each.

`ByteLookup` of the domain `autofuse` reads bytes x (int8 or uint8, of any shape) and a constant `table` of 256 bytes
(int8 or uint8). Its result has the shape of x and the type of the table: of each byte the entry at its bits, read as an
unsigned number.

In a model for others it is a Gather from the table. Its negative indices count from the end, as the bits of an int8 do.
"""

from __future__ import annotations

from onnx import NodeProto, TensorProto, helper

from autofuse.graph.model import Operator
from autofuse.graph.own.names import BYTE_LOOKUP, DOMAIN

ENTRIES = 256
"""Of a table."""


def is_byte_lookup(operator: Operator) -> bool:
    """Whether an operator looks bytes up."""
    return operator.domain == DOMAIN and operator.op_type == BYTE_LOOKUP


def byte_lookup_nodes(operator: Operator) -> list[NodeProto]:
    """The ONNX nodes that compute it."""
    (source, table), index = operator.inputs, f"{operator.outputs[0]}/index"
    return [
        helper.make_node("Cast", [source], [index], f"{operator.name}/index", to=TensorProto.INT32),
        helper.make_node("Gather", [table, index], operator.outputs, operator.name),
    ]


def in_its_type(operator: Operator) -> Operator:
    """An ONNX operator whose result has the same type and shape, for ONNX's shape inference."""
    return Operator(operator.name, "CastLike", operator.inputs, operator.outputs)
