"""Samples of the rules that change the algebra."""

from __future__ import annotations

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.activations import shuffled
from tests.rewrite.rule_samples.registry import sample, shape
from tests.rewrite.samples import Model


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
def product_with_repeated(m: Model) -> Graph:
    groups, repeats, rows = shape(m)
    keys, width = shape(m, 2)
    b = m.op("Expand", m.input(1, groups, 1, keys, width), m.ints(1, groups, repeats, keys, width))
    b = m.op("Reshape", b, m.ints(1, groups * repeats, keys, width))
    if m.rng.random() < 0.5:
        return m.graph(m.op("MatMul", m.input(1, groups * repeats, rows, keys), b))
    b = m.op("Transpose", b, perm=(0, 1, 3, 2))
    if m.rng.random() < 0.5:
        b = m.op("Mul", b, m.constant(0.5))
    return m.graph(m.op("MatMul", m.input(1, groups * repeats, rows, width), b))


@sample
def common_factor(m: Model) -> Graph:
    own = shape(m)
    a, b, c = m.input(*own), m.input(*own), m.input(*own)
    kind = str(m.rng.choice(["Add", "Sub"]))
    left = a if m.rng.random() < 0.4 else shuffled(m, a, c)
    return m.graph(m.op(kind, left, shuffled(m, a, b) if m.rng.random() < 0.7 else shuffled(m, a, b, b)))
