"""The reasons why two operators share a kernel or do not: the one list of codes, for plans, rows and reports."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASON_CODES: Mapping[str, str] = MappingProxyType(
    {
        "illegal_cycle": "one kernel would need a result that depends on itself",
        "multi_consumer": "the tensor is read by several kernels",
        "output_of_graph": "the tensor is an output of the model",
        "unsupported_operator": "no kernel can hold the operator together with others",
        "dynamic_shape": "a shape is known only at run time",
        "layout_mismatch": "the two kernels keep the tensor in different layouts",
        "measured_slower": "fused was measured, and is slower",
        "within_noise": "fused was measured, and makes no difference",
        "wrong_result": "fused was built, and computes something else",
        "build_failed": "fused could not be built",
        "timeout": "fused took too long to build or to run",
        "not_tried_budget": "never measured: the budget was spent",
        "pruned_by_model": "never measured: the learned model expected nothing of it",
        "chosen_measured": "fused in the plan that was measured and chosen",
        "chosen_model": "chosen because the learned model expects it to be faster",
        "chosen_rule": "chosen by the fixed rule, never measured",
        "rewritten": "the operators were replaced by others that compute the same",
        "folded": "computed at compile time, into the weights of the operator before it",
    }
)
"""Each code with what it means."""
