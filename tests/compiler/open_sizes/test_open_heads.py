"""Models of open sizes that end in what finds as many places as the data say: ONNX Runtime runs that end."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import autofuse
from autofuse import api
from autofuse.errors import InputError
from tests.compiler.open_sizes.models import THREADS, Array, weight, write

FRONT = """
  a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
  m = Relu (a)
  c = Conv <kernel_shape = [1, 1]> (m, wc)
  s = Sigmoid (c)"""
BEST = f"""
best (float[batch, 3, height, width] x)
  => (float[batch, k] values, float[batch, k, 4] boxes, float[batch, 1, h, l] s) {{{FRONT}
  b = Conv <kernel_shape = [1, 1]> (m, wb)
  sf = Flatten (s)
  values, found = TopK <axis = 1> (sf, five)
  bt = Transpose <perm = [0, 2, 3, 1]> (b)
  rows = Reshape (bt, places)
  column = Unsqueeze (found, last)
  shape = Shape (column)
  wide = Mul (shape, four)
  index = Expand (column, wide)
  boxes = GatherElements <axis = 1> (rows, index)
}}"""
"""The best places of a map, and a box for each."""
ABOVE = f"""
above (float[1, 3, height, width] x) => (int64[4, n] found, float[1, 8, h, l] m) {{{FRONT}
  over = Greater (s, half)
  found = NonZero (over)
}}"""
SHRUNK = (
    """
shrunk (float[1, 3, height, width] image) => (float[1, k] values, int64[1, k] found) {
  whole = Shape (image)
  front = Slice (whole, zero, two)
  high = Slice (whole, two, four_axes)
  most = Min (high, twenty)
  target = Concat <axis = 0> (front, most)
  x = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"> (image, , , target)
"""
    + f"""{FRONT}
  sf = Flatten (s)
  values, found = TopK <axis = 1> (sf, five)
}}"""
)
"""Images of at most 20 places a side are made of the inputs, as detectors resize these."""
PYRAMID = (
    SHRUNK[: SHRUNK.index("  a = Conv")].replace("float[1, k] values, int64[1, k] found", "float[n, 6] y")
    + """
  a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
  m = Relu (a)
  n = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (m, wm)
  size = Shape (m)
  up = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"> (n, , , size)
  both = Add (m, up)
  s = Conv <kernel_shape = [1, 1]> (both, wc)
  e = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (n, wm)
  least = ReduceMean <keepdims = 0> (e)
  map = Squeeze (s, one)
  over = Greater (map, least)
  k = NonZero (over)
  t = Transpose (k)
  places_last = Transpose <perm = [0, 2, 3, 1]> (both)
  g = GatherND (places_last, t)
  b = Gemm (g, wr)
  extent = Cast <to = 1> (high)
  longest = ReduceMax <keepdims = 0> (extent)
  y = Mul (b, longest)
}"""
)
"""Maps of three scales of such images, and a product of the places that are found."""
WEIGHTS: dict[str, Array] = {
    "w": weight(8, 3, 3, 3), "wc": weight(1, 8, 1, 1), "wb": weight(4, 8, 1, 1), "five": np.array([5]),
    "places": np.array([0, -1, 4]), "last": np.array([-1]), "four": np.array([1, 1, 4]), "half": np.float32(0.5),
    "zero": np.array([0]), "two": np.array([2]), "one": np.array([1]), "wm": weight(8, 8, 3, 3), "wr": weight(8, 6),
    "four_axes": np.array([4]), "twenty": np.array([20, 20]),
}  # fmt: skip
IMAGES = {"height": (6, 40, 2), "width": (6, 40, 2)}


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every segment pays, however small it is."""
    monkeypatch.setattr("autofuse.segments.worth.LEAST_US", 0.0)


