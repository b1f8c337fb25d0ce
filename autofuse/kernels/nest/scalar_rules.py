"""How each elementwise operator computes one element; `scalar` is the table of them.

A rule names an operand before it uses it twice, and never names a boolean (TVM crashes on a named vector of
booleans). NaN goes where ONNX Runtime sends it: through Relu, Clip, Min and Max, but not through ThresholdedRelu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from tvm import tirx
from tvm_ffi import structural_equal

from autofuse.kernels.tir import integers
from autofuse.kernels.tir import math as vector_math
from autofuse.kernels.tir.math import Bind, Expr
from autofuse.kernels.workload.workload import WorkloadOperator

_UNSIGNED = frozenset({"uint8", "uint16", "uint32", "uint64"})
_NARROW = frozenset({"int8", "int16", "uint8", "uint16", "uint32"})
_FMOD_BITS, _FMOD_STEPS = 28, 10


@dataclass(frozen=True)
class Call:
    """Operands of one application; None stands for an absent optional one."""

    args: Sequence[Expr]
    operator: WorkloadOperator
    out_dtype: str
    bind: Bind

    @property
    def x(self) -> Expr:
        """The first operand, named."""
        return self.bind(self.args[0])

    @property
    def dtype(self) -> str:
        """Element type of the first operand."""
        return dtype_of(self.args[0])

    def const(self, value: float) -> Expr:
        """A constant of the first operand's type."""
        return tirx.const(value, self.dtype)

    def number(self, name: str, default: float) -> Expr:
        """A float attribute as a constant."""
        return self.const(self.value(name, default))

    def value(self, name: str, default: float) -> float:
        """A float attribute."""
        value = self.operator.attribute(name, default)
        assert isinstance(value, (int, float))
        return value

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        return text_of(self.operator, name, default)


def dtype_of(expression: Expr) -> str:
    """Element type of a TIR expression, as numpy names it."""
    return str(expression.ty.dtype)


