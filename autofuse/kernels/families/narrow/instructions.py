"""What multiplies narrow numbers: one LLVM instruction that takes several of the depth at once, or plain code.

Integers: "quads" are bytes by signed bytes, four at a time (VNNI, whose left ones are unsigned, and ARM's sdot, whose
are signed). "pairs": int16, two at a time (pmaddwd). "single": int16, one at a time, which every target has. All are
exact: they sum in int32 and none of them saturates. int16 holds a byte less its zero point; bytes hold it only where
the zero point of the weights is that of their type.

bfloat16: "dots" take two at a time, and sum in float32 (vdpbf16ps, which takes a number too small for a normal float32
as 0, and gives 0 for such a sum). "widened" is plain code: a bfloat16 is the upper half of a float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.ir import StringImm

from autofuse.device.target import Target
from autofuse.kernels.tir.bfloat16 import lower, upper
from autofuse.kernels.tir.emit import Expr
from autofuse.kernels.tir.features import has_feature

BYTES = frozenset({"int8", "uint8"})
SIGN = 128
"""What lies between a byte read as signed and one read as unsigned."""
SIGNED_LANES = 4
"""Lanes of the vectors whose instruction on bytes takes signed ones on both sides."""
ALGORITHMS = ("quads", "pairs", "single")
"""Names of the instructions on integers, the fastest first,"""
_FLIPS = -0x7F7F7F80
"""The signs of four bytes."""
BFLOAT16_ALGORITHMS = ("dots", "widened")
"""and of those on bfloat16."""


@dataclass(frozen=True)
class Multiplier:
    """An instruction on vectors of `lanes` sums. `together`: numbers of the depth that it takes at once.

    `left`, `right`: element types of its operands, `sums` of its sums. `intrinsic`: LLVM's name; "" for plain code.
    """

    sums: ClassVar[str] = "int32"

    name: str
    lanes: int
    together: int
    left: str
    right: str
    intrinsic: str = ""

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """`sums` and the products of `left`, the same numbers in all lanes (`spread`), by a vector of weights."""
        kind = f"int32x{self.lanes}"
        if not self.intrinsic:
            return sums + left * right.astype(kind)
        return (
            tirx.call_llvm_pure_intrin(kind, self.intrinsic, sums, left, right)
            if self.name == "quads"
            else (sums + tirx.call_llvm_pure_intrin(kind, self.intrinsic, left, right))
        )

    def spread(self, numbers: Expr, flipped: bool = False) -> Expr:
        """So many neighbours of the left operand in every lane; `flipped`: bytes of the other sign."""
        if not self.intrinsic:
            return tirx.Broadcast(tirx.Cast("int32", numbers), self.lanes)
        word = tirx.reinterpret("int32", numbers)
        if flipped:
            word = tirx.bitwise_xor(word, tirx.const(_FLIPS, "int32"))
        return tirx.reinterpret(f"{self.left}x{self.together * self.lanes}", tirx.Broadcast(word, self.lanes))

    def turned(self, numbers: Expr) -> Expr:
        """A vector of bytes as those of the other sign."""
        words = tirx.reinterpret(f"int32x{self.lanes}", numbers)
        flips = tirx.Broadcast(tirx.const(_FLIPS, "int32"), self.lanes)
        return tirx.reinterpret(f"{self.left}x{self.together * self.lanes}", tirx.bitwise_xor(words, flips))

    @contextmanager
    def known(self) -> Iterator[None]:
        """Code in which it may be used."""
        yield


@dataclass(frozen=True)
class Bfloat16Multiplier(Multiplier):
    """An instruction on bfloat16, two of which stand in each lane as their bits."""

    sums: ClassVar[str] = "float32"

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See Multiplier."""
        words = tirx.reinterpret(f"int32x{self.lanes}", right)
        if not self.intrinsic:
            return sums + lower(left) * lower(words) + upper(left) * upper(words)
        return tirx.call_extern(f"float32x{self.lanes}", self._function, sums, left, words)

    def spread(self, numbers: Expr, flipped: bool = False) -> Expr:
        """See Multiplier: as words of two."""
        return tirx.Broadcast(tirx.reinterpret("int32", numbers), self.lanes)

    @property
    def _function(self) -> str:
        return f"autofuse_bfloat16_dots{self.lanes}"

    @contextmanager
    def known(self) -> Iterator[None]:
        """See Multiplier. TVM has no vectors of bfloat16 for LLVM: a function of LLVM's text makes them of words."""
        if not self.intrinsic:
            yield
            return
        with builder.attr(tirx.IntImm("int32", 0), "pragma_import_llvm", StringImm(self._text)):
            yield

    @property
    def _text(self) -> str:
        sums, words, pairs = f"<{self.lanes} x float>", f"<{self.lanes} x i32>", f"<{2 * self.lanes} x bfloat>"
        return (
            f"define {sums} @{self._function}({sums} %s, {words} %a, {words} %b) alwaysinline {{\n"
            f"  %x = bitcast {words} %a to {pairs}\n"
            f"  %y = bitcast {words} %b to {pairs}\n"
            f"  %r = call {sums} @{self.intrinsic}({sums} %s, {pairs} %x, {pairs} %y)\n"
            f"  ret {sums} %r\n}}\n"
            f"declare {sums} @{self.intrinsic}({sums}, {pairs}, {pairs})\n"
        )


