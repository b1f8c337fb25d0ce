"""Tile registers as Intel's manual defines them, in numpy: what kernels by AMX are run on where no core has it.

`definitions` is LLVM's text of functions of the instructions' arguments, each of which calls Python. Faults that a core
would raise are kept, and told by `check`.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.own.rounding import numbers_of
from autofuse.kernels.families.narrow.tiles import TileUnit

PREFIX = "autofuse_double_"
TILES, ROWS, WIDTH = 8, 16, 64
REFUSED = -95
LEAST = 2.0**-126
_TILE, _PLACE, _LONG = ("i8", ctypes.c_uint8), ("ptr", ctypes.c_void_p), ("i64", ctypes.c_int64)


class StopError(Exception):
    """What a core would stop at."""


class TileDouble:
    """The registers of one thread. `gives`: whether the system gives them to the process."""

    def __init__(self, gives: bool = True) -> None:
        self.gives, self.given = gives, False
        self.shapes: list[tuple[int, int]] = []
        self.data: NDArray[np.uint8] = np.zeros((TILES, ROWS, WIDTH), "uint8")
        self.faults: list[str] = []
        self.ran: Counter[str] = Counter()
        self._kept: list[Any] = []
        products = {"tdpbssd": ("i1", "i1"), "tdpbusd": ("u1", "i1"), "tdpbsud": ("i1", "u1"), "tdpbuud": ("u1", "u1")}
        one = [self._text("ldtilecfg", [_PLACE], self.ldtilecfg), self._text("tilerelease", [], self.tilerelease),
               self._text("tilezero", [_TILE], self.tilezero),
               self._text("tileloadd64", [_TILE, _PLACE, _LONG], self.tileloadd),
               self._text("tilestored64", [_TILE, _PLACE, _LONG], self.tilestored)]  # fmt: skip
        one += [self._text(name, [_TILE] * 3, self._integers(*kinds)) for name, kinds in products.items()]
        one += [self._text("tdpbf16ps", [_TILE] * 3, self.tdpbf16ps)]
        one += [self._text("system", [_LONG] * 3, self.system, ("i64", ctypes.c_int64))]
        self.definitions = "".join(one)

    @property
    def unit(self) -> TileUnit:
        """What stands in the place of the instructions."""
        return TileUnit(PREFIX, f"@{PREFIX}system", self.definitions)

    def check(self) -> None:
        """No instruction was one that a core would stop at, and none is left set up."""
        assert not self.faults, self.faults[0]
        assert not self.shapes, "the tiles were not released"

    def _text(
        self,
        name: str,
        arguments: list[tuple[str, Any]],
        act: Callable[..., Any],
        result: tuple[str, Any] | None = None,
    ) -> str:
        kind, python = result or ("void", None)

        def called(*given: Any) -> Any:
            self.ran[name] += 1
            try:
                return act(*given)
            except StopError as fault:
                self.faults.append(f"{name}{given}: {fault}")
                return None

        function = ctypes.CFUNCTYPE(python, *(known for _, known in arguments))(called)
        self._kept.append(function)
        address = ctypes.cast(function, ctypes.c_void_p).value
        named = ", ".join(f"{text} %x{n}" for n, (text, _) in enumerate(arguments))
        call = f"call {kind} inttoptr (i64 {address} to ptr)({named})"
        body = f"  {call}\n  ret void" if result is None else f"  %r = {call}\n  ret {kind} %r"
        return f"define linkonce_odr {kind} @{PREFIX}{name}({named}) noinline {{\n{body}\n}}\n"

    def system(self, call: int, request: int, registers: int) -> int:
        """arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)."""
        if (call, request, registers) != (158, 0x1023, 18):
            raise StopError("the system was asked for something else")
        self.given = self.gives
        return 0 if self.gives else REFUSED

    def ldtilecfg(self, place: int) -> None:
        """Palette 1, start_row 0, 14 bytes of 0; words of the bytes of a row, then bytes of rows, of 16 tiles."""
        if not self.given:
            raise StopError("the system was not asked")
        read = np.frombuffer(ctypes.string_at(place, 64), "uint8")
        widths, rows = read[16:48].copy().view("<u2"), read[48:]
        if read[0] != 1 or read[1:16].any() or widths[TILES:].any() or rows[TILES:].any():
            raise StopError("no configuration of palette 1")
        if (widths > WIDTH).any() or (rows > ROWS).any() or ((widths == 0) != (rows == 0)).any():
            raise StopError("a tile has more than the registers, or rows without width")
        self.shapes = [(int(height), int(width)) for height, width in zip(rows[:TILES], widths[:TILES], strict=True)]
        self.data[:] = 0

    def tilerelease(self) -> None:
        """Back to no configuration."""
        self.shapes = []
        self.data[:] = 0

    def _shape(self, tile: int) -> tuple[int, int]:
        if not self.shapes or tile >= TILES or not all(self.shapes[tile]):
            raise StopError("the tile is not configured")
        return self.shapes[tile]

    def tilezero(self, tile: int) -> None:
        """All bytes of a tile are 0."""
        self._shape(tile)
        self.data[tile] = 0

    def tileloadd(self, tile: int, place: int, pitch: int) -> None:
        """Rows that lie `pitch` bytes apart; what is beyond them is 0."""
        rows, width = self._shape(tile)
        self.data[tile] = 0
        for row in range(rows):
            self.data[tile, row, :width] = np.frombuffer(ctypes.string_at(place + row * pitch, width), "uint8")

    def tilestored(self, tile: int, place: int, pitch: int) -> None:
        """The rows of a tile, and nothing else."""
        rows, width = self._shape(tile)
        for row in range(rows):
            ctypes.memmove(place + row * pitch, self.data[tile, row, :width].tobytes(), width)

    def _operands(self, sums: int, left: int, right: int) -> tuple[int, int, int]:
        """Rows of sums, steps and columns of a product, whose tiles fit each other."""
        if len({sums, left, right}) < 3:
            raise StopError("two operands are one tile")
        shapes = [self._shape(tile) for tile in (sums, left, right)]
        if any(width % 4 for _, width in shapes):
            raise StopError("a row is no whole number of words")
        (rows, width), (left_rows, depth), (steps, right_width) = shapes
        if rows != left_rows or width != right_width or depth // 4 != steps:
            raise StopError(f"the tiles do not fit each other: {shapes}")
        return rows, steps, width // 4

    def _integers(self, left_kind: str, right_kind: str) -> Callable[[int, int, int], None]:
        def multiply(sums: int, left: int, right: int) -> None:
            rows, steps, columns = self._operands(sums, left, right)
            a = self.data[left].view(left_kind).reshape(ROWS, WIDTH // 4, 4).astype("int64")
            b = self.data[right].view(right_kind).reshape(ROWS, WIDTH // 4, 4).astype("int64")
            found = self.data[sums].view("<i4")
            for m in range(rows):
                for k in range(steps):
                    found[m, :columns] += (a[m, k] * b[k, :columns]).sum(-1).astype("int32")
            self.data[sums, rows:] = 0

        return multiply

    def tdpbf16ps(self, sums: int, left: int, right: int) -> None:
        """The even and the odd numbers of the depth are summed apart, step by step, then both are added to the sums.

        A fused multiply-add is one in float64 here, which rounds twice where that can tell.
        """
        rows, steps, columns = self._operands(sums, left, right)
        a, b = (
            _flushed(numbers_of(self.data[tile].view("<u2").reshape(ROWS, WIDTH // 4, 2))) for tile in (left, right)
        )
        found = self.data[sums].view("<f4")
        with np.errstate(all="ignore"):
            for m in range(rows):
                both = np.zeros((columns, 2), "float32")
                for k in range(steps):
                    both = _flushed((a[m, k].astype("f8") * b[k, :columns] + both).astype("float32"))
                found[m, :columns] = _flushed(_flushed(found[m, :columns]) + _flushed(both[:, 0] + both[:, 1]))
        self.data[sums, rows:] = 0


def _flushed(numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers that are too small for a normal float32 as 0."""
    return np.where(np.abs(numbers) < LEAST, np.copysign(np.float32(0), numbers), numbers)
