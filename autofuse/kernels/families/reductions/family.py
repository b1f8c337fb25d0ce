"""The family of reductions in one pass: Reduce*, global pooling, ArgMax and ArgMin."""

from __future__ import annotations

from autofuse.kernels.families.protocol import Family, Schedule, Unit
from autofuse.kernels.families.reductions.places import PLACES, PlaceEmitter
from autofuse.kernels.families.reductions.reduction import INTEGRAL, REDUCE, ReductionEmitter, reduced_axes
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload, WorkloadOperator


class Reduction(Family):
    """Reduce*, global pooling, ArgMax and ArgMin of float32; sums and extremes of integers, too."""

    name = "reduction"
    anchors = frozenset(REDUCE) | PLACES
    element_types = frozenset({"float32", "int32", "int64"})

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family: places are int64, what is reduced is not."""
        value = workload.values[operator.inputs[0]]
        whole = operator.op_type in INTEGRAL and value.dtype in ("int32", "int64")
        if value.dtype != "float32" and not whole:
            return f"{operator.op_type} on {value.dtype} has no definition here"
        able = value.shape if operator.op_type in PLACES else reduced_axes(workload, operator)
        return None if able else f"{operator.op_type} over no axis has no definition here"

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        if unit.anchor.op_type in PLACES:
            PlaceEmitter(scope, unit).emit()
        else:
            ReductionEmitter(scope, unit, self.chosen(schedule)).emit()


REDUCTION = Reduction()
