"""A small model for each rule that is a function: `SAMPLES[rule name]` builds one on which it applies."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from autofuse.graph.model import Graph
from autofuse.rewrite.rule import Rule
from tests.rewrite.samples import Model, PatternSample

SAMPLES: dict[str, Callable[[Model], Graph]] = {}


def graph_for(rule: Rule, rng: np.random.Generator) -> Graph:
    """A graph with a site of the rule."""
    model = Model(rng)
    return SAMPLES[rule.name](model) if rule.name in SAMPLES else PatternSample(rule, model).graph()


def sample(make: Callable[[Model], Graph]) -> Callable[[Model], Graph]:
    SAMPLES[make.__name__] = make
    return make


def size(m: Model) -> int:
    return int(m.rng.integers(2, 6))


def shape(m: Model, rank: int = 3) -> tuple[int, ...]:
    return tuple(size(m) for _ in range(rank))


def perm(m: Model, rank: int) -> tuple[int, ...]:
    return tuple(int(axis) for axis in m.rng.permutation(rank))


def flipped(m: Model, op_type: str, a: str, b: str) -> str:
    """A commutative operator with its operands in either order."""
    return m.op(op_type, a, b) if m.rng.random() < 0.5 else m.op(op_type, b, a)


# simplifications


@sample
def transposes_joined(m: Model) -> Graph:
    x = m.input(*shape(m))
    return m.graph(m.op("Transpose", m.op("Transpose", x, perm=perm(m, 3)), perm=perm(m, 3)))


@sample
def reshapes_joined(m: Model) -> Graph:
    a, b, c = shape(m)
    x = m.op("Reshape", m.input(a, b, c), m.ints(a * b, c))
    return m.graph(m.op("Unsqueeze", x, m.ints(1)) if m.rng.random() < 0.5 else m.op("Reshape", x, m.ints(c, b, a)))


@sample
def reshape_to_same(m: Model) -> Graph:
    own = shape(m)
    return m.graph(m.op("Reshape", m.input(*own), m.ints(*own)))


@sample
def transpose_as_reshape(m: Model) -> Graph:
    a, b = shape(m, 2)
    return m.graph(m.op("Transpose", m.input(a, 1, b), perm=(1, 0, 2)))


@sample
def casts_joined(m: Model) -> Graph:
    to = int(m.rng.choice([1, 10]))
    return m.graph(m.op("Cast", m.op("Cast", m.input(*shape(m)), to=11), to=to))


@sample
def sum_as_additions(m: Model) -> Graph:
    own = shape(m)
    return m.graph(m.op("Sum", *(m.input(*own) for _ in range(m.rng.integers(2, 5)))))


@sample
def bounds_joined(m: Model) -> Graph:
    x, kinds = m.input(*shape(m)), ["Relu", "Clip", "Max", "Min"]
    for kind in m.rng.choice(kinds, 2):
        low, high = sorted(m.rng.uniform(-1.5, 1.5, 2))
        bounds = {"Relu": (), "Clip": (low, high), "Max": (low,), "Min": (high,)}[str(kind)]
        x = m.op(str(kind), x, *map(m.constant, bounds))
    return m.graph(x)


@sample
def reductions_joined(m: Model) -> Graph:
    kind = f"Reduce{m.rng.choice(['Sum', 'Max', 'Min', 'Mean', 'Prod'])}"
    keep = int(m.rng.integers(0, 2))
    x = m.op(kind, m.input(*shape(m, 4)), m.ints(int(m.rng.integers(0, 4))), keepdims=keep)
    return m.graph(m.op(kind, x, m.ints(int(m.rng.integers(0, 3))), keepdims=keep))


@sample
def reduction_of_one(m: Model) -> Graph:
    a, b = shape(m, 2)
    return m.graph(m.op("ReduceMax", m.input(a, 1, b), m.ints(1), keepdims=int(m.rng.integers(0, 2))))


@sample
def computed_once(m: Model) -> Graph:
    own = shape(m)
    x, y = m.input(*own), m.input(*own)
    return m.graph(*(m.op("Abs", m.op("Slice", m.op("Add", x, y), *map(m.ints, (0, 1, 0, 1)))) for _ in range(2)))


# normalisations


def spread(m: Model, x: str, axes: tuple[int, ...], centre: bool) -> str:
    """x (less its mean) over its root mean square, in one of the ways in which exporters write it."""
    over = m.ints(*axes)
    if centre:
        x = m.op("Sub", x, m.op("ReduceMean", x, over))
    square = m.op("Mul", x, x) if m.rng.random() < 0.5 else m.op("Pow", x, m.constant(2.0))
    inner = flipped(m, "Add", m.op("ReduceMean", square, over), m.constant(1e-5))
    way = int(m.rng.integers(0, 4))
    if way == 0:
        return m.op("Div", x, m.op("Sqrt", inner))
    if way == 1:
        return flipped(m, "Mul", x, m.op("Reciprocal", m.op("Sqrt", inner)))
    if way == 2:
        return flipped(m, "Mul", x, m.op("Pow", inner, m.constant(-0.5)))
    return m.op("Div", x, m.op("Pow", inner, m.constant(0.5)))


@sample
def layer_normalization(m: Model) -> Graph:
    return m.graph(spread(m, m.input(*shape(m)), (2,) if m.rng.random() < 0.5 else (1, 2), True))


@sample
def rms_normalization(m: Model) -> Graph:
    return m.graph(spread(m, m.input(*shape(m)), (2,), False))


def normalised(m: Model, bias: bool) -> tuple[str, int]:
    a, b, c = shape(m)
    parameters = [m.weights(c) for _ in range(1 + bias)]
    return m.op("LayerNormalization", m.input(a, b, c), *parameters, axis=-1), c


@sample
def normalization_scale(m: Model) -> Graph:
    x, c = normalised(m, m.rng.random() < 0.5)
    return m.graph(flipped(m, "Mul", x, m.weights(c) if m.rng.random() < 0.5 else m.weights(1, 1, c)))


@sample
def normalization_shift(m: Model) -> Graph:
    x, c = normalised(m, m.rng.random() < 0.5)
    return m.graph(flipped(m, "Add", x, m.weights(c) if m.rng.random() < 0.5 else m.weights()))


# activations


def shuffled(m: Model, *factors: str) -> str:
    """The product of some tensors in any order and grouping."""
    parts = list(factors)
    m.rng.shuffle(parts)
    while len(parts) > 1:
        place = int(m.rng.integers(0, len(parts) - 1))
        parts[place : place + 2] = [m.op("Mul", *parts[place : place + 2])]
    return parts[0]


@sample
def gelu(m: Model) -> Graph:
    x = m.input(*shape(m))
    inner = (
        m.op("Div", x, m.constant(math.sqrt(2)))
        if m.rng.random() < 0.5
        else flipped(m, "Mul", x, m.constant(math.sqrt(0.5)))
    )
    return m.graph(shuffled(m, x, m.constant(0.5), flipped(m, "Add", m.op("Erf", inner), m.constant(1.0))))


@sample
def gelu_tanh(m: Model) -> Graph:
    x = m.input(*shape(m))
    cube = m.op("Pow", x, m.constant(3.0)) if m.rng.random() < 0.5 else m.op("Mul", m.op("Mul", x, x), x)
    total = flipped(m, "Add", x, flipped(m, "Mul", cube, m.constant(0.044715)))
    tanh = m.op("Tanh", flipped(m, "Mul", total, m.constant(math.sqrt(2 / math.pi))))
    return m.graph(shuffled(m, x, m.constant(0.5), flipped(m, "Add", tanh, m.constant(1.0))))


def ramp(m: Model, x: str) -> str:
    return m.op("Clip", flipped(m, "Add", x, m.constant(3.0)), m.constant(0.0), m.constant(6.0))


@sample
def hard_swish(m: Model) -> Graph:
    x = m.input(*shape(m))
    if m.rng.random() < 0.3:
        return m.graph(flipped(m, "Mul", x, m.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)))
    if m.rng.random() < 0.5:
        return m.graph(shuffled(m, x, ramp(m, x), m.constant(1 / 6)))
    return m.graph(m.op("Div", flipped(m, "Mul", x, ramp(m, x)), m.constant(6.0)))


@sample
def hard_sigmoid(m: Model) -> Graph:
    x = ramp(m, m.input(*shape(m)))
    return m.graph(m.op("Div", x, m.constant(6.0)) if m.rng.random() < 0.5 else m.op("Mul", x, m.constant(1 / 6)))


@sample
def leaky_relu(m: Model) -> Graph:
    x = m.input(*shape(m))
    return m.graph(flipped(m, "Max", x, flipped(m, "Mul", x, m.constant(0.1))))


@sample
def swish_scaled(m: Model) -> Graph:
    x = m.input(*shape(m))
    return m.graph(flipped(m, "Mul", x, m.op("Sigmoid", m.op("Mul", x, m.constant(1.702)))))


@sample
def mean_from_sum(m: Model) -> Graph:
    a, b, c = shape(m)
    total = m.op("ReduceSum", m.input(a, b, c), m.ints(1, 2), keepdims=int(m.rng.integers(0, 2)))
    return m.graph(m.op("Div", total, m.constant(b * c)))


@sample
def global_pooling(m: Model) -> Graph:
    kind = "ReduceMean" if m.rng.random() < 0.5 else "ReduceMax"
    return m.graph(m.op(kind, m.input(*shape(m, 4)), m.ints(2, 3)))


def shifted(m: Model) -> tuple[str, str]:
    """(x less its maximum or x itself, axes)."""
    x, over = m.input(*shape(m)), m.ints(int(m.rng.integers(0, 3)))
    return (m.op("Sub", x, m.op("ReduceMax", x, over)), over) if m.rng.random() < 0.7 else (x, over)


@sample
def softmax(m: Model) -> Graph:
    x, over = shifted(m)
    exp = m.op("Exp", x)
    return m.graph(m.op("Div", exp, m.op("ReduceSum", exp, over)))


@sample
def log_softmax(m: Model) -> Graph:
    x, over = shifted(m)
    return m.graph(m.op("Sub", x, m.op("Log", m.op("ReduceSum", m.op("Exp", x), over))))


# weights


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


# algebra


@sample
def repeated_factor(m: Model) -> Graph:
    a, b = shape(m, 2)
    r = m.op("ReduceSum", m.input(a, b), m.ints(1))
    return m.graph(shuffled(m, m.input(a, b), r, r, m.input(a, b)))


@sample
def small_operands_first(m: Model) -> Graph:
    a, b = shape(m, 2)
    kind = str(m.rng.choice(["Mul", "Add"]))
    return m.graph(m.op(kind, m.op(kind, m.input(a, b), m.input(b)), m.input(1, b)))


@sample
def matmul_order(m: Model) -> Graph:
    a, b, c = shape(m)
    x, y, z = m.input(1, 2, a, b), m.input(1, 2, b, c), m.input(c, a)
    if m.rng.random() < 0.5:
        return m.graph(m.op("MatMul", m.op("MatMul", x, y), z))
    return m.graph(m.op("MatMul", x, m.op("MatMul", y, z)))


@sample
def common_factor(m: Model) -> Graph:
    own = shape(m)
    a, b, c = m.input(*own), m.input(*own), m.input(*own)
    kind = str(m.rng.choice(["Add", "Sub"]))
    left = a if m.rng.random() < 0.4 else shuffled(m, a, c)
    return m.graph(m.op(kind, left, shuffled(m, a, b) if m.rng.random() < 0.7 else shuffled(m, a, b, b)))


# motion


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


# merges


@sample
def matmuls_merged(m: Model) -> Graph:
    a, b, c = shape(m)
    x = m.input(a, b, c)
    results = []
    for _ in range(int(m.rng.integers(2, 4))):
        columns, bias = size(m), m.rng.random() < 0.6
        y = m.op("MatMul", x, m.weights(c, columns))
        results.append(flipped(m, "Add", y, m.weights(columns)) if bias else y)
    return m.graph(*results)


@sample
def gemms_merged(m: Model) -> Graph:
    a, b, _ = shape(m)
    x, turned = m.input(a, b), int(m.rng.integers(0, 2))
    results = []
    for _ in range(2):
        columns = size(m)
        weights = m.weights(columns, b) if turned else m.weights(b, columns)
        results.append(m.op("Gemm", x, weights, m.weights(columns), transB=turned))
    return m.graph(*results)


def siblings(m: Model, channels: int | None = None) -> list[str]:
    x, bias = m.input(1, 3, 5, 5), m.rng.random() < 0.5
    results = []
    for _ in range(2):
        outputs = channels or size(m)
        weights = [m.weights(outputs, 3, 3, 3)] + ([m.weights(outputs)] if bias else [])
        results.append(m.op("Conv", x, *weights, pads=(1, 1, 1, 1), strides=(2, 2)))
    return results


@sample
def convs_merged(m: Model) -> Graph:
    return m.graph(*siblings(m))


@sample
def concat_of_convs(m: Model) -> Graph:
    return m.graph(m.op("Concat", *siblings(m), axis=1))


@sample
def convs_added(m: Model) -> Graph:
    if m.rng.random() < 0.5:
        return m.graph(m.op("Add", *siblings(m, 4)))
    x, stride = m.input(1, 3, 6, 6), int(m.rng.integers(1, 3))
    wide = m.op("Conv", x, m.weights(4, 3, 3, 3), pads=(1, 1, 1, 1), strides=(stride, stride))
    narrow = m.op("Conv", x, m.weights(4, 3, 1, 1), m.weights(4), strides=(stride, stride))
    return m.graph(flipped(m, "Add", wide, narrow))


# fissions


@sample
def layer_normalization_apart(m: Model) -> Graph:
    return m.graph(normalised(m, m.rng.random() < 0.5)[0])


@sample
def instance_normalization_apart(m: Model) -> Graph:
    a, b, c = shape(m)
    return m.graph(m.op("InstanceNormalization", m.input(2, a, b, c), m.weights(a), m.weights(a)))


@sample
def group_normalization_apart(m: Model) -> Graph:
    return m.graph(m.op("GroupNormalization", m.input(2, 4, 3, 3), m.weights(2), m.weights(2), num_groups=2))


@sample
def batchnorm_apart(m: Model) -> Graph:
    parameters = [m.constant(m.rng.uniform(0.5, 1.5, 4)) for _ in range(4)]
    return m.graph(m.op("BatchNormalization", m.input(2, 4, 3, 3), *parameters))


@sample
def softmax_apart(m: Model) -> Graph:
    return m.graph(m.op("Softmax", m.input(*shape(m)), axis=int(m.rng.integers(0, 3))))


@sample
def gelu_apart(m: Model) -> Graph:
    return m.graph(m.op("Gelu", m.input(*shape(m)), approximate=str(m.rng.choice(["none", "tanh"]))))


@sample
def gemm_apart(m: Model) -> Graph:
    a, b, c = shape(m)
    turned = int(m.rng.integers(0, 2))
    return m.graph(
        m.op("Gemm", m.input(a, b), m.weights(c, b) if turned else m.weights(b, c), m.weights(c), transB=turned)
    )


@sample
def global_pooling_apart(m: Model) -> Graph:
    return m.graph(m.op("GlobalAveragePool", m.input(*shape(m, 4))))


@sample
def einsum_as_product(m: Model) -> Graph:
    sizes = dict(zip("bhijd", shape(m, 5), strict=True))
    equations = (
        "bhid,bhjd->bhij",
        "bij,bjd->bid",
        "ij,jd",
        "bihd,bjhd->bhij",
        "bid,hd->hib",
        "i,j->ji",
        "bhid,bijd->hj",
    )
    equation = equations[int(m.rng.integers(len(equations)))]
    first, second = equation.split("->")[0].split(",")
    a = m.input(*(sizes[i] for i in first))
    b = (m.input if m.rng.random() < 0.5 else m.weights)(*(sizes[i] for i in second))
    return m.graph(m.op("Einsum", a, b, equation=equation))