def assert_onnx_runtimes(library: Path, model: Path, name: str) -> None:
    """A library computes what ONNX Runtime does, of the smallest images, the largest, and others."""
    session, wanted = autofuse.Session(str(library)), onnxruntime.InferenceSession(str(model))
    draw = np.random.default_rng(0)
    for height, width in ((8, 8), (40, 40), (16, 36), (20, 12), (8, 28)):
        feeds = {name: draw.standard_normal((1, 3, height, width)).astype(np.float32)}
        for one, other in zip(session.run(None, feeds), wanted.run(None, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("text", "sizes"), [(BEST, {"batch": (1, 4), **IMAGES}), (ABOVE, IMAGES)])
def test_what_is_found_at_any_size_is_onnx_runtimes(
    text: str, sizes: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    used = {name: array for name, array in WEIGHTS.items() if re.search(rf"[(,] ?{name}[),]", text)}
    model, library = write(tmp_path / "finds.onnx", text, used), tmp_path / "finds.so"
    report = api.compile(model, library, sizes=sizes, threads=THREADS, database=str(tmp_path / "a.db"))
    assert [part.side for part in report.parts] == ["autofuse", "ONNX Runtime"]
    session, wanted = autofuse.Session(str(library)), onnxruntime.InferenceSession(str(model))
    draw = np.random.default_rng(0)
    for batch, height, width in ((1, 6, 6), (4, 40, 40), (3, 14, 38), (2, 22, 10)):
        shape = (batch if "batch" in sizes else 1, 3, height, width)
        feeds = {"x": draw.standard_normal(shape).astype(np.float32)}
        for one, other in zip(session.run(None, feeds), wanted.run(None, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="height is 42"):
        session.run(None, {"x": np.zeros((1, 3, 42, 6), np.float32)})


def test_images_that_are_made_of_the_inputs_have_sizes_of_their_own(tmp_path: Path) -> None:
    used = {name: array for name, array in WEIGHTS.items() if re.search(rf"[(,] ?{name}[),]", SHRUNK)}
    model, library = write(tmp_path / "shrunk.onnx", SHRUNK, used), tmp_path / "shrunk.so"
    report = api.compile(model, library, sizes=IMAGES, threads=THREADS, database=str(tmp_path / "a.db"))
    assert [part.side for part in report.parts] == ["ONNX Runtime", "autofuse", "ONNX Runtime"]
    session, wanted = autofuse.Session(str(library)), onnxruntime.InferenceSession(str(model))
    draw = np.random.default_rng(0)
    for height, width in ((6, 6), (40, 40), (14, 38), (22, 10), (8, 18)):
        feeds = {"image": draw.standard_normal((1, 3, height, width)).astype(np.float32)}
        for one, other in zip(session.run(None, feeds), wanted.run(None, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_head_ends_with_its_last_windows_where_what_is_behind_cannot_stay_open(tmp_path: Path) -> None:
    text = ABOVE.replace("s = Sigmoid (c)", "d = CumSum (c, three)\n  s = Sigmoid (d)")
    used = {name: array for name, array in WEIGHTS.items() if re.search(rf"[(,] ?{name}[),]", text)}
    model, library = write(tmp_path / "finds.onnx", text, {**used, "three": np.array(3)}), tmp_path / "finds.so"
    report = api.compile(model, library, sizes=IMAGES, threads=THREADS, database=str(tmp_path / "a.db"))
    assert ["CumSum" in part.kinds for part in report.parts] == [False, True]
    assert "2 Conv" in report.parts[0].kinds
    assert_onnx_runtimes(library, model, "x")


def test_a_pyramid_of_images_that_are_made_has_rows_behind_it(tmp_path: Path, any_size: None) -> None:
    """Sizes count on both sides, strides do not divide them, and ours compute the rows that are found, too."""
    used = {name: array for name, array in WEIGHTS.items() if re.search(rf"[(,] ?{name}[),]", PYRAMID)}
    model, library = write(tmp_path / "pyramid.onnx", PYRAMID, used), tmp_path / "pyramid.so"
    sizes = {"height": (8, 40, 4), "width": (8, 40, 4)}
    report = api.compile(model, library, sizes=sizes, threads=THREADS, database=str(tmp_path / "a.db"))
    assert [part.side for part in report.parts] == ["ONNX Runtime", "autofuse"] * 2 + ["ONNX Runtime"]
    assert "4 Conv" in report.parts[1].kinds
    assert report.parts[3].kinds.startswith("up to 1024 rows: 1 Gemm")
    assert_onnx_runtimes(library, model, "image")


def test_a_head_whose_sizes_cannot_stay_open_is_refused_by_both_reasons(tmp_path: Path) -> None:
    text = ABOVE.replace("c = Conv <kernel_shape = [1, 1]> (m, wc)", "d = CumSum (m, three)\n  c = Conv (d, wc)")
    used = {name: array for name, array in WEIGHTS.items() if re.search(rf"[(,] ?{name}[),]", text)}
    model = write(tmp_path / "finds.onnx", text, {**used, "three": np.array(3)})
    with pytest.raises(InputError, match=r"(?s)NonZero.*stands before it.*CumSum"):
        api.compile(model, tmp_path / "finds.so", sizes=IMAGES, database=str(tmp_path / "a.db"))
