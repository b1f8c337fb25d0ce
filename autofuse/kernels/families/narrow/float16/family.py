"""The family of contractions, with the instructions on float16 among its algorithms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import ceil, prod
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
    PRODUCTS,
    STEPS,
    SUMS,
    float16_multipliers,
)
from autofuse.kernels.families.narrow.instructions import Multiplier
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter
from autofuse.kernels.families.narrow.products.family import evenest_rows, row_knob, row_parts
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.families.protocol import Case, Declared, Guess, Knob, Schedule, Unit, Values
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import longest_row
from autofuse.kernels.workload.workload import Workload

IDLE = ("order", "panels_per_task", "split_k", "k_blocking", "operand", "tiles", "stage")
"""Knobs of contractions that say nothing of those in float16."""
LEAST_DEPTH = 16
"""Products of a sum below which turning operands to float16 takes longer than it saves."""
SPARE = 4
"""Registers that LLVM has to have beside those of a tile: with two of them, it spills in tiles of 4 x 6."""
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
        """See Family: sums in float16 first, but behind Winograd's algorithm, which saves more; products alone last."""
        found = super().guesses(case, found)
        choices = case.knobs.get(self.full("algorithm"), ())
        name = next((name for name in ALGORITHMS if name in choices), None)
        nest = next((nest for nest in case.nests if self.takes(case.workload, nest)), None)
        if name is None or nest is None or nest.anchor is None:
            return found
        form = contraction_form(case.workload, nest.anchor)
        if form.depth * prod(window.taps for window in form.windows) < LEAST_DEPTH:
            return found
        guess = self._guess(case, form, name)
        place = 0 if name == SUMS and WINOGRAD.keys().isdisjoint(choices) else 1
        return [*found[:place], guess, *found[place:]]

    def _guess(self, case: Case, form: Contraction, name: str) -> Guess:
        """The tile with the fewest instructions for each useful multiply-add."""
        algorithm, vectors, pixels = (self.full(knob) for knob in ("algorithm", "vectors", "pixels"))
        sides = product(case.knobs.get(vectors, (1,)), case.knobs.get(pixels, (1,)))
        tiles: Iterator[Guess] = ({algorithm: name, vectors: v, pixels: p} for v, p in sides)
        rows, columns = longest_row(form.windows), ceil(form.columns / LANES)

        def instructions(tile: Guess) -> float:
            v, p = min(int(tile[vectors]), columns), min(int(tile[pixels]), rows)
            made = ceil(columns / v) * v / columns * ceil(rows / p) * p / rows
            return made * (1 + 1 / p + 1 / (v * STEPS))

        best = min((tile for tile in tiles if self.fits(tile, case.target)), key=instructions)
        guess = {name: value for name, value in (case.default | best).items() if name in case.knobs}
        knob = self.full(row_knob(form))
        if case.threads > 1 and knob in case.knobs:
            panel = min(int(guess.get(vectors, 1)), columns)
            guess[knob] = evenest_rows(form, case.knobs[knob], (columns, panel), case.threads)
        return guess

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family: the instructions take the numbers of every pixel from lanes of a vector."""
        algorithm, vectors, pixels = (schedule.get(self.full(knob)) for knob in ("algorithm", "vectors", "pixels"))
        if algorithm not in ALGORITHMS or not isinstance(vectors, int) or not isinstance(pixels, int):
            return super().fits(schedule, target)
        wide = 2 if algorithm == PRODUCTS else 1  # sums in float32 are two registers
        return (wide * vectors + 1) * pixels + SPARE <= target.registers

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


def _able(workload: Workload, unit: Unit, target: Target) -> Mapping[str, Multiplier]:
    """The instructions that compute a nest on a target. Only weights that are known can be scaled for short sums."""
    assert isinstance(unit, Nest) and unit.anchor is not None
    form = contraction_form(workload, unit.anchor)
    if float16_refusal(workload, form) is not None:
        return {}
    known = workload.values[form.w].kind in ("constant", "literal")
    return {name: one for name, one in float16_multipliers(target).items() if known or not one.stretch}
