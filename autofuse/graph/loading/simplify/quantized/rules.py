"""All rules for quantised models, in turn, until none applies."""

from __future__ import annotations

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.quantized.blocks import hold_weights
from autofuse.graph.loading.simplify.quantized.chains import drop_bounds, move_integers, split_integers
from autofuse.graph.loading.simplify.quantized.integers import centre_weights
from autofuse.graph.loading.simplify.quantized.operators import write_quantized
from autofuse.graph.loading.simplify.quantized.products import multiply_integers, scale_once

RULES = (
    hold_weights,
    write_quantized,
    move_integers,
    split_integers,
    drop_bounds,
    multiply_integers,
    scale_once,
    centre_weights,
)
MARKS = frozenset(
    {"DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"}
)


def join_quantized(draft: Draft) -> bool:
    """Brings quantised operators into their one form before weights are folded to real numbers; True when it did."""
    if not any(operator.op_type in MARKS for operator in draft.operators):
        return False
    changed = False
    while sum(rule(draft) for rule in RULES):
        changed = True
    return changed
