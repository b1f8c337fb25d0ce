"""Small detectors whose height and width are open: rows of all places of two scales, as torch exports them."""

from __future__ import annotations

import numpy as np

from tests.compiler.open_sizes.models import Array, weight

BODY = """
  a0 = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1)
  a = Relu (a0)
  b0 = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (a, w2)
  b = Relu (b0)"""
WEIGHTS: dict[str, Array] = {
    "w1": weight(8, 3, 3, 3), "w2": weight(8, 8, 3, 3), "wide": weight(14, 8, 1, 1), "bins": weight(19, 8, 1, 1),
    "mean": np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1), "half": np.float32(0.5), "eight": np.float32(8),
    "anchors": np.float32([[1, 2], [3, 1]]).reshape(1, 2, 1, 1, 2), "i223": np.array([2, 2, 3]),
    "i0": np.array([0]), "i1": np.array([1]), "i2": np.array([2]), "i4": np.array([4]), "all": np.array([-1]),
    "i7": np.array([7]), "i27": np.array([2, 7]), "i19": np.array([19]), "i44": np.array([4, 4]),
    "i163": np.array([16, 3]), "i_x": np.array([0, 1, 2, 4]), "i_y": np.array([0, 1, 3, 4]),
    "zero": np.array(0), "one": np.array(1),
}  # fmt: skip

ROWS = f"""
rows (float[N, 3, height, width] x) => (float[N, r, 7] y, float[N, 14, places] z) {{{BODY}
  p = Conv <kernel_shape = [1, 1]> (b, wide)
  s = Shape (p)
  n = Slice (s, i0, i1)
  hw = Slice (s, i2, i4)
  five = Concat <axis = 0> (n, i27, hw)
  v = Reshape (p, five)
  t = Transpose <perm = [0, 3, 4, 1, 2]> (v)
  three = Concat <axis = 0> (n, all, i7)
  u = Reshape (t, three)
  y = Softmax <axis = -1> (u)
  i14 = Constant <value_ints = [14]> ()
  flat = Concat <axis = 0> (n, i14, all)
  q = Reshape (p, flat)
  z = Sigmoid (q)
}}"""
"""Rows of one scale: all that is found at a place side by side, and places behind channels."""


def _of_scale(text: str, data: str) -> str:
    """A text in which each name that ends in `_` ends in that of a scale."""
    return text.replace("_ ", f"{data} ").replace("_)", f"{data})").replace("_,", f"{data},")


def _scores(data: str) -> str:
    """Scores of a scale, `v{data}`: places in rows, two rows each."""
    return _of_scale(
        """
  p_ = Conv <kernel_shape = [1, 1]> (_, wide)
  s_ = Shape (p_)
  n_ = Slice (s_, i0, i1)
  hw_ = Slice (s_, i2, i4)
  t_ = Transpose <perm = [0, 2, 3, 1]> (p_)
  three_ = Concat <axis = 0> (n_, all, i7)
  v_ = Reshape (t_, three_)""",
        data,
    )


SCORES = f"""
scores (float[1, 3, height, width] x) => (float[1, r, 7] y) {{{BODY}{_scores("a")}{_scores("b")}
  y = Concat <axis = 1> (va, vb)
}}"""
"""Rows of two scales in one axis, and nothing else."""
SCORE_RANGES: dict[str, tuple[int, ...]] = {"height": (4, 40, 4), "width": (8, 60, 4)}
SCORE_SHAPES = [(40, 60), (4, 8), (20, 28), (4, 60), (40, 8)]


