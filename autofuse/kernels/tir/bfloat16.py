"""bfloat16 in 16 bits of an integer: rounding to it, and its numbers as float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm import tirx

from autofuse.device.target import Target
from autofuse.kernels.tir.features import has_feature
from autofuse.kernels.tir.llvm_text import imported
from autofuse.kernels.tir.math import Bind, Expr

_SHIFT = 16
_X86_BITS = {16: 512, 8: 256}
"""Bits of a vector of float32 by its lanes, of those that x86 rounds by one instruction."""
_ARM_LANES = (4, 8)
"""Lanes that ARM rounds by one instruction (`bfcvtn`), or by two (`bfcvtn2`)."""
_HALF, _QUIET, _WITHOUT_SIGN, _INFINITY, _UPPER = 0x7FFF, 0x00400000, 0x7FFFFFFF, 0x7F800000, -0x10000


def _int(value: int) -> Expr:
    return tirx.const(value, "int32")


def rounded_word(value: Expr, bind: Bind) -> Expr:
    """The bits of a float32 number's nearest bfloat16 in the upper half of an int32, half to even.

    What is no number stays none: a sum with it would carry into the exponent.
    """
    bits = bind(tirx.reinterpret("int32", value))
    odd = tirx.bitwise_and(tirx.shift_right(bits, _int(_SHIFT)), _int(1))
    no_number = tirx.bitwise_and(bits, _int(_WITHOUT_SIGN)) > _int(_INFINITY)
    chosen = tirx.Select(no_number, tirx.bitwise_or(bits, _int(_QUIET)), bits + (odd + _int(_HALF)))
    return tirx.bitwise_and(chosen, _int(_UPPER))


def rounded_number(value: Expr, bind: Bind) -> Expr:
    """A float32 number's nearest bfloat16 as float32."""
    return tirx.reinterpret("float32", rounded_word(value, bind))


def bits_of(value: Expr, bind: Bind) -> Expr:
    """The 16 bits of a float32 number's nearest bfloat16."""
    return tirx.Cast("uint16", tirx.shift_right(rounded_word(value, bind), _int(_SHIFT)))


def rounds_vectors(target: Target, lanes: int) -> bool:
    """Whether a target rounds vectors of so many float32 numbers by one instruction, see `rounded_vector`."""
    if target.isa == "neon":
        return lanes in _ARM_LANES and has_feature(target, "bf16")
    return lanes in _X86_BITS and all(has_feature(target, name) for name in ("avx512bf16", "avx512vl"))


def rounded_vector(numbers: Expr, lanes: int) -> Expr:
    """The 16 bits of each number's nearest bfloat16, where `with_rounding` is around.

    x86's instruction takes numbers below 2^-126 as 0, as the one that multiplies does; ARM's rounds these, too.
    """
    return tirx.call_extern(f"uint16x{lanes}", f"autofuse_bfloat16_round{lanes}", numbers)


@contextmanager
def with_rounding(target: Target, lanes: int) -> Iterator[None]:
    """Code in which vectors are rounded. TVM has none of bfloat16 for LLVM: a function of LLVM's text makes bits."""
    floats, halves, bits = f"<{lanes} x float>", f"<{lanes} x bfloat>", f"<{lanes} x i16>"
    rounded, declared = f"fptrunc {floats} %x to {halves}", ""
    if target.isa != "neon":
        name = f"@llvm.x86.avx512bf16.cvtneps2bf16.{_X86_BITS[lanes]}"
        rounded, declared = f"call {halves} {name}({floats} %x)", f"declare {halves} {name}({floats})\n"
    text = (
        f"define linkonce_odr {bits} @autofuse_bfloat16_round{lanes}({floats} %x) alwaysinline {{\n"
        f"  %y = {rounded}\n"
        f"  %r = bitcast {halves} %y to {bits}\n"
        f"  ret {bits} %r\n}}\n{declared}"
    )
    with imported(text):
        yield


def stored(number: Expr) -> Expr:
    """The 16 bits of a float32 number that is a bfloat16."""
    return tirx.Cast("uint16", tirx.shift_right(tirx.reinterpret("int32", number), _int(_SHIFT)))


def number_of(bits: Expr) -> Expr:
    """The float32 number that 16 bits stand for."""
    return tirx.reinterpret("float32", tirx.shift_left(tirx.Cast("int32", bits), _int(_SHIFT)))


def lower(words: Expr) -> Expr:
    """The first bfloat16 of each int32 as float32."""
    kind = str(words.ty.dtype)
    shift = tirx.Broadcast(_int(_SHIFT), _lanes(kind)) if "x" in kind else _int(_SHIFT)
    return tirx.reinterpret(kind.replace("int32", "float32"), tirx.shift_left(words, shift))


def upper(words: Expr) -> Expr:
    """The second bfloat16 of each int32 as float32."""
    kind = str(words.ty.dtype)
    mask = tirx.Broadcast(_int(_UPPER), _lanes(kind)) if "x" in kind else _int(_UPPER)
    return tirx.reinterpret(kind.replace("int32", "float32"), tirx.bitwise_and(words, mask))


def _lanes(kind: str) -> int:
    return int(kind.rpartition("x")[2])
