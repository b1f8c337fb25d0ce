"""What multiplies narrow numbers: one LLVM instruction that takes several of the depth at once, or plain code.

Integers: "quads" are bytes by signed bytes, four at a time (VNNI and ARM's usdot, whose left ones are unsigned, and
ARM's sdot, whose are signed). "matrices" are two rows by two columns of such bytes, eight at a time (usmmla, smmla).
"pairs": int16, two at a time (pmaddwd). "single": int16, one at a time, which every target has. All are exact: they sum
in int32 and none of them saturates. int16 holds a byte less its zero point; bytes hold it only where the zero point of
the weights is that of their type.

bfloat16: "dots" take two at a time, and sum in float32 (vdpbf16ps, bfdot); "matrices" are two rows by two columns, four
at a time (bfmmla). Each takes a number too small for a normal float32 as 0, and gives 0 for such a sum; ARM's round
sums to odd unless FEAT_EBF16 was asked for, at most one unit of the last place off in place of half a one.
"widened" is plain code: a bfloat16 is the upper half of a float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.tir.bfloat16 import lower, upper
from autofuse.kernels.tir.emit import Expr, shuffled
from autofuse.kernels.tir.features import has_feature
from autofuse.kernels.tir.llvm_text import imported

BYTES = frozenset({"int8", "uint8"})
SIGN = 128
"""What lies between a byte read as signed and one read as unsigned."""
_FLIPS = -0x7F7F7F80
"""The signs of four bytes."""
ALGORITHMS = ("matrices", "quads", "pairs", "single")
"""Names of the instructions on integers, the fastest first."""
MATRICES, DOTS, WIDENED = BFLOAT16_ALGORITHMS = ("matrices", "dots", "widened")
"""Names of those on bfloat16, the fastest first."""


@dataclass(frozen=True)
class Multiplier:
    """An instruction on vectors of `lanes` sums. `together`: numbers of the depth that it takes at once.

    `left`, `right`: element types of its operands, `sums` of its sums. `intrinsic`: LLVM's name; "" for plain code.
    `rows`: rows of the left operand that it takes at once. `steps`: of the depth whose left numbers are best read as
    one vector, because it takes them from lanes. `stretch`: products that it sums in the type of its operands, before
    they are added to sums of the type `sums`; 0: it sums in that.
    """

    sums: ClassVar[str] = "int32"
    rows: ClassVar[int] = 1
    strided: ClassVar[bool] = False
    """Whether it reads several rows of the left operand, which lie as far apart as any two."""

    name: str
    lanes: int
    together: int
    left: str
    right: str
    intrinsic: str = ""
    steps: int = 1
    stretch: int = 0

    @property
    def summed(self) -> int:
        """Numbers of a vector of sums, before those of one column are added."""
        return self.lanes

    @property
    def summed_products(self) -> int:
        """Products of a column that are summed in the type of its operands."""
        return self.stretch * self.summed // self.lanes

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """`sums` and the products of `left`, the same numbers in all lanes (`spread`), by a vector of weights."""
        kind = f"int32x{self.lanes}"
        if not self.intrinsic:
            return sums + left * right.astype(kind)
        if self.name != "quads":
            return sums + tirx.call_llvm_pure_intrin(kind, self.intrinsic, left, right)
        sides = (right, left) if self.left == self.right else (left, right)  # LLVM takes lanes from the second one
        return tirx.call_llvm_pure_intrin(kind, self.intrinsic, sums, *sides)

    def spread(self, numbers: Expr, flipped: bool = False) -> Expr:
        """So many neighbours of the left operand in every lane; `flipped`: bytes of the other sign."""
        if not self.intrinsic:
            return tirx.Broadcast(tirx.Cast("int32", numbers), self.lanes)
        word = tirx.reinterpret("int32", numbers)
        if flipped:
            word = tirx.bitwise_xor(word, tirx.const(_FLIPS, "int32"))
        return tirx.reinterpret(f"{self.left}x{self.together * self.lanes}", tirx.Broadcast(word, self.lanes))

    def spread_lane(self, numbers: Expr, place: int) -> Expr:
        """As `spread`, of one of the `steps` in a vector."""
        word = shuffled(tirx.reinterpret(f"int32x{self.lanes}", numbers), [place])
        return tirx.reinterpret(f"{self.left}x{self.together * self.lanes}", tirx.Broadcast(word, self.lanes))

    def turned(self, numbers: Expr) -> Expr:
        """A vector of bytes as those of the other sign."""
        words = tirx.reinterpret(f"int32x{self.lanes}", numbers)
        flips = tirx.Broadcast(tirx.const(_FLIPS, "int32"), self.lanes)
        return tirx.reinterpret(f"{self.left}x{self.together * self.lanes}", tirx.bitwise_xor(words, flips))

    def whole(self, units: int) -> int:
        """Steps over the depth, of which it wants so many at least."""
        return units

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
        return f"autofuse_bfloat16_{self.name}{self.lanes}"

    @contextmanager
    def known(self) -> Iterator[None]:
        """See Multiplier. TVM has no vectors of bfloat16 for LLVM: a function of LLVM's text makes them of words."""
        if not self.intrinsic:
            yield
            return
        with imported(self._text):
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


