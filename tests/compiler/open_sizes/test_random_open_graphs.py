"""Random graphs over an open size: right at every size that is tried, or refused because they mix rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.random_graphs.open_images import ImageModel, check_images
from experiments.random_graphs.open_sizes import KINDS, LARGEST, REFUSED, OpenModel, check_open

SEEDS = range(24)
IMAGES = range(10)


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


@pytest.mark.long
@pytest.mark.parametrize("seed", IMAGES)
def test_random_images_are_right_at_every_size(tmp_path: Path, seed: int) -> None:
    outcome = check_images(seed, tmp_path)
    assert (outcome.state, outcome.message) == ("ok", "")


def test_random_images_have_one_open_side_or_both_and_some_an_open_batch() -> None:
    drawn = [ImageModel(seed) for seed in range(60)]
    assert {one.opened for one in drawn} == {(2,), (3,), (2, 3)}
    assert 0 < sum("batch" in one.sizes for one in drawn) < 30
    assert drawn[7].model() == ImageModel(7).model()
    assert {len(one.points()) for one in drawn} == {5}
