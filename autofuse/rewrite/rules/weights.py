"""Constant factors and terms beside a convolution or matrix product become part of its weights.

All of these change rounding: the product of two roundings is not the rounding of the product. FLOPs fall by the size of
the tensor that is no longer scaled or shifted.
"""

from __future__ import annotations

import numpy as np

from autofuse.graph.model import Operator
from autofuse.rewrite.declare import rule
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.rule import Kind, Rule
from autofuse.rewrite.work import Array, Work

_W = Kind.WEIGHTS
_SCALES, _SHIFTS = ("Mul", "Div"), ("Add", "Sub")
_CHANNEL = "c is a number, or one a channel"
_MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Split", "Identity")


def _operand(work: Work, operator: Operator, *op_types: str) -> tuple[Operator, str, int] | None:
    """(producer, constant, place of the tensor): one operand is a private result of `op_types`, the other constant.

    Differences and quotients must have the constant last.
    """
    for place in (0, 1):
        x, other = operator.inputs[place], operator.inputs[1 - place]
        found = work.producer(x, *op_types)
        if found is None or found.outputs != (x,) or not work.private(x) or not work.is_constant(other):
            continue
        if (place == 0 or operator.op_type in ("Mul", "Add")) and work.is_float(x):
            return found, other, place
    return None


def _per_channel(work: Work, constant: str, rank: int, axis: int) -> bool:
    """Whether a constant varies along one axis (counted in a tensor of `rank` axes) at most."""
    shape = work.shape(constant)
    full = (1,) * (rank - len(shape)) + shape
    return len(full) == rank and all(size == 1 for place, size in enumerate(full) if place != axis)


def _vector(maker: Maker, operator: Operator, constant: str, size: int) -> Array:
    """The factor or term of each channel, in float64: what it is multiplied with, or what is added."""
    values = np.asarray(maker.values(constant), dtype=np.float64).reshape(-1)
    values = 1.0 / values if operator.op_type == "Div" else -values if operator.op_type == "Sub" else values
    return np.broadcast_to(values, (size,))


def _new(maker: Maker, label: str, sources: list[object], like: str, shape: tuple[int, ...], made: object) -> str:
    assert callable(made)
    return maker.weight(label, [label, *sources], shape, maker.dtype(like), made)


def _linear(work: Work, tensor: str) -> tuple[Operator, str] | None:
    """(MatMul with a constant matrix, its bias or "") that computes a private tensor."""
    added = work.producer(tensor, "Add")
    bias = ""
    if added is not None:
        found = _operand(work, added, "MatMul")
        if found is None or not _per_channel(work, found[1], len(work.shape(tensor)), len(work.shape(tensor)) - 1):
            return None
        product, bias = found[0], found[1]
    else:
        matmul = work.producer(tensor, "MatMul")
        if matmul is None:
            return None
        product = matmul
    weight = product.inputs[1]
    return (product, bias) if work.is_constant(weight) and len(work.shape(weight)) == 2 else None


@rule(_W, _SCALES, guard="c is a number, or one a column of w")
def matmul_scale(work: Work, operator: Operator, maker: Maker) -> bool:
    """(MatMul(A, w) + b) * c -> MatMul(A, w * c) + b * c; also without b, and with division"""
    found = _operand(work, operator, "MatMul", "Add")
    linear = None if found is None else _linear(work, found[0].outputs[0])
    result = operator.outputs[0]
    if found is None or linear is None or work.shape(result) != work.shape(found[0].outputs[0]):
        return False
    rank = len(work.shape(result))
    if not _per_channel(work, found[1], rank, rank - 1):
        return False
    maker.become(result, _scaled_linear(maker, operator, *linear, found[1]))
    return True


