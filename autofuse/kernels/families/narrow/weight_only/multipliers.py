"""What multiplies rows in bytes by weights in bytes, four of the depth at a time, exactly.

Weights of 4 bits less their zero points lie within -15 to 15, so that x86 without VNNI multiplies them too: its
instruction sums two products of a byte without a sign by a byte with one in int16, where four steps of such sums fit
(4 * 2 * 255 * 15 < 2^15), and another one sums pairs of those in int32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.families.narrow.instructions import Multiplier, multipliers
from autofuse.kernels.tir.emit import Expr, const
from autofuse.kernels.tir.features import has_feature

AT_ONCE = 4
"""Steps whose products are summed in int16."""


@dataclass(frozen=True)
class SmallBytes(Multiplier):
    """The two instructions of x86 without VNNI; `intrinsic` multiplies, `pairs` sums."""

    pairs: str = ""

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See Multiplier."""
        return self.add_steps(sums, [left], [right])

    def add_steps(self, sums: Expr, lefts: Sequence[Expr], rights: Sequence[Expr]) -> Expr:
        """`sums` and the products of as many as `AT_ONCE` steps."""
        kind = f"int16x{2 * self.lanes}"
        products = [
            tirx.call_llvm_pure_intrin(kind, self.intrinsic, left, right)
            for left, right in zip(lefts, rights, strict=True)
        ]
        total = products[0]
        for product in products[1:]:
            total = total + product
        ones = tirx.Broadcast(const(1, "int16"), 2 * self.lanes)
        return sums + tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", self.pairs, total, ones)


_SMALL = {
    16: (("avx512bw",), "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
    8: (("avx2",), "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
}
"""By lanes: the features that a target has to have, the instruction that multiplies, and the one that sums."""


def byte_multiplier(target: Target, bits: int) -> Multiplier | None:
    """The instruction for weights of so many bits; None where a target has none that is exact."""
    dots = multipliers(target, signed=True).get("quads")
    if dots is not None:
        return dots
    features, multiplies, pairs = _SMALL.get(target.lanes, ((), "", ""))
    if bits != 4 or not features or not all(has_feature(target, feature) for feature in features):
        return None
    return SmallBytes("small", target.lanes, 4, "uint8", "int8", multiplies, AT_ONCE, pairs=pairs)