_QUADS: Mapping[int, tuple[tuple[tuple[str, ...], ...], str]] = {
    16: ((("avx512vnni",),), "llvm.x86.avx512.vpdpbusd.512"),
    8: ((("avxvnni",), ("avx512vnni", "avx512vl")), "llvm.x86.avx512.vpdpbusd.256"),
    4: ((("dotprod",),), "llvm.aarch64.neon.sdot"),
}
_PAIRS: Mapping[int, tuple[tuple[tuple[str, ...], ...], str]] = {
    16: ((("avx512bw",),), "llvm.x86.avx512.pmaddw.d.512"),
    8: ((("avx2",),), "llvm.x86.avx2.pmadd.wd"),
}
_DOTS: Mapping[int, tuple[tuple[tuple[str, ...], ...], str]] = {
    16: ((("avx512bf16",),), "llvm.x86.avx512bf16.dpbf16ps.512"),
    8: ((("avx512bf16", "avx512vl"),), "llvm.x86.avx512bf16.dpbf16ps.256"),
}
"""By lanes: sets of features of which the target has to have one whole, and the intrinsic."""


def multipliers(target: Target) -> dict[str, Multiplier]:
    """The instructions that a target has, by name, the fastest first."""
    lanes, found = target.lanes, {}
    for name, table, together, left, right in (
        ("quads", _QUADS, 4, "int8" if lanes == SIGNED_LANES else "uint8", "int8"),
        ("pairs", _PAIRS, 2, "int16", "int16"),
    ):
        ways, intrinsic = table.get(lanes, ((), ""))
        if any(all(has_feature(target, feature) for feature in way) for way in ways):
            found[name] = Multiplier(name, lanes, together, left, right, intrinsic)
    return {**found, "single": Multiplier("single", lanes, 1, "int16", "int16")}


def bfloat16_multipliers(target: Target) -> dict[str, Multiplier]:
    """Those on bfloat16 that a target has, by name, the fastest first."""
    lanes, found = target.lanes, dict[str, Multiplier]()
    for name, (ways, intrinsic) in (("dots", _DOTS.get(lanes, ((), ""))), ("widened", (((),), ""))):
        if any(all(has_feature(target, feature) for feature in way) for way in ways):
            found[name] = Bfloat16Multiplier(name, lanes, 2, "uint16", "uint16", intrinsic)
    return found


def wanted(name: Any, able: Mapping[str, Multiplier], names: Sequence[str] = ALGORITHMS) -> Multiplier:
    """The instruction of that name, or the next one of `names` that is able."""
    names = names[names.index(str(name)) :]
    return next(able[candidate] for candidate in names if candidate in able)
