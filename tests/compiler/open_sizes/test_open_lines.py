"""Attention along the rows of an image, and along its columns, whose numbers are both open: axial attention."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import weight, write
from tests.compiler.open_sizes.places import POINTS, RANGES, written

ROWS = """
  t = Transpose <perm = [0, 2, 3, 1]> (m)
  q = MatMul (t, wq)
  k = MatMul (t, wk)
  v = MatMul (t, wv)
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
  s = MatMul (q, kt)
  f = Softmax <axis = -1> (s)
  o = MatMul (f, v)
  r = Add (o, t)"""
"""One head, a row of an image at a time: [1, height, width, channels]."""
COLUMNS = """
  r3 = Squeeze (r, first)
  c = Transpose <perm = [1, 0, 2]> (r3)
  cq = MatMul (c, wk)
  ch = Reshape (cq, heads)
  ct = Transpose <perm = [0, 2, 1, 3]> (ch)
  cu = Transpose <perm = [0, 2, 3, 1]> (ch)
  cs = MatMul (ct, cu)
  cc = Mul (cs, scale)
  cf = Softmax <axis = -1> (cc)
  co = MatMul (cf, ct)
  cb = Transpose <perm = [0, 2, 1, 3]> (co)
  cj = Reshape (cb, joined)
  d = Add (cj, c)
  b = Transpose <perm = [2, 1, 0]> (d)"""
"""Two heads, a column at a time: [width, height, channels]."""


def test_rows_of_what_windows_see(tmp_path: Path) -> None:
    body = """
  m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
  t = Transpose <perm = [0, 2, 3, 1]> (m)
  k = Transpose <perm = [0, 1, 3, 2]> (t)
  s = MatMul (t, k)
  f = Softmax <axis = -1> (s)
  y = MatMul (f, t)"""
    text = f"rows (float[1, 4, height, width] x) => (float[1, height, width, 4] y) {{{body}\n}}"
    model = write(tmp_path / "rows.onnx", text, {})
    check_images(model, built_images(model, RANGES), POINTS)


@pytest.mark.long
def test_rows_and_then_columns_of_an_image_see_each_other(tmp_path: Path) -> None:
    model = written(tmp_path, ROWS + COLUMNS, first=np.array([0]))
    check_images(model, built_images(model, RANGES), POINTS)


@pytest.mark.long
def test_queries_and_keys_with_channels_in_front(tmp_path: Path) -> None:
    """Where strides leave half a step, too."""
    body = """
  qc = Conv (m, w1)
  q = Transpose <perm = [0, 3, 2, 1]> (qc)
  k = Transpose <perm = [0, 3, 1, 2]> (qc)
  s = MatMul (q, k)
  f = Softmax <axis = -1> (s)
  v = Transpose <perm = [0, 3, 2, 1]> (m)
  o = MatMul (f, v)
  b = Transpose <perm = [0, 3, 2, 1]> (o)"""
    model = written(tmp_path, body, w1=weight(4, 16, 1, 1))
    ranges = {name: (low, high - 1) for name, (low, high, _) in RANGES.items()}
    points = [{name: min(size + 1, 39) for name, size in point.items()} for point in POINTS]
    check_images(model, built_images(model, ranges), [{"height": 2, "width": 39}, *points])


def test_lines_of_several_images_are_refused_by_name(tmp_path: Path) -> None:
    body = ROWS.replace("(m)", "(x)") + "\n  y = Conv <kernel_shape = [1, 3], pads = [0, 1, 0, 1]> (r, w)"
    text = f"lines (float[batch, 16, height, width] x) => (float[batch, height, width, 16] y) {{{body}\n}}"
    text = text.replace("y = Conv", "u = Transpose <perm = [0, 3, 1, 2]> (r)\n  y = Conv").replace("(r, w)", "(u, w)")
    weights = {f"w{one}": weight(16, 16, seed=place) for place, one in enumerate("qkv")}
    model = write(tmp_path / "lines.onnx", text, {**weights, "w": weight(16, 16, 1, 3)})
    with pytest.raises(InputError, match="Softmax.*of each of several images"):
        built_images(model, {"batch": (1, 4), "height": (2, 20), "width": (2, 20)})
