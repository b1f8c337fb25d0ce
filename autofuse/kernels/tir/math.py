"""Vectorizable float32 functions as TIR expressions: no library calls, no tables, bounded error.

TVM lowers `tirx.exp`, `erf`, `tanh`, `log`, `pow` to one scalar libm call a lane. The functions here use only
+ - * / min max select, casts and bit moves, so that LLVM keeps them in vector registers. Every function takes
`bind`, which names a value that is used several times (TIR expressions are trees: an unnamed value would be
computed at each use). NaN propagates everywhere.

Four traps of TVM's simplifier shape the code: it folds `(x + c) - c` to x even for floats and even through a
name, so the sum that rounds passes through integer bits, which it cannot see through; it turns `not (x < c)`
into `x >= c`, which loses NaN, so no condition is negated; `x != x` folds to false; a named vector of booleans
crashes it. `tirx.max(c, x)` gives x when x is NaN (`tirx.max(x, c)` gives c).

Polynomials are minimax fits (Lawson's iteration, or a linear program for the quotients) unless another source
is named; the bounds stated were measured over the whole float32 range against float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

Expr = Any  # a TIR expression; TVM's own classes are untyped
Bind = Callable[[Expr], Expr]

_ROUND = 12582912.0  # 1.5 * 2^23: adding it to |x| < 2^22 rounds x to an integer in the low mantissa bits
_ROUND64 = 6755399441055744.0  # 1.5 * 2^52, the same for float64
_LN2_HIGH = 0.693359375  # ln 2 = high + low; high has 9 bits, so n * high is exact (Cephes)
_LN2_LOW = -2.12194440e-4
_MIN_NORMAL = 1.1754943508222875e-38
_MAX = 3.4028234663852886e38

_EXP = (
    1.0000000321838265,
    0.4999999420555542,
    0.1666643116997854,
    0.04166800257549255,
    0.008374163387259263,
    0.001384364408761085,
)
_EXP_SHORT = (0.9999997019767761, 0.4999915063381195, 0.16667647659778595, 0.041897840797901154, 0.008289715275168419)
_TANH_P = (1.0, 0.13390560702908477, 0.003506830287908912, 2.079109989554629e-05, 1.3601943913144665e-08)
_TANH_Q = (1.0, 0.46723883366976565, 0.025919960452442607, 3.303887481756076e-04, 7.878770624808203e-07)
_TANH_END = 9.8
_ERF_P = (
    1.128379149542805,
    0.17315559357055574,
    0.05079724319709741,
    0.003115305377907138,
    2.862089601351451e-04,
    2.3955461083154738e-06,
)
_ERF_Q = (
    1.0,
    0.4867886899078759,
    0.10727915107188501,
    0.013654654416644447,
    0.001034423221788777,
    4.1727873431144354e-05,
)
_ERF_END = 4.1
_LOG1P_P = (1.0, 0.8695240421918468, 0.12464193551073008)
_LOG1P_Q = (1.0, 1.369522665028767, 0.4760974435069814, 0.03135331880045258)
# Cephes logf (S. Moshier): log(1 + f) = f - f^2/2 + f^3 P(f) on [sqrt(1/2) - 1, sqrt(2) - 1].
_LOG = (
    3.3333331174e-1,
    -2.4999993993e-1,
    2.0000714765e-1,
    -1.6668057665e-1,
    1.4249322787e-1,
    -1.2420140846e-1,
    1.1676998740e-1,
    -1.1514610310e-1,
    7.0376836292e-2,
)
# Cephes sinf and cosf on [-pi/4, pi/4]: sin r = r + r^3 P(r^2), cos r = 1 - r^2/2 + r^4 P(r^2).
_SIN = (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4)
_COS = (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5)
# Cephes asinf on [0, 1/2], asin r = r + r^3 P(r^2), and atanf on [0, tan(pi/8)], atan r = r + r^3 P(r^2).
_ASIN = (1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2, 4.2163199048e-2)
_ATAN = (-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)
_LOG2 = (
    2.8853900817778495,
    0.9617966941138237,
    0.5770779422221504,
    0.4122092674019421,
    0.31990505393471647,
    0.2829097296029185,
)
_EXP2 = (
    1.0,
    0.693147180704764,
    0.24022651067003267,
    0.055504103653922346,
    0.009618038059586206,
    0.0013333935355757502,
    0.0001546678153537724,
    1.5196134239252274e-05,
)


class LetBinder:
    """A `bind` for expressions that stand alone: collects names, then nests them around the result."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Expr, Expr]] = []

    def __call__(self, value: Expr) -> Expr:
        """A name for `value` (constants and names are given back as they are)."""
        if isinstance(value, (bool, int, float, tirx.IntImm, tirx.FloatImm, tirx.Var)):
            return value
        name = tirx.Var(f"t{len(self.bindings)}", value.ty)
        self.bindings.append((name, value))
        return name

    def wrap(self, body: Expr) -> Expr:
        """`body` with all names collected so far defined around it."""
        for name, value in reversed(self.bindings):
            body = tirx.Let(name, value, body)
        return body


