"""What multiplies integers: one LLVM instruction that takes several of the depth at once, or plain code.

"quads": bytes by signed bytes, four at a time (VNNI, whose left ones are unsigned, and ARM's sdot, whose are signed).
"pairs": int16, two at a time (pmaddwd). "single": int16, one at a time, which every target has. All are exact: they sum
in int32 and none of them saturates. int16 holds a byte less its zero point; bytes hold it only where the zero point of
the weights is that of their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.tir.emit import Expr
from autofuse.kernels.tir.features import has_feature

BYTES = frozenset({"int8", "uint8"})
SIGN = 128
"""What lies between a byte read as signed and one read as unsigned."""
SIGNED_LANES = 4
"""Lanes of the vectors whose instruction on bytes takes signed ones on both sides."""
ALGORITHMS = ("quads", "pairs", "single")
"""Names of the instructions, the fastest first."""


@dataclass(frozen=True)
class Multiplier:
    """An instruction on vectors of `lanes` sums. `together`: numbers of the depth that it takes at once.

    `left`, `right`: element types of its operands. `intrinsic`: LLVM's name; "" for plain code.
    """

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
            word = tirx.bitwise_xor(word, tirx.const(-0x7F7F7F80, "int32"))
        return tirx.reinterpret(f"{self.left}x{self.together * self.lanes}", tirx.Broadcast(word, self.lanes))


_QUADS: Mapping[int, tuple[tuple[tuple[str, ...], ...], str]] = {
    16: ((("avx512vnni",),), "llvm.x86.avx512.vpdpbusd.512"),
    8: ((("avxvnni",), ("avx512vnni", "avx512vl")), "llvm.x86.avx512.vpdpbusd.256"),
    4: ((("dotprod",),), "llvm.aarch64.neon.sdot"),
}
_PAIRS: Mapping[int, tuple[tuple[tuple[str, ...], ...], str]] = {
    16: ((("avx512bw",),), "llvm.x86.avx512.pmaddw.d.512"),
    8: ((("avx2",),), "llvm.x86.avx2.pmadd.wd"),
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


def wanted(name: Any, able: Mapping[str, Multiplier]) -> Multiplier:
    """The instruction of that name, or the next one that is able."""
    names = ALGORITHMS[ALGORITHMS.index(str(name)) :]
    return next(able[candidate] for candidate in names if candidate in able)
