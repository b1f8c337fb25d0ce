"""Samples of the rules that merge operators."""

from __future__ import annotations

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.registry import flipped, sample, shape, size
from tests.rewrite.samples import Model


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
