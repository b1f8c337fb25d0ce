"""Samples of the rules that change weights."""

from __future__ import annotations

import math

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.registry import flipped, sample, shape
from tests.rewrite.samples import Model


def linear(m: Model, bias: bool) -> tuple[str, int]:
    a, b, c = shape(m)
    product = m.op("MatMul", m.input(a, b, c), m.weights(c, b))
    return (flipped(m, "Add", product, m.weights(b)) if bias else product), b


@sample
def matmul_scale(m: Model) -> Graph:
    y, columns = linear(m, m.rng.random() < 0.5)
    factor = m.constant(1.0 + m.rng.random(() if m.rng.random() < 0.5 else (columns,)))
    return m.graph(m.op(str(m.rng.choice(["Mul", "Div"])), y, factor))


@sample
def matmul_of_scaled_columns(m: Model) -> Graph:
    a, b, c = shape(m)
    x = m.op(str(m.rng.choice(["Mul", "Div"])), m.input(a, b, c), m.constant(1.0 + m.rng.random(c)))
    return m.graph(m.op("MatMul", x, m.weights(c, a)))


@sample
def matmul_of_shifted_columns(m: Model) -> Graph:
    a, b, c = shape(m)
    return m.graph(m.op("MatMul", m.op("Add", m.input(a, b, c), m.weights(c)), m.weights(c, a)))


@sample
def scale_into_query(m: Model) -> Graph:
    length, heads, width = shape(m)
    x = m.input(1, length, heads * width)
    y = m.op("Add", m.op("MatMul", x, m.weights(heads * width, heads * width)), m.weights(heads * width))
    y = m.op("Transpose", m.op("Reshape", y, m.ints(1, length, heads, width)), perm=(0, 2, 1, 3))
    return m.graph(m.op("Div", m.op("MatMul", y, m.input(1, heads, width, length)), m.constant(math.sqrt(width))))


def affine(m: Model, x: str, channels: tuple[int, ...]) -> str:
    kind = str(m.rng.choice(["Mul", "Div", "Add", "Sub"]))
    return m.op(kind, x, m.constant(1.0 + m.rng.random(channels if m.rng.random() < 0.7 else ())))


@sample
def gemm_affine(m: Model) -> Graph:
    a, b, c = shape(m)
    turned = int(m.rng.integers(0, 2))
    inputs = [m.input(a, b), m.weights(c, b) if turned else m.weights(b, c), m.weights(c)]
    y = m.op("Gemm", *inputs[: int(m.rng.integers(2, 4))], transB=turned, beta=0.5)
    return m.graph(affine(m, y, (c,)))


def convolution(m: Model, x: str, inputs: int, outputs: int, group: int = 1, pad: int = 1) -> str:
    weights = [m.weights(outputs, inputs // group, 3, 3), m.weights(outputs)][: int(m.rng.integers(1, 3))]
    return m.op("Conv", x, *weights, pads=(pad,) * 4, group=group)


@sample
def conv_affine(m: Model) -> Graph:
    group = int(m.rng.integers(1, 3))
    return m.graph(affine(m, convolution(m, m.input(1, 4, 5, 5), 4, 6, group), (6, 1, 1)))


@sample
def conv_of_scaled(m: Model) -> Graph:
    x = m.op(str(m.rng.choice(["Mul", "Div"])), m.input(1, 4, 5, 5), m.constant(1.0 + m.rng.random((4, 1, 1))))
    return m.graph(convolution(m, x, 4, 6, int(m.rng.integers(1, 3))))


@sample
def conv_of_shifted(m: Model) -> Graph:
    x = m.op(str(m.rng.choice(["Add", "Sub"])), m.input(1, 4, 5, 5), m.weights(4, 1, 1))
    return m.graph(convolution(m, x, 4, 6, int(m.rng.integers(1, 3)), pad=0))


@sample
def batchnorm_affine(m: Model) -> Graph:
    parameters = [m.constant(m.rng.uniform(0.5, 1.5, 4)) for _ in range(4)]
    return m.graph(affine(m, m.op("BatchNormalization", m.input(2, 4, 3, 3), *parameters), (4, 1, 1)))


@sample
def pad_into_window(m: Model) -> Graph:
    begin, end = (int(n) for n in m.rng.integers(0, 3, 2))
    x = m.op("Pad", m.input(1, 4, 5, 5), m.ints(0, 0, begin, 1, 0, 0, end, 0))
    if m.rng.random() < 0.5:
        return m.graph(convolution(m, x, 4, 2, pad=int(m.rng.integers(0, 2))))
    return m.graph(m.op("AveragePool", x, kernel_shape=(3, 3), strides=(1, 1)))


@sample
def transposed_convolution_by_places(m: Model) -> Graph:
    rank, depth, channels = int(m.rng.integers(1, 3)), int(m.rng.integers(2, 5)), int(m.rng.integers(1, 5))
    stride = [int(m.rng.integers(2, 4)) for _ in range(rank)]
    cut = int(m.rng.integers(0, 2)) if rank == 1 else 0  # a window of three elements for two of the model
    taps = [(1 + (cut or int(m.rng.integers(0, 2)))) * s for s in stride]
    sizes = [int(m.rng.integers(3, 6)) for _ in range(rank)]
    ends = [s * (n - 1) + k - cut - s * n for s, n, k in zip(stride, sizes, taps, strict=True)]
    pads = (*(cut for _ in stride), *(max(0, end) for end in ends))
    inputs = [m.input(1, depth, *sizes), m.weights(depth, channels, *taps)]
    inputs += [m.weights(channels)] if m.rng.random() < 0.5 else []
    return m.graph(m.op("ConvTranspose", *inputs, strides=tuple(stride), pads=pads, kernel_shape=tuple(taps)))
