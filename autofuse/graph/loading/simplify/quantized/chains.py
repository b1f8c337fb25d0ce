"""What stands between quantised operators: movements of integers, bounds that quantisation has anyhow.

QuantizeLinear(Reshape(DequantizeLinear(x, s, z)), s, z)   becomes   Reshape(x), as for all that only moves elements.
QuantizeLinear(Relu(x), s, z) is QuantizeLinear(x, s, z), where z is the least integer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import Known, Levels
from autofuse.graph.mapping import names
from autofuse.graph.model import Operator

MOVES = names("Flatten Gather Identity Reshape Slice Squeeze Transpose Unsqueeze Expand Tile")
"""Operators whose first input alone has the elements of their result."""


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
    if move is None or move.domain or move.op_type not in MOVES | {"DequantizeLinear"}:
        return None
    if move.op_type == "DequantizeLinear":
        if _same(levels, known.dequantized(name)):
            return Operator(operator.name, "Identity", (move.inputs[0],), operator.outputs)
        return None
    before = known.made_by(move.inputs[0], "DequantizeLinear")
    if before is None or not known.only_read_here(name) or not _same(levels, known.dequantized(move.inputs[0])):
        return None
    return replace(move, name=operator.name, inputs=(before.inputs[0], *move.inputs[1:]), outputs=operator.outputs)


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
