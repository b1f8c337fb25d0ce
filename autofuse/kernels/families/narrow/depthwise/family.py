"""The family of depthwise convolutions of bytes: their knobs, and when each has an effect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.kernels.families.narrow.depthwise.emitter import DepthwiseEmitter
from autofuse.kernels.families.narrow.depthwise.form import depthwise_form, depthwise_refusal
from autofuse.kernels.families.narrow.depthwise.quads import QuadsEmitter
from autofuse.kernels.families.narrow.depthwise.real import RealEmitter
from autofuse.kernels.families.narrow.instructions import multipliers
from autofuse.kernels.families.protocol import Case, Declared, Family, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

NAME = "integer_depthwise"
SPARE = 3
"""Registers that a tile needs beside its sums."""


class DepthwiseFamily(Family):
    """ConvInteger with one channel a group, in and out, and constant weights."""

    name = NAME
    knobs: ClassVar[Declared] = {
        "pixels": Knob((8, 4, 6, 12, 2), "neighbouring pixels of a tile, held in registers", tile=True),
        "rows_per_task": Knob((0, 8, 4, 16), "rows of results that a parallel task computes (0: all)"),
    }
    anchors = frozenset({"ConvInteger"})
    element_types = frozenset({"int8", "uint8", "int32"})

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        return super().takes(workload, unit) and is_taken(workload, unit)

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family."""
        reason = depthwise_refusal(workload, operator)
        return None if reason is None else f"{operator.op_type} has no definition here: {reason}"

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        form = depthwise_form(case.workload, unit.anchor)
        if knob == "pixels":
            return up_to(values, form.width.outputs)
        rows = form.height.outputs
        numbers = [value for value in values if isinstance(value, int)]
        return [value for value in numbers if value == 0 or (value < rows and rows % value == 0)]

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family."""
        pixels = schedule.get(self.full("pixels"), 1)
        return not isinstance(pixels, int) or pixels + SPARE <= target.registers

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        form, knobs = depthwise_form(scope.workload, unit.anchor), self.chosen(schedule)
        quads = multipliers(scope.emitter.target).get("quads")
        emitter: DepthwiseEmitter
        if quads is not None:
            emitter = QuadsEmitter(scope, unit, form, knobs, quads)
        else:
            emitter = RealEmitter(scope, unit, form, knobs)
        emitter.emit()


def is_taken(workload: Workload, unit: Unit) -> bool:
    """Whether the anchor of a nest is a depthwise convolution."""
    return isinstance(unit, Nest) and unit.anchor is not None and depthwise_refusal(workload, unit.anchor) is None


DEPTHWISE = DepthwiseFamily()
