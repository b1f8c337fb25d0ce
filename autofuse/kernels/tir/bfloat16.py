"""bfloat16 in 16 bits of an integer: rounding to it, and its numbers as float32."""

from __future__ import annotations

from tvm import tirx

from autofuse.kernels.tir.math import Bind, Expr

_SHIFT = 16
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
