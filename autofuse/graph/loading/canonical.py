"""One form for each operator, so that kernels know one form and equal groups have equal keys.

After loading (static shapes known), for every operator:
- attributes equal to the schema's default are dropped, except `axis`, `perm` and the geometry below;
- `axis` is explicit and not negative; Transpose has `perm`;
- Conv, ConvTranspose and pooling have `kernel_shape`, `strides`, `dilations` (not LpPool before opset 18),
  `pads`, and Conv also `group`; `auto_pad` and `output_shape` are gone;
- axes of Reduce*, Squeeze and Unsqueeze are a constant int64 input, sorted, not negative, and present
  (but for a Reduce* with noop_with_empty_axes and no axes);
- Reshape and Expand read their full result shape from a constant; Split reads its sizes from a constant
  and has no empty results;
- Slice has starts, ends, axes and steps as constants; those of positive step are clamped to the shape;
- a commutative operator of two inputs reads its constant last;
- Pad has no axes input; a Resize has no empty roi, scales or sizes input;
- an Einsum that only moves axes is a Transpose.
What reads a value that is computed at run time (a Slice with dynamic starts) stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from onnx import helper

from autofuse.graph.loading.draft import Draft
from autofuse.graph.model import AttributeValue, Operator
from autofuse.graph.nodes import CAPTURES, schema_of

AXIS_DEFAULTS: Mapping[str, int] = {
    "ArgMax": 0,
    "ArgMin": 0,
    "Concat": 0,
    "Flatten": 1,
    "Gather": 0,
    "GatherElements": 0,
    "Hardmax": -1,
    "LayerNormalization": -1,
    "LogSoftmax": -1,
    "RMSNormalization": -1,
    "ScatterElements": 0,
    "Softmax": -1,
    "Split": 0,
    "TopK": -1,
}
_KEPT = frozenset(("axis", "perm", "kernel_shape", "strides", "dilations", "pads", "group"))
_COMMUTATIVE = ("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Max", "Min", "Mul", "Or", "Xor")
_FIRST_DOTTED = 0x100
"""Code of the letter that stands for the first axis of `...`; an equation has none from there on."""
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def canonicalise(draft: Draft) -> bool:
    """Bring every operator whose shapes are known to its one form; True when something changed."""
    result = []
    for operator in draft.operators:
        form = _plain_attributes(operator, draft.opset)
        if all(draft.shape(name) is not None for name in (*form.inputs, *form.outputs) if name):
            form = _explicit_axis(draft, form)
            rule = _RULES.get(form.op_type)
            form = rule(draft, form) if rule else form
        result.append(form)
    changed = any(new != old for new, old in zip(result, draft.operators, strict=True))
    draft.operators = result
    return changed


def _with(operator: Operator, **attributes: AttributeValue | None) -> Operator:
    """`operator` with attributes set (or removed, for None); itself when nothing differs."""
    merged = dict(operator.attributes)
    for name, value in attributes.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return operator if merged == dict(operator.attributes) else replace(operator, attributes=merged)


def _shape(draft: Draft, name: str) -> tuple[int, ...]:
    return draft.tensors[name].shape


def _plain_attributes(operator: Operator, opset: int) -> Operator:
    schema = schema_of(operator.op_type, opset, operator.domain)
    if schema is None or not operator.attributes:
        return operator
    kept: dict[str, AttributeValue] = {}
    for name, value in operator.attributes.items():
        declared = schema.attributes.get(name)
        default = declared.default_value if declared is not None else None
        known = name not in _KEPT and name != CAPTURES and default is not None and bool(default.name)
        if not known or _plain(helper.get_attribute_value(default)) != value:  # type: ignore[arg-type]
            kept[name] = value
    return operator if len(kept) == len(operator.attributes) else replace(operator, attributes=kept)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value


def _explicit_axis(draft: Draft, operator: Operator) -> Operator:
    if operator.op_type not in AXIS_DEFAULTS:
        return operator
    axis = operator.attributes.get("axis", AXIS_DEFAULTS[operator.op_type])
    rank = len(_shape(draft, operator.inputs[0]))
    assert isinstance(axis, int)
    return _with(operator, axis=axis + rank if axis < 0 else axis)


def _ints(operator: Operator, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = operator.attributes.get(name, default)
    assert isinstance(value, tuple)
    return tuple(int(item) for item in value)


def _window(draft: Draft, operator: Operator) -> Operator:
    """Conv and pooling: explicit kernel, strides, dilations and pads."""
    data, result = _shape(draft, operator.inputs[0]), _shape(draft, operator.outputs[0])
    rank = len(data) - 2
    kernel = _shape(draft, operator.inputs[1])[2:] if operator.op_type == "Conv" else ()
    kernel = _ints(operator, "kernel_shape", kernel)
    strides, dilations = _ints(operator, "strides", (1,) * rank), _ints(operator, "dilations", (1,) * rank)
    auto = operator.attributes.get("auto_pad", "NOTSET")
    pads = _ints(operator, "pads", (0,) * 2 * rank)
    if auto == "VALID":
        pads = (0,) * 2 * rank
    elif auto != "NOTSET":
        spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        totals = [
            max(0, (out - 1) * s + span - size)
            for out, s, span, size in zip(result[2:], strides, spans, data[2:], strict=True)
        ]
        pads = _halves(totals, more_at_end=auto == "SAME_UPPER")
    group = operator.attributes.get("group", 1) if operator.op_type == "Conv" else None
    return _with(
        operator, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads, auto_pad=None, group=group
    )


def _halves(totals: list[int], more_at_end: bool) -> tuple[int, ...]:
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return tuple(small + large if more_at_end else large + small)


def _conv_transpose(draft: Draft, operator: Operator) -> Operator:
    """Pads follow from the result's size whenever auto_pad or output_shape asked for it."""
    data, result = _shape(draft, operator.inputs[0]), _shape(draft, operator.outputs[0])
    rank = len(data) - 2
    kernel = _ints(operator, "kernel_shape", _shape(draft, operator.inputs[1])[2:])
    strides, dilations = _ints(operator, "strides", (1,) * rank), _ints(operator, "dilations", (1,) * rank)
    extra = _ints(operator, "output_padding", (0,) * rank)
    auto = operator.attributes.get("auto_pad", "NOTSET")
    pads = _ints(operator, "pads", (0,) * 2 * rank)
    if auto == "VALID":
        pads = (0,) * 2 * rank
    elif auto != "NOTSET" or "output_shape" in operator.attributes:
        totals = [
            s * (size - 1) + more + (k - 1) * d + 1 - out
            for s, size, more, k, d, out in zip(strides, data[2:], extra, kernel, dilations, result[2:], strict=True)
        ]
        if min(totals, default=0) < 0:
            return operator
        pads = _halves(totals, more_at_end=auto == "SAME_UPPER")
    return _with(
        operator,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=pads,
        group=operator.attributes.get("group", 1),
        auto_pad=None,
        output_shape=None,
        output_padding=extra if any(extra) else None,
    )


