"""Integers divided and shifted by anything: numpy's answers where the processor ends the program or C says nothing."""

from __future__ import annotations

import numpy as np
from tvm import tirx

from autofuse.kernels.tir.math import Bind, Expr


def quotient(a: Expr, b: Expr, bind: Bind) -> Expr:
    """a / b towards zero: 0 where `b` is, and the least number by -1 is itself."""
    if isinstance(b, tirx.IntImm) and int(b.value) not in (0, -1):
        return tirx.truncdiv(a, b)
    zero = _const(0, a)
    a, b = bind(a), bind(b)
    dividend = tirx.Select(tirx.EQ(b, zero), zero, a)
    if not _unsigned(a):
        dividend = tirx.Select(tirx.EQ(b, _const(-1, a)), zero - a, dividend)
    return tirx.truncdiv(bind(dividend), bind(safe_divisor(b)))


def remainder(a: Expr, b: Expr, bind: Bind, of_dividend: bool) -> Expr:
    """What a / b leaves, with the sign of the divisor or `of_dividend`; 0 where `b` is."""
    known = isinstance(b, tirx.IntImm) and int(b.value) not in (0, -1)
    b = b if known else bind(safe_divisor(bind(b)))  # the remainder by 1 is 0, and so is that by -1
    rest = tirx.truncmod(a, b)
    if of_dividend or _unsigned(a):
        return rest
    rest, zero = bind(rest), _const(0, a)  # not floormod: TVM's overflows near the least number
    apart = tirx.And(tirx.NE(rest, zero), tirx.bitwise_xor(rest, b) < zero)
    return tirx.Select(apart, rest + b, rest)


def shift(x: Expr, amount: Expr, bind: Bind, left: bool) -> Expr:
    """Shifts by the width or more (undefined in C) leave 0, or the sign of a number that is shifted right."""
    width = _width(x)
    amount = bind(amount)
    inside = amount < _const(width, x)
    if not _unsigned(x):  # a negative amount is one beyond any width
        inside = tirx.And(inside, amount >= _const(0, x))
    most = tirx.Select(inside, amount, _const(width - 1, x))
    moved = (tirx.shift_left if left else tirx.shift_right)(x, most)
    return tirx.Select(inside, moved, _const(0, x)) if left or _unsigned(x) else moved


def safe_divisor(b: Expr) -> Expr:
    """`b`, but 1 in place of 0, and of -1 (by which the least number cannot be divided): both end the program.

    No choice and no comparison: behind `Where(b == 0, ...)` TVM knows how they end, drops them, and divides after all.
    """
    if _unsigned(b):
        return b + tirx.Cast(_dtype(b), _is_zero(b))
    return b + _is_zero(b) + _is_zero(b + _const(1, b)) * _const(2, b)


def _is_zero(x: Expr) -> Expr:
    """1 or 0 of the type of `x`: only 0 has the sign bit neither in itself nor in its negation.

    As signed numbers: TVM takes every uint64 for less than 2^63.
    """
    x = tirx.Cast(_dtype(x).removeprefix("u"), x) if _unsigned(x) else x
    sign = tirx.shift_right(tirx.bitwise_or(x, _const(0, x) - x), _const(_width(x) - 1, x))
    return _const(1, x) + sign


def _const(value: int, like: Expr) -> Expr:
    return tirx.const(value, _dtype(like))


def _dtype(x: Expr) -> str:
    return str(x.ty.dtype)


def _width(x: Expr) -> int:
    return np.dtype(_dtype(x)).itemsize * 8


def _unsigned(x: Expr) -> bool:
    return _dtype(x).startswith("u")
