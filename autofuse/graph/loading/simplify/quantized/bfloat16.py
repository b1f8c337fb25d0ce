"""Numbers that a model rounds to bfloat16, and the contractions of such.

RoundToBfloat16(x)   becomes   x where it is rounded already.
y = Conv(r, w, b) with r = RoundToBfloat16(x), where every number of w is a bfloat16,   becomes
y = Bfloat16Conv(r, w, b), and so do MatMul and Gemm, and products of two operands that are rounded, also where what is
rounded is moved in between. Whoever computes x rounds it, once for all that read it; where x is an input of the model,
the contraction reads x, since it rounds by itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import Known
from autofuse.graph.model import Operator
from autofuse.graph.own.bfloat16 import LEAST_GROUP, is_round, rounded_tensors
from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS, DOMAIN
from autofuse.graph.own.rounding import is_rounded, rounded


def join_bfloat16(draft: Draft) -> bool:
    """Rewrites roundings and contractions of what is rounded; True when the draft changed."""
    return sum((_join_roundings(draft), _join_contractions(draft))) > 0


def _join_roundings(draft: Draft) -> bool:
    """RoundToBfloat16 of a constant, and of what is rounded already, computes nothing."""
    held, changed = rounded_tensors(draft.operators, draft.constants, draft.halves.intersection(draft.inputs)), False
    result: list[Operator] = []
    for operator in draft.operators:
        source = operator.inputs[0] if is_round(operator) else ""
        if source in draft.constants and operator.outputs[0] not in draft.returned:
            draft.set_constant(operator.outputs[0], rounded(draft.constants[source]))
            changed = True
        elif source in held:
            result.append(Operator(operator.name, "Identity", operator.inputs, operator.outputs))
            changed = True
        else:
            result.append(operator)
    draft.operators = result
    return changed


def _join_contractions(draft: Draft) -> bool:
    known, changed = Known(draft), False
    held = rounded_tensors(draft.operators, draft.constants, draft.halves.intersection(draft.inputs))
    result: list[Operator] = []
    for operator in draft.operators:
        operands = _operands(known, held, operator)
        result += _written(draft, operator, operands) if operands else [operator]
        changed |= bool(operands)
    draft.operators = result
    return changed


def _operands(known: Known, held: set[str], operator: Operator) -> tuple[str, ...]:
    """The operands, as long as they are computed rounded, of a contraction that can be rewritten; else none."""
    if operator.domain or operator.op_type not in ("Conv", "MatMul", "Gemm") or not _able(known.draft, operator):
        return ()
    left, right = operator.inputs[:2]
    weights = known.draft.constants.get(right)
    if left not in held or not (right in held or (weights is not None and is_rounded(weights))):
        return ()
    return tuple(_before_rounding(known, name) for name in (left, right))


def _before_rounding(known: Known, name: str) -> str:
    """The input of the model that is rounded to `name`; `name` itself where it is no such rounding."""
    source = known.producers.get(name)
    rounded_input = source is not None and is_round(source) and source.inputs[0] not in known.producers
    return source.inputs[0] if source is not None and rounded_input else name


def _able(draft: Draft, operator: Operator) -> bool:
    """Whether the kernels of rounded operands compute a contraction."""
    shapes = [draft.shape(name) for name in operator.inputs[:2]]
    attributes = operator.attributes
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return False
    if operator.op_type == "Gemm":
        plain = not attributes.get("transA", 0) and all(attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))
        return plain and (operator.inputs[1] in draft.constants or not attributes.get("transB", 0))
    if operator.op_type == "Conv":
        weights, groups = shapes[1], attributes.get("group", 1)
        assert weights is not None and isinstance(groups, int)
        explicit = "pads" in attributes and "auto_pad" not in attributes
        return explicit and (groups == 1 or weights[0] // groups >= LEAST_GROUP)
    return True


def _written(draft: Draft, operator: Operator, operands: tuple[str, ...]) -> list[Operator]:
    inputs = (*operands, *operator.inputs[2:])
    if operator.op_type != "Gemm":
        return [replace(operator, op_type=BFLOAT16_CONTRACTIONS[operator.op_type], inputs=inputs, domain=DOMAIN)]
    x, w, *bias = inputs
    if operator.attributes.get("transB", 0):
        w = draft.add_constant(f"{operator.name}/turned", np.ascontiguousarray(draft.constants[w].T))
    product = draft.fresh(f"{operator.name}/product") if bias else operator.outputs[0]
    name = f"{operator.name}/product" if bias else operator.name
    made = Operator(name, BFLOAT16_CONTRACTIONS["MatMul"], (x, w), (product,), {}, DOMAIN)
    return [made, *(Operator(operator.name, "Add", (product, one), operator.outputs) for one in bias)]
