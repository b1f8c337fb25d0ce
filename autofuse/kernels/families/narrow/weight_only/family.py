"""The family of weight-only products: their knobs, when each has an effect, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.graph.own.weight_only import OP_TYPE
from autofuse.kernels.families.narrow.weight_only.bytes_emitter import BytesEmitter
from autofuse.kernels.families.narrow.weight_only.emitter import WeightOnlyEmitter
from autofuse.kernels.families.narrow.weight_only.form import WeightOnly, weight_only_form, weight_only_refusal
from autofuse.kernels.families.narrow.weight_only.multipliers import SmallBytes, byte_multiplier
from autofuse.kernels.families.protocol import Case, Declared, Family, Guess, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.workload.levels import IN_BYTES as BYTES
from autofuse.kernels.workload.levels import rounds_to_bytes
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

NAME = "weight_only"
FEW = 8
"""Rows up to which unpacking where a code is used is the first guess."""
LEAST = 4
"""Rows up to which unpacking ahead is not tried; with more, bytes take half the time of what comes second."""
TILES = ((4, 6), (4, 4), (2, 4), (4, 2), (2, 2), (8, 1), (4, 1), (2, 1), (1, 1))
"""Vectors and rows of tiles; the first that fits is the first guess."""
BYTE_TILES = ((2, 6), (2, 4), (2, 2), (1, 4), (1, 2), (1, 1))
"""Those of bytes, in the same order."""
SPARE = 3
"""Registers that a tile needs beside its sums: for a word of codes, its numbers and a row's."""
FEW_REGISTERS = 16
"""Vector registers of a target without AVX-512 or NEON."""


class WeightOnlyFamily(Family):
    """WeightOnlyMatMul: real numbers times weights of 4 or 8 bits."""

    name = NAME
    knobs: ClassVar[Declared] = {
        "algorithm": Knob(
            ("stream", "unpacked", BYTES),
            "codes are unpacked where they are used, or a part of a panel ahead, for many rows; or both sides become "
            "bytes, where the model lets rows be rounded to them",
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
            able = {"stream", *(["unpacked"] if form.rows > LEAST else []), *(_bytes(form, case.target))}
            return [value for value in values if value in able]
        if knob == "vectors":
            return up_to(values, -(-form.columns // case.target.lanes))
        return up_to(values, form.rows) if knob == "rows" else values

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: a tile as high as there are rows; more than a few meet weights that are unpacked ahead."""
        unit = next((nest for nest in case.nests if self.takes(case.workload, nest)), None)
        if unit is None:
            return found
        form = _form(case.workload, unit)
        in_bytes = BYTES in case.knobs.get(self.full("algorithm"), ())
        algorithm = {self.full("algorithm"): BYTES if in_bytes else "stream" if form.rows <= FEW else "unpacked"}
        for vectors, rows in _byte_tiles(form, case.target) if in_bytes else TILES:
            named: Guess = {self.full("vectors"): vectors, self.full("rows"): rows, **algorithm}
            fitting = {knob: value for knob, value in named.items() if value in case.knobs.get(knob, ())}
            guess = found[0] | fitting
            if rows <= form.rows and fitting and self.fits(guess, case.target):
                return [guess, *found]
        return found

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family: one row holds the sums of its block beside the whole ones, several the factors of a block. Bytes
        have sums of a block and whole ones, which only many registers hold both."""
        vectors, rows = schedule.get(self.full("vectors")), schedule.get(self.full("rows"), 1)
        if not isinstance(vectors, int) or not isinstance(rows, int):
            return True
        if rounds_to_bytes(schedule):
            sums = 2 if target.registers > FEW_REGISTERS else 1
            return vectors * (sums * rows + 1) + SPARE - 1 <= target.registers
        beside = 2 if schedule.get(self.full("algorithm"), "stream") == "stream" else 1
        return vectors * (rows + beside) + SPARE <= target.registers

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest)
        knobs, form = self.chosen(schedule), _form(scope.workload, unit)
        bytes_ask = knobs["algorithm"] == BYTES and bool(_bytes(form, scope.emitter.target))
        (BytesEmitter if bytes_ask else WeightOnlyEmitter)(scope, unit, form, knobs).emit()


def _form(workload: Workload, unit: Unit) -> WeightOnly:
    assert isinstance(unit, Nest) and unit.anchor is not None
    return weight_only_form(workload, unit.anchor)


def _byte_tiles(form: WeightOnly, target: Target) -> Sequence[tuple[int, int]]:
    """`BYTE_TILES`; two instructions in place of one take those of one vector alone, since they read weights from
    memory."""
    small = isinstance(byte_multiplier(target, form.bits), SmallBytes)
    return [(vectors, rows) for vectors, rows in BYTE_TILES if vectors == 1 or not small]


def _bytes(form: WeightOnly, target: Target) -> list[str]:
    """The algorithm on bytes, where the model allows it, the target has an instruction, and rows are not few."""
    able = form.in_bytes and form.rows > LEAST and byte_multiplier(target, form.bits) is not None
    return [BYTES] if able else []


WEIGHT_ONLY = WeightOnlyFamily()
