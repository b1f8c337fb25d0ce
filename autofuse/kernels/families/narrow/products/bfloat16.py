"""The family of products whose operands are rounded to bfloat16, and whose sums are float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS
from autofuse.kernels.families.contraction.form import contraction_form
from autofuse.kernels.families.narrow.instructions import (
    BFLOAT16_ALGORITHMS,
    DOTS,
    WIDENED,
    Multiplier,
    bfloat16_multipliers,
)
from autofuse.kernels.families.narrow.products.family import KNOBS, NarrowFamily
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.families.narrow.tiles import BF16, TILES, bfloat16_tiles
from autofuse.kernels.families.protocol import Case, Declared, Guess, Knob
from autofuse.kernels.families.windows import window_refusal
from autofuse.kernels.workload.workload import Workload, WorkloadOperator


class Bfloat16Family(NarrowFamily):
    """Bfloat16MatMul and Bfloat16Conv: weights are rounded ahead, activations once before the loops."""

    name = "bfloat16"
    algorithms = (*BFLOAT16_ALGORITHMS, TILES)
    tile_feature = BF16
    knobs: ClassVar[Declared] = {
        "algorithm": Knob(
            (*BFLOAT16_ALGORITHMS, TILES),
            "two rows and columns, or two products and their sum, by one instruction, numbers widened to float32, or "
            "tiles (AMX)",
            packs=True,
        ),
        **KNOBS,
    }
    anchors = frozenset(BFLOAT16_CONTRACTIONS.values())

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family."""
        return window_refusal(workload, operator) if operator.op_type == BFLOAT16_CONTRACTIONS["Conv"] else None

    def form(self, workload: Workload, operator: WorkloadOperator, split: int = 1) -> NarrowContraction:
        """See NarrowFamily: there are no zero points."""
        return NarrowContraction(contraction_form(workload, operator, split), -1, -1)

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: second, widened numbers, because not every CPU with an instruction on bfloat16 is faster by it
        (Emerald Rapids: 128x768x768 took 1.4 times as long)."""
        found, name = super().guesses(case, found), self.full("algorithm")
        values = case.knobs.get(name, ())
        if found[0].get(name) == DOTS and WIDENED in values:
            return [found[0], found[0] | {name: WIDENED}, *found[1:]]
        return found

    def able(self, workload: Workload, product: NarrowContraction, target: Target) -> Mapping[str, Multiplier]:
        """See NarrowFamily."""
        return bfloat16_multipliers(target) | bfloat16_tiles(target)


BFLOAT16 = Bfloat16Family()