def _f32(value: float) -> Expr:
    return tirx.const(value, "float32")


def _i32(value: int) -> Expr:
    return tirx.const(value, "int32")


def _bits(x: Expr) -> Expr:
    return tirx.reinterpret("int32", x)


def _float_of(bits: Expr) -> Expr:
    return tirx.reinterpret("float32", bits)


def _horner(coefficients: Sequence[float], x: Expr, dtype: str = "float32") -> Expr:
    """c0 + c1 x + c2 x^2 + ...; each step is one fused multiply-add. `x` must be a name."""
    result: Expr = tirx.const(coefficients[-1], dtype)
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + tirx.const(coefficient, dtype)
    return result


def exp(x: Expr, bind: Bind) -> Expr:
    """e^x within 1.3 ulp; results below 2^-125.5 (1.7e-38) flush to 0, overflow gives inf. 14 instructions."""
    x = bind(tirx.min(_f32(88.8), tirx.max(_f32(-87.3), x)))
    # t = round(x / ln 2) + 126 in its low bits: shifted up they are the bits of 2^(n - 1).
    t = bind(_bits(x * _f32(math.log2(math.e)) + _f32(_ROUND + 126.0)))
    n = bind(_float_of(t) - _f32(_ROUND + 126.0))
    r = bind(n * _f32(-_LN2_LOW) + (n * _f32(-_LN2_HIGH) + x))
    twice = _horner([2.0, *(2.0 * c for c in _EXP)], r)  # 2 e^r: halving the power of two lets n = 128 be finite
    return twice * _float_of(tirx.shift_left(t, _i32(23)))


def exp_below(x: Expr, bind: Bind) -> Expr:
    """e^x of x <= 0, for sums of such terms: within 6 ulp (without fused multiply-add: 2e-7 of 1). 11 instructions.

    NaN propagates; results below 2^-126.5 (8.4e-39) flush to 0.
    """
    x = bind(tirx.max(_f32(-88.0), x))
    t = bind(_bits(x * _f32(math.log2(math.e)) + _f32(_ROUND + 127.0)))
    r = bind((_float_of(t) - _f32(_ROUND + 127.0)) * _f32(-math.log(2.0)) + x)
    return _horner([1.0, *_EXP_SHORT], r) * _float_of(tirx.shift_left(t, _i32(23)))


def log(x: Expr, bind: Bind) -> Expr:
    """Natural logarithm within 1 ulp, denormals included; log 0 = -inf, log of a negative = NaN."""
    x = bind(x)
    small = x < _f32(_MIN_NORMAL)
    bits = bind(_bits(tirx.Select(small, x * _f32(2.0**23), x)))
    exponent = bind(tirx.shift_right(bits - _i32(0x3F3504F3), _i32(23)))  # mantissa in [sqrt(1/2), sqrt(2))
    n = bind(tirx.Cast("float32", exponent) - tirx.Select(small, _f32(23.0), _f32(0.0)))
    f = bind(_float_of(bits - tirx.shift_left(exponent, _i32(23))) - _f32(1.0))
    square = bind(f * f)
    cubic = f * square * _horner(_LOG, f) + n * _f32(_LN2_LOW)
    finite = n * _f32(_LN2_HIGH) + (f + (square * _f32(-0.5) + cubic))
    special = tirx.Select(tirx.EQ(x, _f32(0.0)), _f32(-math.inf), _f32(math.nan))
    return tirx.Select(x > _f32(0.0), tirx.Select(x <= _f32(_MAX), finite, x), special)


