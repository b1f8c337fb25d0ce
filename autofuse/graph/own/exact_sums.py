"""Sums and means of many numbers as a reference computes them: in float64, rounded once.

Operators of the domain `autofuse` on float32: `ExactReduceSum` and `ExactReduceMean` have the inputs and attributes of
ONNX's operators (axes as an input or as an attribute, whatever the opset). ONNX Runtime adds the numbers of a map one
by one in float32: where they are of about one size, most of them are rounded the same way, and the mean of 3,136
numbers is off by 4e-5 of them. A kernel that adds them better would be called wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from autofuse.graph.model import Operator, Tensor
from autofuse.graph.own.names import DOMAIN

MANY = 32
"""Numbers of a sum from which on it is computed so."""
_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceMean": 18}
"""First opset in which the axes are an input."""
_KINDS = {"ExactReduceSum": "ReduceSum", "ExactReduceMean": "ReduceMean"}


def is_exact_sum(operator: Operator) -> bool:
    """Whether an operator is one of those above."""
    return operator.domain == DOMAIN and operator.op_type in _KINDS


def exact_sum(operator: Operator, tensors: Mapping[str, Tensor]) -> Operator:
    """The operator that computes the same in full, where it sums many numbers of float32; else the operator."""
    if operator.domain or operator.op_type not in ("ReduceSum", "ReduceMean", "GlobalAveragePool"):
        return operator
    source, result = tensors[operator.inputs[0]], tensors[operator.outputs[0]]
    if source.dtype != "float32" or source.elements < MANY * max(1, result.elements):
        return operator
    attributes = dict(operator.attributes)
    if operator.op_type == "GlobalAveragePool":  # of which ONNX Runtime has none in float64
        attributes = {"axes": tuple(range(2, len(source.shape))), "keepdims": 1}
    kind = "ExactReduceSum" if operator.op_type == "ReduceSum" else "ExactReduceMean"
    return replace(operator, op_type=kind, attributes=attributes, domain=DOMAIN)


def exact_sum_nodes(operator: Operator, opset: int) -> list[NodeProto]:
    """The ONNX nodes that compute it."""
    kind, name = _KINDS[operator.op_type], operator.name
    source, *others = operator.inputs
    wide, total = f"{operator.outputs[0]}/wide", f"{operator.outputs[0]}/total"
    attributes: Any = dict(operator.attributes)
    nodes = [helper.make_node("Cast", [source], [wide], f"{name}/widen", to=TensorProto.DOUBLE)]
    if "axes" in attributes and opset >= _AXES_AS_INPUT[kind]:
        axes = numpy_helper.from_array(np.asarray(attributes.pop("axes"), np.int64))
        others = [f"{operator.outputs[0]}/axes"]
        nodes.append(helper.make_node("Constant", [], others, f"{name}/axes", value=axes))
    nodes.append(helper.make_node(kind, [wide, *others], [total], name, **attributes))
    return [*nodes, helper.make_node("Cast", [total], list(operator.outputs), f"{name}/narrow", to=TensorProto.FLOAT)]
