"""Reductions along one side of images whose height and width are open: means of rows and of columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.open_sizes.images import Point, built_images, check_images
from tests.compiler.open_sizes.models import weight, write

AXES = {"rows": np.array([2]), "columns": np.array([-1])}
WEIGHTS = {
    "w": weight(16, 16, 3, 3), "v": weight(16, 16, 3, 1), "one": weight(16, 16, 1, 1), "b": weight(16, 1, 1),
    **AXES,
}  # fmt: skip
STRIPS = """
strips (float[1, 16, height, width] x) => (float[1, 16, height, width] y, float[1, 16, height] z) {
  a = Conv <pads = [1, 1, 1, 1]> (x, w)
  r = Relu (a)
  h = ReduceMean (r, columns)
  hc = Conv <pads = [1, 0, 1, 0]> (h, v)
  hg = Sigmoid (hc)
  v1 = ReduceMean (r, rows)
  vc = Conv (v1, one)
  vg = Sigmoid (vc)
  m = Mul (r, hg)
  y = Mul (m, vg)
  s = Mul (x, b)
  z = ReduceMax <keepdims = 0> (s, columns)
}"""
"""Strip pooling: convolutions of the means of rows and of columns gate each place."""
RANGES: dict[str, tuple[int, ...]] = {"height": (2, 40), "width": (3, 72)}
SHAPES = ((2, 3), (2, 72), (40, 3), (40, 72), (22, 50), (33, 17), (7, 64))
POINTS: list[Point] = [{"height": high, "width": wide} for high, wide in SHAPES]


GATES = """
gates (float[1, 16, height, width] x) => (float[1, 16, height, width] y, float[1, 16, 1, width] v) {
  p = MaxPool <kernel_shape = [1, 1]> (x)
  h = ReduceMean (p, columns)
  y = Sub (x, h)
  v = ReduceMean (y, rows)
}"""


def test_a_place_less_the_mean_of_its_row_and_then_the_means_of_columns_are_right_at_any_size(tmp_path: Path) -> None:
    model = write(tmp_path / "gates.onnx", GATES, AXES)
    check_images(model, built_images(model, RANGES), POINTS)


@pytest.mark.long
def test_convolutions_of_means_of_rows_and_columns_are_right_at_any_size(tmp_path: Path) -> None:
    model = write(tmp_path / "strips.onnx", STRIPS, WEIGHTS)
    check_images(model, built_images(model, RANGES), POINTS)


@pytest.mark.long
def test_means_along_sides_of_several_images_are_those_of_each(tmp_path: Path) -> None:
    model = write(tmp_path / "gates.onnx", GATES.replace("[1, 16", "[batch, 16"), AXES)
    library = built_images(model, {"batch": (1, 3), **RANGES}, threads=1)
    check_images(model, library, [{"batch": 1 + n % 3, **point} for n, point in enumerate(POINTS)])


CHANNELS_BEHIND = """
behind (float[1, 24, height, width] x) => (float[1, height, 24] y, float[1, 1, width, 24] z, float[1, 24, width] u) {
  p = MaxPool <kernel_shape = [1, 1]> (x)
  t = Transpose <perm = [0, 2, 3, 1]> (p)
  e = Exp (t)
  y = ReduceMean <keepdims = 0> (e, second)
  z = ReduceL2 (e, first)
  u = ReduceMin <keepdims = 0> (x, second)
}"""


@pytest.mark.long
def test_channels_behind_the_sides_are_reduced_alike(tmp_path: Path) -> None:
    model = write(tmp_path / "behind.onnx", CHANNELS_BEHIND, {"first": np.array([1]), "second": np.array([2])})
    check_images(model, built_images(model, RANGES), POINTS)


COORDINATES = """
coordinates (float[1, 16, height, width] x) => (float[1, 16, height, width] y, float[1, 16, places, 1] a) {
  p = MaxPool <kernel_shape = [1, 1]> (x)
  h = ReduceMean (p, columns)
  v = ReduceMean (p, rows)
  t = Transpose <perm = [0, 1, 3, 2]> (v)
  j = Concat <axis = 2> (h, t)
  k = Conv <kernel_shape = [1, 1]> (j, one, bias)
  a = Tanh (k)
  shape = Shape (x)
  high = Gather (shape, two)
  wide = Gather (shape, three)
  lengths = Concat <axis = 0> (high, wide)
  b, c = Split <axis = 2> (a, lengths)
  d = Transpose <perm = [0, 1, 3, 2]> (c)
  m = Mul (p, b)
  y = Mul (m, d)
}"""
"""Coordinate attention: the means of rows and of columns are joined, and parted again."""


@pytest.mark.long
@pytest.mark.parametrize("parts", ["Split", "Slice"])
def test_sides_that_are_joined_and_parted_again_are_right_at_any_size(tmp_path: Path, parts: str) -> None:
    given = {"one": weight(16, 16, 1, 1), "bias": weight(16), "two": np.array([2]), "three": np.array([3]), **AXES}
    text = COORDINATES
    if parts == "Slice":
        whole = "b = Slice (a, zero, high, two)\n  c = Slice (a, high, last, two)"
        text = text.replace("b, c = Split <axis = 2> (a, lengths)", whole)
        text = text.replace("  wide = Gather (shape, three)\n  lengths = Concat <axis = 0> (high, wide)\n", "")
        given |= {"zero": np.array([0]), "last": np.array([2**31])}
        del given["three"]
    model = write(tmp_path / "coordinates.onnx", text, given)
    check_images(model, built_images(model, RANGES), POINTS)