@dataclass(frozen=True)
class MatrixMultiplier(Multiplier):
    """An instruction on two rows by two columns, whose four sums are one vector: first row, then second.

    Four columns of weights, as they lie in a vector of other instructions, are two operands. `dot`: the instruction
    on as many bytes of one row, for sums of rows and columns.
    """

    rows: ClassVar[int] = 2

    dot: Multiplier = field(kw_only=True)

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See Multiplier: by the other instruction, the even and the odd fours of the depth."""
        for half in (0, 1):
            sums = self.dot.add(sums, self._fours(left, half, self.left), self._fours(right, half, self.right))
        return sums

    def spread(self, numbers: Expr, flipped: bool = False) -> Expr:
        """See Multiplier."""
        assert not flipped, "there is one for bytes of each sign"
        word = tirx.Broadcast(tirx.reinterpret("int64", numbers), self.lanes)
        return tirx.reinterpret(f"{self.left}x{self.together * self.lanes}", word)

    def both(self, first: Expr, second: Expr, place: int, steps: int) -> Expr:
        """Numbers of one step of two rows as `add_matrices` takes them: of that `place` among the steps of each."""
        return _joined(first, second, place, steps, self.together)

    def add_matrices(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """`sums` of two rows by two columns, and their products."""
        return tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", self.intrinsic, sums, left, right)

    def _fours(self, numbers: Expr, half: int, dtype: str) -> Expr:
        words = tirx.reinterpret(f"int32x{2 * self.lanes}", numbers)
        return tirx.reinterpret(f"{dtype}x{4 * self.lanes}", shuffled(words, range(half, 2 * self.lanes, 2)))


@dataclass(frozen=True)
class Bfloat16MatrixMultiplier(Bfloat16Multiplier):
    """An instruction on two rows by two columns of bfloat16; see MatrixMultiplier."""

    rows: ClassVar[int] = 2

    def both(self, first: Expr, second: Expr, place: int, steps: int) -> Expr:
        """See MatrixMultiplier."""
        return tirx.reinterpret(f"int32x{self.lanes}", _joined(first, second, place, steps, self.together))

    def add_matrices(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See MatrixMultiplier."""
        words = tirx.reinterpret(f"int32x{self.lanes}", right)
        return tirx.call_extern(f"float32x{self.lanes}", self._function, sums, left, words)


def _joined(first: Expr, second: Expr, place: int, steps: int, size: int) -> Expr:
    places = [(start + place) * size + number for start in (0, steps) for number in range(size)]
    return tirx.Shuffle([first, second], [tirx.const(number, "int32") for number in places])


@dataclass(frozen=True)
class _Way:
    """An intrinsic, and the features that a target has to have for it: all of one of the sets.

    `left`: element type of its left operand. `steps`: see Multiplier.
    """

    intrinsic: str
    left: str
    features: tuple[tuple[str, ...], ...]
    steps: int = 1

    def able(self, target: Target) -> bool:
        return any(all(has_feature(target, feature) for feature in way) for way in self.features)