def text_of(operator: WorkloadOperator, name: str, default: str) -> str:
    value = operator.attribute(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def function(name: str, call: Call) -> Expr:
    """A function of `vector_math`; in float64 TVM's own, where LLVM has an intrinsic for it.

    Calls of the C library by name are impossible here: TVM splits a vector loop around one, and then loses names.
    """
    if call.dtype == "float64":
        return getattr(tirx, name)(call.args[0])
    result: Expr = getattr(vector_math, name)(call.args[0], call.bind)
    return result


def _exp(x: Expr, bind: Bind) -> Expr:
    return tirx.exp(x) if dtype_of(x) == "float64" else vector_math.exp(x, bind)


def is_nan(x: Expr) -> Expr:
    """Whether a float name is NaN, by its bits (TVM folds `x != x` to false)."""
    return tirx.GT(*_magnitude(x))


def _magnitude(x: Expr) -> tuple[Expr, Expr]:
    """The bits of a float name without its sign, and those of infinity."""
    if dtype_of(x) == "float64":
        magnitude = tirx.bitwise_and(tirx.reinterpret("int64", x), tirx.const(0x7FFFFFFFFFFFFFFF, "int64"))
        return magnitude, tirx.const(0x7FF0000000000000, "int64")
    magnitude = tirx.bitwise_and(tirx.reinterpret("int32", x), tirx.const(0x7FFFFFFF, "int32"))
    return magnitude, tirx.const(0x7F800000, "int32")


def _nothing_of(x: Expr, call: Call) -> Expr:
    """0, or NaN where a float is infinite or NaN: what is left of it less itself and times 0 (TVM folds both to 0)."""
    magnitude, infinity = _magnitude(call.bind(x))
    return tirx.Select(magnitude < infinity, call.const(0), call.const(math.nan))


def _is_float(dtype: str) -> bool:
    return dtype.startswith("float")


def cast(x: Expr, dtype: str) -> Expr:
    """`x` converted as C does: truncated towards zero, wrapped, anything but 0 is true."""
    source = dtype_of(x)
    if source == dtype:
        return x
    if source == "bool":  # TVM's integer analysis breaks on the name of a vector that is cast from booleans
        return tirx.Select(x, tirx.const(1, dtype), tirx.const(0, dtype))
    if dtype == "bool":  # by way of an integer: `x != 0` is false for NaN in TVM's code
        return tirx.EQ(tirx.Cast("int8", tirx.EQ(x, tirx.const(0, source))), tirx.const(0, "int8"))
    if _is_float(source) and dtype in _NARROW:
        # Wraps out-of-range values like ONNX Runtime on x86, where a direct conversion would saturate.
        return tirx.Cast(dtype, tirx.Cast("int64" if dtype == "uint32" else "int32", x))
    if _is_float(source) and dtype == "uint64":  # likewise below zero
        half = tirx.const(2.0**63, source)
        return tirx.Select(x < half, tirx.Cast(dtype, tirx.Cast("int64", x)), tirx.Cast(dtype, x))
    return tirx.Cast(dtype, x)


def divide(call: Call) -> Expr:
    """By a number: times its reciprocal (1 ulp off at most), where neither is extreme.

    By 255 it is exact: scales of DynamicQuantizeLinear come so, and each last bit of one moves levels.
    """
    a, b = call.args
    if not _is_float(call.dtype):
        return integers.quotient(a, b, call.bind)
    if isinstance(b, tirx.FloatImm) and 1e-30 < abs(b.value) < 1e30 and b.value != 255:
        return a * call.const(1.0 / b.value)
    return ratio(a, b)


def ratio(a: Expr, b: Expr) -> Expr:
    """a / b; by the constant 0, at which TVM's folding ends a build: times infinity, which is the same for all `a`."""
    if isinstance(b, tirx.FloatImm) and b.value == 0:
        return a * tirx.const(math.copysign(math.inf, b.value), str(b.ty.dtype))
    return a / b


def subtract(call: Call) -> Expr:
    """a - b; of a float less itself NaN where that is not finite."""
    a, b = call.args
    return _nothing_of(a, call) if _is_float(call.dtype) and structural_equal(a, b) else a - b


def multiply(call: Call) -> Expr:
    """x (1 / y) becomes x / y, which is what a sigmoid times its operand is."""
    a, b = call.args
    for x, zero in ((a, b), (b, a)):
        if isinstance(zero, tirx.FloatImm) and zero.value == 0 and not isinstance(x, tirx.FloatImm):
            return _nothing_of(x, call)
    for x, quotient in ((a, b), (b, a)):
        if isinstance(quotient, tirx.Div) and isinstance(quotient.a, tirx.FloatImm) and quotient.a.value == 1.0:
            return x / quotient.b
    return a * b


def modulo(call: Call) -> Expr:
    """The remainder, with the sign of the divisor or, for fmod, of the dividend; exact, also of floats.

    A quotient of two float32 reaches 2^277. Each step takes multiples of the divisor times a power of two away whose
    number fits 28 bits, so that products are exact in float64.
    """
    a, b = call.args
    if not _is_float(call.dtype):
        return integers.remainder(a, b, call.bind, bool(call.value("fmod", 0)))
    if isinstance(b, tirx.FloatImm) and b.value == 0:
        return a * call.const(math.nan)
    a, b = (call.bind(cast(arg, "float64")) for arg in (a, b))
    rest = a
    for step in reversed(range(_FMOD_STEPS)):
        multiple = b * tirx.const(2.0 ** (_FMOD_BITS * step), "float64")
        rest = call.bind(rest - tirx.trunc(rest / multiple) * multiple)
    infinite = tirx.And(tirx.abs(b) > tirx.const(1e300, "float64"), tirx.abs(a) < tirx.const(1e300, "float64"))
    rest = tirx.Select(infinite, a, rest)
    if not call.value("fmod", 0):
        rest, zero = call.bind(rest), tirx.const(0.0, "float64")
        apart = tirx.Or(tirx.And(rest < zero, b > zero), tirx.And(rest > zero, b < zero))
        rest = tirx.Select(apart, rest + b, rest)
    return cast(rest, call.dtype)


def power(call: Call) -> Expr:
    base, exponent = call.args
    if isinstance(exponent, (tirx.IntImm, tirx.FloatImm)):
        simple = _constant_power(call, float(exponent.value))
        if simple is not None:
            return simple
    if call.dtype == "float32":
        return vector_math.pow(base, cast(exponent, "float32"), call.bind)
    wide = tirx.pow(cast(base, "float64"), cast(exponent, "float64"))
    return cast(wide, call.dtype)


def _constant_power(call: Call, exponent: float) -> Expr | None:
    """Products, quotients and roots for the usual exponents; (-inf)^0.5 becomes NaN, not inf."""
    if exponent == 1.0:
        return call.args[0]
    x = call.x
    if exponent == 0.0:
        return call.const(1)
    if exponent == 2.0:
        return x * x
    if exponent == 3.0:
        return x * x * x
    if exponent == 4.0:
        square = call.bind(x * x)
        return square * square
    if not _is_float(call.dtype):
        return None
    if exponent == 0.5:
        return tirx.sqrt(x)
    if exponent == -0.5:
        return call.const(1) / tirx.sqrt(x)
    if exponent == -1.0:
        return call.const(1) / x
    return call.const(1) / (x * x) if exponent == -2.0 else None


def negate(call: Call) -> Expr:
    return call.args[0] * call.const(-1) if _is_float(call.dtype) else call.const(0) - call.args[0]


def absolute(call: Call) -> Expr:
    return call.args[0] if call.dtype in _UNSIGNED else tirx.abs(call.x)


def sign(call: Call) -> Expr:
    x, zero = call.x, call.const(0)
    if call.dtype in _UNSIGNED:
        return tirx.Select(x > zero, call.const(1), zero)
    return tirx.Select(x > zero, call.const(1), tirx.Select(x < zero, call.const(-1), x))  # NaN and 0 are their own


def _sigmoid_of(x: Expr, bind: Bind) -> Expr:
    if dtype_of(x) == "float64":
        one = tirx.const(1.0, "float64")
        return one / (one + tirx.exp(x * tirx.const(-1.0, "float64")))
    return vector_math.sigmoid(x, bind)


def sigmoid(call: Call) -> Expr:
    return _sigmoid_of(call.args[0], call.bind)


def swish(call: Call) -> Expr:
    x = call.x
    if call.dtype == "float32" and call.value("alpha", 1.0) == 1.0:
        return vector_math.silu(x, call.bind)
    return x * _sigmoid_of(x * call.number("alpha", 1.0), call.bind)


def _unit(call: Call, x: Expr) -> Expr:
    """`x` cut to [0, 1]."""
    return tirx.min(call.const(1), tirx.max(call.const(0), x))


def hard_sigmoid(call: Call) -> Expr:
    return _unit(call, call.args[0] * call.number("alpha", 0.2) + call.number("beta", 0.5))


def hard_swish(call: Call) -> Expr:
    x = call.x
    return x * _unit(call, x * call.const(1.0 / 6.0) + call.const(0.5))


def relu(call: Call) -> Expr:
    return tirx.max(call.const(0), call.args[0])


def leaky_relu(call: Call) -> Expr:
    x = call.x
    return tirx.Select(x < call.const(0), x * call.number("alpha", 0.01), x)


def prelu(call: Call) -> Expr:
    x = call.x
    return tirx.Select(x < call.const(0), x * call.args[1], x)


def elu(call: Call) -> Expr:
    x = call.x
    return tirx.Select(x < call.const(0), call.number("alpha", 1.0) * (_exp(x, call.bind) - call.const(1)), x)


def selu(call: Call) -> Expr:
    x = call.x
    alpha, gamma = call.value("alpha", 1.67326319217681884765625), call.value("gamma", 1.05070102214813232421875)
    below = call.const(alpha * gamma) * (_exp(x, call.bind) - call.const(1))
    return tirx.Select(x > call.const(0), x * call.const(gamma), below)


def celu(call: Call) -> Expr:
    x = call.x
    alpha = call.value("alpha", 1.0)
    below = call.const(alpha) * (_exp(x * call.const(1.0 / alpha if alpha else math.inf), call.bind) - call.const(1))
    return tirx.Select(x > call.const(0), x, below)


def thresholded_relu(call: Call) -> Expr:
    x = call.x
    return tirx.Select(x > call.number("alpha", 1.0), x, call.const(0))


def softsign(call: Call) -> Expr:
    x = call.x
    return x / (call.const(1) + tirx.abs(x))


def gelu(call: Call) -> Expr:
    form = vector_math.gelu_tanh if call.text("approximate", "none") == "tanh" else vector_math.gelu
    return form(call.args[0], call.bind)


def clip(call: Call) -> Expr:
    """Bounds as operands (opset 11 on) or as attributes; the upper one wins; an absent one lets infinity pass."""
    bounds: list[Expr] = [*call.args[1:], None, None][:2]
    for place, name in enumerate(("min", "max")):
        if len(call.args) == 1 and call.operator.attribute(name) is not None:
            bounds[place] = call.number(name, 0.0)
    result = call.args[0]
    if bounds[0] is not None:
        result = tirx.max(bounds[0], result)
    return result if bounds[1] is None else tirx.min(bounds[1], result)


def extreme(pick: Callable[[Expr, Expr], Expr], call: Call) -> Expr:
    """Min or Max of all operands; NaN in any of them wins. `pick(a, b)` gives b when either is NaN."""

    def two(a: Expr, b: Expr) -> Expr:
        if not _is_float(call.dtype):
            return pick(a, b)
        if isinstance(b, tirx.FloatImm):
            a, b = b, a
        if isinstance(a, tirx.FloatImm) and not math.isnan(a.value):
            return pick(a, b)
        a = call.bind(a)
        return tirx.Select(is_nan(a), a, pick(a, b))

    return reduce(two, call.args)


def total(call: Call) -> Expr:
    return reduce(lambda a, b: a + b, call.args)


def mean(call: Call) -> Expr:
    return total(call) / call.const(len(call.args))


def logic(call: Call, operation: Callable[[Expr, Expr], Expr]) -> Expr:
    """A boolean operation on integers: TVM would turn `not (a < b)` into `a >= b`, which differs for NaN."""
    a, b = (tirx.Cast("int8", arg) for arg in call.args)
    return tirx.NE(operation(a, b), tirx.const(0, "int8"))


def inverse(call: Call) -> Expr:
    return tirx.EQ(tirx.Cast("int8", call.args[0]), tirx.const(0, "int8"))


def compare(relation: Callable[[Expr, Expr], Expr], call: Call) -> Expr:
    a, b = call.args
    if call.dtype == "bool":
        a, b = tirx.Cast("int8", a), tirx.Cast("int8", b)
    if relation is tirx.EQ and _is_float(call.dtype) and structural_equal(a, b):
        return tirx.LE(*_magnitude(call.bind(a)))  # TVM folds `x == x` to true
    return relation(a, b)


def is_inf(call: Call) -> Expr:
    x = call.x
    either = [
        tirx.EQ(x, call.const(sign * math.inf))
        for sign, name in ((1, "detect_positive"), (-1, "detect_negative"))
        if call.value(name, 1)
    ]
    return reduce(tirx.Or, either) if either else tirx.const(False, "bool")


def shift(call: Call) -> Expr:
    return integers.shift(call.args[0], call.args[1], call.bind, call.text("direction", "LEFT") == "LEFT")


def batchnorm(call: Call) -> Expr:
    """Operands: x, then scale, bias, mean and variance of its channel."""
    x, scale, bias, mean, var = call.args
    return (x - mean) * (scale / tirx.sqrt(var + call.number("epsilon", 1e-5))) + bias
