"""What multiplies float16: sums of float16 that are short, or sums in float32.

"float16_sums" (ARM: `fmla` on eight float16, `fullfp16`; x86: `vfmadd231ph` on 32, AVX512_FP16): twice the
multiply-adds of float32. It sums at most `STRETCH` products in float16, and adds that to sums in float32. With
u = 2^-11, the largest rounding of float16 as a part of a number, a sum of products a * w is off by at most STRETCH * u
(about 1.6%) of the sum of their sizes; random ones by a tenth of that, since rounding goes both ways. No sum overflows:
weights are scaled by a power of two for each column, so that no stretch of them exceeds 1/2 in all, and finite float16
times those stay in range. What is scaled may be too small for a normal float16; then a product is off by 2^-25 before
the scale is taken back, at most.

On x86 a vector has two numbers of each of sixteen columns, which have a sum each: a load spreads words of 32 bits, and
would need a second instruction for numbers of 16. The two are added in float16 (once more u) before they are widened.

"float16_products" (`fmlal`, `fmlal2`, `fp16fml`; ARM alone): products are exact, and their sums those of float32. As
many multiply-adds as in float32, of operands of half the size.
"""

from __future__ import annotations

from abc import abstractmethod
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
"""ARM: float16 numbers of a vector; steps of the depth whose left numbers are read as one."""
NEON, AVX512 = 4, 16
"""float32 numbers of a vector of a target that has the instructions."""
SPARE = 4
"""Registers that LLVM has to have on ARM beside those of a tile: with two of them, it spills in tiles of 4 x 6."""
_FUNCTION = "autofuse_float16_multiply_add"


@dataclass(frozen=True)
class Float16Instruction(Multiplier):
    """What the instructions of all targets have in common."""

    sums: ClassVar[str] = "float32"

    @abstractmethod
    def registers(self, vectors: int, pixels: int) -> int:
        """Registers that a tile takes."""

    @abstractmethod
    def widened(self, sums: Expr) -> Expr:
        """The sums of a stretch, of each column one, as float32."""


@dataclass(frozen=True)
class Float16Multiplier(Float16Instruction):
    """An instruction on eight columns of float16: one number of the left operand, from a lane, times each (ARM)."""

    def registers(self, vectors: int, pixels: int) -> int:
        """See Float16Instruction: the numbers of every pixel are in a vector, too; sums in float32 are two."""
        wide = 2 if self.name == PRODUCTS else 1
        return (wide * vectors + 1) * pixels + SPARE

    def widened(self, sums: Expr) -> Expr:
        """See Float16Instruction."""
        return sums.astype(f"{self.sums}x{self.lanes}")

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


@dataclass(frozen=True)
class Float16PairMultiplier(Float16Instruction):
    """An instruction on two numbers of each of sixteen columns (x86)."""

    @property
    def summed(self) -> int:
        """See Multiplier: each number of a column has a sum of its own."""
        return self.lanes * self.together

    def registers(self, vectors: int, pixels: int) -> int:
        """See Float16Instruction: two of each sum, the weights of a step, a word of one pixel, and one to spare."""
        return 2 * vectors * pixels + vectors + 2

    def widened(self, sums: Expr) -> Expr:
        """See Float16Instruction: those of the upper halves of the words are added to those of the lower ones."""
        words, halves = f"int32x{self.lanes}", f"float16x{self.summed}"
        sixteen = tirx.Broadcast(tirx.const(16, "int32"), self.lanes)
        upper = tirx.reinterpret(halves, tirx.shift_right(tirx.reinterpret(words, sums), sixteen))
        both = tirx.reinterpret(words, sums + upper).astype(f"int16x{self.lanes}")
        return tirx.reinterpret(f"float16x{self.lanes}", both).astype(f"{self.sums}x{self.lanes}")

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See Multiplier."""
        return tirx.call_llvm_pure_intrin(f"float16x{self.summed}", self.intrinsic, right, left, sums)

    def spread(self, numbers: Expr, flipped: bool = False) -> Expr:
        """See Multiplier: as one word."""
        assert not flipped, "that is of bytes"
        word = tirx.reinterpret("int32", numbers)
        return tirx.reinterpret(f"float16x{self.summed}", tirx.Broadcast(word, self.lanes))


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


def float16_multipliers(target: Target) -> Mapping[str, Float16Instruction]:
    """Those that a target has, by name, the faster first."""
    if target.lanes == AVX512 and has_feature(target, "avx512fp16"):
        return {SUMS: Float16PairMultiplier(SUMS, AVX512, 2, "float16", "float16", "llvm.fma", stretch=STRETCH)}
    if target.lanes != NEON or not has_feature(target, "fullfp16"):
        return {}
    found = {SUMS: Float16Multiplier(SUMS, LANES, 1, "float16", "float16", "llvm.fma", STEPS, STRETCH)}
    if has_feature(target, "fp16fml"):
        found[PRODUCTS] = Float16Multiplier(PRODUCTS, LANES, 1, "float16", "float16", "fmlal", STEPS)
    return found
