"""Samples of the rules that take operators apart."""

from __future__ import annotations

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.normalisations import normalised
from tests.rewrite.rule_samples.registry import sample, shape
from tests.rewrite.samples import Model


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
