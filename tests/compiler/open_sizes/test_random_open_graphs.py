"""Random graphs over an open size: right at every size that is tried, or refused because they mix rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.random_graphs.open_sizes import KINDS, LARGEST, REFUSED, OpenModel, check_open

SEEDS = range(24)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_graph_is_right_at_every_size_or_refused(tmp_path: Path, seed: int) -> None:
    outcome = check_open(seed, tmp_path)
    mixes = OpenModel(seed).mixes
    assert (outcome.state, outcome.message if not mixes else "") == (REFUSED if mixes else "ok", "")
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_the_graphs_are_of_every_kind_and_some_mix_their_rows() -> None:
    drawn = [OpenModel(seed) for seed in SEEDS]
    assert {one.over for one in drawn} == set(KINDS)
    assert 0 < sum(one.mixes for one in drawn) < len(drawn) / 2


def test_a_seed_makes_one_model_and_one_input() -> None:
    first, again = OpenModel(3), OpenModel(3)
    assert first.model() == again.model()
    assert first.input_at(LARGEST, 3).shape.count(LARGEST) == 1
    assert np.array_equal(first.input_at(5, 3), again.input_at(5, 3))
