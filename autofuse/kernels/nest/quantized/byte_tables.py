"""Tables of what a function gives for each byte: looked up byte by byte, or for a vector of bytes at once.

A table is held as its 256 entries, and behind them as the instruction of the target wants it:

- `vpermi2b` (AVX512_VBMI) picks from 128 entries; two of them, and the top bit of a byte chooses.
- `pshufb` (AVX512BW, AVX2, SSSE3) picks from 16 entries by the lower four bits, and gives 0 where the top bit is set.
  The rows of a half of the table lie as their exclusive ors with the row before. A byte that 16 is taken from row after
  row, saturating, meets all rows up to its own before it turns negative, and what they give together is its entry.
- `tbl` and `tbx` (AArch64) pick from 64 entries, and give 0 or what is there already for an index beyond.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim.expr import BitwiseAnd

from autofuse.device.target import Target
from autofuse.graph.own.byte_lookup import ENTRIES
from autofuse.kernels.tir.emit import Emitter, Expr, const
from autofuse.kernels.tir.features import has_feature
from autofuse.kernels.tir.llvm_text import imported
from autofuse.kernels.tir.math import Bind
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

BYTES = frozenset({"int8", "uint8"})
_BITS, _TOP, _ROW = 255, 128, 16


def lookup_refusal(operator: WorkloadOperator, workload: Workload) -> str | None:
    """Why a ByteLookup has no definition here (None: it has)."""
    x, table = (workload.values[value] for value in operator.inputs)
    if x.dtype not in BYTES or table.dtype not in BYTES:
        return f"{operator.op_type}: element type {x.dtype}, by a table of {table.dtype}"
    return None if table.kind == "constant" else f"{operator.op_type}: a table that is computed"


def look_up(args: Sequence[Any], operator: WorkloadOperator, out_dtype: str, bind: Bind) -> Expr:
    """The entry of a table, an array or its words, at the bits of a byte."""
    del operator
    byte, table = args
    place = tirx.Cast("int32", byte)
    if str(byte.ty.dtype) == "int8":
        place = tirx.bitwise_and(place, const(_BITS, "int32"))
    return table.found(bind(place), out_dtype) if isinstance(table, Words) else table.buffer[place]


@dataclass(frozen=True)
class Words:
    """A table as words of four entries, in a buffer, for a vector loop over `LANES` numbers of which `lane` is one.

    `vpermi2d` (AVX512F) picks from 32 of them.
    """

    LANES: ClassVar[int] = 16
    COUNT: ClassVar[int] = ENTRIES // 4

    buffer: Any
    lane: Expr

    def found(self, place: Expr, dtype: str) -> Expr:
        """The entry at a place."""
        number = tirx.shift_right(place, const(2, "int32"))
        parts = [self.buffer[self.lane + start] for start in range(0, self.COUNT, self.LANES)]
        low, high = (
            tirx.call_llvm_pure_intrin("int32", "llvm.x86.avx512.vpermi2var.d.512", parts[n], number, parts[n + 1])
            for n in (0, 2)
        )
        word = tirx.Select(place < const(_TOP, "int32"), low, high)
        bits = tirx.shift_left(tirx.bitwise_and(place, const(3, "int32")), const(3, "int32"))
        return tirx.Cast(dtype, tirx.shift_right(word, bits))


def reads_words(target: Target, extent: int) -> bool:
    """Whether a vector loop over so many numbers looks up words."""
    return extent == target.lanes == Words.LANES and has_feature(target, "avx512f")


@dataclass(frozen=True)
class Looked:
    """A byte that is looked up, and the buffer of the table."""

    byte: Expr
    table: Any


def looked_up(value: Expr) -> Looked | None:
    """What `look_up` was asked for, where it made a value; else None."""
    if not isinstance(value, TensorLoad) or len(value.indices) != 1:
        return None
    place = value.indices[0]
    if isinstance(place, BitwiseAnd):
        place = place.a
    known = isinstance(place, tirx.Cast) and str(place.value.ty.dtype) in BYTES
    return Looked(place.value, value.source) if known else None


@dataclass(frozen=True)
class TableInstruction(ABC):
    """Instructions that look up vectors of `size` bytes."""

    size: int

    def rows(self, table: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """What is held behind the entries of a table."""
        return table[:0]

    @property
    def held(self) -> int:
        """Bytes of a table with these rows."""
        return ENTRIES + self.rows(np.zeros(ENTRIES, np.uint8)).size

    @abstractmethod
    def found(self, emitter: Emitter, table: Any, index: Expr) -> Expr:
        """The entries at a vector of bytes, both as int8; outside of vector loops."""

    def look_up(self, emitter: Emitter, table: Any, levels: Expr, dtype: str) -> Expr:
        """The entries of a table, a buffer, at a vector of bytes, as numbers of a type."""
        index = emitter.bind(tirx.reinterpret(f"int8x{self.size}", levels))
        return emitter.bind(tirx.reinterpret(f"{dtype}x{self.size}", self.found(emitter, table, index)))

    def part(self, emitter: Emitter, table: Any, start: int) -> Expr:
        """A vector of a table."""
        entries = emitter.vector_at(table, start, self.size)
        return emitter.bind(tirx.reinterpret(f"int8x{self.size}", entries))

    def spread(self, value: int) -> Expr:
        """A byte in all places."""
        return tirx.Broadcast(const(value, "int8"), self.size)


class _Permuted(TableInstruction):
    def found(self, emitter: Emitter, table: Any, index: Expr) -> Expr:
        parts = [self.part(emitter, table, start) for start in range(0, ENTRIES, self.size)]
        low, high = (
            tirx.call_llvm_pure_intrin("int8x64", "llvm.x86.avx512.vpermi2var.qi.512", parts[n], index, parts[n + 1])
            for n in (0, 2)
        )
        return tirx.Select(index < self.spread(0), high, low)


@dataclass(frozen=True)
class _Shuffled(TableInstruction):
    intrinsic: str

    def rows(self, table: NDArray[np.uint8]) -> NDArray[np.uint8]:
        halves = table.reshape(2, -1, _ROW)
        rows = halves.copy()
        rows[:, 1:] ^= halves[:, :-1]
        return np.repeat(rows.reshape(-1, 1, _ROW), self.size // _ROW, axis=1).reshape(-1)

    def found(self, emitter: Emitter, table: Any, index: Expr) -> Expr:
        held = emitter.scratch(self.size, "int8")
        with imported(self._text):  # TVM's simplifier would look through a chain of so many names
            rows = tirx.address_of(table[ENTRIES])
            emitter.put_vector(held, 0, tirx.call_extern(f"int8x{self.size}", self._function, index, rows), self.size)
        return emitter.vector_at(held, 0, self.size)

    @property
    def _function(self) -> str:
        return f"autofuse_look_up{self.size}"

    @property
    def _text(self) -> str:
        kind, each, lines = f"<{self.size} x i8>", ENTRIES // 2 // _ROW, list[str]()
        lines.append(f"define linkonce_odr {kind} @{self._function}({kind} %p0, ptr %rows) alwaysinline nounwind {{")
        lines.append(f"  %p{each} = xor {kind} %p0, splat (i8 -{_TOP})")
        for row in range(2 * each):
            if row % each:
                lines.append(f"  %p{row} = call {kind} @{self._minus}({kind} %p{row - 1}, {kind} splat (i8 {_ROW}))")
            lines.append(f"  %a{row} = getelementptr i8, ptr %rows, i64 {row * self.size}")
            lines.append(f"  %r{row} = load {kind}, ptr %a{row}, align {self.size}")
            lines.append(f"  %e{row} = call {kind} @{self.intrinsic}({kind} %r{row}, {kind} %p{row})")
            lines.append(f"  %t{row} = xor {kind} %e{row}, {f'%t{row - 1}' if row else 'zeroinitializer'}")
        lines += [f"  ret {kind} %t{2 * each - 1}", "}"]
        lines += [f"declare {kind} @{name}({kind}, {kind})" for name in (self._minus, self.intrinsic)]
        return "\n".join(lines) + "\n"

    @property
    def _minus(self) -> str:
        return f"llvm.ssub.sat.v{self.size}i8"


class _Tables(TableInstruction):
    def found(self, emitter: Emitter, table: Any, index: Expr) -> Expr:
        step = 4 * self.size
        total: list[Expr] = []
        for start in range(0, ENTRIES, step):
            rows = [self.part(emitter, table, start + row * self.size) for row in range(4)]
            place = tirx.bitwise_xor(index, self.spread((start ^ _TOP) - _TOP)) if start else index
            name = "llvm.aarch64.neon.tbx4" if total else "llvm.aarch64.neon.tbl4"
            found = tirx.call_llvm_pure_intrin(f"int8x{self.size}", name, *total, *rows, place)
            total = [emitter.bind(found)]
        return total[0]


_ON_X86: dict[int, tuple[tuple[tuple[str, ...], TableInstruction], ...]] = {
    16: (
        (("avx512vbmi",), _Permuted(64)),
        (("avx512bw",), _Shuffled(64, "llvm.x86.avx512.pshuf.b.512")),
    ),
    8: ((("avx2",), _Shuffled(32, "llvm.x86.avx2.pshuf.b")),),
    4: ((("ssse3",), _Shuffled(16, "llvm.x86.ssse3.pshuf.b.128")),),
}
"""By lanes: features, and what a target with them has; the fastest first."""


def table_instruction(target: Target) -> TableInstruction | None:
    """What looks up vectors of bytes on a target; None where it has nothing for that."""
    if target.isa == "neon":
        return _Tables(16)
    able = (one for features, one in _ON_X86.get(target.lanes, ()) if all(has_feature(target, f) for f in features))
    return next(able, None)


def table_bytes(target: Target) -> int:
    """Bytes of a table as it is held for a target."""
    known = table_instruction(target)
    return ENTRIES if known is None else known.held


def packed_table(table: NDArray[Any], target: Target) -> NDArray[Any]:
    """A table as it is held for a target."""
    entries, known = np.ascontiguousarray(table).view(np.uint8), table_instruction(target)
    rows = entries[:0] if known is None else known.rows(entries)
    return np.concatenate([entries, rows]).view(table.dtype)