def _scaled_linear(maker: Maker, operator: Operator, product: Operator, bias: str, factor: str) -> str:
    """MatMul(A, w * c) + b * c; `operator` says whether c multiplies or divides."""
    data, weight = product.inputs
    columns = maker.shape(weight)[1]
    kind = operator.op_type

    def scaled(name: str) -> Array:
        return np.asarray(maker.values(name)).astype(np.float64) * _vector(maker, operator, factor, columns)

    new = _new(maker, "weight", [kind, weight, factor], weight, maker.shape(weight), lambda: scaled(weight))
    result = maker.op("MatMul", data, new)
    if bias:
        shape = (*maker.shape(bias)[:-1], columns)
        shifted = _new(maker, "bias", [kind, bias, factor], bias, shape, lambda: scaled(bias).reshape(shape))
        result = maker.op("Add", result, shifted)
    return result


@rule(_W, ("MatMul",), guard="c is a number, or one a row of w")
def matmul_of_scaled_columns(work: Work, operator: Operator, maker: Maker) -> bool:
    """MatMul(A * c, w) -> MatMul(A, c * w)"""
    scaled = work.producer(operator.inputs[0], *_SCALES)
    weight = operator.inputs[1]
    if scaled is None or not work.private(operator.inputs[0]) or not _matrix(work, weight):
        return False
    for place in (0, 1) if scaled.op_type == "Mul" else (0,):
        data, factor = scaled.inputs[place], scaled.inputs[1 - place]
        rank = len(work.shape(data))
        same = work.shape(data) == work.shape(operator.inputs[0])
        if not work.is_constant(factor) or not same or not _per_channel(work, factor, rank, rank - 1):
            continue
        rows = work.shape(weight)[0]

        def made(factor: str = factor, rows: int = rows) -> Array:
            return np.asarray(maker.values(weight)) * _vector(maker, scaled, factor, rows)[:, None]

        new = _new(maker, "weight", [scaled.op_type, weight, factor], weight, work.shape(weight), made)
        maker.become(operator.outputs[0], maker.op("MatMul", data, new, shape=work.shape(operator.outputs[0])))
        return True
    return False


def _matrix(work: Work, tensor: str) -> bool:
    return work.is_constant(tensor) and len(work.shape(tensor)) == 2 and work.is_float(tensor)


@rule(_W, ("MatMul",), guard="c is a number, or one a row of w")
def matmul_of_shifted_columns(work: Work, operator: Operator, maker: Maker) -> bool:
    """MatMul(A + c, w) -> MatMul(A, w) + MatMul(c, w)"""
    shifted = work.producer(operator.inputs[0], "Add")
    weight = operator.inputs[1]
    if shifted is None or not work.private(operator.inputs[0]) or not _matrix(work, weight):
        return False
    data, term = shifted.inputs
    rank = len(work.shape(data))
    same = work.shape(data) == work.shape(operator.inputs[0])
    if not work.is_constant(term) or not same or not _per_channel(work, term, rank, rank - 1):
        return False
    rows, columns = work.shape(weight)

    def made() -> Array:
        return _vector(maker, shifted, term, rows) @ np.asarray(maker.values(weight)).astype(np.float64)

    bias = _new(maker, "bias", [weight, term], weight, (columns,), made)
    product = maker.op("MatMul", data, weight, shape=work.shape(operator.outputs[0]))
    maker.become(operator.outputs[0], maker.op("Add", product, bias))
    return True


