"""Samples of the rules that put normalisations together."""

from __future__ import annotations

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.registry import flipped, sample, shape
from tests.rewrite.samples import Model


def spread(m: Model, x: str, axes: tuple[int, ...], centre: bool) -> str:
    """x (less its mean) over its root mean square, in one of the ways in which exporters write it."""
    over = m.ints(*axes)
    if centre:
        x = m.op("Sub", x, m.op("ReduceMean", x, over))
    square = m.op("Mul", x, x) if m.rng.random() < 0.5 else m.op("Pow", x, m.constant(2.0))
    if centre and m.rng.random() < 0.5:
        x = flipped(m, "Mul", x, m.constant(m.rng.uniform(0.5, 1.5, (1, 1))))
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
