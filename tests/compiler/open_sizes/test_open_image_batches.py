"""Batch, height and width of images stay open together: at random sizes the results are ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autofuse
from autofuse import api
from tests.compiler.open_sizes.models import weight, write

GATED = """
gated (float[batch, 4, height, width] x) => (float[batch, 4, h, w] y, float[batch, 5] z) {
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
  r = Relu (a)
  d = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
  p = GlobalAveragePool (d)
  s = Conv <kernel_shape = [1, 1]> (p, w2)
  g = Sigmoid (s)
  q = Mul (d, g)
  u = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (q, w3)
  y = Add (u, a)
  f = Flatten (p)
  z = Gemm (f, w4)
}"""
WEIGHTS = {"w1": weight(4, 4, 3, 3), "w2": weight(4, 4, 1, 1), "w3": weight(4, 4, 2, 2), "w4": weight(4, 5)}
SIZES = {"batch": (1, 9), "height": (4, 40, 2), "width": (4, 40, 2)}


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_any_number_of_images_of_any_size(threads: int, tmp_path: Path) -> None:
    model = write(tmp_path / "gated.onnx", GATED, WEIGHTS)
    library = tmp_path / "gated.so"
    api.compile(model, library, sizes=SIZES, threads=threads, database=str(tmp_path / "a.db"))
    run, session = autofuse.load(library), onnxruntime.InferenceSession(str(model))
    draw = np.random.default_rng(0)
    drawn = [(int(draw.integers(1, 10)), *(int(v) * 2 for v in draw.integers(2, 21, 2))) for _ in range(40)]
    for batch, height, width in [(1, 4, 4), (9, 40, 40), *drawn]:
        feeds = {"x": draw.standard_normal((batch, 4, height, width)).astype(np.float32)}
        for found, wanted in zip(run(feeds), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
