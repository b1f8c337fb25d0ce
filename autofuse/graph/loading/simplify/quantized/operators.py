"""Operators on quantised tensors, written out: their inputs dequantised, the operator on real numbers, its result
quantised again. What becomes products of integers then is found by the rules for such.

y, s, z = DynamicQuantizeLinear(x)   becomes   s = (max(x, 0) - min(x, 0)) / 255, z = round(-min(x, 0) / s),
y = QuantizeLinear(x, s, z), where s is 1 if x is 0 everywhere.

y = QLinearConv(x, sx, zx, w, sw, zw, sy, zy, b)   becomes
y = QuantizeLinear(Conv(DequantizeLinear(x, sx, zx), DequantizeLinear(w, sw, zw), DequantizeLinear(b, sx sw)), sy, zy).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.model import Operator


def write_quantized(draft: Draft) -> bool:
    """Writes out DynamicQuantizeLinear, and QLinearConv and QLinearMatMul, whose scales are constant.

    True when the draft changed.
    """
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        made: list[Operator] = []
        if not operator.domain and operator.op_type == "QLinearConv":
            made = _convolution(draft, operator)
        elif not operator.domain and operator.op_type == "QLinearMatMul":
            made = _matmul(draft, operator)
        elif not operator.domain and operator.op_type == "DynamicQuantizeLinear":
            made = _dynamic(draft, operator)
        result += made or [operator]
        changed |= bool(made)
    draft.operators = result
    return changed


def _are_constant(draft: Draft, operator: Operator, *places: int) -> bool:
    return all(operator.inputs[place] in draft.constants for place in places)


def _convolution(draft: Draft, operator: Operator) -> list[Operator]:
    write = Writer(draft, operator)
    x, sx, zx, w, sw, zw, sy, zy = operator.inputs[:8]
    if not _are_constant(draft, operator, 1, 2, 3, 4, 5, 6, 7) or draft.constants[sx].size != 1:
        return []
    operands = [
        write.op("DequantizeLinear", "x", x, *_scalars(write, "x", sx, zx)),
        write.op("DequantizeLinear", "w", w, *_scalars(write, "w", sw, zw), axis=0),
    ]
    if write.input(8):
        left, right = (np.asarray(draft.constants[name], np.float32).reshape(-1) for name in (sx, sw))
        scale = np.asarray(left * right, np.float32)
        scale = scale.reshape(()) if scale.size == 1 else scale
        operands.append(
            write.op(
                "DequantizeLinear", "b", write.input(8), draft.add_constant(f"{operator.name}/b/scale", scale), axis=0
            )
        )
    attributes: dict[str, Any] = dict(operator.attributes)
    real = write.op("Conv", "real", *operands, **attributes)
    write.op("QuantizeLinear", "", real, *_scalars(write, "y", sy, zy), output=operator.outputs[0])
    return write.made


def _matmul(draft: Draft, operator: Operator) -> list[Operator]:
    write = Writer(draft, operator)
    a, sa, za, b, sb, zb, sy, zy = operator.inputs[:8]
    if not _are_constant(draft, operator, 1, 2, 4, 5, 6, 7) or draft.constants[sa].size != 1:
        return []
    if draft.constants[sb].ndim > 1 or draft.constants[sy].size != 1:
        return []
    operands = [
        write.op("DequantizeLinear", "a", a, *_scalars(write, "a", sa, za)),
        write.op("DequantizeLinear", "b", b, *_scalars(write, "b", sb, zb), axis=-1),
    ]
    real = write.op("MatMul", "real", *operands)
    write.op("QuantizeLinear", "", real, *_scalars(write, "y", sy, zy), output=operator.outputs[0])
    return write.made


def _dynamic(draft: Draft, operator: Operator) -> list[Operator]:
    """In the order of ONNX Runtime's own arithmetic, whose roundings it has."""
    write = Writer(draft, operator)
    x, name = operator.inputs[0], operator.name
    outputs = [output or draft.fresh(f"{name}/result") for output in (*operator.outputs, "", "")[:3]]
    zero, top, one = (
        draft.add_constant(f"{name}/{label}", np.asarray(value, np.float32))
        for label, value in (("nothing", 0.0), ("top", 255.0), ("one", 1.0))
    )
    low = write.op("Min", "low", write.op("ReduceMin", "least", x, keepdims=0), zero)
    high = write.op("Max", "high", write.op("ReduceMax", "greatest", x, keepdims=0), zero)
    reach = write.op("Sub", "reach", high, low)
    step = write.op("Div", "step", reach, top)
    scale = write.op("Where", "scale", write.op("Equal", "flat", reach, zero), one, step, output=outputs[1])
    shift = write.op("Div", "shift", write.op("Sub", "below", zero, low), scale)
    point = write.op("Round", "point", write.op("Clip", "bounded", shift, zero, top))
    write.op("Cast", "zero", point, output=outputs[2], to=2)
    write.op("QuantizeLinear", "", x, scale, outputs[2], output=outputs[0])
    return write.made


def _scalars(write: Writer, label: str, *names: str) -> list[str]:
    """Scale and zero point, of one shape: no dimension, or as many of each as the axis has."""
    draft, made = write.draft, []
    size = max(draft.constants[name].size for name in names)
    for part, name in zip(("scale", "zero"), names, strict=True):
        array = draft.constants[name]
        shape = () if size == 1 else (size,)
        if array.shape != shape:
            whole = np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (size,))).reshape(shape)
            name = draft.add_constant(f"{write.operator.name}/{label}/{part}", whole)
        made.append(name)
    return made
