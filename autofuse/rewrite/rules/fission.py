"""Composites taken apart, where their parts may fuse better with what stands around them."""

from __future__ import annotations

import math

import numpy as np

from autofuse.graph.model import Operator
from autofuse.rewrite.declare import pattern, rule
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.rules.normal import ones
from autofuse.rewrite.work import Array, Work

_F = Kind.FISSION
_NEVER, _ALWAYS = Default.NEVER, Default.ALWAYS


def _moments(maker: Maker, x: str, axes: tuple[int, ...]) -> tuple[str, str]:
    """(x - mean, variance) over some axes, which stay with length 1."""
    shape = maker.shape(x)
    small = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    over = maker.integers("axes", axes)
    centred = maker.op("Sub", x, maker.op("ReduceMean", x, over, shape=small))
    return centred, maker.op("ReduceMean", maker.op("Mul", centred, centred), over, shape=small)


def _normalised(maker: Maker, x: str, axes: tuple[int, ...], epsilon: float) -> str:
    centred, variance = _moments(maker, x, axes)
    return maker.op("Div", centred, maker.op("Sqrt", maker.op("Add", variance, maker.number(epsilon, x))))


def _rows_normalised(maker: Maker, x: str, epsilon: float) -> str:
    """What is [N, C, ...] less the mean of all behind its first two axes, over the deviation of that."""
    return maker.op("LayerNormalization", x, ones(maker, x), shape=maker.shape(x), axis=2, epsilon=epsilon)


def _epsilon(operator: Operator) -> float:
    epsilon = operator.attributes.get("epsilon", 1e-5)
    assert isinstance(epsilon, float)
    return epsilon


def _column(maker: Maker, name: str, rank: int) -> str:
    """A constant of one number a channel, shaped to broadcast over [N, C, ...]."""
    shape = (maker.shape(name)[0], *(1,) * (rank - 2))
    return maker.weight("column", [name, rank], shape, maker.dtype(name), lambda: maker.values(name))


@rule(_F, ("LayerNormalization",), default=_NEVER, guard="one result")
def layer_normalization_apart(work: Work, operator: Operator, maker: Maker) -> bool:
    """LayerNormalization(A, s, b) -> D / Sqrt(ReduceMean(D * D) + epsilon) * s + b with D = A - ReduceMean(A)"""
    if len(operator.outputs) != 1:
        return False
    x, scale, *bias = operator.inputs
    axis = operator.attributes["axis"]
    assert isinstance(axis, int)
    result = maker.op("Mul", _normalised(maker, x, tuple(range(axis, len(work.shape(x)))), _epsilon(operator)), scale)
    if bias and bias[0]:
        result = maker.op("Add", result, bias[0])
    maker.become(operator.outputs[0], result)
    return True


@rule(_F, ("InstanceNormalization",), default=_ALWAYS, guard="constant scale and bias")
def instance_normalization_apart(work: Work, operator: Operator, maker: Maker) -> bool:
    """InstanceNormalization(A, s, b) -> LayerNormalization(A, ones) * s + b: it has no kernel of its own"""
    x, scale, bias = operator.inputs
    if not work.is_constant(scale) or not work.is_constant(bias):
        return False
    rank = len(work.shape(x))
    result = _rows_normalised(maker, x, _epsilon(operator))
    result = maker.op("Mul", result, _column(maker, scale, rank))
    maker.become(operator.outputs[0], maker.op("Add", result, _column(maker, bias, rank)))
    return True