def _pool(draft: Draft, operator: Operator) -> Operator:
    """Names the attributes as a convolution does; AveragePool before opset 19 and LpPool before 18 have no dilations
    attribute."""
    form = _window(draft, operator)
    schema = schema_of(operator.op_type, draft.opset)
    return form if schema and "dilations" in schema.attributes else _with(form, dilations=None)


def _perm(draft: Draft, operator: Operator) -> Operator:
    rank = len(_shape(draft, operator.inputs[0]))
    return _with(operator, perm=_ints(operator, "perm", tuple(reversed(range(rank)))))


def _reduce_axes(draft: Draft, operator: Operator) -> Operator:
    rank = len(_shape(draft, operator.inputs[0]))
    present = len(operator.inputs) > 1 and operator.inputs[1]
    axes = draft.vector(operator, 1) if present else ()
    if axes is None or (not axes and operator.attributes.get("noop_with_empty_axes", 0)):
        return operator
    chosen = sorted(axis % rank for axis in axes) if axes else range(rank)
    return _with(draft.with_input(operator, 1, "axes", chosen), noop_with_empty_axes=None)


def _squeeze(draft: Draft, operator: Operator) -> Operator:
    shape = _shape(draft, operator.inputs[0])
    axes = draft.vector(operator, 1)
    if axes is None and len(operator.inputs) > 1 and operator.inputs[1]:
        return operator
    chosen = [i for i, dim in enumerate(shape) if dim == 1] if axes is None else sorted(a % len(shape) for a in axes)
    return draft.with_input(operator, 1, "axes", chosen)


def _unsqueeze(draft: Draft, operator: Operator) -> Operator:
    axes, rank = draft.vector(operator, 1), len(_shape(draft, operator.outputs[0]))
    return operator if axes is None else draft.with_input(operator, 1, "axes", sorted(axis % rank for axis in axes))


def _result_shape(draft: Draft, operator: Operator) -> Operator:
    """Reshape and Expand, even with a shape computed at run time: its value is known from inference."""
    form = draft.with_input(operator, 1, "shape", _shape(draft, operator.outputs[0]))
    return _with(form, allowzero=None)


