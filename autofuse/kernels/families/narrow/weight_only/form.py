"""What a weight-only product computes, and its constants as a kernel reads them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.own.weight_only import IN_BYTES, unpacked
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Array = NDArray[Any]


@dataclass(frozen=True)
class WeightOnly:
    """out[row, column] = sum over the depth of x * (code - zero) * scale; both differ by column and block of the depth.

    `x`, `codes`, `scales`, `zeros`: value indices (`zeros` -1: half the range). `lead`: extents of x before the depth.
    `in_bytes`: whether the model lets each block of a row be rounded to bytes, and weights less zero points are bytes.
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
    in_bytes: bool

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
    fits = zeros < 0 or (bits == 4 and workload.values[zeros].dtype == "uint8")
    in_bytes = bool(operator.attribute(IN_BYTES)) and fits
    return WeightOnly(x, codes, scales, zeros, tuple(lead), depth, columns, bits, block, in_bytes)


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
            zeros = self._codes_of(zeros)
        real = zeros.reshape(form.columns, form.blocks).astype(np.float32)
        return self._in_panels((np.float32(form.middle) - real) * scales.reshape(form.columns, form.blocks))

    def zeros(self, zeros: Array) -> Array:
        """Zero points that are codes as bytes, four of each."""
        return np.repeat(self._in_panels(self._codes_of(zeros), np.int8)[..., None], 4, axis=-1)

    def _codes_of(self, zeros: Array) -> Array:
        return unpacked(zeros.reshape(self.form.columns, -1), self.form.bits, self.form.blocks)

    def _in_panels(self, factors: Array, dtype: type[np.generic] = np.float32) -> Array:
        padded = np.zeros((self.panels * self.width, self.form.blocks), dtype)
        padded[: self.form.columns] = factors.reshape(self.form.columns, -1)
        return np.ascontiguousarray(padded.reshape(self.panels, self.width, -1).transpose(0, 2, 1))
