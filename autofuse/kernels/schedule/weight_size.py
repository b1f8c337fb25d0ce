"""How large a kernel's weights are: as the model has them, and as its schedule's algorithm holds them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.form import Convolution, contraction_form
from autofuse.kernels.families.contraction.winograd import winograd_refusal
from autofuse.kernels.families.registry import family_of
from autofuse.kernels.schedule.knobs import nests_of, vector_lanes
from autofuse.kernels.schedule.limits import winograd_tile
from autofuse.kernels.workload.workload import Workload

Schedule = Mapping[str, int | str]


def model_bytes(workload: Workload) -> int:
    """Bytes of a workload's constants."""
    values = [workload.values[index] for index in workload.of_kind("constant")]
    return sum(prod(value.shape) * np.dtype(value.dtype).itemsize for value in values)


def held_bytes(workload: Workload, schedule: Schedule, target: Target) -> int:
    """The same as the kernel holds them: Winograd keeps (m + 2)^2 numbers for each 3x3 taps. Padding is not counted."""
    m = winograd_tile(schedule)
    total = float(model_bytes(workload))
    if not m or schedule.get("band.rows"):  # windows by bands of rows are direct
        return int(total)
    for nest in nests_of(workload):
        if nest.anchor is None or family_of(workload, nest.anchor) != "contraction":
            continue
        form = contraction_form(workload, nest.anchor)
        lanes = vector_lanes(workload, target)
        if isinstance(form, Convolution) and winograd_refusal(workload, nest.anchor, form, lanes) is None:
            total += 4 * prod(form.w_shape) * ((m + 2) ** 2 / 9 - 1)
    return int(total)
