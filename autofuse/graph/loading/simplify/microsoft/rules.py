"""Operators of the domain com.microsoft, each replaced by operators of ONNX that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onnx import GraphProto

from autofuse.errors import UncoveredError
from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.microsoft import attention, dense, grouped, quantized, weight_only
from autofuse.graph.loading.simplify.writer import NotCoveredError, Writer
from autofuse.graph.mapping import names
from autofuse.graph.model import Operator

DOMAIN = "com.microsoft"
_UNDECLARED = frozenset(("SimplifiedLayerNormalization",))
"""ONNX Runtime's own operators that its optimiser writes into ONNX's domain."""


@dataclass(frozen=True)
class _Rule:
    """How an operator is replaced. `attributes`: those that `write` knows of; another one refuses the operator.

    `write`: writes the operators; False while types that it needs are not known yet. `refused`: inputs, by place, that
    must be absent, and what they are.
    """

    write: Callable[[Writer], bool]
    attributes: frozenset[str] = frozenset()
    refused: Mapping[int, str] = field(default_factory=dict)


_CONV = "activation activation_params auto_pad dilations group kernel_shape pads strides"
_GEMM = "activation activation_alpha activation_beta activation_gamma alpha beta transA transB"
_POOL = "auto_pad ceil_mode channels_last count_include_pad dilations kernel_shape pads strides"
_ATTENTION = """do_rotary mask_filter_value num_heads past_present_share_buffer qkv_hidden_sizes rotary_embedding_dim
    scale unidirectional"""

_RULES: Mapping[str, _Rule] = {
    "Gelu": _Rule(dense.gelu),
    "BiasGelu": _Rule(dense.gelu),
    "FastGelu": _Rule(dense.fast_gelu),
    "QuickGelu": _Rule(dense.quick_gelu, names("alpha")),
    "FusedMatMul": _Rule(dense.fused_matmul, names("alpha transA transB transBatchA transBatchB")),
    "TransposeMatMul": _Rule(dense.fused_matmul, names("alpha transA transB")),
    "GemmFastGelu": _Rule(dense.gemm_fast_gelu),
    "FusedGemm": _Rule(dense.fused_gemm, names(_GEMM)),
    "FusedConv": _Rule(dense.fused_conv, names(_CONV)),
    "SkipLayerNormalization": _Rule(dense.skip_layer_normalization, names("epsilon")),
    "SkipSimplifiedLayerNormalization": _Rule(dense.skip_rms_normalization, names("epsilon")),
    "SimplifiedLayerNormalization": _Rule(dense.rms_normalization, names("axis epsilon stash_type")),
    "EmbedLayerNormalization": _Rule(dense.embedding, names("epsilon mask_index_type")),
    "QuantizeLinear": _Rule(quantized.quantize_linear, names("axis")),
    "DequantizeLinear": _Rule(quantized.quantize_linear, names("axis")),
    "QLinearAdd": _Rule(quantized.add),
    "QLinearMul": _Rule(quantized.multiply),
    "QLinearWhere": _Rule(quantized.where),
    "QLinearSigmoid": _Rule(quantized.sigmoid),
    "QLinearLeakyRelu": _Rule(quantized.leaky_relu, names("alpha")),
    "QLinearSoftmax": _Rule(quantized.softmax, names("axis opset")),
    "QLinearConcat": _Rule(quantized.concat, names("axis")),
    "QLinearAveragePool": _Rule(quantized.average_pool, names(_POOL)),
    "QLinearGlobalAveragePool": _Rule(quantized.global_average_pool, names("channels_last")),
    "QGemm": _Rule(quantized.gemm, names("alpha transA transB")),
    "MatMulIntegerToFloat": _Rule(quantized.matmul_to_float),
    "DynamicQuantizeMatMul": _Rule(quantized.dynamic_matmul),
    "MatMulNBits": _Rule(
        weight_only.matmul_nbits,
        names("K N accuracy_level bits block_size weight_prepacked"),
        {4: "an order of its own for its blocks (g_idx)"},
    ),
    "GatherBlockQuantized": _Rule(
        weight_only.gather_block_quantized, names("bits block_size gather_axis quantize_axis")
    ),
    "RotaryEmbedding": _Rule(
        attention.rotary_embedding, names("interleaved is_packed_batching num_heads rotary_embedding_dim scale")
    ),
    "GroupQueryAttention": _Rule(grouped.group_query_attention, names(grouped.ATTRIBUTES), grouped.REFUSED),
    "Attention": _Rule(attention.attention, names(_ATTENTION), {6: "a past of another length than its buffer"}),
    "QAttention": _Rule(attention.quantised_attention, names(_ATTENTION)),
    "MultiHeadAttention": _Rule(
        attention.multi_head_attention,
        names("mask_filter_value num_heads scale unidirectional"),
        {8: "a past of another length than its buffer", 9: "beams"},
    ),
}


def is_replaced(op_type: str, domain: str) -> bool:
    """Whether there is a rule for an operator; it may refuse one of its variants."""
    return (domain == DOMAIN and op_type in _RULES) or (not domain and op_type in _UNDECLARED)


def declare(graph: GraphProto) -> None:
    """Puts operators that ONNX's domain lacks into the domain that they are of, in place."""
    for node in graph.node:
        if node.op_type in _UNDECLARED and node.domain in ("", "ai.onnx"):
            node.domain = DOMAIN


def replace_microsoft(draft: Draft) -> bool:
    """Replaces the operators whose types are known as far as needed; True when the draft changed.

    UncoveredError for a variant that no rule covers.
    """
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        made = _replaced(draft, operator) if operator.domain == DOMAIN else None
        result += [operator] if made is None else made
        changed |= made is not None
    draft.operators = result
    return changed


def _replaced(draft: Draft, operator: Operator) -> list[Operator] | None:
    rule = _RULES[operator.op_type]
    write = Writer(draft, operator)
    unknown = sorted(set(operator.attributes) - rule.attributes)
    reasons = [f"an attribute {name!r}" for name in unknown]
    reasons += [what for place, what in rule.refused.items() if write.input(place)]
    try:
        if reasons:
            raise NotCoveredError(reasons[0])
        return write.made if rule.write(write) else None
    except NotCoveredError as error:
        raise UncoveredError(
            f"{draft.source}: operator {operator.name!r} ({DOMAIN}.{operator.op_type}) has {error}, which is not "
            "covered; export the model without ONNX Runtime's optimisations"
        ) from error
