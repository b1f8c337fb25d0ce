"""What is known of values without running anything: signs, operators of one operand, equal parameters."""

from __future__ import annotations

import numpy as np

from autofuse.graph.mapping import POINTWISE, names
from autofuse.graph.model import Operator
from autofuse.rewrite.pattern import Binding, Guard
from autofuse.rewrite.work import Work

_NOT_NEGATIVE = names("Abs Exp HardSigmoid ReduceL1 ReduceL2 ReduceSumSquare Relu Sigmoid Softmax Softplus Sqrt")
_KEEPS_SIGN = names(
    """AveragePool Concat Expand Flatten Gather GlobalAveragePool GlobalMaxPool Identity Max MaxPool Mean Reciprocal
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Slice Split Squeeze Sum Transpose Unsqueeze"""
)
_DEPTH = 6
MONOTONE = ("Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Log", "Erf", "Softplus", "Ceil", "Floor")
"""Operators that never fall when their operand rises, so that they commute with maxima and minima."""

BINARY = frozenset(("Add", "Sub", "Mul", "Div", "Max", "Min"))


def nonnegative(work: Work, tensor: str, depth: int = _DEPTH) -> bool:
    """Whether no element can be below zero (NaN aside), as far as can be seen."""
    if work.is_constant(tensor):
        array = work.array(tensor)
        return array is not None and array.dtype.kind in "fiub" and bool(np.all(array >= 0))
    operator = work.producer(tensor)
    if operator is None or depth == 0:
        return False
    kind, inputs = operator.op_type, operator.inputs
    if kind in _NOT_NEGATIVE:
        return True
    if kind == "Mul" and inputs[0] == inputs[1]:
        return True
    if kind == "Pow" and (work.scalar(inputs[1]) or 1.0) % 2 == 0:
        return True
    if kind == "Clip":
        return len(inputs) > 1 and bool(inputs[1]) and nonnegative(work, inputs[1], depth - 1)
    if kind == "Max":
        return any(nonnegative(work, name, depth - 1) for name in inputs)
    if kind in ("Add", "Mul", "Div", "Min"):
        return all(nonnegative(work, name, depth - 1) for name in inputs)
    return kind in _KEEPS_SIGN and all(nonnegative(work, name, depth - 1) for name in _data(operator))


def _data(operator: Operator) -> tuple[str, ...]:
    every = operator.op_type in ("Concat", "Max", "Mean", "Sum")
    return operator.inputs if every else operator.inputs[:1]


def positive(work: Work, tensor: str) -> bool:
    """Whether every element is above zero for certain."""
    if work.is_constant(tensor):
        array = work.array(tensor)
        return array is not None and array.dtype.kind in "fiu" and bool(np.all(array > 0))
    operator = work.producer(tensor)
    if operator is None:
        return False
    if operator.op_type == "Add":
        first, second = operator.inputs
        return (positive(work, first) and nonnegative(work, second)) or (
            positive(work, second) and nonnegative(work, first)
        )
    return operator.op_type in ("Sqrt", "Abs") and positive(work, operator.inputs[0])


def not_negative(*of: str) -> Guard:
    """None of these is ever below zero."""
    return Guard(
        f"{', '.join(of)} >= 0", lambda bound: all(nonnegative(bound.work, bound.tensors[name]) for name in of)
    )


def above_zero(*of: str) -> Guard:
    """All of these are always above zero."""
    return Guard(f"{', '.join(of)} > 0", lambda bound: all(positive(bound.work, bound.tensors[name]) for name in of))


def scalars(*of: str) -> Guard:
    """Each of these constants is one number."""
    return Guard(f"{', '.join(of)} of one element", lambda bound: all(bound.elements(name) == 1 for name in of))


def no_larger(*of: str) -> Guard:
    """These constants broadcast to the shape of the largest of them: no outer product is made."""

    def test(bound: Binding) -> bool:
        shapes = [bound.shape(name) for name in of]
        return int(np.prod(np.broadcast_shapes(*shapes))) <= max(bound.elements(name) for name in of)

    return Guard(f"{', '.join(of)} broadcast to one of them", test)


def pointwise_of_one(work: Work, operator: Operator) -> str | None:
    """The only tensor that varies in an elementwise operator whose other operands are numbers; None for others.

    Its shape must be the result's.
    """
    if operator.op_type not in POINTWISE or operator.domain or len(operator.outputs) != 1:
        return None
    varying = [name for name in operator.inputs if name and not work.is_constant(name)]
    if len(varying) != 1:
        return None
    numbers = all(work.tensors[n].elements == 1 for n in operator.inputs if n and n not in varying)
    return varying[0] if numbers and work.shape(varying[0]) == work.shape(operator.outputs[0]) else None
