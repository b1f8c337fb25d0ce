"""Detectors whose height and width are open: rows of all places of several scales, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse import api
from autofuse.errors import InputError
from tests.compiler.open_sizes.detectors import BINS, BODY, BOXES, ROWS, SCORE_RANGES, SCORE_SHAPES, SCORES, WEIGHTS
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import weight, write

SHAPES = [(4, 8), (4, 60), (40, 8), (40, 60), (8, 12), (20, 28), (36, 52)]


@pytest.mark.parametrize(
    ("text", "batch", "threads"),
    [
        (ROWS, True, 2),
        (BOXES, False, 1),
        (BINS, False, 2),
        pytest.param(ROWS, False, 1, marks=pytest.mark.long),
        pytest.param(BOXES, True, 2, marks=pytest.mark.long),
        pytest.param(BINS, True, 1, marks=pytest.mark.long),
    ],
)
def test_rows_of_places_are_right_at_any_size(tmp_path: Path, text: str, batch: bool, threads: int) -> None:
    model = write(tmp_path / "net.onnx", text.replace("[N", "[batch" if batch else "[1"), WEIGHTS)
    sizes: dict[str, tuple[int, ...]] = {"height": (4, 40, 4), "width": (8, 60, 4)}
    sizes |= {"batch": (1, 3)} if batch else {}
    library = built_images(model, sizes, threads=threads)
    points = [{"height": high, "width": wide} for high, wide in SHAPES]
    if batch:
        points = [{"batch": 1 + number % 3, **point} for number, point in enumerate(points)]
    check_images(model, library, points)


@pytest.mark.long
def test_sizes_that_no_stride_divides_have_rows_too(tmp_path: Path) -> None:
    model = write(tmp_path / "net.onnx", ROWS.replace("[N", "[1"), WEIGHTS)
    library = built_images(model, {"height": (5, 31), "width": (6, 41)}, threads=1)
    shapes = [(5, 6), (5, 41), (31, 6), (31, 41), (7, 11), (16, 17), (29, 23)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])


def test_what_needs_rows_of_places_in_one_axis_is_refused_by_name(tmp_path: Path) -> None:
    text = f"""
      over (float[1, 3, height, width] x) => (float[1, 8, places] y) {{{BODY}
        three = Constant <value_ints = [1, 8, -1]> ()
        q = Reshape (b, three)
        two = Constant <value_int = 2> ()
        y = CumSum (q, two)
      }}"""
    model = write(tmp_path / "net.onnx", text, WEIGHTS)
    with pytest.raises(InputError, match="CumSum 'CumSum_"):
        api.compile(model, database=str(tmp_path / "a.db"), sizes=SCORE_RANGES, dry_run=True)


@pytest.mark.long
def test_a_product_of_rows_is_one_of_each_map(tmp_path: Path) -> None:
    text = SCORES.replace("y = Concat <axis = 1> (va, vb)", """j = Concat <axis = 1> (va, vb)
      rows = Reshape (j, flat7)
      f = Gemm <transB = 1> (rows, w37, b3)
      i3 = Constant <value_ints = [1, -1, 3]> ()
      y = Reshape (f, i3)""").replace("float[1, r, 7] y", "float[1, r, 3] y")  # fmt: skip
    weights = {**WEIGHTS, "flat7": np.array([-1, 7]), "w37": weight(3, 7), "b3": weight(3)}
    model = write(tmp_path / "net.onnx", text, weights)
    library = built_images(model, SCORE_RANGES, threads=1)
    check_images(model, library, [{"height": high, "width": wide} for high, wide in SCORE_SHAPES])
