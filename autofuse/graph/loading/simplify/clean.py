"""Removing what computes nothing: no-ops, dead operators, unused outputs, decided branches, empty inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import defs, numpy_helper

from autofuse.graph.loading.draft import Draft, as_constants
from autofuse.graph.loading.simplify.inline import inlined, passed_on
from autofuse.graph.model import Operator
from autofuse.graph.nodes import CAPTURES, attribute_proto, schema_of

_OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


def know_empty_inputs(draft: Draft) -> None:
    """What reads an input without elements reads a constant: there is nothing to know of its value."""
    empty = [tensor for tensor in draft.inputs.values() if not tensor.elements]
    values = {t.name: draft.add_constant(f"{t.name}/value", np.zeros(t.shape, t.dtype)) for t in empty}
    draft.operators = [
        replace(op, inputs=tuple(values.get(name, name) for name in op.inputs)) if values.keys() & op.inputs else op
        for op in draft.operators
    ]


def split_sums(draft: Draft) -> None:
    """Sum(a, b, c)   becomes   Add(Add(a, b), c); TVM imports Sum as stack and reduce."""
    result: list[Operator] = []
    for operator in draft.operators:
        if operator.op_type != "Sum" or len(operator.inputs) < 2:
            result.append(operator)
            continue
        left = operator.inputs[0]
        last = len(operator.inputs) - 1
        for index, right in enumerate(operator.inputs[1:], 1):
            name = operator.name if index == last else f"{operator.name}/add{index}"
            made = operator.outputs[0] if index == last else draft.fresh(f"{operator.outputs[0]}/add{index}")
            result.append(Operator(name, "Add", (left, right), (made,)))
            left = made
    draft.operators = result


def inline_decided_branches(draft: Draft) -> bool:
    """If(constant, then, else)   becomes   the operators of the branch taken."""
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        condition = draft.constants.get(operator.inputs[0]) if operator.op_type == "If" else None
        if condition is None:
            result.append(operator)
            continue
        result.extend(_branch(draft, operator, bool(condition.reshape(-1)[0])))
        changed = True
    draft.operators = result
    return changed


def _branch(draft: Draft, operator: Operator, taken: bool) -> list[Operator]:
    encoded = operator.attributes["then_branch" if taken else "else_branch"]
    captured = operator.attributes.get(CAPTURES, ())
    assert isinstance(encoded, bytes) and isinstance(captured, tuple)
    body = attribute_proto(encoded).g
    outer = operator.inputs[len(operator.inputs) - len(captured) :]
    names: dict[str, str] = {str(inner): actual for inner, actual in zip(captured, outer, strict=True)}
    arrays = as_constants({item.name: numpy_helper.to_array(item) for item in body.initializer}, draft.source)
    for name, array in arrays.items():
        names[name] = draft.add_constant(f"{operator.name}/{name}", array)
    made = inlined(draft, operator.name, body.node, names)
    results = [names.get(value.name, value.name) for value in body.output]
    return [*made, *passed_on(operator, results)]


def remove_noops(draft: Draft) -> bool:
    """Drop operators whose result is their first input; True when the draft changed.

    Where a graph output hangs on it, the producer takes over the output's name; where that cannot be
    (the value is an input, a constant or itself an output) an Identity operator stays.
    """
    alias: dict[str, str] = {}
    rename: dict[str, str] = {}
    made: set[str] = set()
    kept: list[Operator] = []
    changed = False
    for original in draft.operators:
        operator = _renamed(original, alias)
        changed |= operator is not original
        made.update(operator.outputs)
        if not _is_noop(draft, operator):
            kept.append(operator)
            continue
        source, result = operator.inputs[0], operator.outputs[0]
        if result not in draft.returned:
            alias[result], changed = source, True
        elif source in made and source not in draft.returned and source not in rename:
            rename[source], changed = result, True
        else:
            alias[result] = source
            changed |= operator.op_type != "Identity"
            kept.append(replace(operator, op_type="Identity", inputs=(source,), attributes={}))
    draft.operators = [_renamed(operator, rename, outputs=True) for operator in kept]
    for old, new in rename.items():
        draft.tensors[new] = replace(draft.tensors[old], name=new)
    return changed


def _renamed(operator: Operator, names: dict[str, str], outputs: bool = False) -> Operator:
    touched = (*operator.inputs, *operator.outputs) if outputs else operator.inputs
    if not any(name in names for name in touched):
        return operator
    results = tuple(names.get(name, name) for name in operator.outputs) if outputs else operator.outputs
    return replace(operator, inputs=tuple(names.get(name, name) for name in operator.inputs), outputs=results)


_SAME_SHAPE = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"))
_ONE_INPUT = frozenset(("Concat", "Sum", "Max", "Min", "Mean"))


def _is_noop(draft: Draft, operator: Operator) -> bool:
    if not operator.inputs or len(operator.outputs) != 1:
        return False
    before, after = draft.tensors.get(operator.inputs[0]), draft.tensors.get(operator.outputs[0])
    if operator.op_type == "Identity":
        return before is not None
    if before is None or after is None or before.shape != after.shape or before.dtype != after.dtype:
        return False
    match operator.op_type:
        case name if name in _SAME_SHAPE or name in ("Cast", "CastLike"):
            return True
        case name if name in _ONE_INPUT:
            return len(operator.inputs) == 1
        case "Dropout":
            training = operator.inputs[2] if len(operator.inputs) > 2 else ""
            return not training or (training in draft.constants and not draft.constants[training].any())
        case "Transpose":
            perm = operator.attributes.get("perm")
            return isinstance(perm, tuple) and perm == tuple(range(len(before.shape)))
        case "Slice":
            steps = draft.vector(operator, 4)
            return steps is not None and all(step == 1 for step in steps)
        case "Pad":
            pads = draft.vector(operator, 1)
            return pads is not None and not any(pads)
        case "Split":
            return True
        case "And" | "Or":
            return _is_neutral(draft, operator)
    return False


def _is_neutral(draft: Draft, operator: Operator) -> bool:
    """And(x, all true) and Or(x, all false); the canonical form has the constant last."""
    other = draft.constants.get(operator.inputs[1])
    return other is not None and bool(np.all(other == (operator.op_type == "And")))


def remove_dead(draft: Draft) -> bool:
    """Drop operators that no output needs, unused optional outputs, unused constants."""
    needed = set(draft.outputs)
    kept: list[Operator] = []
    changed = False
    for operator in reversed(draft.operators):
        if not any(name in needed for name in operator.outputs):
            changed = True
            continue
        trimmed = _without_unused(operator, needed, draft.opset)
        changed |= trimmed is not operator
        kept.append(trimmed)
        needed.update(operator.inputs)
    draft.operators = kept[::-1]
    draft.constants = {name: array for name, array in draft.constants.items() if name in needed}
    return changed


def _without_unused(operator: Operator, needed: set[str], opset: int) -> Operator:
    schema = schema_of(operator.op_type, opset, operator.domain)
    if schema is None or len(operator.outputs) < 2 or operator.attributes.get("training_mode", 0):
        return operator  # BatchNormalization in training must name all three
    outputs = [
        "" if name not in needed and index < len(schema.outputs) and schema.outputs[index].option == _OPTIONAL else name
        for index, name in enumerate(operator.outputs)
    ]
    while outputs and not outputs[-1]:
        outputs.pop()
    return operator if tuple(outputs) == operator.outputs else replace(operator, outputs=tuple(outputs))
