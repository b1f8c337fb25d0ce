"""Detectors whose height and width are open: rows of all places of several scales, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse import api
from autofuse.errors import InputError
from tests.compiler.open_sizes.detectors import BINS, BODY, BOXES, ROWS, WEIGHTS
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import write

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
        y = Softmax <axis = -1> (q)
      }}"""
    model = write(tmp_path / "net.onnx", text, WEIGHTS)
    with pytest.raises(InputError, match="Softmax 'y'|Softmax 'Softmax_.*rows of one axis"):
        api.compile(model, None, database=str(tmp_path / "a.db"), sizes={"height": (4, 40, 4), "width": (8, 60, 4)})
