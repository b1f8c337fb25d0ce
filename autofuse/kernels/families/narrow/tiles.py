"""Products by the tile registers of x86 (AMX), as functions of LLVM's text.

A tile has up to 16 rows of 64 bytes. One instruction takes the rows of the left operand, four bytes of the depth a step
and up to 16 steps, by a tile of weights that has a row for each step and a word for each of 16 columns, and adds to a
tile of int32 or float32 sums. A tile of weights is what panels of other instructions hold, so that these are shared.

The system gives a process the registers only when asked. Where it refuses, a kernel multiplies by vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.cpu_features import ARCH_PRCTL, REQUEST, TILE_DATA
from autofuse.device.target import Target
from autofuse.kernels.families.narrow.instructions import Multiplier, bfloat16_multipliers, multipliers
from autofuse.kernels.tir.emit import Expr
from autofuse.kernels.tir.features import has_feature

TILES = "tiles"
"""Name of the instruction among those of a family."""
ROWS, LANES, STEPS, ROW_BYTES, WORD_BYTES, REGISTERS = 16, 16, 16, 64, 4, 8
"""Of a tile its rows, words and steps of the depth; bytes of a row and of a word; and how many tiles there are."""
INT8, BF16 = "amx-int8", "amx-bf16"
_LOWER, _SIGNS = 0x7F7F7F7F, -0x7F7F7F80
"""The lower bits of four bytes, and their signs."""


@dataclass(frozen=True)
class TileUnit:
    """What the functions call. `prefix`: of the names of instructions. `system`: what is called to ask the system.

    `definitions`: LLVM's text of all these, where it does not know them.
    """

    prefix: str = "llvm.x86."
    system: str = 'asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"'
    definitions: str = ""

    def declarations(self, multiply: str) -> str:
        """Text before a use of the instructions."""
        tile, place, three = "i8 immarg", "ptr", "i8 immarg, i8 immarg, i8 immarg"
        kinds = {"ldtilecfg": place, "tilerelease": "", "tilezero": tile, multiply: three,
                 "tileloadd64": f"{tile}, {place}, i64", "tilestored64": f"{tile}, {place}, i64"}  # fmt: skip
        named = [f"declare void @{self.prefix}{name}({arguments})" for name, arguments in kinds.items()]
        return self.definitions or "\n".join(named) + "\n"


UNIT = TileUnit()
"""The real one."""


def tiles_refusal(target: Target, feature: str) -> str | None:
    """Why a target does not multiply by tiles that have a feature (None: it does)."""
    if target.lanes != LANES:
        return f"products of tiles want vectors of {LANES} lanes, the target has {target.lanes}"
    if target.mtriple is not None and "linux" not in target.mtriple:
        return f"products of tiles are asked of Linux, not of {target.mtriple}"
    lacking = [name for name in ("amx-tile", feature, "avx512vnni") if not has_feature(target, name)]
    return f"products of tiles want {', '.join(lacking)}, which the target lacks" if lacking else None


def integer_tiles(target: Target, signed: bool) -> dict[str, Multiplier]:
    """The one on bytes, where a target has it. `signed`: of the bytes of the left operand."""
    if tiles_refusal(target, INT8) is not None:
        return {}
    left, name = ("int8", "tdpbssd") if signed else ("uint8", "tdpbusd")
    return {TILES: TileMultiplier(TILES, LANES, 4, left, "int8", name, dot=multipliers(target)["quads"])}


def bfloat16_tiles(target: Target) -> dict[str, Multiplier]:
    """The one on bfloat16, where a target has it."""
    if tiles_refusal(target, BF16) is not None:
        return {}
    dot = next(iter(bfloat16_multipliers(target).values()))
    return {TILES: Bfloat16TileMultiplier(TILES, LANES, 2, "uint16", "uint16", "tdpbf16ps", dot=dot)}


@dataclass(frozen=True)
class TileMultiplier(Multiplier):
    """The instruction on tiles of bytes. `dot`: that on vectors, for sums of rows and columns, and where the system
    refuses tiles."""

    strided: ClassVar[bool] = True

    dot: Multiplier = field(kw_only=True)

    def whole(self, units: int) -> int:
        """See Multiplier: as many parts of one length as tiles hold."""
        parts = -(-units // STEPS)
        return parts * -(-units // parts) if parts else 0

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See Multiplier: by the other instruction; of a signed byte its lower bits, less its sign that counts 128."""
        if self.left == self.dot.left:
            return self.dot.add(sums, left, right)
        kind = f"{self.dot.left}x{WORD_BYTES * self.lanes}"
        words, none = (tirx.reinterpret(f"int32x{self.lanes}", left), tirx.const(0, "int32"))
        lower, sign = (
            tirx.reinterpret(kind, tirx.bitwise_and(words, tirx.Broadcast(tirx.const(bits, "int32"), self.lanes)))
            for bits in (_LOWER, _SIGNS)
        )
        less = self.dot.add(tirx.Broadcast(none, self.lanes), sign, right)
        return self.dot.add(sums, lower, right) - less

    @contextmanager
    def known(self) -> Iterator[None]:
        """See Multiplier."""
        with self.dot.known():
            yield


