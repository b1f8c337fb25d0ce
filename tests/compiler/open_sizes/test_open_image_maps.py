"""What mixes places beside an open number of images: attention whose keys are places of another map, images behind
places, windows of places, and attention over channels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autofuse
from autofuse import api
from tests.compiler.open_sizes.models import Array, attends, weight, write

WIDTH = 16


def mixed(queries: str, keys: str, values: str) -> str:
    """The attention of one head, `o`, whose keys are turned already."""
    return f"""
  s = MatMul ({queries}, {keys})
  scaled = Mul (s, scale)
  f = Softmax <axis = -1> (scaled)
  o = MatMul (f, {values})"""


FRONT = """
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
  m = Relu (a)
  sizes = Shape (m)"""
TOKENS = """
  l = Reshape (m, flat)
  t = Transpose <perm = [0, 2, 1]> (l)"""
BACK = """
  b = Transpose <perm = [0, 2, 1]> (h)
  y = Reshape (b, sizes)"""
STRIDED = f"""{TOKENS}
  z = Conv <kernel_shape = [2, 2], strides = [2, 2]> (m, wz)
  zl = Reshape (z, flat)
  zt = Transpose <perm = [0, 2, 1]> (zl)
{attends("t").replace("(t, wk)", "(zt, wk)").replace("(t, wv)", "(zt, wv)")}{BACK}"""
"""Keys and values behind a strided convolution, as SegFormer and PVT have them."""
ONE_HEAD = f"""{TOKENS}
  z = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (m)
  k = Reshape (z, flat)
  v = Transpose <perm = [0, 2, 1]> (k){mixed("t", "k", "v")}
  h = Add (t, o){BACK}"""
CONTEXT = f"""{TOKENS}
{attends("t").replace("(t, wk)", "(text, wk)").replace("(t, wv)", "(text, wv)")}{BACK}"""
"""Keys and values of a text, as the U-Nets of diffusion have them."""
BEHIND = f"""
  l = Reshape (m, flat)
  t = Transpose <perm = [2, 0, 1]> (l)
  q = MatMul (t, wq)
  places = Shape (t)
  tokens = Gather (places, zero)
  images = Gather (places, one)
  often = Mul (images, two)
  target = Concat <axis = 0> (tokens, often, depth)
  qh = Reshape (q, target)
  qt = Transpose <perm = [1, 0, 2]> (qh)
  kt = Transpose <perm = [1, 2, 0]> (qh){mixed("qt", "kt", "qt")}
  ot = Transpose <perm = [1, 0, 2]> (o)
  rows = Reshape (ot, flat_rows)
  g = Gemm (rows, wv)
  h = Reshape (g, places)
  r = Add (t, h)
  b = Transpose <perm = [1, 2, 0]> (r)
  y = Reshape (b, sizes)"""
"""Images behind places, and beside heads and places in one axis, as torch's own attention has them."""
CHANNELS = """
  l = Reshape (m, by_head)
  n = ReduceL2 <keepdims = 1> (l, last)
  u = Div (l, n)
  ut = Transpose <perm = [0, 1, 3, 2]> (u)
  s = MatMul (u, ut)
  f = Softmax <axis = -1> (s)
  o = MatMul (f, l)
  y = Reshape (o, sizes)"""
"""Attention over channels, as Restormer and XCiT have it."""
WINDOWS = f"""
  height = Gather (sizes, two)
  width = Gather (sizes, three)
  images = Gather (sizes, zero)
  high = Div (height, four)
  wide = Div (width, four)
  parts = Concat <axis = 0> (images, channels, high, four, wide, four)
  p = Reshape (m, parts)
  turned = Transpose <perm = [0, 2, 4, 3, 5, 1]> (p)
  t = Reshape (turned, window)
  k = Transpose <perm = [0, 2, 1]> (t){mixed("t", "k", "t")}
  back = Concat <axis = 0> (images, high, wide, four, four, channels)
  q = Reshape (o, back)
  r = Transpose <perm = [0, 5, 1, 3, 2, 4]> (q)
  y = Reshape (r, sizes)"""
"""Attention inside of windows of 4x4 places, as SwinIR has it."""
SECOND = """
  p = Slice (m, from_one, to_end, both, steps)
  n = Slice (m, from_zero, to_end, both, steps)
  c = Concat <axis = 1> (p, n)
  d = Conv <kernel_shape = [1, 1]> (c, wd)
  y = Resize <mode = "nearest"> (d, , scales)"""
"""Every second place, as the first layer of YOLOv5 and the joins of Swin have it."""
CONSTANTS: dict[str, Array] = {
    "w": weight(WIDTH, 3, 3, 3), "wz": weight(WIDTH, WIDTH, 2, 2), "wq": weight(WIDTH, WIDTH, seed=1),
    "wk": weight(WIDTH, WIDTH, seed=2), "wv": weight(WIDTH, WIDTH, seed=3), "scale": np.float32(0.3),
    "heads": np.array([0, -1, 2, WIDTH // 2]), "joined": np.array([0, -1, WIDTH]), "flat": np.array([0, WIDTH, -1]),
    "flat_rows": np.array([-1, WIDTH]), "by_head": np.array([0, 2, WIDTH // 2, -1]), "last": np.array([-1]),
    "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "three": np.array([3]), "four": np.array([4]),
    "from_one": np.array([1, 1]), "from_zero": np.array([0, 0]), "to_end": np.array([1 << 40, 1 << 40]),
    "both": np.array([2, 3]), "steps": np.array([2, 2]), "scales": np.array([1, 1, 2, 2], np.float32),
    "wd": weight(WIDTH, 2 * WIDTH, 1, 1), "depth": np.array([WIDTH // 2]),
    "channels": np.array([WIDTH]), "window": np.array([-1, 16, WIDTH]),
}  # fmt: skip
SIZES = {"batch": (1, 5), "height": (4, 36, 4), "width": (4, 36, 4)}
POINTS = [(1, 4, 4), (5, 36, 36), (1, 36, 4), (5, 4, 36), (2, 8, 20), (3, 28, 12), (1, 16, 8), (4, 20, 32)]
BODIES = {
    "strided": STRIDED, "one_head": ONE_HEAD, "context": CONTEXT, "behind": BEHIND, "channels": CHANNELS,
    "windows": WINDOWS, "every_second": SECOND,
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "threads"),
    [
        ("strided", 2),
        ("behind", 1),
        *(pytest.param(body, 1, marks=pytest.mark.long) for body in [*BODIES][1:] if body != "behind"),
    ],
)
def test_any_number_of_images_whose_places_are_mixed(body: str, threads: int, tmp_path: Path) -> None:
    text = ", float[batch, 7, 16] text" if body == "context" else ""
    graph = (
        f"maps (float[batch, 3, height, width] x{text}) => (float[batch, {WIDTH}, h, l] y) {{{FRONT}{BODIES[body]}\n}}"
    )
    used = {name: array for name, array in CONSTANTS.items() if re.search(rf"[(,] ?{name}[),]", graph)}
    model, library = write(tmp_path / "maps.onnx", graph, used), tmp_path / "maps.so"
    api.compile(model, library, sizes=SIZES, threads=threads, database=str(tmp_path / "a.db"))
    run, session = autofuse.load(library), onnxruntime.InferenceSession(str(model))
    draw = np.random.default_rng(0)
    for batch, height, width in POINTS:
        feeds = {"x": draw.standard_normal((batch, 3, height, width)).astype(np.float32)}
        if text:
            feeds["text"] = draw.standard_normal((batch, 7, 16)).astype(np.float32)
        (found,), (wanted,) = run(feeds), session.run(None, feeds)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