@rule(_W, _SCALES, guard="c is a number; A reaches the product through views and transposes alone")
def scale_into_query(work: Work, operator: Operator, maker: Maker) -> bool:
    """MatMul(heads(MatMul(A, w) + b), K) * c -> MatMul(heads(MatMul(A, w * c) + b * c), K)"""
    found = _operand(work, operator, "MatMul")
    if found is None or work.tensors[found[1]].elements != 1:
        return False
    scores = found[0]
    for place in (0, 1):
        moves, tensor = [], scores.inputs[place]
        while (move := work.producer(tensor, *_MOVES)) is not None and work.private(tensor) and len(move.outputs) == 1:
            moves.append(move)
            tensor = move.inputs[0]
        linear = _linear(work, tensor) if work.private(tensor) else None
        if linear is None:
            continue
        new = _scaled_linear(maker, operator, *linear, found[1])
        for move in reversed(moves):
            shape = work.shape(move.outputs[0])
            new = maker.op(move.op_type, new, *move.inputs[1:], shape=shape, given=move.attributes)
        operands = (new, scores.inputs[1]) if place == 0 else (scores.inputs[0], new)
        maker.become(operator.outputs[0], maker.op("MatMul", *operands, shape=work.shape(operator.outputs[0])))
        return True
    return False


@rule(_W, (*_SCALES, *_SHIFTS), guard="c is a number, or one a column of w")
def gemm_affine(work: Work, operator: Operator, maker: Maker) -> bool:
    """Gemm(A, w, b) * c -> Gemm(A, w * c, b * c), Gemm(A, w, b) + c -> Gemm(A, w, b + c)"""
    found = _operand(work, operator, "Gemm")
    if found is None or work.shape(operator.outputs[0]) != work.shape(found[0].outputs[0]):
        return False
    gemm, constant, _ = found
    weight, bias = gemm.inputs[1], gemm.inputs[2] if len(gemm.inputs) > 2 else ""
    columns = work.shape(operator.outputs[0])[1]
    if not _matrix(work, weight) or (bias and not work.is_constant(bias)) or not _per_channel(work, constant, 2, 1):
        return False
    beta, scales = float(gemm.attributes.get("beta", 1.0)), operator.op_type in _SCALES  # type: ignore[arg-type]
    side = -1 if not gemm.attributes.get("transB", 0) else 0

    def new_weight() -> Array:
        factor = _vector(maker, operator, constant, columns)
        return np.asarray(maker.values(weight)) * (factor if side else factor[:, None])

    def new_bias() -> Array:
        old = np.asarray(maker.values(bias)).astype(np.float64) * beta if bias else np.zeros(columns)
        vector = _vector(maker, operator, constant, columns)
        return old * vector if scales else old + vector

    kind, inputs = operator.op_type, [gemm.inputs[0], weight]
    if scales:
        inputs[1] = _new(maker, "weight", [kind, weight, constant], weight, work.shape(weight), new_weight)
    if bias or not scales:
        shape = np.broadcast_shapes(work.shape(bias) if bias else (), (columns,))
        inputs.append(_new(maker, "bias", [kind, bias, beta, constant], weight, shape, new_bias))
    attributes = {name: value for name, value in gemm.attributes.items() if name != "beta"}
    maker.become(
        operator.outputs[0], maker.op("Gemm", *inputs, shape=work.shape(operator.outputs[0]), given=attributes)
    )
    return True


@rule(_W, (*_SCALES, *_SHIFTS), guard=_CHANNEL)
def conv_affine(work: Work, operator: Operator, maker: Maker) -> bool:
    """Conv(A, w, b) * c -> Conv(A, w * c, b * c), Conv(A, w, b) + c -> Conv(A, w, b + c)"""
    found = _operand(work, operator, "Conv")
    if found is None or work.shape(operator.outputs[0]) != work.shape(found[0].outputs[0]):
        return False
    conv, constant, _ = found
    weight, bias = conv.inputs[1], conv.inputs[2] if len(conv.inputs) > 2 else ""
    if not work.is_constant(weight) or (bias and not work.is_constant(bias)):
        return False
    if not _per_channel(work, constant, len(work.shape(weight)), 1):
        return False
    channels, scales = work.shape(weight)[0], operator.op_type in _SCALES

    def new_weight() -> Array:
        array = np.asarray(maker.values(weight)).astype(np.float64)
        return array * _vector(maker, operator, constant, channels).reshape(-1, *(1,) * (array.ndim - 1))

    def new_bias() -> Array:
        old = np.asarray(maker.values(bias)).astype(np.float64) if bias else np.zeros(channels)
        vector = _vector(maker, operator, constant, channels)
        return old * vector if scales else old + vector

    kind, inputs = operator.op_type, [conv.inputs[0], weight]
    if scales:
        inputs[1] = _new(maker, "weight", [kind, weight, constant], weight, work.shape(weight), new_weight)
    if bias or not scales:
        inputs.append(_new(maker, "bias", [kind, bias, constant], weight, (channels,), new_bias))
    maker.become(
        operator.outputs[0], maker.op("Conv", *inputs, shape=work.shape(operator.outputs[0]), given=conv.attributes)
    )
    return True


