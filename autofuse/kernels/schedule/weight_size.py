"""How large a kernel's weights are: as the model has them, and as its schedule's algorithm holds them."""

from __future__ import annotations

from math import prod

import numpy as np

from autofuse.device.target import Target
from autofuse.kernels.families.protocol import Case, Schedule
from autofuse.kernels.families.registry import family_of, fused_families, nests_of
from autofuse.kernels.workload.workload import Workload


def model_bytes(workload: Workload) -> int:
    """Bytes of a workload's constants."""
    values = [workload.values[index] for index in workload.of_kind("constant")]
    return sum(prod(value.shape) * np.dtype(value.dtype).itemsize for value in values)


def held_bytes(workload: Workload, schedule: Schedule, target: Target) -> int:
    """The same as the kernel holds them: some algorithms keep transformed weights. Padding is not counted."""
    if any(family.rules(schedule) for family in fused_families()):  # it computes by loops of its own
        return model_bytes(workload)
    case = Case(workload, tuple(nests_of(workload)), target)
    added = [family_of(workload, nest).added_bytes(case, nest, schedule) for nest in case.nests]
    return int(model_bytes(workload) + sum(added))
