"""Attention over all places of images whose height and width are open: tokens of them, images with their channels in
front, and what sums over places without scores between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.places import IMAGES, POINTS, RANGES, SUMS, TOKENS, written


@pytest.mark.parametrize(
    ("body", "threads"),
    [(TOKENS, 1), (IMAGES, 2), *(pytest.param(body, 3 - threads, marks=pytest.mark.long)
                                 for body, threads in ((TOKENS, 1), (IMAGES, 2))), (SUMS, 2)],
)  # fmt: skip
def test_places_see_all_others_at_any_size(tmp_path: Path, body: str, threads: int) -> None:
    model = written(tmp_path, body)
    check_images(model, built_images(model, RANGES, threads), POINTS)


def test_a_running_sum_of_scores_is_refused_by_name(tmp_path: Path) -> None:
    body = IMAGES.replace("(f)", "(g)").replace("ft =", "g = CumSum (f, two)\n  ft =")
    model = written(tmp_path, body, two=np.array(2))
    with pytest.raises(InputError, match="CumSum"):
        built_images(model, RANGES)
