"""BatchNormalization in training mode, written out: statistics of the batch, then scale and shift.

y, m', v' = BatchNormalization(x, gamma, beta, m, v)   becomes, over all axes but the channels,
mean = ReduceMean(x), d = x - mean, variance = ReduceMean(d * d), y = d * (gamma / Sqrt(variance + epsilon)) + beta,
m' = m * momentum + mean * (1 - momentum), v' = v * momentum + variance * (1 - momentum).

So the statistics can share a kernel with what makes x, and scale and shift one with what reads y.

y, mask = Dropout(x), not in training,   becomes   y = x, mask = Expand(true).
"""

from __future__ import annotations

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator


def split_training(draft: Draft) -> bool:
    """Writes out both, where shapes are known; True when the draft changed."""
    result: list[Operator] = []
    for operator in draft.operators:
        if _keeps_all(draft, operator):
            result += _with_whole_mask(draft, operator)
        else:
            result += _written_out(draft, operator) if _is_training(draft, operator) else [operator]
    changed = result != draft.operators
    draft.operators = result
    return changed


def _keeps_all(draft: Draft, operator: Operator) -> bool:
    """Whether an operator is a Dropout that drops nothing, and whose mask is wanted."""
    if operator.op_type != "Dropout" or len(operator.outputs) < 2 or operator.inputs[0] not in draft.tensors:
        return False
    training = draft.constants.get(operator.inputs[2]) if len(operator.inputs) > 2 and operator.inputs[2] else None
    return len(operator.inputs) < 3 or not operator.inputs[2] or (training is not None and not training.any())


def _with_whole_mask(draft: Draft, operator: Operator) -> list[Operator]:
    write = Writer(draft, operator)
    write.op("Identity", "", operator.inputs[0], output=operator.outputs[0])
    true = draft.add_constant(f"{operator.name}/true", np.asarray(True))
    shape = write.integers("shape", draft.tensors[operator.inputs[0]].shape)
    write.op("Expand", "mask", true, shape, output=operator.outputs[1])
    return write.made


def _is_training(draft: Draft, operator: Operator) -> bool:
    if operator.op_type != "BatchNormalization" or not operator.attributes.get("training_mode", 0):
        return False
    known = [draft.tensors.get(name) for name in operator.inputs]
    dtypes = {tensor.dtype for tensor in known if tensor is not None}
    return None not in known and len(dtypes) == 1 and dtypes <= {"float32", "float64"}


def _written_out(draft: Draft, operator: Operator) -> list[Operator]:
    write = Writer(draft, operator)
    x, gamma, beta, *running = operator.inputs
    shape = draft.tensors[x].shape
    axes = write.integers("axes", [axis for axis in range(len(shape)) if axis != 1])
    column = write.integers("column", [shape[1], *(1 for _ in shape[2:])])
    mean = write.op("ReduceMean", "mean", x, axes)
    centred = write.op("Sub", "centred", x, mean)
    variance = write.op("ReduceMean", "variance", write.op("Mul", "squared", centred, centred), axes)
    shifted = write.op("Add", "above_zero", variance, write.number("epsilon", _number(operator, "epsilon", 1e-5)))
    gamma, beta = (write.op("Reshape", label, name, column) for label, name in (("gamma", gamma), ("beta", beta)))
    scale = write.op("Div", "scale", gamma, write.op("Sqrt", "deviation", shifted))
    scaled = write.op("Mul", "scaled", centred, scale)
    write.op("Add", "", scaled, beta, output=operator.outputs[0])
    flat = write.integers("channels", [shape[1]])
    momentum = _number(operator, "momentum", 0.9)
    for label, old, new, output in zip(
        ("mean", "variance"), running, (mean, variance), operator.outputs[1:], strict=False
    ):
        if output:
            kept = write.op("Mul", f"kept_{label}", old, write.number("momentum", momentum))
            fresh = write.op("Reshape", f"flat_{label}", new, flat)
            fresh = write.op("Mul", f"new_{label}", fresh, write.number("rest", 1.0 - momentum))
            write.op("Add", f"running_{label}", kept, fresh, output=output)
    return write.made


def _number(operator: Operator, name: str, default: float) -> float:
    value = operator.attributes.get(name, default)
    assert isinstance(value, float)
    return value