@rule(_W, ("Conv",), guard=_CHANNEL)
def conv_of_scaled(work: Work, operator: Operator, maker: Maker) -> bool:
    """Conv(A * c, w, b) -> Conv(A, w * c, b)"""
    found = _before_conv(work, operator, _SCALES)
    if found is None:
        return False
    scaled, data, constant = found
    weight = operator.inputs[1]
    channels, group = work.shape(data)[1], _groups(operator)

    def made() -> Array:
        array = np.asarray(maker.values(weight)).astype(np.float64)
        return array * _by_group(_vector(maker, scaled, constant, channels), group, array.shape)

    new = _new(maker, "weight", [scaled.op_type, weight, constant], weight, work.shape(weight), made)
    inputs = (data, new, *operator.inputs[2:])
    maker.become(
        operator.outputs[0],
        maker.op("Conv", *inputs, shape=work.shape(operator.outputs[0]), given=operator.attributes),
    )
    return True


@rule(_W, ("Conv",), guard=f"{_CHANNEL}; no padding")
def conv_of_shifted(work: Work, operator: Operator, maker: Maker) -> bool:
    """Conv(A + c, w, b) -> Conv(A, w, b + sum of w * c)"""
    found = _before_conv(work, operator, _SHIFTS)
    pads = operator.attributes.get("pads", ())
    bias = operator.inputs[2] if len(operator.inputs) > 2 else ""
    if found is None or not isinstance(pads, tuple) or any(pads) or (bias and not work.is_constant(bias)):
        return False
    shifted, data, constant = found
    weight, channels = operator.inputs[1], work.shape(data)[1]

    def made() -> Array:
        array = np.asarray(maker.values(weight)).astype(np.float64)
        vector = _by_group(_vector(maker, shifted, constant, channels), _groups(operator), array.shape)
        added: Array = (array * vector).sum(axis=tuple(range(1, array.ndim)))
        return added + (np.asarray(maker.values(bias)) if bias else 0.0)

    new = _new(maker, "bias", [shifted.op_type, weight, constant, bias], weight, work.shape(weight)[:1], made)
    result = maker.op("Conv", data, weight, new, shape=work.shape(operator.outputs[0]), given=operator.attributes)
    maker.become(operator.outputs[0], result)
    return True


def _before_conv(work: Work, operator: Operator, kinds: tuple[str, ...]) -> tuple[Operator, str, str] | None:
    """(elementwise operator, its tensor, its constant of one number a channel) in front of a convolution."""
    before = work.producer(operator.inputs[0], *kinds)
    if before is None or not work.private(operator.inputs[0]) or not work.is_constant(operator.inputs[1]):
        return None
    data, constant = before.inputs
    if work.is_constant(data) and before.op_type in ("Mul", "Add"):
        data, constant = constant, data
    same = work.shape(data) == work.shape(operator.inputs[0])
    if not work.is_constant(constant) or not same or not _per_channel(work, constant, len(work.shape(data)), 1):
        return None
    return before, data, constant


def _groups(operator: Operator) -> int:
    group = operator.attributes.get("group", 1)
    assert isinstance(group, int)
    return group


