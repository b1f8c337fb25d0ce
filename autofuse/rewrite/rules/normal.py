"""Normalisations: recognised from their pieces, their scales and shifts taken in, and taken apart again."""

from __future__ import annotations

from math import prod

import numpy as np

from autofuse.graph.model import Operator
from autofuse.rewrite.declare import pattern, rule
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Array, Work

_K = Kind.COMPOSITE
MAX_EPSILON = 0.1
MOST_SPREAD = 4096
"""Numbers of a row up to which a scale of fewer numbers becomes one of each: a longer one is read instead of the row's
own numbers, and a few are in the registers already."""


def _trailing_mean(work: Work, tensor: str) -> tuple[str, int] | None:
    """(x, first axis) where a tensor is the mean of x over all axes from the first on, kept as axes of length 1."""
    mean = work.producer(tensor, "ReduceMean")
    if mean is None or len(mean.inputs) < 2 or not mean.attributes.get("keepdims", 1):
        return None
    rank = len(work.shape(mean.inputs[0]))
    axes = tuple(sorted(axis % rank for axis in work.integers(mean.inputs[1]) or ()))
    if not axes or axes != tuple(range(axes[0], rank)):
        return None
    return mean.inputs[0], axes[0]


def _square_of(work: Work, tensor: str) -> str | None:
    """x, where a tensor is x * x."""
    operator = work.producer(tensor, "Mul", "Pow")
    if operator is None:
        return None
    same = operator.op_type == "Mul" and operator.inputs[0] == operator.inputs[1]
    return operator.inputs[0] if same or (operator.op_type == "Pow" and work.scalar(operator.inputs[1]) == 2) else None


def _root_below(work: Work, operator: Operator) -> tuple[str, str, float] | None:
    """(d, v, epsilon) where the operator is d / Sqrt(v + epsilon), however it is written."""
    pairs = [operator.inputs] if operator.op_type == "Div" else [operator.inputs, operator.inputs[::-1]]
    for d, other in pairs:
        root = other
        if operator.op_type == "Mul":
            inverse = work.producer(other, "Reciprocal", "Pow", "Div")
            if inverse is None:
                continue
            if inverse.op_type == "Pow":
                found = _plus_epsilon(work, inverse.inputs[0]) if work.scalar(inverse.inputs[1]) == -0.5 else None
                if found is not None:
                    return d, *found
                continue
            if inverse.op_type == "Div" and work.scalar(inverse.inputs[0]) != 1.0:
                continue
            root = inverse.inputs[-1]
        power, sqrt = work.producer(root, "Pow"), work.producer(root, "Sqrt")
        below = sqrt.inputs[0] if sqrt is not None else None
        if power is not None and work.scalar(power.inputs[1]) == 0.5:
            below = power.inputs[0]
        found = None if below is None else _plus_epsilon(work, below)
        if found is not None:
            return d, *found
    return None


def _plus_epsilon(work: Work, tensor: str) -> tuple[str, float] | None:
    added = work.producer(tensor, "Add")
    if added is None:
        return None
    for v, other in (added.inputs, added.inputs[::-1]):
        epsilon = work.scalar(other)
        if epsilon is not None and 0 <= epsilon <= MAX_EPSILON:
            return v, epsilon
    return None


def ones(maker: Maker, like: str) -> str:
    """The scale of a normalisation that has none: a single one, for as many as a long row has would be read with it."""
    return maker.weight("ones", [], (1,), maker.dtype(like), lambda: np.ones(1))


@rule(_K, ("Div", "Mul"), guard="means over the last axes")
def layer_normalization(work: Work, operator: Operator, maker: Maker) -> bool:
    """D / Sqrt(ReduceMean(D * D) + epsilon), with D = A - ReduceMean(A) -> LayerNormalization(A, ones); c * D, too"""
    found = _root_below(work, operator) if work.is_float(operator.outputs[0]) else None
    spread = None if found is None else _trailing_mean(work, found[1])
    squared = None if spread is None else _square_of(work, spread[0])
    if found is None or spread is None or squared is None:
        return False
    centre, (above, factor) = _centred(work, squared), _scaled(work, found[0], squared)
    if centre is None or centre[1] != spread[1] or centre != _centred(work, above):
        return False
    x, axis = centre
    new = maker.op("LayerNormalization", x, ones(maker, x), shape=work.shape(x), axis=axis, epsilon=found[2])
    maker.become(operator.outputs[0], maker.op("Mul", factor, new) if factor else new)
    return True


def _scaled(work: Work, tensor: str, distance: str) -> tuple[str, str]:
    """(d, c) where a tensor is c * d, and d looks like a `distance` from a mean; (the tensor, "") for any other."""
    product = work.producer(tensor, "Mul")
    for d, factor in () if product is None else (product.inputs, product.inputs[::-1]):
        if d == distance or (_centred(work, d) is not None and _centred(work, d) == _centred(work, distance)):
            return d, factor
    return tensor, ""


