"""Constants that grow with the sizes of images, and reductions of what is computed with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.open_sizes.images import Point, built_images, check_images
from tests.compiler.open_sizes.models import weight, write

RANGES: dict[str, tuple[int, ...]] = {"height": (2, 20), "width": (3, 30)}
POINTS: list[Point] = [{"height": high, "width": wide} for high, wide in ((2, 3), (2, 30), (20, 3), (20, 30), (11, 17))]
SIZES = """
  c = MaxPool <kernel_shape = [1, 1]> (x)
  shape = Shape (x)
  sizes = Slice (shape, two, four)
"""
SUM = """
positions (float[1, 8, height, width] x) => (float[1, 8, 1, 1] y, float[1, 8, height, width] c) {{{sizes}
  part = Slice (places, zeros, sizes, axes)
  d = Add (part, x)
  e = Exp (d)
  y = GlobalAveragePool (e)
}}"""
SHARES = """
shares (float[1, 8, height, width] x) => (float[1, 4, 8] y, float[1, 8, height, width] c) {{{sizes}
  count = ReduceProd (sizes, zero)
  part = Slice (rows, zero, count, second)
  flat = Reshape (x, merged)
  turned = Transpose <perm = [0, 2, 1]> (flat)
  e = Exp (turned)
  y = MatMul (part, e)
}}"""
BOUNDS = {"two": np.array([2]), "four": np.array([4])}


def test_a_mean_of_an_image_and_positions_counts_the_places_of_the_image(tmp_path: Path) -> None:
    given = {"places": weight(1, 8, 20, 30), "zeros": np.array([0, 0]), "axes": np.array([2, 3]), **BOUNDS}
    model = write(tmp_path / "positions.onnx", SUM.format(sizes=SIZES), given)
    check_images(model, built_images(model, RANGES), POINTS)


@pytest.mark.long
def test_a_sum_by_weights_of_all_places_counts_those_of_the_image(tmp_path: Path) -> None:
    given = {"rows": weight(1, 4, 600), "zero": np.array([0]), "second": np.array([2]), "merged": np.array([0, 0, -1])}
    model = write(tmp_path / "shares.onnx", SHARES.format(sizes=SIZES), {**given, **BOUNDS})
    check_images(model, built_images(model, RANGES, plan="none"), POINTS)
