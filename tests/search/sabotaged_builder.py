"""Builders that children import by path: the real one, but for the kernels that they spoil."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autofuse.kernels.build import build_kernel

FUSED, WRONG, ALONE = {"MatMul", "Add", "Relu"}, {"MatMul", "Add"}, {"MatMul"}
CRASHING = {"contraction.pixels": 1, "contraction.vectors": 2}


def some(workload: Any, schedule: Mapping[str, Any], target: Any) -> Any:
    """Only kernels of single operators are right, and one schedule of the product ends the process."""
    kinds = {operator.op_type for operator in workload.operators}
    if kinds == FUSED:
        raise ValueError("no tile fits")
    if kinds == ALONE and dict(schedule) == CRASHING:
        os.kill(os.getpid(), signal.SIGSEGV)
    if kinds == WRONG:
        spoiled = [replace(one, op_type="Sub") if one.op_type == "Add" else one for one in workload.operators]
        workload = replace(workload, operators=tuple(spoiled))
    return build_kernel(workload, schedule, target)


def none(workload: Any, schedule: Mapping[str, Any], target: Any) -> Any:
    """Nothing can be built."""
    raise ValueError("the code generator is broken")
