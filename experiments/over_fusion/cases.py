"""Four models where fusing can lose, after what others measured, in sizes that show it on a CPU.

| case | where it comes from | fused whole, it |
|---|---|---|
| exp_chain | apache/tvm#20342 | computes a chain of Exp again for each row that it is added to |
| branches | apache/tvm#20401 | chooses among nine branches for each of a pool's reads |
| where | apache/tvm#4324 | masks scores inside attention |
| pool_relu | nn-Meter | computes what stands before a pool once for each window |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import ModelProto

from experiments.architectures.small import SmallModel


def exp_chain(rows: int = 1024, columns: int = 1024, length: int = 4) -> ModelProto:
    """Exp four times on one row (values kept in range), added to every row of a matrix."""
    case = SmallModel("exp_chain")
    x = case.input("x", 1, columns)
    for _ in range(length):
        x = case.node("Exp", case.node("Mul", x, case.constant(-0.5)))
    y = case.node("Relu", case.input("y", rows, columns))
    return case.build(case.node("Relu", case.node("Add", y, x)), rows, columns)


def branches(count: int = 9, channels: int = 16, size: int = 56) -> ModelProto:
    """Nine branches of HardSwish(x + b), concatenated, pooled in windows of 3x3, and an Add behind."""
    case = SmallModel("branches")
    x = case.input("x", 1, channels, size, size)
    parts = []
    for _ in range(count):
        bias = case.constant(case.random.standard_normal((1, channels, 1, 1)))
        parts.append(case.node("HardSwish", case.node("Add", x, bias)))
    joined = case.node("Concat", *parts, axis=1)
    pooled = case.node("MaxPool", joined, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    bias = case.constant(case.random.standard_normal((1, count * channels, 1, 1)))
    return case.build(case.node("Add", pooled, bias), 1, count * channels, size, size)


def where(heads: int = 12, length: int = 128, width: int = 64) -> ModelProto:
    """Attention of one layer of BERT with its mask by Where."""
    case = SmallModel("where")
    q, k, v = (case.input(name, 1, heads, length, width) for name in "qkv")
    mask = case.node("Greater", case.input("mask", 1, 1, 1, length), case.constant(np.float64(-2.0)))
    turned = case.node("Transpose", k, perm=[0, 1, 3, 2])
    scores = case.node("Mul", case.node("MatMul", q, turned), case.constant(1 / np.sqrt(width)))
    masked = case.node("Where", mask, scores, case.constant(np.float64(-1e4)))
    mixed = case.node("MatMul", case.node("Softmax", masked, axis=-1), v)
    return case.build(mixed, 1, heads, length, width)


def pool_relu(channels: int = 64, size: int = 112) -> ModelProto:
    """Swish before a pool of 3x3 windows at every pixel, Relu behind it."""
    case = SmallModel("pool_relu")
    x = case.input("x", 1, channels, size, size)
    x = case.node("Mul", x, case.node("Sigmoid", x))
    pooled = case.node("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    return case.build(case.node("Relu", pooled), 1, channels, size, size)


CASES: dict[str, Callable[[], ModelProto]] = {
    "exp_chain": exp_chain,
    "branches": branches,
    "where": where,
    "pool_relu": pool_relu,
}
