"""Kernels that are emitted once and used twice: to know which code a schedule is, and to build it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autofuse.device.target import Target
from autofuse.kernels.tir.digest import code_key
from autofuse.kernels.workload.workload import Workload

if TYPE_CHECKING:
    from autofuse.kernels.build import Kernel

Schedule = Mapping[str, int | str]
Name = tuple[str, tuple[tuple[str, int | str], ...]]


class Emission:
    """The kernels of one target, by workload and schedule."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._kernels: dict[Name, Kernel] = {}
        self._codes: dict[Name, str] = {}

    def kernel(self, workload: Workload, schedule: Schedule) -> Kernel:
        """See `autofuse.kernels.build.build_kernel`, which may raise anything."""
        from autofuse.kernels import build

        name = _name(workload, schedule)
        if name not in self._kernels:
            self._kernels[name] = build.build_kernel(workload, schedule, self.target)
        return self._kernels[name]

    def code(self, workload: Workload, schedule: Schedule) -> str:
        """Which code the kernel is, see `code_key`; empty where none can be emitted."""
        name = _name(workload, schedule)
        if name not in self._codes:
            try:
                self._codes[name] = code_key(self.kernel(workload, schedule).function)
            except Exception:  # noqa: BLE001  # of whatever kind: such a schedule has no code
                self._codes[name] = ""
        return self._codes[name]


def _name(workload: Workload, schedule: Schedule) -> Name:
    return workload.key, tuple(sorted(schedule.items()))
