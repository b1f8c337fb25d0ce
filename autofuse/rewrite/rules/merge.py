"""Siblings that read one tensor become one larger operator, and its result is split."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autofuse.graph.model import Operator
from autofuse.rewrite.declare import rule
from autofuse.rewrite.maker import Maker, Refused
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Array, Work

_M = Kind.MERGE
MAX_SIBLINGS = 8


@dataclass(frozen=True)
class _Sibling:
    """A sibling that merges. `result`: what it computes in the end, after the constant `bias` ("" for none) is
    added."""

    operator: Operator
    bias: str
    result: str
    columns: int


def _joined(maker: Maker, names: list[str], label: str, axis: int, shape: tuple[int, ...], fill: int = 0) -> str:
    """Constants side by side; "" stands for `fill` zeros."""

    def made() -> Array:
        arrays = [np.asarray(maker.values(name)) if name else np.zeros(fill) for name in names]
        return np.concatenate(arrays, axis=axis)

    like = next(name for name in names if name)
    return maker.weight(label, [label, axis, *names], shape, maker.dtype(like), made)


def _parts(maker: Maker, merged: str, siblings: list[_Sibling], axis: int) -> None:
    sizes = [sibling.columns for sibling in siblings]
    shapes = [maker.work.shape(sibling.result) for sibling in siblings]
    parts = maker.split("Split", (merged, maker.integers("sizes", sizes)), shapes, attributes={"axis": axis})
    for sibling, part in zip(siblings, parts, strict=True):
        maker.become(sibling.result, part)


@rule(
    _M,
    ("MatMul",),
    guard="constant matrices with as many rows; a bias, where there is one, is constant",
    default=Default.SMALL,
)
def matmuls_merged(work: Work, operator: Operator, maker: Maker) -> bool:
    """MatMul(A, v) + b, MatMul(A, w) + c -> Split(MatMul(A, [v w]) + [b c]): query, key and value of attention"""
    data = operator.inputs[0]
    rank = len(work.shape(data))
    found = [_linear(work, user, data) for user in work.siblings(data) if user.op_type == "MatMul"]
    siblings = [sibling for sibling in found if sibling is not None]
    own = next((sibling for sibling in siblings if sibling.operator is operator), None)
    if own is None or rank < 2:
        return False
    siblings = siblings[:MAX_SIBLINGS]
    if len(siblings) < 2 or siblings[0] is not own:
        return False
    rows, total = work.shape(data)[-1], sum(sibling.columns for sibling in siblings)
    weights = [sibling.operator.inputs[1] for sibling in siblings]
    merged = maker.op("MatMul", data, _joined(maker, weights, "weight", 1, (rows, total)))
    if any(sibling.bias for sibling in siblings):
        merged = maker.op("Add", merged, _flat_bias(maker, siblings, total))
    _parts(maker, merged, siblings, rank - 1)
    return True


def _flat_bias(maker: Maker, siblings: list[_Sibling], total: int) -> str:
    names = [sibling.bias for sibling in siblings]

    def made() -> Array:
        given = [np.asarray(maker.values(s.bias)).reshape(-1) if s.bias else np.zeros(1) for s in siblings]
        rows = [np.broadcast_to(row, (s.columns,)) for row, s in zip(given, siblings, strict=True)]
        return np.concatenate(rows)

    return maker.weight("bias", ["bias", *names], (total,), maker.dtype(siblings[0].operator.inputs[1]), made)


def _linear(work: Work, product: Operator, data: str) -> _Sibling | None:
    """A matrix product of `data` with a constant matrix, with the bias that is added to it; None for others."""
    weight, result = product.inputs[1], product.outputs[0]
    if product.inputs[0] != data or not work.is_constant(weight) or len(work.shape(weight)) != 2:
        return None
    columns = work.shape(weight)[1]
    added = work.users(result)[0] if work.private(result) else None
    if added is None or added.op_type != "Add" or result in work.outputs:
        return None if result in work.outputs else _Sibling(product, "", result, columns)
    bias = next((name for name in added.inputs if name != result), "")
    if not bias or not work.is_constant(bias):
        return _Sibling(product, "", result, columns)
    shape = work.shape(bias)
    if math.prod(shape) not in (1, columns) or math.prod(shape[-1:]) != math.prod(shape):
        return _Sibling(product, "", result, columns)
    return _Sibling(product, bias, added.outputs[0], columns)


@rule(
    _M,
    ("Gemm",),
    guard="constant weights; no factors alpha, beta or transposed A; each bias is a constant vector",
    default=Default.SMALL,
)
def gemms_merged(work: Work, operator: Operator, maker: Maker) -> bool:
    """Gemm(A, v, b), Gemm(A, w, c) -> Split(Gemm(A, [v w], [b c]))"""
    data = operator.inputs[0]
    siblings = [
        _Sibling(op, op.inputs[2] if len(op.inputs) > 2 else "", op.outputs[0], work.shape(op.outputs[0])[1])
        for op in work.siblings(data)
        if _plain_gemm(work, op, operator)
    ][:MAX_SIBLINGS]
    if len(siblings) < 2 or siblings[0].operator is not operator:
        return False
    turned = bool(operator.attributes.get("transB", 0))
    rows, total = work.shape(data)[1], sum(sibling.columns for sibling in siblings)
    weights = [sibling.operator.inputs[1] for sibling in siblings]
    shape = (total, rows) if turned else (rows, total)
    inputs = [data, _joined(maker, weights, "weight", 0 if turned else 1, shape)]
    if siblings[0].bias:
        inputs.append(_flat_bias(maker, siblings, total))
    merged = maker.op("Gemm", *inputs, shape=(work.shape(data)[0], total), given=operator.attributes)
    _parts(maker, merged, siblings, 1)
    return True


def _plain_gemm(work: Work, candidate: Operator, first: Operator) -> bool:
    """Whether a Gemm can be merged with another one that reads the same tensor."""
    if candidate.op_type != "Gemm" or candidate.inputs[0] != first.inputs[0] or candidate.outputs[0] in work.outputs:
        return False
    if set(candidate.attributes) - {"transB"} or dict(candidate.attributes) != dict(first.attributes):
        return False
    if not all(map(work.is_constant, candidate.inputs[1:])) or len(candidate.inputs) != len(first.inputs):
        return False
    columns = work.shape(candidate.outputs[0])[1]
    return len(candidate.inputs) < 3 or work.tensors[candidate.inputs[2]].elements in (1, columns)


def _conv_key(work: Work, conv: Operator) -> tuple[object, ...]:
    shape = work.shape(conv.inputs[1])
    return conv.inputs[0], shape[1:], len(conv.inputs), tuple(sorted(conv.attributes.items(), key=str))


def _mergeable_convs(work: Work, operator: Operator) -> list[Operator]:
    """Convolutions of one tensor with the same window, constant weights and no groups."""
    if operator.attributes.get("group", 1) != 1:
        return []
    users = [user for user in work.siblings(operator.inputs[0]) if user.op_type == "Conv"]
    return [
        user
        for user in users
        if _conv_key(work, user) == _conv_key(work, operator) and all(map(work.is_constant, user.inputs[1:]))
    ][:MAX_SIBLINGS]


def _merged_conv(maker: Maker, convs: list[Operator], total: int, shape: tuple[int, ...]) -> str:
    weight = maker.work.shape(convs[0].inputs[1])
    inputs = [convs[0].inputs[0], _joined(maker, [c.inputs[1] for c in convs], "weight", 0, (total, *weight[1:]))]
    if len(convs[0].inputs) > 2:
        inputs.append(_joined(maker, [c.inputs[2] for c in convs], "bias", 0, (total,)))
    return maker.op("Conv", *inputs, shape=shape, given=convs[0].attributes)


@rule(_M, ("Conv",), exact=True, guard="the same window, constant weights, no groups", default=Default.NEVER)
def convs_merged(work: Work, operator: Operator, maker: Maker) -> bool:
    """Conv(A, v), Conv(A, w) -> Split(Conv(A, [v; w])): the branches of an inception or fire module"""
    convs = _mergeable_convs(work, operator)
    if len(convs) < 2 or convs[0] is not operator or any(conv.outputs[0] in work.outputs for conv in convs):
        return False
    siblings = [_Sibling(conv, "", conv.outputs[0], work.shape(conv.inputs[1])[0]) for conv in convs]
    total = sum(sibling.columns for sibling in siblings)
    batch, _, *space = work.shape(operator.outputs[0])
    _parts(maker, _merged_conv(maker, convs, total, (batch, total, *space)), siblings, 1)
    return True


@rule(
    _M,
    ("Concat",),
    exact=True,
    guard="the same window, constant weights, no groups; all of the Concat's inputs",
    default=Default.ALWAYS,
)
def concat_of_convs(work: Work, operator: Operator, maker: Maker) -> bool:
    """Concat(Conv(A, v), Conv(A, w)) -> Conv(A, [v; w]), along the channels"""
    convs = [work.producer(name, "Conv") for name in operator.inputs]
    if len(convs) < 2 or operator.attributes["axis"] != 1 or not all(map(work.private, operator.inputs)):
        return False
    found = [conv for conv in convs if conv is not None]
    if len(found) < len(convs) or len(set(operator.inputs)) < len(convs):
        return False
    if {conv.name for conv in _mergeable_convs(work, found[0])} < {conv.name for conv in found}:
        return False
    if any(_conv_key(work, conv) != _conv_key(work, found[0]) for conv in found):
        return False
    shape = work.shape(operator.outputs[0])
    maker.become(operator.outputs[0], _merged_conv(maker, found, shape[1], shape))
    return True


@rule(
    _M,
    ("Add",),
    guard="the same tensor, strides, dilations and groups; windows with the same centre",
    default=Default.ALWAYS,
)
def convs_added(work: Work, operator: Operator, maker: Maker) -> bool:
    """Conv(A, v, b) + Conv(A, w, c) -> Conv(A, v + w, b + c); the smaller window is padded with zeros"""
    convs = [work.producer(name, "Conv") for name in operator.inputs]
    first, second = convs
    if first is None or second is None or first is second or first.inputs[0] != second.inputs[0]:
        return False
    if not all(map(work.private, operator.inputs)) or not all(
        map(work.is_constant, (*first.inputs[1:], *second.inputs[1:]))
    ):
        return False
    shapes = [work.shape(conv.inputs[1]) for conv in (first, second)]
    if math.prod(shapes[0]) < math.prod(shapes[1]):
        first, second, shapes = second, first, shapes[::-1]
    margins = _margins(first, second, shapes[0], shapes[1])
    weights = [conv.inputs[1] for conv in (first, second)]
    biases = [conv.inputs[2] for conv in (first, second) if len(conv.inputs) > 2]

    def weight() -> Array:
        wide, narrow = (np.asarray(maker.values(name)).astype(np.float64) for name in weights)
        total: Array = wide + np.pad(narrow, [(0, 0), (0, 0), *margins])
        return total

    inputs = [first.inputs[0], maker.weight("weight", ["added", *weights], shapes[0], maker.dtype(weights[0]), weight)]
    if biases:

        def bias() -> Array:
            total: Array = np.sum([np.asarray(maker.values(name)).astype(np.float64) for name in biases], axis=0)
            return total

        inputs.append(maker.weight("bias", ["added", *biases], shapes[0][:1], maker.dtype(weights[0]), bias))
    maker.become(
        operator.outputs[0], maker.op("Conv", *inputs, shape=work.shape(operator.outputs[0]), given=first.attributes)
    )
    return True


def _margins(
    wide: Operator, narrow: Operator, wide_shape: tuple[int, ...], narrow_shape: tuple[int, ...]
) -> list[tuple[int, int]]:
    """Zeros around the smaller window, before and after on each axis; Refused when its centre lies elsewhere."""
    rank = len(wide_shape) - 2
    ones = (1,) * rank
    for name in ("strides", "dilations", "group"):
        default = 1 if name == "group" else ones
        if wide.attributes.get(name, default) != narrow.attributes.get(name, default):
            raise Refused
    if wide.attributes.get("dilations", ones) != ones or wide_shape[:2] != narrow_shape[:2]:
        raise Refused
    pads = [conv.attributes.get("pads", (0,) * 2 * rank) for conv in (wide, narrow)]
    margins = []
    for axis in range(rank):
        before = int(pads[0][axis]) - int(pads[1][axis])  # type: ignore[index]
        after = wide_shape[2 + axis] - narrow_shape[2 + axis] - before
        if before < 0 or after < 0:
            raise Refused
        margins.append((before, after))
    return margins


MERGES: tuple[Rule, ...] = (matmuls_merged, gemms_merged, concat_of_convs, convs_added, convs_merged)