def _by_group(vector: Array, group: int, shape: tuple[int, ...]) -> Array:
    """One number an input channel, laid out as the weights are: [out, in of the group, 1, ...]."""
    rows: Array = np.repeat(vector.reshape(group, -1), shape[0] // group, axis=0)
    return rows.reshape(*rows.shape, *(1,) * (len(shape) - 2))


@rule(_W, (*_SCALES, *_SHIFTS), guard=f"inference mode, {_CHANNEL}")
def batchnorm_affine(work: Work, operator: Operator, maker: Maker) -> bool:
    """BatchNormalization(A) * c -> BatchNormalization'(A), BatchNormalization(A) + c -> BatchNormalization'(A)"""
    found = _operand(work, operator, "BatchNormalization")
    if found is None or work.shape(operator.outputs[0]) != work.shape(found[0].outputs[0]):
        return False
    norm, constant, _ = found
    rank = len(work.shape(norm.inputs[0]))
    known = all(map(work.is_constant, norm.inputs[1:]))
    if norm.attributes.get("training_mode", 0) or not known or not _per_channel(work, constant, rank, 1):
        return False
    scale, bias = norm.inputs[1:3]
    channels, scales = work.shape(scale)[0], operator.op_type in _SCALES

    def changed(name: str) -> Array:
        vector = _vector(maker, operator, constant, channels)
        old = np.asarray(maker.values(name)).astype(np.float64)
        return old * vector if scales else old + vector

    kind = operator.op_type
    new_bias = _new(maker, "bias", [kind, bias, constant], bias, (channels,), lambda: changed(bias))
    if scales:
        scale = _new(maker, "scale", [kind, scale, constant], scale, (channels,), lambda: changed(norm.inputs[1]))
    inputs = (norm.inputs[0], scale, new_bias, *norm.inputs[3:])
    maker.become(
        operator.outputs[0],
        maker.op("BatchNormalization", *inputs, shape=work.shape(operator.outputs[0]), given=norm.attributes),
    )
    return True


@rule(_W, ("Conv", "AveragePool"), exact=True, guard="the Pad adds zeros, in space alone; a pool must count them")
def pad_into_window(work: Work, operator: Operator, maker: Maker) -> bool:
    """Conv(Pad(A)) -> Conv(A) with its own padding; AveragePool(Pad(A)) -> AveragePool(A) that counts the padding"""
    pad = work.producer(operator.inputs[0], "Pad")
    if pad is None or pad.attributes.get("mode", "constant") != "constant" or len(pad.inputs) > 3:
        return False
    if len(pad.inputs) > 2 and pad.inputs[2] and work.scalar(pad.inputs[2]) != 0:
        return False
    added, own = work.integers(pad.inputs[1]), operator.attributes.get("pads", ())
    rank = len(work.shape(operator.inputs[0]))
    if added is None or not isinstance(own, tuple) or min(added) < 0 or len(added) != 2 * rank:
        return False
    if any(added[:2]) or any(added[rank : rank + 2]):
        return False
    space = (*added[2:rank], *added[rank + 2 :])
    attributes = dict(operator.attributes)
    if operator.op_type == "AveragePool":
        if any(own) or attributes.get("ceil_mode", 0):
            return False
        attributes["count_include_pad"] = 1
    padded = [int(size) for size in own] or [0] * len(space)
    attributes["pads"] = tuple(a + b for a, b in zip(padded, space, strict=True))
    inputs = (pad.inputs[0], *operator.inputs[1:])
    maker.become(
        operator.outputs[0],
        maker.op(operator.op_type, *inputs, shape=work.shape(operator.outputs[0]), given=attributes),
    )
    return True


WEIGHTS: tuple[Rule, ...] = (
    matmul_scale, matmul_of_scaled_columns, matmul_of_shifted_columns, scale_into_query, gemm_affine, conv_affine,
    conv_of_scaled, conv_of_shifted, batchnorm_affine, pad_into_window,
)  # fmt: skip
