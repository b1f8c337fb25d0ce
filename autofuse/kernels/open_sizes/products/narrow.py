"""Products of bytes and of bfloat16 over an open number of rows: some rows of one panel of weights.

The left operand is read where it lies, so that nothing is copied for all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.families.contraction.panels import arrives_late
from autofuse.kernels.families.narrow.instructions import Multiplier
from autofuse.kernels.families.narrow.products.bfloat16 import BFLOAT16
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter, Share, Tile
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
    """A narrow product whose left operand lies as its instruction reads it, under its `knobs`.

    `late`: its weights come from so far away that tiles ask for the next panel.
    """

    product: NarrowContraction
    multiplier: Multiplier
    knobs: Mapping[str, int | str]
    late: bool = False


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
    if not plain or not lies or corrects:
        return None
    late = arrives_late(target, product.form.columns * depth * np.dtype(multiplier.right).itemsize)
    return Narrow(product, multiplier, family.chosen(schedule), late)


class NarrowRowsEmitter(NarrowEmitter):
    """Emits `rows` of a narrow product for one panel at a time: number `place` of so many tiles that ask for weights
    ahead, `asking`; 0: it asks for nothing."""

    def __init__(self, scope: Scope, nest: Nest, narrow: Narrow, rows: int, place: Expr, asking: int) -> None:
        super().__init__(scope, nest, narrow.product, narrow.multiplier, narrow.knobs)
        self.count, self.place, self.asking = rows, place, asking
        self.next_panel = narrow.late and asking > 0
        self.ahead = self.ahead if asking and not narrow.late else 0
        self.right, self.left, self.row_sums = Right(self.operands), Left(self.operands), None

    def row(self, batch: Index, panel: Expr, vectors: int, last: bool, row: Index, sums: list[Any]) -> None:
        """See NarrowEmitter: one tile."""
        self.tile(Tile(batch, panel, vectors, last, row, 0, self.count), sums)

    def share_of_next(self, tile: Tile) -> Share:
        """See NarrowEmitter: as many tiles as ask take equal shares."""
        right = self.right
        steps = right.shape[2] * right.shape[3]
        panel = steps * self.operands.panel_lanes * self.multiplier.together
        lines = -(-panel // (self.line * self.asking))
        last = tirx.const(int(right.buffer.shape[0]) - panel, "int32")
        start = tirx.Min(right.offset(tile.batch, tile.panel, 0, 0, 0) + panel, last)
        first = self.emitter.simplify(start + self.place * (lines * self.line))
        return Share(self.emitter.bind(first), lines, steps)
