"""What multiplies float16: sums of float16 that are short, or sums in float32. Both instructions are ARM's.

"float16_sums" (`fmla` on eight float16, `fullfp16`): twice the multiply-adds of float32. It sums at most `STRETCH`
products in float16, and adds that to sums in float32. With u = 2^-11, the largest rounding of float16 as a part of a
number, a sum of products a * w is off by at most STRETCH * u (about 1.6%) of the sum of their sizes; random ones by a
tenth of that, since rounding goes both ways. No sum overflows: weights are scaled by a power of two for each column,
so that no stretch of them exceeds 1/2 in all, and finite float16 times those stay in range. What is scaled may be too
small for a normal float16; then a product is off by 2^-25 before the scale is taken back, at most.

"float16_products" (`fmlal`, `fmlal2`, `fp16fml`): products are exact, and their sums those of float32. As many
multiply-adds as in float32, of operands of half the size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.families.narrow.instructions import Multiplier
from autofuse.kernels.tir.emit import Expr, shuffled
from autofuse.kernels.tir.features import has_feature
from autofuse.kernels.tir.llvm_text import imported
from autofuse.kernels.workload.levels import IN_FLOAT16

SUMS, PRODUCTS = ALGORITHMS = IN_FLOAT16
"""Names of the instructions, the faster first."""
STRETCH = 32
"""Products that are summed in float16."""
LANES, STEPS = 8, 4
"""float16 numbers of a vector; steps of the depth whose left numbers are read as one."""
NEON = 4
"""float32 numbers of a vector of a target that has the instructions."""
_FUNCTION = "autofuse_float16_multiply_add"


@dataclass(frozen=True)
class Float16Multiplier(Multiplier):
    """An instruction on eight columns of float16: one number of the left operand, from a lane, times each."""

    sums: ClassVar[str] = "float32"

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See Multiplier."""
        if self.name == SUMS:
            return tirx.call_llvm_pure_intrin(f"float16x{self.lanes}", self.intrinsic, right, left, sums)
        return tirx.call_extern(f"float32x{self.lanes}", _FUNCTION, sums, right, left)

    def spread(self, numbers: Expr, flipped: bool = False) -> Expr:
        """See Multiplier."""
        assert not flipped, "that is of bytes"
        return tirx.Broadcast(numbers, self.lanes)

    def spread_lane(self, numbers: Expr, place: int) -> Expr:
        """See Multiplier."""
        return tirx.Broadcast(shuffled(numbers, [place]), self.lanes)

    @contextmanager
    def known(self) -> Iterator[None]:
        """See Multiplier. TVM has vectors of eight numbers, the instructions sums of four: LLVM's text joins both."""
        if self.name == SUMS:
            yield
            return
        with imported(_multiply_add()):
            yield


def _multiply_add() -> str:
    """A function of LLVM's text: sums of eight columns, in float32, and products of float16 vectors."""
    halves, wide, four = f"<{LANES} x half>", f"<{LANES} x float>", f"<{NEON} x float>"
    lower, upper, whole = (
        f"<{len(places)} x i32> <{', '.join(f'i32 {place}' for place in places)}>"
        for places in (range(NEON), range(NEON, LANES), range(LANES))
    )
    name = "@llvm.aarch64.neon.fmlal"
    return (
        f"define linkonce_odr {wide} @{_FUNCTION}({wide} %s, {halves} %a, {halves} %b) alwaysinline {{\n"
        f"  %l = shufflevector {wide} %s, {wide} poison, {lower}\n"
        f"  %u = shufflevector {wide} %s, {wide} poison, {upper}\n"
        f"  %x = call {four} {name}.v4f32.v8f16({four} %l, {halves} %a, {halves} %b)\n"
        f"  %y = call {four} {name}2.v4f32.v8f16({four} %u, {halves} %a, {halves} %b)\n"
        f"  %r = shufflevector {four} %x, {four} %y, {whole}\n"
        f"  ret {wide} %r\n}}\n"
        f"declare {four} {name}.v4f32.v8f16({four}, {halves}, {halves})\n"
        f"declare {four} {name}2.v4f32.v8f16({four}, {halves}, {halves})\n"
    )


def float16_multipliers(target: Target) -> Mapping[str, Multiplier]:
    """Those that a target has, by name, the faster first."""
    if target.lanes != NEON or not has_feature(target, "fullfp16"):
        return {}
    found = {SUMS: Float16Multiplier(SUMS, LANES, 1, "float16", "float16", "llvm.fma", STEPS, STRETCH)}
    if has_feature(target, "fp16fml"):
        found[PRODUCTS] = Float16Multiplier(PRODUCTS, LANES, 1, "float16", "float16", "fmlal", STEPS)
    return found
