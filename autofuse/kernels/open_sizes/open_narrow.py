"""Products of bytes and of bfloat16 over an open number of rows: some rows of one panel of weights.

The left operand is read where it lies, so that nothing is copied for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autofuse.device.target import Target
from autofuse.kernels.families.narrow.instructions import Multiplier
from autofuse.kernels.families.narrow.products.bfloat16 import BFLOAT16
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter, Tile
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.families.narrow.products.integer import INTEGER
from autofuse.kernels.families.narrow.products.left import Left
from autofuse.kernels.families.narrow.products.right import Right
from autofuse.kernels.families.narrow.tiles import TileMultiplier
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.tir.emit import Expr, Index
from autofuse.kernels.workload.workload import Workload


@dataclass(frozen=True)
class Narrow:
    """A narrow product whose left operand lies as its instruction reads it, under its `knobs`."""

    product: NarrowContraction
    multiplier: Multiplier
    knobs: Mapping[str, int | str]


def narrow_product(workload: Workload, nest: Nest, schedule: Schedule, target: Target) -> Narrow | None:
    """The narrow product that a nest is; None where it is none, or has more to do than to multiply."""
    family = next((one for one in (INTEGER, BFLOAT16) if one.takes(workload, nest)), None)
    if family is None:
        return None
    product, multiplier = family.multiplied(workload, nest, schedule, target)
    value, depth = workload.values[product.form.x], product.form.depth
    whole = multiplier.whole(-(-depth // multiplier.together)) * multiplier.together == depth
    bytes_, half = multiplier.right == "int8", multiplier.left == "uint16" and value.is_half
    corrects = bytes_ and not product.right_is_centred(workload)
    plain = multiplier.rows == 1 and not isinstance(multiplier, TileMultiplier) and not multiplier.strided
    lies = value.kind == "input" and not value.block and whole and (bytes_ or half)
    return Narrow(product, multiplier, family.chosen(schedule)) if plain and lies and not corrects else None


class NarrowRowsEmitter(NarrowEmitter):
    """Emits `rows` of a narrow product for one panel at a time; `asks`: ahead, for weights, as its schedule says."""

    def __init__(self, scope: Scope, nest: Nest, narrow: Narrow, rows: int, asks: bool) -> None:
        super().__init__(scope, nest, narrow.product, narrow.multiplier, narrow.knobs)
        self.count, self.next_panel = rows, False
        self.ahead = self.ahead if asks else 0
        self.right, self.left, self.row_sums = Right(self.operands), Left(self.operands), None

    def row(self, batch: Index, panel: Expr, vectors: int, last: bool, row: Index, sums: list[Any]) -> None:
        """See NarrowEmitter: one tile."""
        self.tile(Tile(batch, panel, vectors, last, row, 0, self.count), sums)
