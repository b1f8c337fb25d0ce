"""The family of integer products: MatMulInteger and ConvInteger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from autofuse.device.target import Target
from autofuse.kernels.families.narrow.depthwise.family import is_taken
from autofuse.kernels.families.narrow.instructions import ALGORITHMS, Multiplier, multipliers
from autofuse.kernels.families.narrow.products.family import KNOBS, NarrowFamily
from autofuse.kernels.families.narrow.products.form import NarrowContraction, integer_form, integer_refusal
from autofuse.kernels.families.narrow.tiles import INT8, TILES, integer_tiles
from autofuse.kernels.families.protocol import Declared, Knob, Unit
from autofuse.kernels.workload.workload import Workload, WorkloadOperator


class IntegerFamily(NarrowFamily):
    """MatMulInteger and ConvInteger: bytes times bytes, summed in int32."""

    name = "integer"
    algorithms = (*ALGORITHMS, TILES)
    tile_feature = INT8
    knobs: ClassVar[Declared] = {
        "algorithm": Knob(
            (*ALGORITHMS, TILES),
            "one instruction on two rows and columns, on four, two or one neighbours of the depth, or on tiles (AMX)",
            packs=True,
        ),
        **KNOBS,
    }
    anchors = frozenset({"MatMulInteger", "ConvInteger"})
    element_types = frozenset({"int8", "uint8", "int32"})

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        return super().takes(workload, unit) and not is_taken(workload, unit)

    def refusal(self, workload: Workload, operator: WorkloadOperator) -> str | None:
        """See Family."""
        return integer_refusal(workload, operator)

    def form(self, workload: Workload, operator: WorkloadOperator, split: int = 1) -> NarrowContraction:
        """See NarrowFamily."""
        return integer_form(workload, operator, split)

    def able(self, workload: Workload, product: NarrowContraction, target: Target) -> Mapping[str, Multiplier]:
        """See NarrowFamily."""
        signed = product.left_signed(workload)
        found = multipliers(target, signed) | integer_tiles(target, signed)
        exact = product.right_is_centred(workload) or product.right_is_constant(workload)
        return {name: one for name, one in found.items() if exact or one.right != "int8"}


INTEGER = IntegerFamily()