def _odd_quotient(x: Expr, bind: Bind, end: float, p: Sequence[float], q: Sequence[float]) -> Expr:
    """x P(x^2) / Q(x^2) with |x| cut at `end`, where the quotient exceeds 1, so that the result ends at exactly 1."""
    x = bind(tirx.min(_f32(end), tirx.max(_f32(-end), x)))
    z = bind(x * x)
    quotient = x * _horner(p, z) / _horner(q, z)
    return tirx.min(_f32(1.0), tirx.max(_f32(-1.0), quotient))


def tanh(x: Expr, bind: Bind) -> Expr:
    """Hyperbolic tangent within 5 ulp (2.6e-7), exactly +-1 at the ends. 15 instructions, one of them a division."""
    return _odd_quotient(x, bind, _TANH_END, _TANH_P, _TANH_Q)


def erf(x: Expr, bind: Bind) -> Expr:
    """Error function within 5 ulp (2.9e-7), exactly +-1 at the ends. 17 instructions, one of them a division."""
    return _odd_quotient(x, bind, _ERF_END, _ERF_P, _ERF_Q)


def _one_and_exp_minus(x: Expr, bind: Bind) -> Expr:
    """1 + e^-x within 3 ulp; infinite from x = -88.4 (2^127.5) down."""
    x = bind(tirx.min(_f32(88.0), tirx.max(_f32(-88.8), x)))
    t = bind(_bits(x * _f32(-math.log2(math.e)) + _f32(_ROUND + 127.0)))
    n = bind(_float_of(t) - _f32(_ROUND + 127.0))
    r = bind(n * _f32(_LN2_LOW) + (n * _f32(_LN2_HIGH) + x))  # e^-x = 2^n e^-r
    alternating = [c * (-1.0) ** k for k, c in enumerate((1.0, *_EXP_SHORT))]
    return _horner(alternating, r) * _float_of(tirx.shift_left(t, _i32(23))) + _f32(1.0)


def sigmoid(x: Expr, bind: Bind) -> Expr:
    """1 / (1 + e^-x) within 4 ulp (relative, in the tail too); results below 4.2e-39 flush to 0. 13 instructions."""
    return _f32(1.0) / _one_and_exp_minus(x, bind)


def silu(x: Expr, bind: Bind) -> Expr:
    """x / (1 + e^-x) within 5 ulp; results below 3.8e-37 flush to 0 (-inf gives NaN, as x times its sigmoid)."""
    x = bind(x)
    return x / _one_and_exp_minus(x, bind)


def softplus(x: Expr, bind: Bind) -> Expr:
    """log(1 + e^x) within 4 ulp; results below 2^-125.5 flush to 0."""
    x = bind(x)
    u = bind(exp(tirx.min(x, x * _f32(-1.0)), bind))
    log1p = u * _horner(_LOG1P_P, u) / _horner(_LOG1P_Q, u)
    return tirx.max(_f32(0.0), x) + log1p


def mish(x: Expr, bind: Bind) -> Expr:
    """x tanh(softplus(x)) within 5 ulp; results below 1.5e-36 flush to 0.

    As x n / (n + 2) with n = e^x (e^x + 2): nothing cancels or overflows.
    """
    x = bind(x)
    w = bind(exp(tirx.min(_f32(20.0), x), bind))
    n = bind(w * (w + _f32(2.0)))
    return x * (n / (n + _f32(2.0)))


def gelu(x: Expr, bind: Bind) -> Expr:
    """x (1 + erf(x / sqrt 2)) / 2 within 9e-7 absolute or 4 ulp, whichever is larger."""
    x = bind(x)
    half = x * _f32(0.5)
    return half + half * erf(x * _f32(math.sqrt(0.5)), bind)


