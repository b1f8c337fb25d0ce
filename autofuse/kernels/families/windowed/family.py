"""The family of windows that slide over each channel by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import ClassVar

from autofuse.kernels.families.contraction.parallel_grid import EVEN, evenness
from autofuse.kernels.families.protocol import Case, Declared, Family, Guess, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.families.windowed.direct import (
    AveragePoolEmitter,
    DepthwiseEmitter,
    MaxPoolEmitter,
    WindowedEmitter,
)
from autofuse.kernels.families.windowed.pixel_lanes import ROWS, rows_refusal
from autofuse.kernels.families.windows import CONVOLUTIONS, convolution_windows, is_depthwise, window_refusal
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import divisor_near, longest_row
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

POOLS = {"MaxPool": "max_pool", "AveragePool": "average_pool"}
DEPTHWISE = "depthwise"
EMITTERS: Mapping[str, type[WindowedEmitter]] = {
    DEPTHWISE: DepthwiseEmitter,
    "max_pool": MaxPoolEmitter,
    "average_pool": AveragePoolEmitter,
}
SPLINTER = 2
"""Part of a vector that a row of pixels fills at least (Zen 5, 16 lanes: rows of 7 take a third longer turned)."""

TURNED, WIDE = 4, 16
"""Vectors side by side with the lanes over pixels, and lanes from which so many come first; eight, which are best with
the lanes over channels, were not measured there."""


class Windowed(Family):
    """Depthwise convolution, max and average pooling."""

    name = "windowed"
    knobs: ClassVar[Declared] = {
        "algorithm": Knob(
            ("direct", "pixel_lanes"),
            "with the lanes over channels, or over pixels (windows of stride 1, between maps in rows)",
            packs=True,
        ),
        "pixels": Knob((4, 8, 7, 2), "neighbouring results held in registers", tile=True),
        "rows_per_task": Knob((0, 7, 14, 4), "rows of results a parallel task computes (0: all)"),
    }
    anchors = CONVOLUTIONS | frozenset(POOLS)
    element_types = frozenset({"float32", "int8", "uint8"})
    in_whole_maps = ("algorithm", "rows_per_task")
    """Knobs without a meaning where results are computed some rows at a time."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """See Family."""
        return tuple(EMITTERS)

    def kind(self, nest: Nest) -> str:
        """See Family."""
        assert nest.anchor is not None
        return POOLS.get(nest.anchor.op_type, DEPTHWISE)

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family: of convolutions those of one input channel a group."""
        if not isinstance(unit, Nest) or unit.anchor is None:
            return False
        kind = unit.anchor.op_type
        return kind in POOLS or (kind in CONVOLUTIONS and is_depthwise(workload, unit.anchor))

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family: only the largest of a window needs no arithmetic."""
        dtype = workload.values[operator.inputs[0]].dtype
        if dtype != "float32" and operator.op_type != "MaxPool":
            return f"{operator.op_type} on {dtype} has no definition here"
        return window_refusal(workload, operator)

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        if knob == "algorithm":
            able = _has_pixel_lanes(case.workload, unit)
            return [value for value in values if able or value == "direct"]
        windows = convolution_windows(case.workload, unit.anchor)
        return up_to(values, longest_row(windows) if knob == "pixels" else prod(w.outputs for w in windows[:-1]))

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: the lanes over pixels, where these fill them and lie side by side on both ends; else some rows in
        a task, where threads would share whole maps unevenly."""
        algorithm = self.full("algorithm")
        if "pixel_lanes" not in case.knobs.get(algorithm, ()):
            return self._shared(case, found)
        nests = [
            nest for nest in case.nests if self.takes(case.workload, nest) and _has_pixel_lanes(case.workload, nest)
        ]
        filled = all(nest.space[-1] * SPLINTER >= case.target.lanes for nest in nests)
        turned = any(operator.op_type == "Transpose" for operator in case.workload.operators)
        place = 0 if filled and not turned else 1
        pixels = self.full("pixels")
        wide = case.target.lanes >= WIDE and TURNED in case.knobs.get(pixels, ())
        tile: Guess = {pixels: TURNED} if wide else {}
        return [*found[:place], case.default | tile | {algorithm: "pixel_lanes"}, *found[place:]]

    def _shared(self, case: Case, found: list[Guess]) -> list[Guess]:
        """`found`, behind the default with tasks that threads share evenly where its own are not such."""
        nests = [nest for nest in case.nests if nest.anchor is not None]
        rows = self.full("rows_per_task")
        if case.threads == 1 or rows not in case.knobs or not all(self.takes(case.workload, nest) for nest in nests):
            return found
        worst = {value: min(_evenness(case, nest, int(value)) for nest in nests) for value in case.knobs[rows]}
        best = max(worst, key=lambda value: min(worst[value], EVEN))
        return [case.default | {rows: best}, *found] if best != case.default[rows] else found

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        knobs = self.chosen(schedule)
        if knobs["algorithm"] == "pixel_lanes" and _has_pixel_lanes(scope.workload, unit):
            assert unit.anchor is not None
            ROWS[unit.anchor.op_type](scope, unit, knobs).emit()
        else:
            self.by_channels(scope, unit, schedule).emit()

    def by_channels(self, scope: Scope, nest: Nest, schedule: Schedule) -> WindowedEmitter:
        """What emits a nest with its lanes over channels."""
        return EMITTERS[self.kind(nest)](scope, nest, self.chosen(schedule))


def _has_pixel_lanes(workload: Workload, nest: Nest) -> bool:
    return nest.anchor is not None and rows_refusal(workload, nest.anchor) is None


def _evenness(case: Case, nest: Nest, rows_per_task: int) -> float:
    """How evenly threads share the tasks of a nest, each of some rows of a vector of channels."""
    assert nest.anchor is not None
    rows = prod(window.outputs for window in convolution_windows(case.workload, nest.anchor)[:-1])
    images, channels = nest.space[:2]
    tasks = images * -(-channels // case.target.lanes) * (rows // divisor_near(rows, rows_per_task))
    return evenness([1] * tasks, case.threads)


WINDOWED = Windowed()