def _split(draft: Draft, operator: Operator) -> Operator:
    axis = operator.attributes["axis"]
    assert isinstance(axis, int)
    if not all(operator.outputs):
        return operator
    empty = [name for name in operator.outputs if not draft.tensors[name].elements and name not in draft.returned]
    for name in empty:
        draft.set_constant(name, np.zeros(_shape(draft, name), dtype=draft.tensors[name].dtype))
    if empty and len(empty) < len(operator.outputs):
        operator = replace(operator, outputs=tuple(name for name in operator.outputs if name not in empty))
    sizes = (_shape(draft, name)[axis] for name in operator.outputs)
    return _with(draft.with_input(operator, 1, "split", sizes), num_outputs=None)


def _slice(draft: Draft, operator: Operator) -> Operator:
    shape = _shape(draft, operator.inputs[0])
    starts, ends = draft.vector(operator, 1), draft.vector(operator, 2)
    axes, steps = draft.vector(operator, 3), draft.vector(operator, 4)
    dynamic = any(name and name not in draft.constants for name in operator.inputs[1:])
    if dynamic or starts is None or ends is None:
        return operator
    axes = tuple(range(len(starts))) if axes is None else tuple(axis % len(shape) for axis in axes)
    steps = (1,) * len(starts) if steps is None else steps
    rows = []
    for axis, start, end, step in sorted(zip(axes, starts, ends, steps, strict=True)):
        if step > 0:
            start, end = (min(max(i + shape[axis] if i < 0 else i, 0), shape[axis]) for i in (start, end))
        rows.append((start, end, axis, step))
    for index, label in enumerate(("starts", "ends", "axes", "steps")):
        operator = draft.with_input(operator, index + 1, label, (row[index] for row in rows))
    return operator


def _pad(draft: Draft, operator: Operator) -> Operator:
    pads, axes = draft.vector(operator, 1), draft.vector(operator, 3)
    if pads is None or axes is None:
        return operator
    rank = len(_shape(draft, operator.inputs[0]))
    full = [0] * 2 * rank
    for index, axis in enumerate(axes):
        full[axis % rank], full[axis % rank + rank] = pads[index], pads[index + len(axes)]
    form = draft.with_input(operator, 1, "pads", full)
    return replace(form, inputs=_trimmed(form.inputs[:3]))


def _resize(draft: Draft, operator: Operator) -> Operator:
    empty = [name in draft.constants and draft.constants[name].size == 0 for name in operator.inputs]
    if not any(empty):
        return operator
    names = tuple("" if drop else name for name, drop in zip(operator.inputs, empty, strict=True))
    return replace(operator, inputs=_trimmed(names))


def _concat(draft: Draft, operator: Operator) -> Operator:
    """Concat(a, empty constant, b)   becomes   Concat(a, b)."""
    names = tuple(n for n in operator.inputs if n not in draft.constants or draft.constants[n].size > 0)
    return operator if len(names) in (0, len(operator.inputs)) else replace(operator, inputs=names)


def _constant_last(draft: Draft, operator: Operator) -> Operator:
    """Add(constant, x)   becomes   Add(x, constant)."""
    if len(operator.inputs) != 2:
        return operator
    first, second = operator.inputs
    swap = first in draft.constants and second not in draft.constants
    return replace(operator, inputs=(second, first)) if swap else operator


def _einsum(draft: Draft, operator: Operator) -> Operator:
    """Einsum(x, equation="...ij->...ji")   becomes   Transpose(x)."""
    before, arrow, after = str(operator.attributes.get("equation", "")).replace(" ", "").partition("->")
    rank = len(_shape(draft, operator.inputs[0]))
    letters = before.replace("...", "")
    spread = "".join(chr(_FIRST_DOTTED + place) for place in range(rank - len(letters)))
    before, after = before.replace("...", spread), after.replace("...", spread)
    moved = arrow and len(set(before)) == len(before) == rank and sorted(before) == sorted(after)
    if len(operator.inputs) != 1 or not moved:
        return operator
    perm = tuple(before.index(letter) for letter in after)
    return replace(operator, op_type="Transpose", attributes={"perm": perm})


def _trimmed(names: tuple[str, ...]) -> tuple[str, ...]:
    while names and not names[-1]:
        names = names[:-1]
    return names


_RULES: Mapping[str, Callable[[Draft, Operator], Operator]] = {
    **{f"Reduce{kind}": _reduce_axes for kind in _REDUCTIONS},
    **dict.fromkeys(_COMMUTATIVE, _constant_last),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    "Conv": _window,
    "ConvTranspose": _conv_transpose,
    "Transpose": _perm,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _result_shape,
    "Expand": _result_shape,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Resize": _resize,
    "Concat": _concat,
    "Einsum": _einsum,
}