def gelu_tanh(x: Expr, bind: Bind) -> Expr:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 within 5e-7 absolute or 4 ulp, as x sigmoid(2 ...)."""
    x = bind(x)
    scale = 2.0 * math.sqrt(2.0 / math.pi)
    inner = x * (x * x * _f32(scale * 0.044715) + _f32(scale))
    return x * sigmoid(inner, bind)


def _quadrant(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """(n mod 4, x - n pi/2 in [-pi/4, pi/4]) with n = round(2 x / pi), reduced in float64."""
    x = bind(tirx.Cast("float64", x))

    def f64(value: float) -> Expr:
        return tirx.const(value, "float64")

    t = bind(tirx.reinterpret("int64", x * f64(2.0 / math.pi) + f64(_ROUND64)))
    n = bind(tirx.reinterpret("float64", t) - f64(_ROUND64))
    r = n * f64(-6.123233995736766e-17) + (n * f64(-math.pi / 2.0) + x)  # pi/2 in two float64 parts
    quadrant = tirx.Cast("int32", tirx.bitwise_and(t, tirx.const(3, "int64")))
    return bind(quadrant), bind(tirx.Cast("float32", r))


def _wave(x: Expr, bind: Bind, turn: int) -> Expr:
    """sin(x + turn * pi / 2); NaN from |x| = 2^50 on, where float64 holds no quadrant any more."""
    x = bind(x)
    quadrant, r = _quadrant(tirx.Select(tirx.abs(x) < _f32(2.0**50), x, _f32(math.nan)), bind)
    z = bind(r * r)
    sine = r + r * z * _horner(_SIN, z)
    cosine = _f32(1.0) + (z * _f32(-0.5) + z * z * _horner(_COS, z))
    turned = bind(quadrant + _i32(turn))
    odd = tirx.EQ(tirx.bitwise_and(turned, _i32(1)), _i32(1))
    sign = tirx.shift_left(tirx.bitwise_and(turned, _i32(2)), _i32(30))
    return _float_of(tirx.bitwise_xor(_bits(tirx.Select(odd, cosine, sine)), sign))


def sin(x: Expr, bind: Bind) -> Expr:
    """Sine within 2 ulp or 1e-7 absolute for |x| < 2^50; NaN beyond."""
    return _wave(x, bind, 0)


def cos(x: Expr, bind: Bind) -> Expr:
    """Cosine within 2 ulp or 1e-7 absolute for |x| < 2^50; NaN beyond."""
    return _wave(x, bind, 1)


def _asin_half(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """(asin r, whether |x| > 1/2) with r = sqrt((1 - |x|) / 2) there and |x| elsewhere."""
    a = bind(tirx.abs(x))
    far = a > _f32(0.5)
    z = bind(tirx.Select(far, (_f32(1.0) - a) * _f32(0.5), a * a))
    r = bind(tirx.Select(far, tirx.sqrt(z), a))
    return bind(r + r * z * _horner(_ASIN, z)), far


def asin(x: Expr, bind: Bind) -> Expr:
    """Arc sine within 4 ulp; NaN outside [-1, 1]."""
    x = bind(x)
    half, far = _asin_half(x, bind)
    size = bind(tirx.Select(far, _f32(math.pi / 2.0) - (half + half), half))
    return tirx.Select(x < _f32(0.0), size * _f32(-1.0), size)


def acos(x: Expr, bind: Bind) -> Expr:
    """Arc cosine within 4 ulp or 2e-7 absolute; NaN outside [-1, 1]."""
    x = bind(x)
    half, far = _asin_half(x, bind)
    near = _f32(math.pi / 2.0) - tirx.Select(x < _f32(0.0), half * _f32(-1.0), half)
    twice = bind(half + half)
    return tirx.Select(far, tirx.Select(x < _f32(0.0), _f32(math.pi) - twice, twice), near)


def atan(x: Expr, bind: Bind) -> Expr:
    """Arc tangent within 4 ulp."""
    x = bind(x)
    a = bind(tirx.abs(x))
    one = _f32(1.0)
    high, middle = a > _f32(2.414213562373095), a > _f32(0.4142135623730950)
    r = bind(tirx.Select(high, _f32(-1.0) / a, tirx.Select(middle, (a - one) / (a + one), a)))
    z = bind(r * r)
    turn = tirx.Select(high, _f32(math.pi / 2.0), tirx.Select(middle, _f32(math.pi / 4.0), _f32(0.0)))
    size = bind(turn + (r + r * z * _horner(_ATAN, z)))
    return tirx.Select(x < _f32(0.0), size * _f32(-1.0), size)


def tan(x: Expr, bind: Bind) -> Expr:
    """Tangent within 4 ulp for |x| < 2^50; NaN beyond."""
    x = bind(x)
    return sin(x, bind) / cos(x, bind)


def _log2_wide(a: Expr, bind: Bind) -> Expr:
    """log2 of a float32 name a >= 0 (NaN and inf propagate), in float64 to 1e-13."""
    small = a < _f32(_MIN_NORMAL)
    bits = bind(_bits(tirx.Select(small, a * _f32(2.0**23), a)))
    exponent = bind(tirx.shift_right(bits - _i32(0x3F3504F3), _i32(23)))
    m = bind(tirx.Cast("float64", _float_of(bits - tirx.shift_left(exponent, _i32(23)))))
    one = tirx.const(1.0, "float64")
    s = bind((m - one) / (m + one))
    z = bind(s * s)
    whole = tirx.Cast("float64", exponent - tirx.Select(small, _i32(23), _i32(0)))
    finite = s * _horner(_LOG2, z, "float64") + whole
    special = tirx.Select(tirx.EQ(a, _f32(0.0)), tirx.const(-math.inf, "float64"), tirx.Cast("float64", a))
    return tirx.Select(a > _f32(0.0), tirx.Select(a <= _f32(_MAX), finite, special), special)


def _exp2_wide(w: Expr, bind: Bind) -> Expr:
    """2^w of a float64, rounded to float32 (denormals included)."""
    w = bind(tirx.min(tirx.const(300.0, "float64"), tirx.max(tirx.const(-300.0, "float64"), w)))
    round_bias = tirx.const(_ROUND64 + 1023.0, "float64")
    t = bind(tirx.reinterpret("int64", w + round_bias))
    f = bind(w - (tirx.reinterpret("float64", t) - round_bias))
    scale = tirx.reinterpret("float64", tirx.shift_left(t, tirx.const(52, "int64")))
    return tirx.Cast("float32", _horner(_EXP2, f, "float64") * scale)


def pow(x: Expr, y: Expr, bind: Bind) -> Expr:  # noqa: A001
    """x^y within 1 ulp with C's special cases; exp2(y log2|x|) in float64, so that y does not amplify the error."""
    x, y = bind(x), bind(y)
    one, zero = _f32(1.0), _f32(0.0)
    a = bind(tirx.abs(x))
    product = tirx.Cast("float64", y) * _log2_wide(a, bind)
    # 1^y and x^0 are 1 even where the product is NaN.
    trivial = tirx.Or(tirx.EQ(y, zero), tirx.And(tirx.EQ(a, one), tirx.abs(y) > one))
    trivial = tirx.Or(trivial, tirx.EQ(x, one))
    size = bind(_exp2_wide(tirx.Select(trivial, tirx.const(0.0, "float64"), product), bind))
    whole = tirx.EQ(tirx.floor(y), y)
    half = bind(y * _f32(0.5))
    odd = tirx.And(whole, tirx.NE(tirx.floor(half), half))
    minus = tirx.And(odd, _bits(x) < _i32(0))
    signed = tirx.Select(minus, size * _f32(-1.0), size)
    undefined = tirx.And(tirx.And(x < zero, x >= _f32(-_MAX)), tirx.NE(tirx.floor(y), y))
    return tirx.Select(undefined, _f32(math.nan), signed)
