"""Networks of images whose places all see each other, by attention or by sums over all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.compiler.open_sizes.images import Point
from tests.compiler.open_sizes.models import Array, attends, weight, write

WIDTH = 16
FRONT = """
  a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
  m = Relu (a)
  sizes = Shape (m)"""
TOKENS = f"""
  l = Reshape (m, flat)
  t = Transpose <perm = [0, 2, 1]> (l)
{attends("t")}
  b = Transpose <perm = [0, 2, 1]> (h)"""
"""Two heads, products of tokens, and channels in front again."""
IMAGES = """
  qkv = Conv (m, wqkv)
  whole = Reshape (qkv, flat3)
  q, k, v = Split <axis = 1, num_outputs = 3> (whole)
  qt = Transpose <perm = [0, 2, 1]> (q)
  s = MatMul (qt, k)
  c = Mul (s, scale)
  f = Softmax <axis = -1> (c)
  ft = Transpose <perm = [0, 2, 1]> (f)
  b = MatMul (v, ft)"""
"""One head, 1x1 convolutions, and values times turned scores, as the autoencoders of diffusion have it."""
SUMS = """
  qkv = Conv (m, wqkv)
  whole = Reshape (qkv, flat3)
  q, k, v = Split <axis = 1, num_outputs = 3> (whole)
  r = Softmax <axis = -1> (k)
  rt = Transpose <perm = [0, 2, 1]> (r)
  context = MatMul (v, rt)
  b = Einsum <equation = "bij,bjn->bin"> (context, q)"""
"""Linear attention: a softmax over places, a sum over all of them, and its product with each."""
BACK = """
  i = Reshape (b, sizes)
  e = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (i, wd)
  y = Add (e, m)"""
CONSTANTS: dict[str, Array] = {
    "w": weight(WIDTH, 8, 3, 3), "wd": weight(WIDTH, WIDTH, 3, 3), "wqkv": weight(3 * WIDTH, WIDTH, 1, 1),
    "wq": weight(WIDTH, WIDTH, seed=1), "wk": weight(WIDTH, WIDTH, seed=2), "wv": weight(WIDTH, WIDTH, seed=3),
    "heads": np.array([0, -1, 2, WIDTH // 2]), "joined": np.array([0, -1, WIDTH]), "scale": np.float32(0.3),
    "flat": np.array([0, WIDTH, -1]), "flat3": np.array([0, 3 * WIDTH, -1]),
}  # fmt: skip
RANGES: dict[str, tuple[int, ...]] = {"height": (2, 40, 2), "width": (2, 40, 2)}
POINTS: list[Point] = [
    {"height": high, "width": wide}
    for high, wide in ((2, 2), (2, 40), (40, 2), (40, 40), (4, 6), (10, 14), (26, 22), (32, 16))
]


def written(folder: Path, body: str, **constants: Array) -> Path:
    """A model of one image."""
    text = f"places (float[1, 8, height, width] x) => (float[1, {WIDTH}, h, l] y) {{{FRONT}{body}{BACK}\n}}"
    return write(folder / "places.onnx", text, {**CONSTANTS, **constants})