@rule(_F, ("GroupNormalization",), default=_ALWAYS, guard="constant scale and bias")
def group_normalization_apart(work: Work, operator: Operator, maker: Maker) -> bool:
    """GroupNormalization(A, s, b) -> Reshape(LayerNormalization(Reshape(A), ones)) * s + b"""
    x, scale, bias = operator.inputs
    groups, shape = operator.attributes["num_groups"], work.shape(x)
    assert isinstance(groups, int)
    if not work.is_constant(scale) or not work.is_constant(bias):
        return False
    grouped = (shape[0], groups, shape[1] // groups, *shape[2:])
    data = maker.op("Reshape", x, maker.integers("grouped", grouped), shape=grouped)
    result = _rows_normalised(maker, data, _epsilon(operator))
    result = maker.op("Reshape", result, maker.integers("shape", shape), shape=shape)
    for op_type, name in (("Mul", scale), ("Add", bias)):
        result = maker.op(op_type, result, _spread(maker, name, shape))
    maker.become(operator.outputs[0], result)
    return True


def _spread(maker: Maker, name: str, shape: tuple[int, ...]) -> str:
    """One number a channel from one number a channel, or (before opset 21) a group."""
    channels = shape[1]

    def made() -> Array:
        values: Array = np.asarray(maker.values(name))
        return np.repeat(values, channels // values.size)

    full = (channels, *(1,) * (len(shape) - 2))
    return maker.weight("spread", [name, full], full, maker.dtype(name), made)


@rule(_F, ("BatchNormalization",), default=_NEVER, guard="inference mode, constant parameters, nothing to fold it into")
def batchnorm_apart(work: Work, operator: Operator, maker: Maker) -> bool:
    """BatchNormalization(A, s, b, m, v) -> A * (s / Sqrt(v + epsilon)) + (b - m * s / Sqrt(v + epsilon))"""
    if operator.attributes.get("training_mode", 0) or not all(map(work.is_constant, operator.inputs[1:])):
        return False
    x, *names = operator.inputs
    if work.producer(x, "Conv", "ConvTranspose", "Gemm") is not None and work.private(x):
        return False
    epsilon, rank = _epsilon(operator), len(work.shape(x))
    shape = (*work.shape(names[0]), *(1,) * (rank - 2))

    def affine() -> tuple[Array, Array]:
        scale, bias, mean, variance = (np.asarray(maker.values(name)).astype(np.float64) for name in names)
        factor = scale / np.sqrt(variance + epsilon)
        return factor, bias - mean * factor

    dtype = maker.dtype(names[0])
    factor = maker.weight("factor", [epsilon, *names], shape, dtype, lambda: affine()[0])
    term = maker.weight("term", [epsilon, *names], shape, dtype, lambda: affine()[1])
    maker.become(operator.outputs[0], maker.op("Add", maker.op("Mul", x, factor), term))
    return True


@rule(_F, ("Softmax",), default=_NEVER)
def softmax_apart(work: Work, operator: Operator, maker: Maker) -> bool:
    """Softmax(A) -> Exp(A - ReduceMax(A)) / ReduceSum(Exp(A - ReduceMax(A)))"""
    x, axis = operator.inputs[0], operator.attributes["axis"]
    assert isinstance(axis, int)
    shape = work.shape(x)
    small = (*shape[:axis], 1, *shape[axis + 1 :])
    over = maker.integers("axes", (axis,))
    exp = maker.op("Exp", maker.op("Sub", x, maker.op("ReduceMax", x, over, shape=small)))
    maker.become(operator.outputs[0], maker.op("Div", exp, maker.op("ReduceSum", exp, over, shape=small)))
    return True


@rule(_F, ("Gelu",), default=_NEVER)
def gelu_apart(_: Work, operator: Operator, maker: Maker) -> bool:
    """Gelu(A) -> A * (Erf(A * 0.707107) + 1) * 0.5, or with Tanh where it is approximate"""
    x = operator.inputs[0]
    if operator.attributes.get("approximate", "none") == "tanh":
        cube = maker.op("Mul", maker.op("Mul", maker.op("Mul", x, x), x), maker.number(0.044715, x))
        inner = maker.op("Mul", maker.op("Add", x, cube), maker.number(math.sqrt(2 / math.pi), x))
        gate = maker.op("Tanh", inner)
    else:
        gate = maker.op("Erf", maker.op("Mul", x, maker.number(math.sqrt(0.5), x)))
    gate = maker.op("Add", gate, maker.number(1.0, x))
    maker.become(operator.outputs[0], maker.op("Mul", maker.op("Mul", x, gate), maker.number(0.5, x)))
    return True


@rule(_F, ("Gemm",), default=_NEVER, guard="no factors, A as it is; constant weights")
def gemm_apart(work: Work, operator: Operator, maker: Maker) -> bool:
    """Gemm(A, w, b) -> MatMul(A, w) + b"""
    if set(operator.attributes) - {"transB"} or not work.is_constant(operator.inputs[1]):
        return False
    x, weight, *bias = operator.inputs
    if operator.attributes.get("transB", 0):
        shape = work.shape(weight)[::-1]
        old = weight
        weight = maker.weight("turned", [old], shape, maker.dtype(old), lambda: np.asarray(maker.values(old)).T)
    result = maker.op("MatMul", x, weight)
    if bias and bias[0]:
        result = maker.op("Add", result, bias[0])
    maker.become(operator.outputs[0], result)
    return True


@rule(_F, ("GlobalAveragePool",), exact=True, default=_NEVER)
def global_pooling_apart(work: Work, operator: Operator, maker: Maker) -> bool:
    """GlobalAveragePool(A) -> ReduceMean(A) over space"""
    x, result = operator.inputs[0], operator.outputs[0]
    axes = maker.integers("axes", range(2, len(work.shape(x))))
    maker.become(result, maker.op("ReduceMean", x, axes, shape=work.shape(result)))
    return True


FISSIONS: tuple[Rule, ...] = (
    layer_normalization_apart, instance_normalization_apart, group_normalization_apart, batchnorm_apart,
    softmax_apart, gelu_apart, gemm_apart, global_pooling_apart,
    pattern("swish_apart", _F, "Swish(A) -> A * Sigmoid(A)", default=_NEVER),
    pattern("mish_apart", _F, "Mish(A) -> A * Tanh(Softplus(A))", default=_NEVER),
    pattern(
        "hard_swish_apart", _F, "HardSwish(A) -> A * HardSigmoid(A, alpha=0.16666666666666666, beta=0.5)",
        default=_NEVER,
    ),
    pattern("log_softmax_apart", _F, "LogSoftmax[r](A) -> Log(Softmax[r](A))", default=_NEVER),
    pattern("norm_apart", _F, "ReduceL2[r](A) -> Sqrt(ReduceSumSquare[r](A))", default=_NEVER),
)  # fmt: skip
