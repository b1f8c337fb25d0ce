"""The families of softmax and of normalisations: over the last axis, and over one that has others inside it."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.kernels.families.protocol import Case, Declared, Family, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.families.reductions.inner_axis import InnerAxisEmitter
from autofuse.kernels.families.reductions.last_axis import LastAxisEmitter, row_axis, row_count
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload

SOFTMAX = frozenset({"Softmax", "LogSoftmax"})
NORMALISATIONS = frozenset({"LayerNormalization", "RMSNormalization"})


class LastAxis(Family):
    """Softmax over the last axis, and normalisations over the last axes: some rows at a time."""

    name = "last_axis"
    knobs: ClassVar[Declared] = {"rows": Knob((4, 2, 8, 1), "rows that a softmax or a normalisation works on at once")}
    anchors = SOFTMAX | NORMALISATIONS

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        return super().takes(workload, unit) and not INNER_AXIS.takes(workload, unit)

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        count = row_count(unit.anchor, unit.space)
        return up_to(values, max(1, min(count, _rows_in_cache(unit, count, case.target))))

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        LastAxisEmitter(scope, unit, self.chosen(schedule)).emit()


class InnerAxis(Family):
    """Softmax over an axis that has others inside it: the lanes run over those."""

    name = "inner_axis"
    anchors = SOFTMAX

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        if not isinstance(unit, Nest) or unit.anchor is None or not super().takes(workload, unit):
            return False
        return row_axis(unit.anchor, len(unit.space)) != len(unit.space) - 1

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        InnerAxisEmitter(scope, unit, self.chosen(schedule)).emit()


def _rows_in_cache(nest: Nest, count: int, target: Target) -> int:
    """Rows of a softmax or a normalisation that fill half of the second cache; `count`: of all."""
    return target.l2_bytes // 8 // max(1, prod(nest.space) // count)


LAST_AXIS = LastAxis()
INNER_AXIS = InnerAxis()