def _boxes(data: str) -> str:
    """Boxes of a scale, `v{data}`: centres in a grid, sizes by anchors, as YOLOv5 makes them."""
    return _of_scale(
        """
  p_ = Conv <kernel_shape = [1, 1]> (_, wide)
  s_ = Shape (p_)
  n_ = Slice (s_, i0, i1)
  hw_ = Slice (s_, i2, i4)
  five_ = Concat <axis = 0> (n_, i27, hw_)
  r_ = Reshape (p_, five_)
  t_ = Transpose <perm = [0, 1, 3, 4, 2]> (r_)
  g_ = Sigmoid (t_)
  xy_, wh_, c_ = Split <axis = 4> (g_, i223)
  h_ = Gather (s_, i2)
  h0_ = Squeeze (h_)
  i3_ = Constant <value_ints = [3]> ()
  w_ = Gather (s_, i3_)
  w0_ = Squeeze (w_)
  xr_ = Range (zero, w0_, one)
  xf_ = Cast <to = 1> (xr_)
  x5_ = Unsqueeze (xf_, i_x)
  yr_ = Range (zero, h0_, one)
  yf_ = Cast <to = 1> (yr_)
  y5_ = Unsqueeze (yf_, i_y)
  wide_ = Concat <axis = 0> (i1, i1, hw_, i1)
  gx_ = Expand (x5_, wide_)
  gy_ = Expand (y5_, wide_)
  grid_ = Concat <axis = 4> (gx_, gy_)
  at_ = Add (xy_, grid_)
  centre_ = Mul (at_, eight)
  square_ = Mul (wh_, wh_)
  size_ = Mul (square_, anchors)
  five2_ = Concat <axis = 4> (centre_, size_, c_)
  three_ = Concat <axis = 0> (n_, all, i7)
  v_ = Reshape (five2_, three_)""",
        data,
    )


BOXES = f"""
boxes (float[N, 3, height, width] x) => (float[N, r, 7] y) {{{BODY}{_boxes("a")}{_boxes("b")}
  y = Concat <axis = 1> (va, vb)
}}"""
"""Boxes of two scales in one axis."""


def _bins(data: str) -> str:
    """Distributions and scores of a scale, `v{data}`, and its grid, `k{data}`."""
    return _of_scale(
        """
  p_ = Conv <kernel_shape = [1, 1]> (_, bins)
  s_ = Shape (p_)
  n_ = Slice (s_, i0, i1)
  hw_ = Slice (s_, i2, i4)
  three_ = Concat <axis = 0> (n_, i19, all)
  v_ = Reshape (p_, three_)
  h_ = Gather (s_, i2)
  h0_ = Squeeze (h_)
  i3_ = Constant <value_ints = [3]> ()
  w_ = Gather (s_, i3_)
  w0_ = Squeeze (w_)
  xr_ = Range (zero, w0_, one)
  xf_ = Cast <to = 1> (xr_)
  xh_ = Add (xf_, half)
  i01_ = Constant <value_ints = [0, 2]> ()
  x5_ = Unsqueeze (xh_, i01_)
  yr_ = Range (zero, h0_, one)
  yf_ = Cast <to = 1> (yr_)
  yh_ = Add (yf_, half)
  i12_ = Constant <value_ints = [1, 2]> ()
  y5_ = Unsqueeze (yh_, i12_)
  wide_ = Concat <axis = 0> (hw_, i1)
  gx_ = Expand (x5_, wide_)
  gy_ = Expand (y5_, wide_)
  grid_ = Concat <axis = 2> (gx_, gy_)
  i_2_ = Constant <value_ints = [-1, 2]> ()
  k_ = Reshape (grid_, i_2_)""",
        data,
    )


BINS = f"""
bins (float[N, 3, height, width] x) => (float[N, 7, places] y) {{{BODY}{_bins("a")}{_bins("b")}
  joined = Concat <axis = 2> (va, vb)
  box, score = Split <axis = 1> (joined, i163)
  shape = Shape (joined)
  n = Slice (shape, i0, i1)
  places = Slice (shape, i2, i4)
  four = Concat <axis = 0> (n, i44, places)
  d = Reshape (box, four)
  dt = Transpose <perm = [0, 2, 1, 3]> (d)
  soft = Softmax <axis = 1> (dt)
  m = Conv <kernel_shape = [1, 1]> (soft, mean)
  i4n = Constant <value_ints = [4]> ()
  three = Concat <axis = 0> (n, i4n, places)
  lrtb = Reshape (m, three)
  i22 = Constant <value_ints = [2, 2]> ()
  lt, rb = Split <axis = 1> (lrtb, i22)
  ks = Concat <axis = 0> (ka, kb)
  kt = Transpose <perm = [1, 0]> (ks)
  k = Unsqueeze (kt, i0)
  first = Sub (k, lt)
  last = Add (k, rb)
  box2 = Concat <axis = 1> (first, last)
  scaled = Mul (box2, eight)
  sure = Sigmoid (score)
  y = Concat <axis = 1> (scaled, sure)
}}"""
"""Distances as means of distributions, around a grid, as YOLOv8 makes them: places of two scales behind channels."""
