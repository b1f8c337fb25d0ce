"""Where intermediate results lie: none over another that is still read, and little more memory than must be."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.backend.container.container import ALIGNMENT
from autofuse.backend.freestanding.memory import Lifetime, placed


def overlap(one: Lifetime, other: Lifetime) -> bool:
    return one.first <= other.last and other.first <= one.last


@pytest.mark.parametrize("seed", range(20))
def test_results_that_live_at_the_same_time_do_not_overlap(seed: int) -> None:
    random = np.random.default_rng(seed)
    lives = []
    for number in range(60):
        first = int(random.integers(0, 40))
        lives.append(Lifetime(f"t{number}", int(random.integers(1, 5000)), first, first + int(random.integers(0, 8))))
    offsets, size_bytes = placed(lives)
    for one in lives:
        assert offsets[one.name] % ALIGNMENT == 0
        assert offsets[one.name] + one.size_bytes <= size_bytes
        for other in lives:
            if other is not one and overlap(one, other):
                apart = offsets[one.name] + one.size_bytes <= offsets[other.name]
                assert apart or offsets[other.name] + other.size_bytes <= offsets[one.name]
    steps = range(max(life.last for life in lives) + 1)
    least = max(sum(life.size_bytes for life in lives if life.first <= step <= life.last) for step in steps)
    assert size_bytes <= 1.4 * least


def test_a_chain_needs_two_places() -> None:
    lives = [Lifetime(f"t{step}", 100, step, step + 1) for step in range(30)]
    offsets, size_bytes = placed(lives)
    assert (set(offsets.values()), size_bytes) == ({0, 128}, 256)
    assert placed([]) == ({}, 0)
