"""The family of contractions, with the instructions on float16 among its algorithms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import ceil
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.graph.own.names import FLOAT16
from autofuse.kernels.families.contraction.family import ContractionFamily
from autofuse.kernels.families.contraction.form import Contraction, Convolution, Product, contraction_form
from autofuse.kernels.families.contraction.knobs import KNOBS
from autofuse.kernels.families.contraction.winograd import ALGORITHMS as WINOGRAD
from autofuse.kernels.families.narrow.float16.emitter import Float16SumsEmitter
from autofuse.kernels.families.narrow.float16.instructions import (
    ALGORITHMS,
    LANES,
    SUMS,
    Float16Instruction,
    float16_multipliers,
)
from autofuse.kernels.families.narrow.float16.worth import beats_winograd, instructions, pays
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter
from autofuse.kernels.families.narrow.products.family import evenest_rows, row_knob, row_parts
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.families.protocol import Case, Declared, Guess, Knob, Schedule, Unit, Values
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.workload import Workload

IDLE = ("order", "panels_per_task", "split_k", "k_blocking", "operand", "tiles", "stage")
"""Knobs of contractions that say nothing of those in float16."""
_PLAIN = KNOBS["algorithm"]


class AnyContractionFamily(ContractionFamily):
    """See the module. Float16 is a choice where the model computes in it (`Graph.float16`) and the target can."""

    knobs: ClassVar[Declared] = {
        **KNOBS,
        "algorithm": Knob(
            (*_PLAIN.values, *ALGORITHMS),
            f"{_PLAIN.meaning}; of a model in float16, summed in float16 for a short stretch of the depth, or "
            "multiplied in float16 and summed in float32",
            packs=True,
        ),
    }

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        found = list(super().useful(case, unit, knob, values))
        able = _able(case.workload, unit, case.target) if knob == "algorithm" else {}
        return [value for value in values if value in found or value in able] if able else found

    def canonical(self, schedule: Guess, knobs: Mapping[str, Values]) -> Guess:
        """See Family."""
        if schedule.get(self.full("algorithm")) not in ALGORITHMS:
            return super().canonical(schedule, knobs)
        idle = {*IDLE, *(["rows_per_task"] if schedule.get(self.full("pixel_rows"), 1) != 1 else [])}
        return {name: value for name, value in schedule.items() if name not in map(self.full, idle)}

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: sums in float16 first, behind Winograd's algorithm where that saves more; products alone last."""
        found = super().guesses(case, found)
        choices = case.knobs.get(self.full("algorithm"), ())
        name = next((name for name in ALGORITHMS if name in choices), None)
        nest = next((nest for nest in case.nests if self.takes(case.workload, nest)), None)
        if name is None or nest is None or nest.anchor is None:
            return found
        form, one = contraction_form(case.workload, nest.anchor), _able(case.workload, nest, case.target).get(name)
        if one is None or not pays(form, one, case.target):
            return found
        guess = self._guess(case, form, one)
        if guess is None:
            return found
        ahead = WINOGRAD.keys().isdisjoint(choices) or beats_winograd(form, one, case.target)
        place = 0 if name == SUMS and ahead else 1
        return [*found[:place], guess, *found[place:]]

    def _guess(self, case: Case, form: Contraction, one: Float16Instruction) -> Guess | None:
        """The tile with the fewest instructions for each useful multiply-add; None where none fits."""
        algorithm, vectors, pixels = (self.full(knob) for knob in ("algorithm", "vectors", "pixels"))
        sides = product(case.knobs.get(vectors, (1,)), case.knobs.get(pixels, (1,)))
        tiles: Iterator[Guess] = ({algorithm: one.name, vectors: v, pixels: p} for v, p in sides)
        fitting = (tile for tile in tiles if self.fits(tile, case.target))
        best = min(
            fitting, key=lambda tile: instructions(form, one, int(tile[vectors]), int(tile[pixels])), default=None
        )
        if best is None:
            return None
        columns = ceil(form.columns / one.lanes)
        guess = {name: value for name, value in (case.default | best).items() if name in case.knobs}
        knob = self.full(row_knob(form))
        if case.threads > 1 and knob in case.knobs:
            panel = min(int(guess.get(vectors, 1)), columns)
            guess[knob] = evenest_rows(form, case.knobs[knob], (columns, panel), case.threads)
        return guess

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family."""
        algorithm, vectors, pixels = (schedule.get(self.full(knob)) for knob in ("algorithm", "vectors", "pixels"))
        one = float16_multipliers(target).get(str(algorithm))
        if one is None or not isinstance(vectors, int) or not isinstance(pixels, int):
            return super().fits(schedule, target)
        return one.registers(vectors, pixels) <= target.registers

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        knobs = self.chosen(schedule)
        multiplier = _able(scope.workload, unit, scope.emitter.target).get(str(knobs["algorithm"]))
        if multiplier is None:
            super().emit(scope, unit, schedule)
            return
        assert isinstance(unit, Nest) and unit.anchor is not None
        split, knobs = row_parts(contraction_form(scope.workload, unit.anchor), knobs)
        form = NarrowContraction(contraction_form(scope.workload, unit.anchor, split), -1, -1)
        emitter = Float16SumsEmitter if multiplier.stretch else NarrowEmitter
        emitter(scope, unit, form, multiplier, knobs).emit()


ANY_CONTRACTION = AnyContractionFamily()


def float16_refusal(workload: Workload, form: Contraction) -> str | None:
    """Why a contraction is not computed in float16 (None: it is where the target can)."""
    if not form.operator.attribute(FLOAT16):
        return "the model does not compute it in float16"
    if type(form) not in (Convolution, Product):
        return "its windows are transposed"
    if (form.alpha, form.beta) != (1.0, 1.0):
        return "its result or its bias is scaled"
    if {workload.values[value].dtype for value in (form.x, form.w)} != {"float32"}:
        return "its operands are not real numbers"
    return f"it has fewer than {LANES} columns" if form.columns < LANES else None


def _able(workload: Workload, unit: Unit, target: Target) -> Mapping[str, Float16Instruction]:
    """The instructions that compute a nest on a target. Only weights that are known can be scaled for short sums."""
    assert isinstance(unit, Nest) and unit.anchor is not None
    form = contraction_form(workload, unit.anchor)
    if float16_refusal(workload, form) is not None:
        return {}
    known = workload.values[form.w].kind in ("constant", "literal")
    return {name: one for name, one in float16_multipliers(target).items() if known or not one.stretch}
