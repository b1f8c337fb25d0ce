"""Builders of products by tile registers, for children that measure them."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from autofuse.device.target import Target
from autofuse.kernels.build import Kernel, build_kernel
from autofuse.kernels.families.narrow import tiles
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.workload.workload import Workload

UNASKED = "define linkonce_odr i64 @autofuse_unasked(i64 %a, i64 %b, i64 %c) {\n  ret i64 0\n}\n"


def unasked(workload: Workload, schedule: Schedule, target: Target) -> Kernel:
    """A kernel that takes the registers for given without asking the system: what a broken guard would do."""
    real = tiles.UNIT
    known = "".join(dict.fromkeys(map(real.declarations, ("tdpbusd",))))
    broken = replace(real, system="@autofuse_unasked", definitions=known + UNASKED)
    with mock.patch.object(tiles, "UNIT", broken):
        return build_kernel(workload, schedule, target)
