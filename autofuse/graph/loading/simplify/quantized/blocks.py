"""Products with weights that are dequantised in blocks, as weight-only products.

y = MatMul(x, DequantizeLinear(w, scales, zeros, axis=0, block_size=b))   becomes   y = WeightOnlyMatMul(x, w, scales,
zeros), and so do weights that are transposed behind their DequantizeLinear, and Gemm. Others are folded to floats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, TensorProto

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.levels import Known
from autofuse.graph.model import Operator
from autofuse.graph.own.names import DOMAIN
from autofuse.graph.own.weight_only import BY_BYTES, LEVEL, OP_TYPE, BlockWeights

BLOCKS = (16, 256)
"""Least and largest block of a weight-only product; larger ones are cut, others folded."""
_READERS = frozenset({"DequantizeLinear", "GatherBlockQuantized"})
_NIBBLES = frozenset({TensorProto.INT4, TensorProto.UINT4})


def nibbles(graph: GraphProto) -> frozenset[str]:
    """Names of weights of 4 bits that are only dequantised: as int8 they stand for the same numbers."""
    found = {tensor.name for tensor in graph.initializer if tensor.data_type in _NIBBLES}
    if not found:
        return frozenset()
    other = {name for node in graph.node if node.op_type not in _READERS for name in node.input}
    return frozenset(found - other - {value.name for value in (*graph.output, *graph.input)})


def hold_weights(draft: Draft) -> bool:
    """Rewrites the products of weights in blocks; True when the draft changed."""
    known = Known(draft)
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        weights = _weights(known, operator)
        result += [operator] if weights is None else _written(draft, operator, weights)
        changed |= weights is not None
    draft.operators = result
    return changed


def _weights(known: Known, operator: Operator) -> BlockWeights | None:
    """The weights of a product that can be rewritten."""
    if operator.domain or operator.op_type not in ("MatMul", "Gemm") or not _plain(operator.attributes):
        return None
    name = operator.inputs[1]
    turned = bool(operator.attributes.get("transB", 0))
    transposed = known.made_by(name, "Transpose")
    if transposed is not None:
        if transposed.attributes.get("perm", (1, 0)) != (1, 0):
            return None
        name, turned = transposed.inputs[0], not turned
    source = known.made_by(name, "DequantizeLinear")
    return None if source is None else _of_blocks(known.draft, source, 1 if turned else 0)


def _plain(attributes: Mapping[str, Any]) -> bool:
    """Whether a Gemm is x times w plus its bias."""
    return not attributes.get("transA", 0) and all(attributes.get(name, 1.0) == 1.0 for name in ("alpha", "beta"))


def _of_blocks(draft: Draft, source: Operator, summed: int) -> BlockWeights | None:
    """The weights that a DequantizeLinear makes of constants, in blocks along the axis that is summed over."""
    arrays = [draft.constants.get(name) for name in source.inputs]
    w, scale, zero = (*arrays, None)[:3]
    block, axis = source.attributes.get("block_size", 0), source.attributes.get("axis", 1)
    assert isinstance(block, int) and isinstance(axis, int)
    if w is None or scale is None or (zero is None and source.inputs[2:]) or w.dtype.name not in ("int8", "uint8"):
        return None
    fits = w.ndim == 2 and axis % 2 == summed and scale.dtype == np.float32 and block >= BLOCKS[0]
    if not fits or block & (block - 1) or scale.shape[summed] != -(-w.shape[summed] // block):
        return None
    rows = [None if array is None else _by_column(array, summed) for array in (w, scale, zero)]
    return _coded(rows, block)


def _by_column(array: NDArray[Any], summed: int) -> NDArray[Any]:
    return np.ascontiguousarray(array if summed else array.T)


def _coded(rows: list[NDArray[Any] | None], block: int) -> BlockWeights:
    """Weights, scales and zero points [columns, ...] as codes: of 4 bits where all of them fit."""
    w, scale, zero = rows
    assert w is not None and scale is not None
    zero = np.zeros(scale.shape, w.dtype) if zero is None else zero
    low, high = min(int(w.min()), int(zero.min())), max(int(w.max()), int(zero.max()))
    bits = 4 if low >= (-8 if high <= 7 else 0) and high <= 15 else 8
    shift = 1 << (bits - 1) if low < 0 else 0
    codes, zeros = ((array.astype(np.int16) + shift).astype(np.uint8) for array in (w, zero))
    cut = max(1, block // BLOCKS[1])
    if cut > 1:
        blocks = -(-w.shape[1] // BLOCKS[1])
        scale, zeros = (np.repeat(array, cut, axis=1)[:, :blocks] for array in (scale, zeros))
    usual = bool((zeros == 1 << (bits - 1)).all())
    return BlockWeights(codes, scale, None if usual else zeros, bits, block // cut)


def _written(draft: Draft, operator: Operator, weights: BlockWeights) -> list[Operator]:
    """The weight-only product. ONNX Runtime rounds its rows to bytes, of which the model says nothing: by the level its
    own results are judged, while kernels of ours compute in float32."""
    names = zip(("codes", "scales", "zeros"), weights.packed(), strict=False)
    inputs = (operator.inputs[0], *(draft.add_constant(f"{operator.name}/{label}", array) for label, array in names))
    attributes = {**weights.attributes, LEVEL: BY_BYTES}
    bias = operator.inputs[2] if len(operator.inputs) > 2 else ""
    if not bias:
        return [replace(operator, op_type=OP_TYPE, inputs=inputs, attributes=attributes, domain=DOMAIN)]
    product = draft.fresh(f"{operator.name}/product")
    return [
        Operator(f"{operator.name}/product", OP_TYPE, inputs, (product,), attributes, DOMAIN),
        Operator(operator.name, "Add", (product, bias), operator.outputs),
    ]
