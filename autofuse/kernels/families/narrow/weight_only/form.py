"""What a weight-only product computes, and its constants as a kernel reads them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.own.weight_only import unpacked
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Array = NDArray[Any]


@dataclass(frozen=True)
class WeightOnly:
    """out[row, column] = sum over the depth of x * (code - zero) * scale; both differ by column and block of the depth.

    `x`, `codes`, `scales`, `zeros`: value indices (`zeros` -1: half the range). `lead`: extents of x before the depth.
    """

    x: int
    codes: int
    scales: int
    zeros: int
    lead: tuple[int, ...]
    depth: int
    columns: int
    bits: int
    block: int

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return prod(self.lead)

    @property
    def blocks(self) -> int:
        """Blocks of the depth, the last of which may be cut."""
        return -(-self.depth // self.block)

    @property
    def padded_depth(self) -> int:
        """The depth up to the end of its last block."""
        return self.blocks * self.block

    @property
    def together(self) -> int:
        """Codes in a word of 32 bits."""
        return 32 // self.bits

    @property
    def middle(self) -> int:
        """Half the range of the codes."""
        return 1 << (self.bits - 1)


def weight_only_form(workload: Workload, operator: WorkloadOperator) -> WeightOnly:
    """The form of a WeightOnlyMatMul."""
    x, codes, scales, zeros = (*operator.inputs, -1)[:4]
    *lead, depth = workload.values[x].shape
    sizes = {name: operator.attribute(name) for name in ("N", "bits", "block_size")}
    columns, bits, block = (size for size in sizes.values() if isinstance(size, int))
    return WeightOnly(x, codes, scales, zeros, tuple(lead), depth, columns, bits, block)


def weight_only_refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    """Why a WeightOnlyMatMul has no definition here (None: it has)."""
    kinds = {workload.values[value].kind for value in operator.inputs[1:] if value >= 0}
    if not kinds <= {"constant", "literal"}:
        return f"{operator.op_type} with computed weights has no definition here"
    return None


@dataclass(frozen=True)
class Packing:
    """How the constants lie: panels of so many vectors of columns.

    `flipped`: codes less half their range, as two's complement; else as they are.
    """

    form: WeightOnly
    vectors: int
    lanes: int
    flipped: bool

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def panels(self) -> int:
        """Panels of columns."""
        return -(-self.form.columns // self.width)

    @property
    def words(self) -> tuple[int, ...]:
        """Shape of the codes: [panel, word of the depth, vector, lane], 32 bits each."""
        return (self.panels, self.form.padded_depth // self.form.together, self.vectors, self.lanes)

    @property
    def factors(self) -> tuple[int, ...]:
        """Shape of what differs by block: [panel, block, column]."""
        return (self.panels, self.form.blocks, self.width)

    def codes(self, codes: Array) -> Array:
        """Codes [column, block, byte] as words."""
        form = self.form
        padded = np.zeros((self.panels * self.width, form.padded_depth * form.bits // 8), np.uint8)
        padded[: form.columns] = codes.reshape(form.columns, -1)
        if self.flipped:
            padded ^= np.uint8(0x88 if form.bits == 4 else 0x80)
        words = padded.view("<u4").reshape(self.panels, self.vectors, self.lanes, -1)
        return np.ascontiguousarray(words.transpose(0, 3, 1, 2)).view(np.int32)

    def scales(self, scales: Array) -> Array:
        """Scales [column, block] in panels."""
        return self._in_panels(scales)

    def shifts(self, scales: Array, zeros: Array) -> Array:
        """What is added to a weight whose code less half the range is scaled: (half the range - zero) * scale."""
        form = self.form
        if zeros.dtype == np.uint8:
            zeros = unpacked(zeros.reshape(form.columns, -1), form.bits, form.blocks)
        real = zeros.reshape(form.columns, form.blocks).astype(np.float32)
        return self._in_panels((np.float32(form.middle) - real) * scales.reshape(form.columns, form.blocks))

    def _in_panels(self, factors: Array) -> Array:
        padded = np.zeros((self.panels * self.width, self.form.blocks), np.float32)
        padded[: self.form.columns] = factors.reshape(self.form.columns, -1)
        return np.ascontiguousarray(padded.reshape(self.panels, self.width, -1).transpose(0, 2, 1))