@dataclass(frozen=True)
class Bfloat16TileMultiplier(TileMultiplier):
    """The instruction on tiles of bfloat16."""

    sums: ClassVar[str] = "float32"

    def add(self, sums: Expr, left: Expr, right: Expr) -> Expr:
        """See Multiplier."""
        return self.dot.add(sums, left, right)

    def spread(self, numbers: Expr, flipped: bool = False) -> Expr:
        """See Multiplier."""
        return self.dot.spread(numbers, flipped)


def rows_of_tiles(vectors: int) -> int:
    """Rows that tiles of sums hold beside so many vectors of columns, with the operands that meet them."""
    return ROWS * max(1, (REGISTERS - 1) // (vectors + 1))


def asked() -> Expr:
    """1 where the system gives this process tile registers, else 0; `asking` has to be around."""
    return tirx.call_extern("int32", "autofuse_tiles_given")


def asking() -> str:
    """Text of the function that asks the system, once for each library that is loaded."""
    arguments = ", ".join(f"i64 {number}" for number in (ARCH_PRCTL, REQUEST, TILE_DATA))
    return (
        "@autofuse_tiles_answer = internal global i32 0\n"
        "define linkonce_odr i32 @autofuse_tiles_given() alwaysinline {\n"
        "known:\n"
        "  %before = load atomic i32, ptr @autofuse_tiles_answer monotonic, align 4\n"
        "  %new = icmp eq i32 %before, 0\n"
        "  br i1 %new, label %ask, label %done\n"
        "ask:\n"
        f"  %refused = call i64 {UNIT.system}({arguments})\n"
        "  %given = icmp eq i64 %refused, 0\n"
        "  %answer = select i1 %given, i32 1, i32 2\n"
        "  store atomic i32 %answer, ptr @autofuse_tiles_answer monotonic, align 4\n"
        "  br label %done\n"
        "done:\n"
        "  %found = phi i32 [ %before, %known ], [ %answer, %ask ]\n"
        "  %one = icmp eq i32 %found, 1\n"
        "  %result = zext i1 %one to i32\n"
        "  ret i32 %result\n}\n" + UNIT.definitions
    )


@dataclass(frozen=True)
class TileShape:
    """Tiles of sums of `rows` rows by `vectors` vectors of columns, to which `steps` of the depth are added at once.

    `left_pitch`, `right_pitch`: bytes from a row of the operand to the next one. The sums lie as [vector, row, lane].
    """

    multiply: str
    rows: int
    vectors: int
    steps: int
    left_pitch: int
    right_pitch: int

    @property
    def parts(self) -> list[tuple[int, int]]:
        """(first row, rows) of each tile of the left operand, of as equal sizes as can be."""
        count = -(-self.rows // ROWS)
        ends = [self.rows * part // count for part in range(count + 1)]
        return [(first, end - first) for first, end in pairwise(ends)]

    @property
    def configuration(self) -> bytes:
        """What `ldtilecfg` reads: palette 1; at 16 the bytes of a row of each tile, at 48 its rows."""
        parts = self.parts
        sums = [(rows, ROW_BYTES) for _, rows in parts for _ in range(self.vectors)]
        lefts = [(rows, WORD_BYTES * self.steps) for _, rows in parts]
        tiles = sums + lefts
        tiles += [(self.steps, ROW_BYTES)] * (REGISTERS - len(tiles))
        found = bytearray(64)
        found[0] = 1
        for number, (rows, width) in enumerate(tiles):
            found[16 + 2 * number] = width
            found[48 + number] = rows
        return bytes(found)

    def call(self, what: str, *places: Expr) -> None:
        """Calls one of the functions of `text`."""
        builder.evaluate(tirx.call_extern("int32", self._name(what), *map(tirx.address_of, places)))

    @property
    def text(self) -> str:
        """The functions: `shape` sets the tiles up and `release` ends their use; `zero` or `load` begins the sums,
        `add` adds to them, `store` writes them."""
        unit, sums = UNIT, [(i, v) for i in range(len(self.parts)) for v in range(self.vectors)]
        bits = "".join(f"\\{byte:02X}" for byte in self.configuration)
        name = self._name("bits")
        place = [f"  %p{n} = getelementptr i8, ptr %a, i64 {self._sums_at(*one)}" for n, one in enumerate(sums)]
        moves = {
            what: [f"  call void @{unit.prefix}{instruction}(i8 {n}, ptr %p{n}, i64 {ROW_BYTES})"
                   for n in range(len(sums))]
            for what, instruction in (("load", "tileloadd64"), ("store", "tilestored64"))
        }  # fmt: skip
        return (
            f'@{name} = internal constant [64 x i8] c"{bits}", align 64\n'
            + self._function("shape", "", [f"  call void @{unit.prefix}ldtilecfg(ptr @{name})"])
            + self._function("release", "", [f"  call void @{unit.prefix}tilerelease()"])
            + self._function("zero", "", [f"  call void @{unit.prefix}tilezero(i8 {n})" for n in range(len(sums))])
            + self._function("load", "ptr %a", place + moves["load"])
            + self._function("store", "ptr %a", place + moves["store"])
            + self._function("add", "ptr %a, ptr %b", list(self._adding()))
            + unit.declarations(self.multiply)
        )

    def _adding(self) -> Iterator[str]:
        """The rows of the left operand, then each vector of weights in turn, times all of them."""
        prefix, first_left = UNIT.prefix, len(self.parts) * self.vectors
        first_right = first_left + len(self.parts)
        for i, (row, _) in enumerate(self.parts):
            yield f"  %a{i} = getelementptr i8, ptr %a, i64 {row * self.left_pitch}"
            yield f"  call void @{prefix}tileloadd64(i8 {first_left + i}, ptr %a{i}, i64 {self.left_pitch})"
        for v in range(self.vectors):
            right = first_right + v % (REGISTERS - first_right)
            yield f"  %b{v} = getelementptr i8, ptr %b, i64 {v * ROW_BYTES}"
            yield f"  call void @{prefix}tileloadd64(i8 {right}, ptr %b{v}, i64 {self.right_pitch})"
            for i in range(len(self.parts)):
                tiles = (i * self.vectors + v, first_left + i, right)
                yield f"  call void @{prefix}{self.multiply}({', '.join(f'i8 {tile}' for tile in tiles)})"

    def _sums_at(self, part: int, vector: int) -> int:
        return (vector * self.rows + self.parts[part][0]) * ROW_BYTES

    def _function(self, what: str, arguments: str, body: Sequence[str]) -> str:
        lines = "\n".join(body)
        return f"define linkonce_odr i32 @{self._name(what)}({arguments}) alwaysinline {{\n{lines}\n  ret i32 0\n}}\n"

    def _name(self, what: str) -> str:
        numbers = (self.rows, self.vectors, self.steps, self.left_pitch, self.right_pitch)
        return "_".join(("autofuse_tiles", self.multiply, what, *map(str, numbers)))
