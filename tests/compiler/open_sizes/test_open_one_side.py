"""Images of which one side is open and the other fixed: their windows go over the whole image, as with both open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse import api
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import weight, write

SHAPES = (3, 4, 17, 18, 31, 40, 57, 70)


def sides(folder: Path, fixed: str, extent: int, images: str = "1") -> Path:
    """A model of windows over both sides, along the fixed one alone, over all of it, of depthwise convolutions and of
    means that count what lies inside; one place of each; and a view behind a convolution."""

    def pair(along: int, across: int) -> list[int]:
        return [along, across] if fixed == "height" else [across, along]

    both, along = [1, 1, 1, 1], [*pair(1, 0), *pair(1, 0)]
    shape = f"{extent}, width" if fixed == "height" else f"height, {extent}"
    text = f"""
    sides (float[{images}, 16, {shape}] x)
      => (float[{images}, 32, a, b] y, float[{images}, 32, c, d] z, float[o, p, q] t) {{
      c1 = Conv <kernel_shape = [3, 3], pads = {both}> (x, w1, b32)
      r1 = Relu (c1)
      y = MaxPool <kernel_shape = {pair(2, 1)}, strides = {pair(2, 1)}> (r1)
      c2 = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = {both}> (r1, w2)
      d1 = Conv <kernel_shape = [3, 3], pads = {both}, group = 32> (c2, w3, b32)
      a1 = AveragePool <kernel_shape = {pair(3, 1)}, pads = {along}> (d1)
      s1 = Add (a1, d1)
      z = Conv <kernel_shape = [1, 1]> (s1, w4, b32)
      c3 = Conv <kernel_shape = {pair(extent // 2, 2)}> (y, w5)
      r3 = Relu (c3)
      v3 = Squeeze (r3, axis)
      t = Transpose <perm = [2, 0, 1]> (v3)
    }}"""
    weights = {
        "w1": weight(32, 16, 3, 3), "b32": weight(32), "w2": weight(32, 32, 3, 3), "w3": weight(32, 1, 3, 3),
        "w4": weight(32, 32, 1, 1), "w5": weight(32, 32, *pair(extent // 2, 2)),
        "axis": np.array([2 if fixed == "height" else 3]),
    }  # fmt: skip
    return write(folder / "sides.onnx", text, weights)


def other(fixed: str) -> str:
    """The side that is open."""
    return "width" if fixed == "height" else "height"


@pytest.mark.parametrize(
    ("fixed", "extent", "threads"),
    [
        ("height", 4, 1), ("width", 5, 1), pytest.param("height", 2, 2, marks=pytest.mark.long),
        pytest.param("width", 40, 1, marks=pytest.mark.long), pytest.param("height", 9, 2, marks=pytest.mark.long),
        pytest.param("width", 2, 1, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_images_with_a_fixed_side_are_right_at_any_size(tmp_path: Path, fixed: str, extent: int, threads: int) -> None:
    model = sides(tmp_path, fixed, extent)
    library = built_images(model, {other(fixed): (3, 70)}, threads=threads)
    check_images(model, library, [{other(fixed): size} for size in SHAPES])


@pytest.mark.long
def test_a_batch_of_images_with_a_fixed_side_is_right(tmp_path: Path) -> None:
    model = sides(tmp_path, "height", 6, "batch")
    library = built_images(model, {"width": (3, 70), "batch": (1, 3)})
    check_images(model, library, [{"width": size, "batch": 1 + number % 3} for number, size in enumerate(SHAPES)])


@pytest.mark.parametrize("fixed", ["height", "width"])
def test_convolutions_of_images_with_a_fixed_side_go_over_the_whole_image(tmp_path: Path, fixed: str) -> None:
    """What pools and views follow them is a kernel of its own."""
    found = api.compile(
        sides(tmp_path, fixed, 8),
        database=str(tmp_path / "a.db"),
        threads=1,
        dry_run=True,
        sizes={other(fixed): (3, 70)},
    )
    around = [group.source for group in found.groups if "Conv" in group.group or "MaxPool" in group.group]
    assert len(around) >= 6 and not any("tile of" in source for source in around), around


def by_places(folder: Path, shape: str, factor: tuple[int, ...]) -> Path:
    """Factors that differ from one place of the fixed side to the next, before a pooling and between convolutions that
    see one place: those of the frequencies of a spectrogram."""
    text = f"""
    by_places (float[1, 16, {shape}] x) => (float[1, 16, a, b] y, float[1, 16, 1, 1] z, float[1, 16, 1, 1] t) {{
      c1 = Conv (x, w1)
      m1 = Mul (c1, k)
      y = Conv (m1, w1)
      m2 = Mul (x, k)
      z = GlobalMaxPool (m2)
      t = GlobalAveragePool (x)
    }}"""
    return write(folder / "by_places.onnx", text, {"w1": weight(16, 16, 1, 1), "k": weight(*factor)})


@pytest.mark.parametrize(
    ("fixed", "shape", "factor"),
    [
        ("height", "8, width", (1, 1, 8, 1)), ("width", "height, 1", (1, 16, 1, 1)),
        pytest.param("height", "16, width", (16, 1), marks=pytest.mark.long),
        pytest.param("width", "height, 6", (6,), marks=pytest.mark.long),
        pytest.param("width", "height, 16", (16, 1, 16), marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_places_of_the_fixed_side_keep_their_own_factors(
    tmp_path: Path, fixed: str, shape: str, factor: tuple[int, ...]
) -> None:
    model = by_places(tmp_path, shape, factor)
    library = built_images(model, {other(fixed): (3, 70)}, threads=1)
    check_images(model, library, [{other(fixed): size} for size in SHAPES])
