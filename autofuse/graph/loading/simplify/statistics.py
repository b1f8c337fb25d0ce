"""LayerNormalization whose mean or deviation is read: the statistics are computed beside it.

y, mean, inverse = LayerNormalization(x, s, b)   becomes, over the normalised axes,
y = LayerNormalization(x, s, b), mean = ReduceMean(x), d = x - mean,
inverse = Reciprocal(Sqrt(ReduceMean(d * d) + epsilon)).
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator

_FLOAT32 = 1
"""ONNX's number of the type in which statistics are computed by default."""


def split_statistics(draft: Draft) -> bool:
    """Takes the statistics out of every LayerNormalization of known shape; True when the draft changed."""
    result: list[Operator] = []
    for operator in draft.operators:
        own = operator.op_type == "LayerNormalization" and not operator.domain and any(operator.outputs[1:])
        result += _apart(draft, operator) if own and operator.inputs[0] in draft.tensors else [operator]
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
