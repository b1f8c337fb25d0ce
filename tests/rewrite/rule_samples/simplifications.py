"""Samples of the rules that simplify."""

from __future__ import annotations

from autofuse.graph.model import Graph
from tests.rewrite.rule_samples.registry import perm, sample, shape
from tests.rewrite.samples import Model


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


@sample
def scatter_of_rows(m: Model) -> Graph:
    rows, columns, count = shape(m)
    rank = int(m.rng.integers(1, 3))
    index = m.ints(*(int(row) for row in m.rng.integers(0, rows, count)))
    if rank == 2:
        index = m.op("Expand", m.op("Unsqueeze", index, m.ints(1)), m.ints(count, columns))
    inner = (columns,) * (rank - 1)
    return m.graph(
        m.op("ScatterElements", m.input(rows, *inner), index, m.input(count, *inner), axis=0, reduction="add")
    )
