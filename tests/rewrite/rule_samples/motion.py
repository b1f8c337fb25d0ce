"""Samples of the rules that move operators."""

from __future__ import annotations

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.registry import perm, sample, shape
from tests.rewrite.samples import Model


def unary(m: Model, x: str) -> str:
    kind = str(m.rng.choice(["Relu", "Abs", "Neg", "Mul", "Tanh"]))
    return m.op("Mul", x, m.constant(1.5)) if kind == "Mul" else m.op(kind, x)


def selection(m: Model, x: str, axis: int, length: int, gather: bool = True) -> str:
    if gather and m.rng.random() < 0.5:
        return m.op("Gather", x, m.ints(*(int(n) for n in m.rng.integers(0, length, length - 1))), axis=axis)
    return m.op("Slice", x, m.ints(1), m.ints(length), m.ints(axis), m.ints(1))


@sample
def selection_before_elementwise(m: Model) -> Graph:
    own, axis = shape(m), int(m.rng.integers(0, 3))
    return m.graph(selection(m, unary(m, m.input(*own)), axis, own[axis]))


@sample
def selection_before_binary(m: Model) -> Graph:
    own, axis = shape(m), int(m.rng.integers(0, 3))
    other = tuple(n if m.rng.random() < 0.6 else 1 for n in own)
    y = m.op(str(m.rng.choice(["Add", "Mul", "Sub", "Max"])), m.input(*own), m.input(*other))
    return m.graph(selection(m, y, axis, own[axis]))


@sample
def selection_before_normalization(m: Model) -> Graph:
    own, axis = shape(m), int(m.rng.integers(0, 2))
    if m.rng.random() < 0.5:
        return m.graph(selection(m, m.op("Softmax", m.input(*own), axis=2), axis, own[axis]))
    y = m.op("LayerNormalization", m.input(*own), m.weights(own[2]), m.weights(own[2]), axis=-1)
    return m.graph(selection(m, y, axis, own[axis]))


@sample
def selection_before_matmul(m: Model) -> Graph:
    own, axis = shape(m), int(m.rng.integers(0, 2))
    return m.graph(selection(m, m.op("MatMul", m.input(*own), m.weights(own[2], 3)), axis, own[axis]))


@sample
def gather_as_slice(m: Model) -> Graph:
    own, axis = shape(m), int(m.rng.integers(0, 3))
    index = m.constant(int(m.rng.integers(-own[axis], own[axis])), "int64")
    return m.graph(m.op("Gather", unary(m, m.input(*own)), index, axis=axis))


@sample
def elementwise_before_copies(m: Model) -> Graph:
    if m.rng.random() < 0.5:
        return m.graph(unary(m, m.op("Expand", m.input(3, 1), m.ints(2, 3, 4))))
    scales = m.constant([1.0, 1.0, 2.0, 3.0])
    x = m.op(
        "Resize", m.input(1, 2, 3, 3), "", scales, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    return m.graph(unary(m, x))


@sample
def binary_of_transposes(m: Model) -> Graph:
    own, order = shape(m), perm(m, 3)
    turned = [m.op("Transpose", m.input(*own), perm=order) for _ in range(2)]
    return m.graph(m.op(str(m.rng.choice(["Add", "Mul", "Sub", "Max"])), *turned))


@sample
def transposes_meet(m: Model) -> Graph:
    x = m.op("Transpose", m.input(*shape(m)), perm=perm(m, 3))
    return m.graph(m.op("Transpose", unary(m, x), perm=perm(m, 3)))


@sample
def reshapes_meet(m: Model) -> Graph:
    a, b, c = shape(m)
    x = m.op("Reshape", m.input(a, b, c), m.ints(a * b, c))
    back = m.ints(a, b, c) if m.rng.random() < 0.5 else m.ints(c, a * b)
    return m.graph(m.op("Reshape", unary(m, x), back))


@sample
def slices_joined(m: Model) -> Graph:
    x = m.input(8, 8)
    for _ in range(2):
        axis = int(m.rng.integers(0, 2))
        x = m.op("Slice", x, m.ints(1), m.ints(4), m.ints(axis), m.ints(1))
    return m.graph(x)


@sample
def concats_joined(m: Model) -> Graph:
    a, b, c = shape(m)
    inner = m.op("Concat", m.input(a, b, c), m.input(a, 2, c), axis=1)
    return m.graph(m.op("Concat", m.input(a, 1, c), inner, axis=1))


@sample
def concat_of_split(m: Model) -> Graph:
    a, b, c = shape(m)
    parts = m.many("Split", (m.input(a, 3 + b, c), m.ints(3, b)), 2, axis=1)
    return m.graph(m.op("Concat", *parts, axis=1))


@sample
def slice_of_concat(m: Model) -> Graph:
    x = m.op("Concat", m.input(2, 4), m.input(2, 5), axis=1)
    start = int(m.rng.integers(0, 3))
    return m.graph(m.op("Slice", x, m.ints(start), m.ints(4), m.ints(1), m.ints(1)))


@sample
def mean_before_convolution(m: Model) -> Graph:
    group = int(m.rng.integers(1, 3))
    weights = [m.weights(6, 4 // group, 1, 1), m.weights(6)][: int(m.rng.integers(1, 3))]
    x = m.op("Conv", m.input(1, 4, 6, 6), *weights, group=group)
    if m.rng.random() < 0.3:
        return m.graph(m.op("GlobalAveragePool", x))
    pad = int(m.rng.integers(0, 2))
    return m.graph(m.op("AveragePool", x, kernel_shape=(2, 2), strides=(2, 2), pads=(pad,) * 4, ceil_mode=pad))


@sample
def matmul_of_transposes(m: Model) -> Graph:
    a, b, c = shape(m)
    turned = [m.op("Transpose", m.input(2, *sizes), perm=(0, 2, 1)) for sizes in ((b, a), (c, b))]
    return m.graph(m.op("MatMul", *turned))
