"""The code of each candidate: a stored time counts only for the very code that would be built now."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autofuse.database.ask.lookups import DIGEST_LENGTH
from autofuse.database.records import BestSchedule, MeasuredSchedule
from autofuse.device.target import Target
from autofuse.kernels.emission import Emission
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.tir.digest import GENERATORS, digest
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.measurement import Measurement

Schedule = Mapping[str, int | str]
Name = tuple[str, tuple[tuple[str, int | str], ...]]


def emitted_code(workload: Workload, schedule: Schedule, target: Target) -> str:
    """Which code a kernel is now, see `Emission.code`; the kernel itself is not kept."""
    return Emission(target).code(workload, schedule)


@dataclass
class Codes:
    """The digests of kernels under one target and one set of `versions`; each kernel is emitted once at most."""

    target: Target
    versions: Mapping[str, str]
    _emitted: dict[Name, str] = field(default_factory=dict)

    def now(self, workload: Workload, schedule: Schedule) -> str:
        """The digest that a candidate has now; empty where no kernel can be emitted."""
        name = _name(workload, schedule)
        if name not in self._emitted:
            self._emitted[name] = emitted_code(workload, schedule, self.target)
        return digest(self._emitted[name], self.target, self.versions)

    def seen(self, workload: Workload, schedule: Schedule) -> str:
        """The code key of a kernel that was emitted already, here or where it was measured; "" of another one."""
        return self._emitted.get(_name(workload, schedule), "")

    def measured(self, workload: Workload, schedule: Schedule, measurement: Measurement) -> str:
        """The digest of what was measured: as the process that built it says, else as it is emitted here.

        Empty for a kernel of TVM's importer that failed before it was built: nothing of TVM's that failed in another
        process is tried in this one.
        """
        if measurement.code:
            self._emitted[_name(workload, schedule)] = measurement.code
        elif measurement.failure and not is_own(workload):
            return ""
        return self.now(workload, schedule)

    def best(self, workload: Workload, rows: Sequence[BestSchedule]) -> BestSchedule | None:
        """The first of `rows` that is what would be built now."""
        return next((row for row in rows if row.digest and self._is_now(workload, row)), None)

    def knows(self, workload: Workload, stored: MeasuredSchedule) -> bool:
        """Whether a stored candidate is what would be built now."""
        if not stored.digest and not is_own(workload):
            return stored.median_us is None and self._built_by_us(stored)
        return self._is_now(workload, stored)

    def _is_now(self, workload: Workload, row: BestSchedule | MeasuredSchedule) -> bool:
        """Whether a row's digest is what its schedule would be built as; nothing is emitted where it cannot be."""
        possible = len(row.digest) in (0, DIGEST_LENGTH) and self._built_by_us(row)
        return possible and row.digest == self.now(workload, json.loads(row.schedule))

    def _built_by_us(self, row: BestSchedule | MeasuredSchedule) -> bool:
        built_by = json.loads(row.versions)
        return all(built_by.get(name, "") == self.versions.get(name, "") for name in GENERATORS)


def _name(workload: Workload, schedule: Schedule) -> Name:
    return workload.key, tuple(sorted(schedule.items()))
