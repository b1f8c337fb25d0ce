"""Products of bytes inside attention over an open size, as products of the same integers in float32: the kernel of an
attention multiplies real numbers.

MatMulInteger(a, b, za, zb)   becomes   Cast(MatMul(a - za, b - zb)), where a and b are integers in float32. Sums below
2^24 are exact. Beyond that a sum is rounded, by less than its share of a level once it is a byte again.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from autofuse.graph.model import Operator, Tensor
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph

ONE = "levels/one"
"""The constant scale of integers that stay what they are."""


def with_real_levels(opened: OpenGraph) -> OpenGraph:
    """The open graph with its products of bytes over an open size in float32; those of rows stay as they are."""
    wanted = {operator.name for operator in opened.graph.operators if _is_over_grids(opened, operator)}
    if not wanted:
        return opened
    writer = _Writer(opened)
    operators: list[Operator] = []
    for operator in opened.graph.operators:
        operators += writer.written(operator) if operator.name in wanted else [operator]
    constants = {**opened.graph.constants, ONE: np.ones((), np.float32)}
    graph = replace(opened.graph, operators=tuple(operators), tensors=writer.tensors, constants=constants)
    return replace(opened, graph=graph, axes=writer.axes, grids=writer.grids, more=writer.more)


def _is_over_grids(opened: OpenGraph, operator: Operator) -> bool:
    if operator.op_type != "MatMulInteger" or operator.domain:
        return False
    touched = any(name in opened.grids for name in (*operator.inputs[:2], operator.outputs[0]))
    zeros = (opened.graph.tensors[name] for name in operator.inputs[2:] if name)
    return touched and all(prod(zero.shape) == 1 for zero in zeros)


class _Writer:
    """Writes products, and says where the open size stands in what they make."""

    def __init__(self, opened: OpenGraph) -> None:
        self.opened, self.tensors = opened, dict(opened.graph.tensors)
        self.axes, self.grids, self.more = dict(opened.axes), dict(opened.grids), dict(opened.more)
        self.tensors[ONE] = Tensor(ONE, (), "float32")

    def written(self, operator: Operator) -> list[Operator]:
        """The operators in place of a product."""
        left, right, *zeros = operator.inputs
        made: list[Operator] = []
        for name, zero in zip((left, right), (*zeros, "", ""), strict=False):
            inputs = (name, ONE, zero) if zero else (name, ONE)
            real = self._like(name, f"{operator.name}/{len(made)}")
            made.append(Operator(f"{operator.name}/{len(made)}", "DequantizeLinear", inputs, (real,)))
        sums = self._like(operator.outputs[0], f"{operator.name}/sums")
        product = Operator(f"{operator.name}/sums", "MatMul", tuple(one.outputs[0] for one in made), (sums,))
        return [
            *made,
            product,
            Operator(operator.name, "Cast", (sums,), operator.outputs, {"to": int(TensorProto.INT32)}),
        ]

    def _like(self, name: str, own: str) -> str:
        """A tensor of real numbers, of the shape of another one at any size."""
        self.tensors[own] = replace(self.tensors[name], name=own, dtype="float32")
        places: tuple[dict[str, Any], ...] = (self.axes, self.grids, self.more)
        for known in places:
            if name in known:
                known[own] = known[name]
        return own
