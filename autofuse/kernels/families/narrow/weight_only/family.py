"""The family of weight-only products: their knobs, when each has an effect, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.graph.own.weight_only import OP_TYPE
from autofuse.kernels.families.narrow.weight_only.emitter import WeightOnlyEmitter
from autofuse.kernels.families.narrow.weight_only.form import WeightOnly, weight_only_form, weight_only_refusal
from autofuse.kernels.families.protocol import Case, Declared, Family, Guess, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

NAME = "weight_only"
FEW = 8
"""Rows up to which unpacking where a code is used is the first guess."""
LEAST = 4
"""Rows up to which unpacking ahead is not tried."""
TILES = ((4, 6), (4, 4), (2, 4), (4, 2), (2, 2), (8, 1), (4, 1), (2, 1), (1, 1))
"""Vectors and rows of tiles; the first that fits is the first guess."""
SPARE = 3
"""Registers that a tile needs beside its sums: for a word of codes, its numbers and a row's."""


class WeightOnlyFamily(Family):
    """WeightOnlyMatMul: real numbers times weights of 4 or 8 bits."""

    name = NAME
    knobs: ClassVar[Declared] = {
        "algorithm": Knob(
            ("stream", "unpacked"), "codes are unpacked where they are used, or a part of a panel ahead, for many rows"
        ),
        "vectors": Knob((4, 8, 2, 1), "vectors of columns of a tile", tile=True, packs=True),
        "rows": Knob((4, 6, 8, 2, 1), "rows of a tile, held in registers with its vectors", tile=True),
        "prefetch": Knob((128, 64, 256, 32, 0), "lines of a cache by which codes are asked for ahead (0: not at all)"),
    }
    anchors = frozenset({OP_TYPE})

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family."""
        return weight_only_refusal(workload, operator)

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        form = _form(case.workload, unit)
        if knob == "algorithm":
            return values if form.rows > LEAST else [value for value in values if value == "stream"]
        if knob == "vectors":
            return up_to(values, -(-form.columns // case.target.lanes))
        return up_to(values, form.rows) if knob == "rows" else values

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: a tile as high as there are rows; more than a few meet weights that are unpacked ahead."""
        unit = next((nest for nest in case.nests if self.takes(case.workload, nest)), None)
        if unit is None:
            return found
        form = _form(case.workload, unit)
        algorithm = {self.full("algorithm"): "stream" if form.rows <= FEW else "unpacked"}
        for vectors, rows in TILES:
            named: Guess = {self.full("vectors"): vectors, self.full("rows"): rows, **algorithm}
            fitting = {knob: value for knob, value in named.items() if value in case.knobs.get(knob, ())}
            guess = found[0] | fitting
            if rows <= form.rows and fitting and self.fits(guess, case.target):
                return [guess, *found]
        return found

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family: one row holds the sums of its block beside the whole ones, several the factors of a block."""
        vectors, rows = schedule.get(self.full("vectors")), schedule.get(self.full("rows"), 1)
        if not isinstance(vectors, int) or not isinstance(rows, int):
            return True
        beside = 1 if schedule.get(self.full("algorithm")) == "unpacked" else 2
        return vectors * (rows + beside) + SPARE <= target.registers

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        WeightOnlyEmitter(scope, unit, _form(scope.workload, unit), self.chosen(schedule)).emit()


def _form(workload: Workload, unit: Unit) -> WeightOnly:
    assert isinstance(unit, Nest) and unit.anchor is not None
    return weight_only_form(workload, unit.anchor)


WEIGHT_ONLY = WeightOnlyFamily()
