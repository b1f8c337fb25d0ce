"""Samples of the rules that put activations together."""

from __future__ import annotations

import math

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.registry import flipped, sample, shape
from tests.rewrite.samples import Model


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
