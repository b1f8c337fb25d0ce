"""Numbers that a model rounds to bfloat16, and the contractions of such.

Cast(Cast(x, bfloat16), float32)   becomes   RoundToBfloat16(x), or x where it is rounded already.
y = Conv(r, w, b) with r = RoundToBfloat16(x), where every number of w is a bfloat16,   becomes
y = Bfloat16Conv(r, w, b), and so do MatMul and Gemm, and products of two operands that are rounded. Whoever computes x
rounds it, once for all that read it; where x is an input of the model, the contraction reads x, since it rounds by
itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from onnx import GraphProto, TensorProto

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import Known
from autofuse.graph.model import Operator
from autofuse.graph.own.bfloat16 import LEAST_GROUP
from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS, DOMAIN, ROUND
from autofuse.graph.own.rounding import is_rounded, rounded


def narrow_weights(graph: GraphProto) -> frozenset[str]:
    """Names of bfloat16 weights that are only cast: as float32 they are the same numbers."""
    found = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.BFLOAT16}
    if not found:
        return frozenset()
    other = {name for node in graph.node if node.op_type != "Cast" for name in node.input}
    return frozenset(found - other - {value.name for value in (*graph.output, *graph.input)})


def join_bfloat16(draft: Draft) -> bool:
    """Rewrites roundings and contractions of what is rounded; True when the draft changed."""
    return sum((_join_roundings(draft), _join_contractions(draft))) > 0


def _join_roundings(draft: Draft) -> bool:
    known, changed = Known(draft), False
    result: list[Operator] = []
    for operator in draft.operators:
        source = _rounded_source(known, operator)
        again = operator.op_type == ROUND and _is_rounding(known.producers.get(operator.inputs[0]))
        if source and source in draft.constants and operator.outputs[0] not in draft.returned:
            draft.set_constant(operator.outputs[0], rounded(draft.constants[source]))
        elif again:
            result.append(Operator(operator.name, "Identity", operator.inputs, operator.outputs))
        elif source:
            result.append(Operator(operator.name, ROUND, (source,), operator.outputs, {}, DOMAIN))
        else:
            result.append(operator)
        changed |= bool(source) or again
    draft.operators = result
    return changed


def _is_rounding(operator: Operator | None) -> bool:
    return operator is not None and operator.op_type == ROUND


def _rounded_source(known: Known, operator: Operator) -> str:
    """The float32 tensor that a Cast has from bfloat16; "" where it is no such Cast."""
    if operator.op_type != "Cast" or operator.domain or operator.attributes.get("to") != TensorProto.FLOAT:
        return ""
    narrow = known.made_by(operator.inputs[0], "Cast")
    if narrow is None or narrow.attributes.get("to") != TensorProto.BFLOAT16:
        return ""
    tensor = known.draft.tensors.get(narrow.inputs[0])
    return narrow.inputs[0] if tensor is not None and tensor.dtype == "float32" else ""


def _join_contractions(draft: Draft) -> bool:
    known, changed = Known(draft), False
    result: list[Operator] = []
    for operator in draft.operators:
        operands = _operands(known, operator)
        result += _written(draft, operator, operands) if operands else [operator]
        changed |= bool(operands)
    draft.operators = result
    return changed


def _operands(known: Known, operator: Operator) -> tuple[str, ...]:
    """The operands, as long as they are computed rounded, of a contraction that can be rewritten; else none."""
    if operator.domain or operator.op_type not in ("Conv", "MatMul", "Gemm") or not _able(known.draft, operator):
        return ()
    sources = [known.producers.get(name) for name in operator.inputs[:2]]
    roundings = [_is_rounding(source) for source in sources]
    constants = [known.draft.constants.get(name) for name in operator.inputs[:2]]
    if not roundings[0] or not (roundings[1] or (constants[1] is not None and is_rounded(constants[1]))):
        return ()
    pairs = zip(operator.inputs[:2], sources, roundings, strict=True)
    return tuple(
        source.inputs[0] if source is not None and found and source.inputs[0] not in known.producers else name
        for name, source, found in pairs
    )


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
