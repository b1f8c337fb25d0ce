"""Norms in parts that have kernels.

Where the mean or the deviation of a LayerNormalization is read, they are computed beside it:
y, mean, inverse = LayerNormalization(x, s, b)   becomes, over the normalised axes,
y = LayerNormalization(x, s, b), mean = ReduceMean(x), d = x - mean,
inverse = Reciprocal(Sqrt(ReduceMean(d * d) + epsilon)).

y = InstanceNormalization(x, s, b) of one channel, as a GroupNormalization of one group is exported,   becomes
y = d / Sqrt(ReduceMean(d * d) + epsilon) * s + b with d = x - ReduceMean(x): where s and b are numbers, no
kernel of TVM's is known to be right.

y = LpNormalization(x)   becomes   norm = ReduceL2(x), y = Where(norm == 0, 0, x / norm); ReduceL1 where p is 1.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator

_FLOAT32 = 1
"""ONNX's number of the type in which statistics are computed by default."""


def split_statistics(draft: Draft) -> bool:
    """Takes the statistics out of both, where shapes are known; True when the draft changed."""
    result: list[Operator] = []
    for operator in draft.operators:
        known = not operator.domain and bool(operator.inputs) and operator.inputs[0] in draft.tensors
        if known and operator.op_type == "LayerNormalization" and any(operator.outputs[1:]):
            result += _apart(draft, operator)
        elif known and operator.op_type == "LpNormalization":
            result += _by_norm(draft, operator)
        elif known and operator.op_type == "InstanceNormalization" and draft.tensors[operator.inputs[0]].shape[1] == 1:
            result += _of_one_channel(draft, operator)
        else:
            result.append(operator)
    changed = len(result) != len(draft.operators)
    draft.operators = result
    return changed


def _apart(draft: Draft, operator: Operator) -> list[Operator]:
    write = Writer(draft, operator)
    x = operator.inputs[0]
    axis, kind = operator.attributes.get("axis", -1), operator.attributes.get("stash_type", _FLOAT32)
    epsilon = operator.attributes.get("epsilon", 1e-5)
    assert isinstance(axis, int) and isinstance(epsilon, float)
    rank = len(draft.tensors[x].shape)
    axes = write.integers("axes", range(axis % rank, rank))
    wide = write.op("Cast", "wide", x, to=kind)
    mean = write.op("ReduceMean", "mean", wide, axes, output=operator.outputs[1])
    centred = write.op("Sub", "centred", wide, mean)
    variance = write.op("ReduceMean", "variance", write.op("Mul", "squared", centred, centred), axes)
    shifted = write.op("Add", "above_zero", variance, write.like("epsilon", epsilon, variance))
    inverse = operator.outputs[2] if len(operator.outputs) > 2 else ""
    write.op("Reciprocal", "inverse", write.op("Sqrt", "deviation", shifted), output=inverse)
    first = [replace(operator, outputs=operator.outputs[:1])] if operator.outputs[0] else []
    return [*first, *write.made]


def _of_one_channel(draft: Draft, operator: Operator) -> list[Operator]:
    write = Writer(draft, operator)
    x, scale, bias = operator.inputs
    epsilon = operator.attributes.get("epsilon", 1e-5)
    assert isinstance(epsilon, float)
    axes = write.integers("axes", range(2, len(draft.tensors[x].shape)))
    centred = write.op("Sub", "centred", x, write.op("ReduceMean", "mean", x, axes))
    variance = write.op("ReduceMean", "variance", write.op("Mul", "squared", centred, centred), axes)
    deviation = write.op("Sqrt", "deviation", write.op("Add", "above_zero", variance, write.number("epsilon", epsilon)))
    scaled = write.op("Mul", "scaled", write.op("Div", "normalised", centred, deviation), scale)
    write.op("Add", "", scaled, bias, output=operator.outputs[0])
    return write.made


def _by_norm(draft: Draft, operator: Operator) -> list[Operator]:
    write = Writer(draft, operator)
    x, axis = operator.inputs[0], operator.attributes.get("axis", -1)
    assert isinstance(axis, int)
    kind = "ReduceL1" if operator.attributes.get("p", 2) == 1 else "ReduceL2"
    axes, zero = write.integers("axes", [axis % len(draft.tensors[x].shape)]), write.number("zero", 0.0)
    norm = write.op(kind, "norm", x, axes)
    none = write.op("Equal", "none", norm, zero)
    write.op("Where", "", none, zero, write.op("Div", "divided", x, norm), output=operator.outputs[0])
    return write.made
