"""Levels of several vectors of numbers made bytes together, where x86 does: its instructions that pack saturate.

A vector of numbers by itself takes two instructions to become bytes, of a port that multiplies too, and each of its
bounds one. Four of them take three, which are the bounds as well, and one that brings the bytes into order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.nest.quantized.byte_tables import looked_up, table_instruction
from autofuse.kernels.nest.quantized.quantization import Level, level_of
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, const, shuffled
from autofuse.kernels.tir.features import has_feature

TOGETHER = 4
"""Vectors of int32 whose bytes fill one vector."""
_CHUNK = 4
"""Numbers of int32 that the instructions keep together: a vector is packed in parts of 128 bits."""
_CURRENT = 4
"""The direction of rounding that the kernel runs under: half to even."""


@dataclass(frozen=True)
class _Instructions:
    """LLVM's names of what a vector of so many bits has."""

    features: tuple[str, ...]
    smaller: str
    to_int32: str
    to_int16: str
    to_bytes: dict[str, str]
    plus_int16: str
    masked: bool


_BY_LANES = {
    16: _Instructions(
        ("avx512f", "avx512bw"),
        "llvm.x86.avx512.min.ps.512",
        "llvm.x86.avx512.mask.cvtps2dq.512",
        "llvm.x86.avx512.packssdw.512",
        {"uint8": "llvm.x86.avx512.packuswb.512", "int8": "llvm.x86.avx512.packsswb.512"},
        "llvm.sadd.sat.v32i16",
        masked=True,
    ),
    8: _Instructions(
        ("avx2",),
        "llvm.x86.avx.min.ps.256",
        "llvm.x86.avx.cvt.ps2dq.256",
        "llvm.x86.avx2.packssdw",
        {"uint8": "llvm.x86.avx2.packuswb", "int8": "llvm.x86.avx2.packsswb"},
        "llvm.sadd.sat.v16i16",
        masked=False,
    ),
}  # fmt: skip


def packs(target: Target) -> bool:
    """Whether a target has the instructions."""
    known = _BY_LANES.get(target.lanes)
    return known is not None and all(has_feature(target, feature) for feature in known.features)


@dataclass(frozen=True)
class _Kept:
    """A vector of levels that is not written yet: its numbers in registers, and where its bytes go.

    `table`: what is written in place of each level, as a buffer of bytes of the type `dtype`; None: the level itself.
    """

    numbers: Any
    level: Level
    buffer: Any
    first: Expr
    table: Any
    dtype: str

    def alike(self, other: _Kept) -> bool:
        """Whether one instruction makes levels of both, for one buffer."""
        one, two = self.level, other.level
        tabled, other_tabled = self.table is not None, other.table is not None
        if tabled != other_tabled or (tabled and not self.table.same_as(other.table)):
            return False
        return self.buffer.same_as(other.buffer) and (one.zero, one.dtype, one.high) == (two.zero, two.dtype, two.high)


class LevelWriter:
    """Writes what epilogues of vector loops give; levels are kept until several vectors of them are neighbours."""

    def __init__(self, emitter: Emitter) -> None:
        self.emitter, self.lanes = emitter, emitter.target.lanes
        self.able = packs(emitter.target)
        self.instruction = table_instruction(emitter.target)
        self.kept: list[dict[int, _Kept]] = []
        """Vectors of levels of one kind in one buffer, by how far they lie behind the first of them."""

    def store(self, array: Array, index: Index, value: Expr) -> None:
        """Writes an element now, or keeps the vector of levels that it is a lane of."""
        whole = self.able and self.emitter.extent == self.lanes and array.inside(index) is None
        looked = looked_up(value) if whole and self.instruction is not None else None
        level = level_of(value if looked is None else looked.byte) if whole else None
        first = None if level is None else self.emitter.first_of_row(self.emitter.simplify(array.offset(index)))
        if level is None or first is None:
            self.emitter.store(array, index, value)
            return
        table = None if looked is None else looked.table
        self._keep(_Kept(self.emitter.held(level.number), level, array.buffer, first, table, array.dtype))

    def _keep(self, vector: _Kept) -> None:
        for group in self.kept:
            if vector.alike(group[0]):
                distance = self.emitter.simplify(vector.first - group[0].first)
                if isinstance(distance, (int, tirx.IntImm)):
                    group[int(distance)] = vector
                    return
        self.kept.append({0: vector})

    def write(self) -> None:
        """Writes what was kept, as many neighbours together as fill a vector."""
        for group in self.kept:
            near: list[_Kept] = []
            for distance in sorted(group):
                if near and (len(near) == TOGETHER or distance - self.lanes not in group):
                    self._write(near)
                    near = []
                near.append(group[distance])
            self._write(near)
        self.kept = []

    def _write(self, vectors: list[_Kept]) -> None:
        """Writes neighbours, as many as are bytes of one vector or fewer."""
        first, lanes = vectors[0], self.lanes
        words = [self._rounded(vector) for vector in vectors]
        words += words[-1:] * (TOGETHER - len(words))
        packed = shuffled(tirx.reinterpret(f"int32x{lanes}", self._packed(words, first.level)), self._order())
        levels = self.emitter.bind(tirx.reinterpret(f"{first.level.dtype}x{TOGETHER * lanes}", packed))
        if first.table is not None:
            assert self.instruction is not None and self.instruction.size == TOGETHER * lanes
            levels = self.instruction.look_up(self.emitter, first.table, levels, first.dtype)
        if len(vectors) == TOGETHER:
            self.emitter.put_vector(first.buffer, first.first, levels, TOGETHER * lanes)
            return
        for place, vector in enumerate(vectors):
            part = shuffled(levels, range(place * lanes, (place + 1) * lanes))
            self.emitter.put_vector(vector.buffer, vector.first, part, lanes)

    def _rounded(self, vector: _Kept) -> Expr:
        """The whole numbers, which may be lower than any level; what is no number is the lowest int32."""
        known, lanes = _BY_LANES[self.lanes], self.lanes
        numbers = self.emitter.vector_at(vector.numbers, 0, lanes)
        masked = [const(_CURRENT, "int32")] if known.masked else []
        if vector.level.high is not None:
            high = tirx.Broadcast(const(vector.level.high, "float32"), lanes)  # first: the instruction gives its second
            numbers = tirx.call_llvm_pure_intrin(f"float32x{lanes}", known.smaller, high, numbers, *masked)
        if masked:
            none = tirx.Broadcast(const(0, "int32"), lanes)
            masked = [none, const(-1, "int16"), *masked]
        return self.emitter.bind(tirx.call_llvm_pure_intrin(f"int32x{lanes}", known.to_int32, numbers, *masked))

    def _packed(self, words: list[Expr], level: Level) -> Expr:
        """The bytes of four vectors, those of four neighbours of each side by side."""
        known, half, whole = _BY_LANES[self.lanes], 2 * self.lanes, TOGETHER * self.lanes
        halves = [
            tirx.call_llvm_pure_intrin(f"int16x{half}", known.to_int16, *words[place : place + 2]) for place in (0, 2)
        ]
        if level.zero:
            zero = tirx.Broadcast(const(level.zero, "int16"), half)
            halves = [tirx.call_llvm_pure_intrin(f"int16x{half}", known.plus_int16, one, zero) for one in halves]
        return tirx.call_llvm_pure_intrin(f"{level.dtype}x{whole}", known.to_bytes[level.dtype], *halves)

    def _order(self) -> list[int]:
        """Where the chunks of each vector stand among the packed ones."""
        return [chunk * TOGETHER + vector for vector in range(TOGETHER) for chunk in range(self.lanes // _CHUNK)]
