"""Images resized by a factor that is another one at each size: by the corners, to the size of another image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.open_sizes.images import Point, built_images, check_images
from tests.compiler.open_sizes.models import weight, write

WEIGHTS = {
    "w": weight(16, 3, 3, 3), "v": weight(3, 16, 1, 1), "twice": np.array([1, 1, 2, 2], np.float32),
    "more": np.array([1, 1, 1.5, 2.5], np.float32), "lead": np.array([1, 16]), "lead3": np.array([1, 3]),
}  # fmt: skip
DOWN = "a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)\nr = Relu (a)\n"
TO_INPUT = "s = Shape <start = 2> (x)\nt = Concat <axis = 0> ({lead}, s)\n"
BODIES = {
    "by the corners": DOWN + """
      u = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (r, , twice)
      y = Conv <kernel_shape = [1, 1]> (u, v)""",
    "plain by the corners": DOWN + """o = Conv <kernel_shape = [1, 1]> (r, v)
      y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (o, , twice)""",
    "from one place": DOWN + TO_INPUT.format(lead="lead") + """g = GlobalAveragePool (r)
      u = Resize <mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"> (g, , , t)
      y = Conv <kernel_shape = [1, 1]> (u, v)""",
    "by no whole number": DOWN + """
      u = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (r, , more)
      y = Conv <kernel_shape = [1, 1]> (u, v)""",
    "nearest by no whole number": """
      y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">
          (x, , more)""",
    "cubic by no whole number": DOWN + """
      u = Resize <mode = "cubic", coordinate_transformation_mode = "half_pixel"> (r, , more)
      y = Conv <kernel_shape = [1, 1]> (u, v)""",
    "plain and cubic": """
      y = Resize <mode = "cubic", cubic_coeff_a = -0.5, coordinate_transformation_mode = "align_corners">
          (x, , more)""",
    "nearest by the corners": """
      y = Resize <mode = "nearest", coordinate_transformation_mode = "align_corners"> (x, , twice)""",
}  # fmt: skip
POINTS: list[Point] = [
    {"height": high, "width": wide} for high, wide in ((8, 8), (8, 72), (40, 8), (40, 72), (24, 56), (8, 32), (32, 16))
]


QUICK = ("plain and cubic", "plain by the corners", "nearest by no whole number", "nearest by the corners")
"""Those of few kernels."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in BODIES]
)
def test_images_are_resized_alike_at_any_size(tmp_path: Path, name: str) -> None:
    text = f"resized (float[1, 3, height, width] x) => (float[1, 3, k, l] y) {{\n{BODIES[name]}\n}}"
    model = write(tmp_path / "resized.onnx", text, WEIGHTS)
    check_images(model, built_images(model, {"height": (8, 40, 8), "width": (8, 72, 8)}), POINTS)


def test_a_signal_is_resized_alike_at_any_length(tmp_path: Path) -> None:
    text = """signal (float[2, 3, length] x) => (float[2, 3, l] y) {
      y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , more)
    }"""
    model = write(tmp_path / "signal.onnx", text, {"more": np.array([1, 1, 2.5], np.float32)})
    check_images(model, built_images(model, {"length": (2, 60, 2)}), [{"length": n} for n in (2, 4, 18, 34, 60)])


@pytest.mark.parametrize("mode", ["linear", pytest.param("nearest", marks=pytest.mark.long)])
def test_half_of_an_odd_size_is_resized_to_all_of_it(tmp_path: Path, mode: str) -> None:
    """The factor is 2 at even sizes only."""
    text = f"""
      odd (float[1, 3, height, width] x) => (float[1, 3, k, l] y) {{
        p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        {TO_INPUT.format(lead="lead3")}
        y = Resize <mode = "{mode}"> (p, , , t)
      }}"""
    model = write(tmp_path / "odd.onnx", text, {"lead3": WEIGHTS["lead3"]})
    library = built_images(model, {"height": (5, 31), "width": (6, 41)})
    shapes = [(5, 6), (5, 41), (31, 6), (31, 41), (7, 11), (16, 17), (29, 23)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])