def _centred(work: Work, tensor: str) -> tuple[str, int] | None:
    """(x, first axis) where a tensor is x - mean(x)."""
    minus = work.producer(tensor, "Sub")
    mean = None if minus is None else _trailing_mean(work, minus.inputs[1])
    return mean if minus is not None and mean is not None and mean[0] == minus.inputs[0] else None


@rule(_K, ("Div", "Mul"), guard="mean over the last axes, float32")
def rms_normalization(work: Work, operator: Operator, maker: Maker) -> bool:
    """A / Sqrt(ReduceMean(A * A) + epsilon) -> RMSNormalization(A, ones)"""
    found = _root_below(work, operator) if work.tensors[operator.outputs[0]].dtype == "float32" else None
    spread = None if found is None else _trailing_mean(work, found[1])
    if found is None or spread is None or _square_of(work, spread[0]) != found[0]:
        return False
    x, axis = found[0], spread[1]
    new = maker.op("RMSNormalization", x, ones(maker, x), shape=work.shape(x), axis=axis, epsilon=found[2])
    maker.become(operator.outputs[0], new)
    return True


def _parameter(work: Work, operator: Operator, norm_types: tuple[str, ...]) -> tuple[Operator, str] | None:
    """(normalisation, other operand) where one operand of `operator` is a private normalised tensor."""
    for x, other in (operator.inputs, operator.inputs[::-1]):
        norm = work.producer(x, *norm_types)
        if norm is None or not work.private(x) or not work.is_constant(other):
            continue
        shape = work.shape(norm.inputs[0])[_axis(norm) :]
        given = work.shape(other)
        while len(given) > len(shape) and given[0] == 1:
            given = given[1:]
        spread = prod(shape) > MOST_SPREAD and prod(given) < prod(shape)
        if len(given) <= len(shape) and np.broadcast_shapes(given, shape) == shape and not spread:
            return norm, other
    return None


def _axis(norm: Operator) -> int:
    axis = norm.attributes["axis"]
    assert isinstance(axis, int)
    return axis


@rule(_K, ("Mul",), guard="c varies along the normalised axes only")
def normalization_scale(work: Work, operator: Operator, maker: Maker) -> bool:
    """LayerNormalization(A, s) * c -> LayerNormalization(A, s * c); a bias is scaled too; also RMSNormalization"""
    found = _parameter(work, operator, ("LayerNormalization", "RMSNormalization"))
    if found is None:
        return False
    norm, factor = found
    shape = work.shape(norm.inputs[0])[_axis(norm) :]
    parameters = [_combined(maker, np.multiply, name, factor, shape) for name in norm.inputs[1:]]
    new = maker.op(norm.op_type, norm.inputs[0], *parameters, shape=work.shape(norm.inputs[0]), given=norm.attributes)
    maker.become(operator.outputs[0], new)
    return True


@rule(_K, ("Add",), guard="c varies along the normalised axes only")
def normalization_shift(work: Work, operator: Operator, maker: Maker) -> bool:
    """LayerNormalization(A, s) + c -> LayerNormalization(A, s, c), or with the biases added"""
    found = _parameter(work, operator, ("LayerNormalization",))
    if found is None:
        return False
    norm, shift = found
    x, scale, *bias = norm.inputs
    shape = work.shape(x)[_axis(norm) :]
    if bias:
        new = _combined(maker, np.add, bias[0], shift, shape)
    else:
        new = _combined(maker, np.add, maker.number(0.0, shift), shift, shape)
    result = maker.op("LayerNormalization", x, scale, new, shape=work.shape(x), given=norm.attributes)
    maker.become(operator.outputs[0], result)
    return True


def _combined(maker: Maker, how: np.ufunc, first: str, second: str, shape: tuple[int, ...]) -> str:
    """A new parameter of the normalised shape."""

    def computed() -> Array:
        flat = [np.asarray(maker.values(name)) for name in (first, second)]
        narrow = [array.reshape(array.shape[max(0, array.ndim - len(shape)) :]) for array in flat]
        made: Array = np.broadcast_to(how(*narrow), shape)
        return made

    return maker.weight(how.__name__, [how.__name__, first, second], shape, maker.dtype(second), computed)


ONE_PASS = pattern(
    "variance_in_one_pass",
    Kind.DISTRIBUTIVE,
    "ReduceMean[r](Square(A - ReduceMean[r](A))) -> ReduceMean[r](Square(A)) - Square(ReduceMean[r](A))",
    default=Default.NEVER,
)

NORMALIZATIONS: tuple[Rule, ...] = (
    layer_normalization, rms_normalization, normalization_scale, normalization_shift,
)  # fmt: skip
