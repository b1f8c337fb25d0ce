"""Where the samples of rules are registered, and the small random parts that they share."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.graph.model import Graph
from tests.rewrite.samples import Model

SAMPLES: dict[str, Callable[[Model], Graph]] = {}


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
