"""Which results of a kernel rounding makes ambiguous: sums that lie between two levels, or are of float16 numbers."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS, FLOAT16, ROUND
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

_EXACT = frozenset(
    {
        "Cast", "Clip", "Concat", "ConvInteger", "DepthToSpace", "DequantizeLinear", "Expand", "Flatten", "Gather",
        "GatherElements", "Identity", "MatMulInteger", "Max", "MaxPool", "Min", "Neg", "Pad", "QuantizeLinear",
        "Relu", "Reshape", ROUND, "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
        "Where",
    }
)  # fmt: skip
"""Operators that round at most once, as IEEE 754 says: whoever computes them finds the same bits."""


IN_FLOAT16 = ("float16_sums", "float16_products")
"""Algorithms of contractions whose operands are rounded to float16."""

IN_BYTES = "bytes"
"""Algorithm of weight-only products whose rows are rounded to bytes."""


def rounds_to_bytes(schedule: Mapping[str, int | str]) -> bool:
    """Whether a kernel rounds the rows of weight-only products to bytes, which its model allows."""
    return schedule.get("weight_only.algorithm") == IN_BYTES


def rounds_to_float16(workload: Workload, schedule: Mapping[str, int | str]) -> bool:
    """Whether a kernel computes in float16 what its model does."""
    marked = any(operator.attribute(FLOAT16) for operator in workload.operators)
    return marked and schedule.get("contraction.algorithm") in IN_FLOAT16


def ambiguous_outputs(workload: Workload) -> frozenset[int]:
    """Outputs behind a QuantizeLinear, or a rounding to bfloat16, of numbers which depend on the order of sums, or on
    joined products.

    Where such a number lies as good as halfway between two levels, the reference itself is right by chance: another
    order of the same sum gives the neighbouring level. All other outputs have one right value.
    """
    inexact: set[int] = set()
    behind: set[int] = set()
    for operator in workload.operators:
        outputs = {value for value in operator.outputs if value >= 0}
        read = set(operator.inputs)
        if read & behind or _rounded(operator) & inexact:
            behind |= outputs
        if read & inexact or not _is_exact(workload, operator):
            inexact |= outputs
    return frozenset(behind & set(workload.of_kind("output")))


def _rounded(operator: WorkloadOperator) -> set[int]:
    """The values that an operator rounds to levels."""
    if operator.op_type in ("QuantizeLinear", ROUND):
        return set(operator.inputs[:1])
    return set(operator.inputs[:2]) if operator.op_type in BFLOAT16_CONTRACTIONS.values() else set()


def _is_exact(workload: Workload, operator: WorkloadOperator) -> bool:
    if operator.op_type in _EXACT:
        return True
    values = [workload.values[value] for value in (*operator.inputs, *operator.outputs) if value >= 0]
    return not any(value.dtype.startswith("float") for value in values)
