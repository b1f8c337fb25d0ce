"""Maps whose places become rows of one tensor: what a detector finds at several scales, one scale behind the other.

`JoinPlaces` of the domain `autofuse` reads maps of one type. Each is read in the attribute `shape`: 0 stands for the
map's own extent at that axis, -1 for all that is left. They are joined along the axis of -1.

In a model for others it is a Reshape of each, and a Concat.
"""

from __future__ import annotations

from onnx import NodeProto, helper

from autofuse.graph.model import Operator
from autofuse.graph.own.names import DOMAIN, JOIN_PLACES


def joins_places(operator: Operator | None) -> bool:
    """Whether an operator joins the places of maps."""
    return operator is not None and operator.domain == DOMAIN and operator.op_type == JOIN_PLACES


def shape_of_rows(operator: Operator) -> tuple[int, ...]:
    """The attribute `shape` of an operator that joins places."""
    shape = operator.attributes["shape"]
    assert isinstance(shape, tuple)
    return tuple(int(extent) for extent in shape)


def merged_axes(operator: Operator, rank: int) -> range:
    """The axes of a map of such a rank that become the joined one, which has the number of the first of them."""
    shape = shape_of_rows(operator)
    axis = shape.index(-1)
    return range(axis, rank - (len(shape) - 1 - axis))


def join_nodes(operator: Operator) -> list[NodeProto]:
    """The ONNX nodes that compute it."""
    shape, made = shape_of_rows(operator), operator.outputs[0]
    nodes = [helper.make_node("Constant", [], [f"{made}/shape"], f"{operator.name}/shape", value_ints=shape)]
    rows = [f"{made}/rows{number}" for number in range(len(operator.inputs))]
    for source, name in zip(operator.inputs, rows, strict=True):
        nodes.append(helper.make_node("Reshape", [source, f"{made}/shape"], [name], f"{operator.name}/{name}"))
    nodes.append(helper.make_node("Concat", rows, [made], operator.name, axis=shape.index(-1)))
    return nodes
