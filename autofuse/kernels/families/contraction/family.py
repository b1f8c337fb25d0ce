"""The family of contractions: their knobs, when each has an effect, and which emitter a schedule asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.cut_sums import KBlockingEmitter, SplitKEmitter
from autofuse.kernels.families.contraction.direct import ContractionEmitter
from autofuse.kernels.families.contraction.dot import DotEmitter, dot_refusal
from autofuse.kernels.families.contraction.form import (
    Convolution,
    contraction_form,
    group_lanes,
    group_lanes_refusal,
    pixel_lanes,
    pixel_lanes_refusal,
)
from autofuse.kernels.families.contraction.group_lanes import GroupLanesEmitter
from autofuse.kernels.families.contraction.guesses.first import column_tile, contraction_guesses
from autofuse.kernels.families.contraction.guesses.tiles import fits_registers
from autofuse.kernels.families.contraction.knobs import KNOBS, NAME, Useful
from autofuse.kernels.families.contraction.winograd import ALGORITHMS, WinogradEmitter, winograd_refusal
from autofuse.kernels.families.protocol import Case, Family, Guess, Schedule, Unit, Values
from autofuse.kernels.families.windows import CONVOLUTIONS, is_depthwise, window_refusal
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

PRODUCTS = frozenset({"MatMul", "Gemm"})
WHOLE_SUMS = ("dot", "pixel_lanes", "group_lanes")
"""Algorithms that take each sum in one go."""


class ContractionFamily(Family):
    """Convolutions that are not depthwise, and matrix products."""

    name = NAME
    knobs = KNOBS
    anchors = CONVOLUTIONS | PRODUCTS
    in_whole_maps = (
        "algorithm",
        "split_k",
        "k_blocking",
        "panels_per_task",
        "rows_per_task",
        "pixel_rows",
        "stage",
        "tiles",
        "next_panel",
    )
    """Knobs without a meaning where results are computed some rows at a time (see `by_rows`)."""

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        if not isinstance(unit, Nest) or unit.anchor is None or unit.anchor.op_type not in self.anchors:
            return False
        return unit.anchor.op_type in PRODUCTS or not is_depthwise(workload, unit.anchor)

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family."""
        return window_refusal(workload, operator) if operator.op_type in CONVOLUTIONS else None

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        assert isinstance(unit, Nest)
        return list(Useful(case, unit).of(knob, values))

    def canonical(self, schedule: Guess, knobs: Mapping[str, Values]) -> Guess:
        """See Family."""
        kept = dict(schedule)
        algorithm = kept.get(self.full("algorithm"))
        winograd = algorithm in ALGORITHMS
        idle = ["rows_per_task", "order", "pixel_rows", "split_k", "k_blocking"] if winograd else ["tiles", "stage"]
        if algorithm in WHOLE_SUMS:
            idle += ["split_k", "k_blocking", "next_panel"]
        elif "pixel_lanes" in knobs.get(self.full("algorithm"), ()):  # it alone reads the map as the right-hand side
            idle += ["operand"]
        if kept.get(self.full("split_k"), 1) != 1 and algorithm not in WHOLE_SUMS:
            idle += ["rows_per_task", "order", "pixel_rows", "k_blocking", "next_panel"]
        elif kept.get(self.full("pixel_rows")) == 1:  # then all pixels are one row
            idle += ["rows_per_task", "order"]
        elif kept.get(self.full("k_blocking"), 1) != 1 and not winograd and algorithm not in WHOLE_SUMS:
            idle += ["order"]  # each pass takes the rows for its part of the weights
        unset = {"k_blocking": 1, "next_panel": 0}
        idle += [knob for knob, value in unset.items() if kept.get(self.full(knob)) == value]  # as without the knob
        if winograd and kept.get(self.full("stage"), "chunk") == "chunk":
            idle += ["panels_per_task"]
        for knob in idle:
            kept.pop(self.full(knob), None)
        return kept

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: what the rules say of the contraction of a workload that computes most, the first of such."""
        anchors = [nest.anchor for nest in case.nests if self.takes(case.workload, nest)]
        forms = [contraction_form(case.workload, anchor) for anchor in anchors if anchor is not None]
        if not forms:
            return found
        form = max(forms, key=lambda form: form.flops)
        own = contraction_guesses(case, form)
        place = found.index(case.default)
        found = [*found[:place], *own[:1], *found[place + 1 :], *own[1:]]
        if "dot" in case.knobs.get(self.full("algorithm"), ()):
            found = [case.default | column_tile(case, form) | {self.full("algorithm"): "dot"}, *found]
        return found

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family."""
        return fits_registers(schedule, target)

    def added_bytes(self, case: Case, nest: Nest, schedule: Schedule) -> float:
        """See Family: Winograd keeps (m + 2)^2 numbers for each 3x3 taps. Padding is not counted."""
        m = ALGORITHMS.get(str(self.chosen(schedule)["algorithm"]), 0)
        about = Useful(case, nest)
        return 4 * prod(about.form.w_shape) * ((m + 2) ** 2 / 9 - 1) if m and about.winograd else 0

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        _emitter(scope, unit, self.chosen(schedule)).emit()

    def by_rows(self, scope: Scope, nest: Nest, schedule: Schedule) -> ContractionEmitter:
        """What emits a nest directly, one row of its results at a time, the pixels of a 1x1 convolution in theirs."""
        assert nest.anchor is not None
        form = contraction_form(scope.workload, nest.anchor, by_rows=True)
        return ContractionEmitter(scope, nest, form, {**self.chosen(schedule), "rows_per_task": 1})


CONTRACTION = ContractionFamily()


def _emitter(scope: Scope, nest: Nest, knobs: Guess) -> ContractionEmitter | WinogradEmitter:
    """The emitter that a schedule asks for; where a contraction has no such form, the direct one."""
    assert nest.anchor is not None
    workload, lanes, algorithm = scope.workload, scope.emitter.lanes, str(knobs["algorithm"])
    if algorithm in WHOLE_SUMS:
        knobs = {**knobs, "split_k": 1, "k_blocking": 1}
    split = int(knobs["pixel_rows"]) if int(knobs["split_k"]) == 1 else 1
    form = contraction_form(workload, nest.anchor, split)
    m = ALGORITHMS.get(algorithm, 0)
    if m and isinstance(form, Convolution) and winograd_refusal(workload, nest.anchor, form, lanes) is None:
        return WinogradEmitter(scope, nest, form, knobs, m)
    if algorithm == "dot" and dot_refusal(workload, form, lanes, scope.in_rows) is None:
        return DotEmitter(scope, nest, form, knobs)
    if (
        algorithm == "group_lanes"
        and isinstance(form, Convolution)
        and group_lanes_refusal(workload, form, lanes) is None
    ):
        return GroupLanesEmitter(scope, nest, group_lanes(form), {**knobs, "order": "weights"})
    if algorithm == "pixel_lanes" and pixel_lanes_refusal(workload, form, scope.in_rows) is None:
        form = pixel_lanes(workload, nest.anchor, split)
    plain = ContractionEmitter(scope, nest, form, knobs)
    kind = SplitKEmitter if plain.split_k > 1 else KBlockingEmitter if plain.k_blocking > 1 else None
    return kind(scope, nest, form, knobs) if kind else plain