_MATRICES: Mapping[int, Sequence[_Way]] = {
    4: (
        _Way("llvm.aarch64.neon.usmmla", "uint8", (("i8mm",),), 2),
        _Way("llvm.aarch64.neon.smmla", "int8", (("i8mm", "dotprod"),), 2),
    ),
}
_QUADS: Mapping[int, Sequence[_Way]] = {
    16: (_Way("llvm.x86.avx512.vpdpbusd.512", "uint8", (("avx512vnni",),)),),
    8: (_Way("llvm.x86.avx512.vpdpbusd.256", "uint8", (("avxvnni",), ("avx512vnni", "avx512vl"))),),
    4: (
        _Way("llvm.aarch64.neon.usdot", "uint8", (("i8mm",),), 4),
        _Way("llvm.aarch64.neon.sdot", "int8", (("dotprod",),), 4),
    ),
}
_PAIRS: Mapping[int, Sequence[_Way]] = {
    16: (_Way("llvm.x86.avx512.pmaddw.d.512", "int16", (("avx512bw",),)),),
    8: (_Way("llvm.x86.avx2.pmadd.wd", "int16", (("avx2",),)),),
}
_DOTS: Mapping[int, Sequence[_Way]] = {
    16: (_Way("llvm.x86.avx512bf16.dpbf16ps.512", "uint16", (("avx512bf16",),)),),
    8: (_Way("llvm.x86.avx512bf16.dpbf16ps.256", "uint16", (("avx512bf16", "avx512vl"),)),),
    4: (_Way("llvm.aarch64.neon.bfdot.v4f32.v8bf16", "uint16", (("bf16",),)),),
}
_BFLOAT16_MATRICES: Mapping[int, Sequence[_Way]] = {
    4: (_Way("llvm.aarch64.neon.bfmmla", "uint16", (("bf16",),), 2),),
}
"""By lanes: the ways of a target that has several, the preferred one first."""


def _way(table: Mapping[int, Sequence[_Way]], target: Target, left: str = "") -> _Way | None:
    """What a target has of a table: for that type of the left operand if it can, else the first."""
    able = [way for way in table.get(target.lanes, ()) if way.able(target)]
    return next((way for way in able if way.left == left), able[0] if able else None)


def multipliers(target: Target, signed: bool = False) -> dict[str, Multiplier]:
    """The instructions that a target has, by name, the fastest first. `signed`: of the bytes of the left operand."""
    lanes, found = target.lanes, dict[str, Multiplier]()
    left = "int8" if signed else "uint8"
    matrices, quads, pairs = (_way(table, target, left) for table in (_MATRICES, _QUADS, _PAIRS))
    if quads is not None:
        dot = Multiplier("quads", lanes, 4, quads.left, "int8", quads.intrinsic, quads.steps)
        if matrices is not None and matrices.left == quads.left:
            found["matrices"] = MatrixMultiplier(
                "matrices", lanes, 8, matrices.left, "int8", matrices.intrinsic, matrices.steps, dot=dot
            )
        found["quads"] = dot
    if pairs is not None:
        found["pairs"] = Multiplier("pairs", lanes, 2, "int16", "int16", pairs.intrinsic)
    return {**found, "single": Multiplier("single", lanes, 1, "int16", "int16")}


def bfloat16_multipliers(target: Target) -> dict[str, Multiplier]:
    """Those on bfloat16 that a target has, by name, the fastest first."""
    lanes, found = target.lanes, dict[str, Multiplier]()
    matrices, dots = _way(_BFLOAT16_MATRICES, target), _way(_DOTS, target)
    if matrices is not None:
        found["matrices"] = Bfloat16MatrixMultiplier(
            "matrices", lanes, 4, "uint16", "uint16", matrices.intrinsic, matrices.steps
        )
    if dots is not None:
        found["dots"] = Bfloat16Multiplier("dots", lanes, 2, "uint16", "uint16", dots.intrinsic)
    return {**found, "widened": Bfloat16Multiplier("widened", lanes, 2, "uint16", "uint16")}


def wanted(name: Any, able: Mapping[str, Multiplier], names: Sequence[str] = ALGORITHMS) -> Multiplier:
    """The instruction of that name, or the next one of `names` that is able."""
    names = names[names.index(str(name)) :]
    return next(able[candidate] for candidate in names if candidate in able)
