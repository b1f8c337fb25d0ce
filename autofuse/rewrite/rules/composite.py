"""Operators that an exporter wrote out in pieces, recognised as one: activations, softmax, reductions.

A product is looked at as a whole (`product_of`), so that the order in which an exporter multiplied does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.graph.model import Operator
from autofuse.rewrite.chain import chain, is_chain_end
from autofuse.rewrite.declare import pattern, rule
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Work

_K = Kind.COMPOSITE
_ALWAYS = Default.ALWAYS
_NEAR = 1e-5
"""Relative difference up to which a constant is the one of a formula: exporters round them in several ways."""


def near(value: float | None, wanted: float, tolerance: float = _NEAR) -> bool:
    """Whether a constant is the number that a formula has there."""
    return value is not None and abs(value - wanted) <= tolerance * abs(wanted)


@dataclass(frozen=True)
class Product:
    """A product, `number` * all of `factors`: tensors that are no numbers; a quotient by a number is a factor too."""

    number: float
    factors: tuple[str, ...]


def product_of(work: Work, tensor: str) -> Product:
    """A tensor as a product; it is its own factor when nothing multiplies there."""
    operator = work.producer(tensor, "Mul", "Div")
    if operator is None:
        return Product(1.0, (tensor,))
    if operator.op_type == "Div":
        number = work.scalar(operator.inputs[1])
        if number is None or not number:
            return Product(1.0, (tensor,))
        inner = (
            product_of(work, operator.inputs[0])
            if work.private(operator.inputs[0])
            else Product(1.0, operator.inputs[:1])
        )
        return Product(inner.number / number, inner.factors)
    number = 1.0
    factors: list[str] = []
    for part in chain(work, operator):
        value = work.scalar(part)
        if value is not None:
            number *= value
        elif work.private(part) and work.producer(part, "Div", "Mul"):
            inner = product_of(work, part)
            number, factors = number * inner.number, [*factors, *inner.factors]
        else:
            factors.append(part)
    return Product(number, tuple(factors))


def sum_with(work: Work, tensor: str, number: float) -> str | None:
    """x, where the tensor is x + `number`."""
    operator = work.producer(tensor, "Add")
    if operator is None:
        return None
    for first, second in (operator.inputs, operator.inputs[::-1]):
        if near(work.scalar(second), number):
            return first
    return None


def _whole(work: Work, operator: Operator, count: int) -> Product | None:
    """The product that ends here, if it has `count` factors that are no numbers."""
    if not work.is_float(operator.outputs[0]) or not is_chain_end(work, operator):
        return None
    users = work.users(operator.outputs[0])
    if work.private(operator.outputs[0]) and users[0].op_type == "Div" and work.scalar(users[0].inputs[1]) is not None:
        return None
    found = product_of(work, operator.outputs[0])
    return found if len(found.factors) == count else None


def _becomes(work: Work, operator: Operator, maker: Maker, op_type: str, x: str, **attributes: float | str) -> bool:
    if work.shape(x) != work.shape(operator.outputs[0]):
        return False
    maker.become(operator.outputs[0], maker.op(op_type, x, given=attributes))
    return True


@rule(_K, ("Mul", "Div"))
def gelu(work: Work, operator: Operator, maker: Maker) -> bool:
    """A * (1 + Erf(A / 1.41421)) * 0.5 -> Gelu(A), in any order of the factors"""
    product = _whole(work, operator, 2)
    if product is None or not near(product.number, 0.5):
        return False
    for x, other in (product.factors, product.factors[::-1]):
        erf = work.producer(sum_with(work, other, 1.0) or "", "Erf")
        inner = None if erf is None else product_of(work, erf.inputs[0])
        if inner is not None and inner.factors == (x,) and near(inner.number, math.sqrt(0.5)):
            return _becomes(work, operator, maker, "Gelu", x)
    return False


@rule(_K, ("Mul", "Div"))
def gelu_tanh(work: Work, operator: Operator, maker: Maker) -> bool:
    """A * (1 + Tanh(0.797885 * (A + 0.044715 * A ** 3))) * 0.5 -> Gelu(A, approximate='tanh'), in any order"""
    product = _whole(work, operator, 2)
    if product is None or not near(product.number, 0.5):
        return False
    for x, other in (product.factors, product.factors[::-1]):
        tanh = work.producer(sum_with(work, other, 1.0) or "", "Tanh")
        if tanh is not None and _is_cubic(work, tanh.inputs[0], x):
            return _becomes(work, operator, maker, "Gelu", x, approximate="tanh")
    return False


def _is_cubic(work: Work, tensor: str, x: str) -> bool:
    """Whether a tensor is sqrt(2 / pi) * (x + 0.044715 x^3), or sqrt(2 / pi) * x * (1 + 0.044715 x^2)."""
    outer = product_of(work, tensor)
    if not near(outer.number, math.sqrt(2.0 / math.pi)):
        return False
    if len(outer.factors) == 2 and x in outer.factors:
        (rest,) = (f for f in outer.factors if f != x) if outer.factors.count(x) == 1 else ("",)
        square = product_of(work, sum_with(work, rest, 1.0) or "")
        return near(square.number, 0.044715) and _power(work, square, x) == 2
    added = work.producer(outer.factors[0], "Add") if len(outer.factors) == 1 else None
    if added is None or x not in added.inputs:
        return False
    cube = product_of(work, added.inputs[1] if added.inputs[0] == x else added.inputs[0])
    return near(cube.number, 0.044715) and _power(work, cube, x) == 3


def _power(work: Work, product: Product, x: str) -> int:
    """n, where a product without its number is x^n; 0 for others."""
    total = 0
    for factor in product.factors:
        power, times = work.producer(factor, "Pow"), work.producer(factor, "Mul")
        if factor == x:
            total += 1
        elif power is not None and power.inputs[0] == x and work.scalar(power.inputs[1]) in (2.0, 3.0):
            total += int(work.scalar(power.inputs[1]) or 0)
        elif times is not None and set(chain(work, times)) == {x}:
            total += len(chain(work, times))
        else:
            return 0
    return total


@rule(_K, ("Mul", "Div"))
def hard_swish(work: Work, operator: Operator, maker: Maker) -> bool:
    """A * Clip(A + 3, 0, 6) / 6 -> HardSwish(A), also with HardSigmoid"""
    product = _whole(work, operator, 2)
    if product is None:
        return False
    for x, other in (product.factors, product.factors[::-1]):
        clipped, gate = _clipped(work, other), work.producer(other, "HardSigmoid")
        ramp = clipped is not None and near(product.number, 1 / 6) and sum_with(work, clipped, 3.0) == x
        known = gate is not None and gate.inputs[0] == x and near(product.number, 1.0) and _is_sixth(gate)
        if ramp or known:
            return _becomes(work, operator, maker, "HardSwish", x)
    return False


def _is_sixth(gate: Operator) -> bool:
    alpha, beta = gate.attributes.get("alpha", 0.2), gate.attributes.get("beta", 0.5)
    return isinstance(alpha, float) and near(alpha, 1 / 6) and beta == 0.5


def _clipped(work: Work, tensor: str) -> str | None:
    """x, where the tensor is Clip(x, 0, 6)."""
    clip = work.producer(tensor, "Clip")
    if clip is None or len(clip.inputs) != 3 or not (clip.inputs[1] and clip.inputs[2]):
        return None
    return clip.inputs[0] if work.scalar(clip.inputs[1]) == 0 and work.scalar(clip.inputs[2]) == 6 else None


@rule(_K, ("Mul", "Div"))
def hard_sigmoid(work: Work, operator: Operator, maker: Maker) -> bool:
    """Clip(A + 3, 0, 6) / 6 -> HardSigmoid(A, alpha=1/6, beta=0.5)"""
    product = _whole(work, operator, 1)
    clipped = None if product is None or not near(product.number, 1 / 6) else _clipped(work, product.factors[0])
    x = None if clipped is None else sum_with(work, clipped, 3.0)
    return x is not None and _becomes(work, operator, maker, "HardSigmoid", x, alpha=1 / 6, beta=0.5)


@rule(_K, ("Max", "Mul"), guard="0 < c < 1 is a number")
def leaky_relu(work: Work, operator: Operator, maker: Maker) -> bool:
    """Max(A, A * c) -> LeakyRelu(A, alpha=c)"""
    if operator.op_type != "Max" or len(operator.inputs) != 2:
        return False
    for x, other in (operator.inputs, operator.inputs[::-1]):
        product = product_of(work, other)
        if product.factors == (x,) and 0 < product.number < 1:
            return _becomes(work, operator, maker, "LeakyRelu", x, alpha=product.number)
    return False


@rule(_K, ("Mul",), guard="c is a number")
def swish_scaled(work: Work, operator: Operator, maker: Maker) -> bool:
    """A * Sigmoid(A * c) -> Swish(A, alpha=c)"""
    product = _whole(work, operator, 2)
    if product is None or product.number != 1.0:
        return False
    for x, other in (product.factors, product.factors[::-1]):
        gate = work.producer(other, "Sigmoid")
        inner = None if gate is None else product_of(work, gate.inputs[0])
        if inner is not None and inner.factors == (x,) and inner.number != 1.0:
            return _becomes(work, operator, maker, "Swish", x, alpha=inner.number)
    return False


@rule(_K, ("Div", "Mul"), guard="n is the number of elements that are summed")
def mean_from_sum(work: Work, operator: Operator, maker: Maker) -> bool:
    """ReduceSum[r](A) / n -> ReduceMean[r](A)"""
    product = product_of(work, operator.outputs[0])
    added = work.producer(product.factors[0], "ReduceSum") if len(product.factors) == 1 else None
    if added is None or not work.is_float(operator.outputs[0]):
        return False
    count = work.tensors[added.inputs[0]].elements / work.tensors[added.outputs[0]].elements
    if not near(product.number, 1.0 / count) or work.shape(added.outputs[0]) != work.shape(operator.outputs[0]):
        return False
    new = maker.op("ReduceMean", *added.inputs, shape=work.shape(operator.outputs[0]), given=added.attributes)
    maker.become(operator.outputs[0], new)
    return True


@rule(_K, ("ReduceMean", "ReduceMax"), exact=True, default=_ALWAYS, guard="all axes but the first two, which stay")
def global_pooling(work: Work, operator: Operator, maker: Maker) -> bool:
    """ReduceMean(A) -> GlobalAveragePool(A), ReduceMax(A) -> GlobalMaxPool(A)"""
    shape = work.shape(operator.inputs[0])
    axes = work.integers(operator.inputs[1]) if len(operator.inputs) > 1 else None
    if len(shape) < 4 or axes != tuple(range(2, len(shape))) or not operator.attributes.get("keepdims", 1):
        return False
    kind = "GlobalAveragePool" if operator.op_type == "ReduceMean" else "GlobalMaxPool"
    maker.become(operator.outputs[0], maker.op(kind, operator.inputs[0], shape=work.shape(operator.outputs[0])))
    return True


@rule(_K, ("Div",))
def softmax(work: Work, operator: Operator, maker: Maker) -> bool:
    """Exp(A - ReduceMax(A)) / ReduceSum(Exp(A - ReduceMax(A))) -> Softmax(A); also without the maximum"""
    exp, total = work.producer(operator.inputs[0], "Exp"), work.producer(operator.inputs[1], "ReduceSum")
    if exp is None or total is None or total.inputs[0] != exp.outputs[0]:
        return False
    return _normalised(work, operator, maker, "Softmax", exp.inputs[0], total)


@rule(_K, ("Sub",))
def log_softmax(work: Work, operator: Operator, maker: Maker) -> bool:
    """(A - ReduceMax(A)) - Log(ReduceSum(Exp(A - ReduceMax(A)))) -> LogSoftmax(A); also without the maximum"""
    x, log = operator.inputs[0], work.producer(operator.inputs[1], "Log")
    total = None if log is None else work.producer(log.inputs[0], "ReduceSum")
    exp = None if total is None else work.producer(total.inputs[0], "Exp")
    if total is None or exp is None or exp.inputs[0] != x:
        return False
    return _normalised(work, operator, maker, "LogSoftmax", x, total)


def _normalised(work: Work, operator: Operator, maker: Maker, kind: str, x: str, total: Operator) -> bool:
    """Softmax or its logarithm over the axis of `total`, of what `x` was before its maximum was taken away."""
    axes = _kept_axes(work, total)
    if axes is None or len(axes) != 1:
        return False
    shifted = work.producer(x, "Sub")
    peak = None if shifted is None else work.producer(shifted.inputs[1], "ReduceMax")
    if shifted is not None and peak is not None and peak.inputs[0] == shifted.inputs[0]:
        x = shifted.inputs[0] if _kept_axes(work, peak) == axes else x
    axis = axes[0] % len(work.shape(x))
    maker.become(operator.outputs[0], maker.op(kind, x, shape=work.shape(operator.outputs[0]), axis=axis))
    return True


def _kept_axes(work: Work, reduction: Operator) -> tuple[int, ...] | None:
    """Axes of a reduction that keeps them as axes of length 1; None for another."""
    kept = len(reduction.inputs) > 1 and reduction.attributes.get("keepdims", 1)
    return work.integers(reduction.inputs[1]) if kept else None


COMPOSITES: tuple[Rule, ...] = (
    gelu, gelu_tanh, hard_swish, hard_sigmoid, leaky_relu, swish_scaled, mean_from_sum, global_pooling, softmax,
    log_softmax,
    pattern("log_of_softmax", _K, "Log(Softmax[r](A)) -> LogSoftmax[r](A)"),
    pattern("swish", _K, "A * Sigmoid(A) -> Swish(A)"),
    pattern("mish", _K, "A * Tanh(Softplus(A)) -> Mish(A)"),
    pattern("softplus", _K, "Log(Exp(A) + 1) -> Softplus(A)"),
    pattern("sigmoid", _K, "1 / (1 + Exp(-A)) -> Sigmoid(A)"),
    pattern("sigmoid_by_reciprocal", _K, "Reciprocal(1 + Exp(-A)) -> Sigmoid(A)"),
    pattern("softsign", _K, "A / (Abs(A) + 1) -> Softsign(A)"),
    pattern("tanh", _K, "(Exp(A) - Exp(-A)) / (Exp(A) + Exp(-A)) -> Tanh(A)"),
    pattern("magnitude", _K, "Max(A, -A) -> Abs(A)", exact=True),
    pattern("prelu", _K, "Relu(A) - c * Relu(-A) -> PRelu(A, c)", exact=True),
    pattern("norm", _K, "Sqrt(ReduceSum[r](Square(A))) -> ReduceL2[r](A)"),
    pattern("norm_from_squares", _K, "Sqrt(ReduceSumSquare[r](A)) -> ReduceL2[r](A)"),
    pattern("sum_of_squares", _K, "ReduceSum[r](Square(A)) -> ReduceSumSquare[r](A)"),
    pattern("sum_of_magnitudes", _K, "ReduceSum[r](Abs(A)) -> ReduceL1[r](A)"),
    pattern("elu", _K, "Relu(A) + Min(Exp(A) - 1, 0) -> Elu(A)"),
)  # fmt: skip
