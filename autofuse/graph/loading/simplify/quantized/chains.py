"""What stands between quantised operators: movements of integers, bounds that quantisation has anyhow.

QuantizeLinear(Reshape(DequantizeLinear(x, s, z)), s, z)   becomes   Reshape(x), as for all that only moves elements; a
Pad has the level of its number.
QuantizeLinear(Relu(x), s, z) is QuantizeLinear(x, s, z), where z is the least integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import Known, Levels
from autofuse.graph.mapping import names
from autofuse.graph.model import Operator

MOVES = names(
    "DepthToSpace Expand Flatten Gather Identity MaxPool Reshape Resize Slice SpaceToDepth Squeeze Tile Transpose "
    "Unsqueeze"
)
"""Operators whose first input alone has the elements of their result; a Resize, where it copies the nearest."""


def move_integers(draft: Draft) -> bool:
    """Takes quantisation off movements that stand between the same levels; True when the draft changed."""
    known = Known(draft)
    changed = False
    result: list[Operator] = []
    for operator in draft.operators:
        made = _moved(known, operator)
        result += [operator] if made is None else [made]
        changed |= made is not None
    draft.operators = result
    return changed


def split_integers(draft: Draft) -> bool:
    """Takes quantisation off a Split between the same levels; True when the draft changed."""
    known = Known(draft)
    readers = {name: operator for operator in draft.operators for name in operator.inputs}
    made: dict[str, Operator | None] = {}
    for operator in draft.operators:
        behind = _behind_split(known, readers, operator)
        if behind:
            before = known.producers[operator.inputs[0]]
            outputs = tuple(one.outputs[0] for one in behind)
            made[operator.name] = replace(operator, inputs=(before.inputs[0], *operator.inputs[1:]), outputs=outputs)
            made |= dict.fromkeys(one.name for one in behind)
    found = [made.get(operator.name, operator) for operator in draft.operators]
    draft.operators = [operator for operator in found if operator is not None]
    return bool(made)


def _behind_split(known: Known, readers: Mapping[str, Operator], operator: Operator) -> list[Operator]:
    """The QuantizeLinear behind each part of a Split, where all have the levels before it; else none."""
    if operator.op_type != "Split" or operator.domain or not all(map(known.only_read_here, operator.outputs)):
        return []
    levels, behind = known.dequantized(operator.inputs[0]), [readers.get(name) for name in operator.outputs]
    found = [one for one in behind if one is not None and one.op_type == "QuantizeLinear" and not one.domain]
    same = all(_same(levels, known.levels(one, one.outputs[0])) for one in found)
    return found if same and len(found) == len(operator.outputs) else []


def drop_bounds(draft: Draft) -> bool:
    """Takes a Relu or Clip out of the way of a QuantizeLinear that bounds as much; True when the draft changed."""
    known = Known(draft)
    changed = False
    result: list[Operator] = []
    for operator in draft.operators:
        source = _unbounded(known, operator)
        if source:
            operator = replace(operator, inputs=(source, *operator.inputs[1:]))
            changed = True
        result.append(operator)
    draft.operators = result
    return changed


def _same(one: Levels | None, other: Levels | None) -> bool:
    if one is None or other is None or not one.per_tensor or not other.per_tensor:
        return False
    return one.dtype == other.dtype and one.scale[0] == other.scale[0] and one.zero[0] == other.zero[0]


def _moved(known: Known, operator: Operator) -> Operator | None:
    """What a QuantizeLinear becomes, where all behind it back to the same levels only moves elements."""
    if operator.op_type != "QuantizeLinear" or operator.domain:
        return None
    levels = known.levels(operator, operator.outputs[0])
    name = operator.inputs[0]
    move = known.producers.get(name)
    if move is None or move.domain or move.op_type not in MOVES | {"Concat", "DequantizeLinear", "Pad"}:
        return None
    if move.op_type == "DequantizeLinear":
        if _same(levels, known.dequantized(name)):
            return Operator(operator.name, "Identity", (move.inputs[0],), operator.outputs)
        return None
    if move.op_type == "Concat":
        return _joined(known, levels, operator, move)
    before = known.made_by(move.inputs[0], "DequantizeLinear")
    if not _only_moves(move):
        return None
    if before is None or not known.only_read_here(name) or not _same(levels, known.dequantized(move.inputs[0])):
        return None
    inputs = (before.inputs[0], *move.inputs[1:])
    if move.op_type == "Pad" and levels is not None:
        inputs = _padded(known.draft, inputs, levels)
    return replace(move, name=operator.name, inputs=inputs, outputs=operator.outputs) if inputs else None


def _padded(draft: Draft, inputs: tuple[str, ...], levels: Levels) -> tuple[str, ...]:
    """Inputs of a Pad of integers, whose number behind the edges is a level; none where that is not known."""
    x, pads, value, *axes = (*inputs, "")[: max(3, len(inputs))]
    given = draft.constants.get(value) if value else np.zeros((), np.float32)
    if given is None or given.size != 1 or not np.isfinite(given).all():
        return ()
    limits = np.iinfo(levels.dtype)
    level = np.rint(np.float32(given.reshape(())) / levels.scale[0]) + int(levels.zero[0])
    whole = np.asarray(np.clip(level, limits.min, limits.max), levels.dtype)
    return (x, pads, draft.add_constant(f"{x}/beyond", whole), *axes)


def _joined(known: Known, levels: Levels | None, operator: Operator, concat: Operator) -> Operator | None:
    """A Concat of integers in place of one of numbers, all of the same levels."""
    before = [known.made_by(name, "DequantizeLinear") for name in concat.inputs]
    same = all(_same(levels, known.dequantized(name)) for name in concat.inputs)
    if not same or not known.only_read_here(concat.outputs[0]):
        return None
    inputs = tuple(one.inputs[0] for one in before if one is not None)
    return replace(concat, name=operator.name, inputs=inputs, outputs=operator.outputs)


def _only_moves(operator: Operator) -> bool:
    """Whether each element of the result is one of the first input's, and the only result."""
    one = sum(bool(output) for output in operator.outputs) == 1
    if operator.op_type != "Resize":
        return one
    attributes = operator.attributes
    outside = attributes.get("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    return one and attributes.get("mode", "nearest") == "nearest" and not outside


def _unbounded(known: Known, operator: Operator) -> str:
    """The operand of a Relu or Clip behind a QuantizeLinear whose own bounds are as narrow; "" where there is none."""
    if operator.op_type != "QuantizeLinear" or operator.domain:
        return ""
    bound = known.producers.get(operator.inputs[0])
    if bound is None or bound.domain or bound.op_type not in ("Relu", "Clip"):
        return ""
    levels = known.levels(operator, operator.outputs[0])
    if levels is None or not levels.per_tensor or levels.dtype not in ("int8", "uint8"):
        return ""
    low, high = _bounds(known, bound)
    limits, scale, zero = np.iinfo(levels.dtype), np.float32(levels.scale[0]), int(levels.zero[0])
    below = low is None or bool(np.rint(np.float32(low) / scale) + zero <= limits.min)
    above = high is None or bool(np.rint(np.float32(high) / scale) + zero >= limits.max)
    return bound.inputs[0] if below and above else ""


def _bounds(known: Known, bound: Operator) -> tuple[float | None, float | None]:
    """The bounds of a Relu or Clip: None where it has none; one that is not known counts as one that cuts all."""
    if bound.op_type == "Relu":
        return 0.0, None

    def given(place: int, unknown: float) -> float | None:
        name = bound.inputs[place] if place < len(bound.inputs) else ""
        array = known.draft.constants.get(name)
        return None if not name else unknown if array is None else float(array.reshape(()))

    return given(1, np.inf), given(2, -np.inf)
