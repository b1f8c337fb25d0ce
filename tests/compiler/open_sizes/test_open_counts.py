"""What depends on how many places there are: deviations over time, means written as sums, the ends of a signal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import Array, built_over, check_over, weight, write

SIZES: dict[str, tuple[int, int]] = {"batch": (1, 3), "steps": (2, 40)}
POINTS = [{"batch": batch, "steps": steps} for batch, steps in ((1, 2), (3, 40), (2, 3), (1, 17), (3, 16))]
WEIGHTS: dict[str, Array] = {
    "w": weight(12, 20), "one": np.array([1]), "axis": np.array(1), "single": np.float32(1), "last": np.array(-1),
    "first": np.array([0]), "v": weight(4, 6, 3), "u": weight(4, 4, 3, seed=1),
}  # fmt: skip
DEVIATION = """
  h = MatMul (x, w) m = ReduceMean <keepdims = 1> (h, one) d = Sub (h, m) s = Mul (d, d)
  v2 = ReduceMean <keepdims = 0> (s, one) shape = Shape (h) n = Gather (shape, axis) many = Cast <to = 1> (n)
  all = Mul (v2, many) less = Sub (many, single) v1 = Div (all, less) y = Sqrt (v1)"""
MEAN = """
  h = MatMul (x, w) t = ReduceSum <keepdims = 1> (h, one) shape = Shape (h) n = Gather (shape, axis)
  many = Cast <to = 1> (n) m = Div (t, many) y = Sub (h, m)"""


@pytest.mark.parametrize(("body", "made"), [(DEVIATION, "batch, 20"), (MEAN, "batch, steps, 20")])
def test_a_number_of_steps_is_counted_when_the_library_runs(tmp_path: Path, body: str, made: str) -> None:
    text = f"counts (float[batch, steps, 12] x) => (float[{made}] y) {{ {body} }}"
    model = write(tmp_path / "counts.onnx", text, WEIGHTS)
    check_over(model, built_over(model, SIZES), POINTS)


def test_the_first_and_the_last_step_of_a_signal(tmp_path: Path) -> None:
    """Behind causal convolutions, as a temporal convolutional network has it; of one step the first is the last."""
    body = """a = Conv <kernel_shape = [3], pads = [2, 0]> (x, v) r = Relu (a)
      b = Conv <kernel_shape = [3], pads = [4, 0], dilations = [2]> (r, u) h = Add (b, r)
      y = Gather <axis = 2> (h, last) z = Gather <axis = 2> (h, first)"""
    text = f"ends (float[batch, 6, steps] x) => (float[batch, 4] y, float[batch, 4, 1] z) {{ {body} }}"
    model = write(tmp_path / "ends.onnx", text, WEIGHTS)
    library = built_images(model, {**SIZES, "steps": (1, 40)}, 1)
    check_images(model, library, [*POINTS, {"batch": 1, "steps": 1}, {"batch": 3, "steps": 1}])
    feeds = {"x": np.ones((1, 6, 20), np.float32)}
    feeds["x"][:, :, :5] = np.inf
    assert np.isfinite(library(feeds)[0]).all(), "what stands elsewhere counts for nothing"
