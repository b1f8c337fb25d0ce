"""Parts with as many rows as the data say, compared with ONNX Runtime: none, one, some, the most, and one more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import autofuse
from autofuse import api
from autofuse.backend.library.library import count_kernels, load, read_metadata
from autofuse.backend.library.threads import usable_threads
from autofuse.compiler import CompileReport, Context, Policy, compile_in
from autofuse.compiler.report import TILE
from autofuse.environment.place import Place
from autofuse.errors import InputError
from tests.segments.models import assert_same, expected, model_of, normal, written

pytestmark = pytest.mark.usefixtures("any_size")

CHOSEN = """
  over = Greater (p, half)
  k = NonZero (over)
  all = Squeeze (k, zero)
  i = Slice (all, zero, most, zero)
  g = Gather (x, i)"""
"""The rows of x, up to 40, whose p is large."""
INTEGERS = {"half": np.float32(0.5), "zero": np.array([0]), "most": np.array([40])}
PRODUCTS = f"""net (float[60,32] x, float[60] p) => (float[n,12] y) {{{CHOSEN}
  a = Gemm (g, w, b)
  r = Relu (a)
  m = MatMul (r, v)
  y = Softmax <axis = 1> (m)
}}"""
WEIGHTS = {"w": normal(32, 48), "b": normal(48, seed=1), "v": normal(48, 12, seed=2)}


def compiled(model: ModelProto, folder: Path, threads: int = 1, **options: Any) -> tuple[CompileReport, Path]:
    path, library = written(model, folder), folder / "model.so"
    report = api.compile(path, library, threads=threads, database=str(folder / "a.db"), **options)
    return report, library


def feeds(count: int, *shape: int) -> dict[str, Any]:
    """Inputs of which so many rows are chosen."""
    draw = np.random.default_rng(count)
    over = np.zeros(shape[0], np.float32)
    over[draw.permutation(shape[0])[:count]] = 1
    return {"x": draw.standard_normal(shape).astype(np.float32), "p": over}


@pytest.mark.parametrize("threads", [1, 2])
def test_any_number_of_rows_is_right(tmp_path: Path, threads: int) -> None:
    model = model_of(PRODUCTS, **INTEGERS, **WEIGHTS)
    report, library = compiled(model, tmp_path, threads)
    assert [part.kinds for part in report.parts if part.side == "autofuse"][-1].startswith("up to 40 rows: ")
    session = autofuse.Session(str(library), threads=min(threads, usable_threads()))
    for count in (0, 1, 2, 7, 39, 40, 60):
        given = feeds(count, 60, 32)
        assert_same(session.run(None, given), expected(model, given))


def test_no_row_needs_no_call(tmp_path: Path) -> None:
    _, library = compiled(model_of(PRODUCTS, **INTEGERS, **WEIGHTS), tmp_path)
    loaded, metadata = load(library), read_metadata(library)
    of_rows = [part for part in metadata.parts.order if part.counts_rows] if metadata.parts else []
    assert [metadata.programs[part.program or 0].opened.sizes[0].high for part in of_rows] == [40]  # type: ignore[union-attr]
    none, some = (count_kernels(loaded, feeds(count, 60, 32)) for count in (0, 3))
    assert some - none == len(metadata.programs[-1].kernel_rows) > 0


def test_more_rows_than_kernels_take_run_in_onnx_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofuse.segments.rows.MOST_ROWS", 8)
    model = model_of(PRODUCTS, **{**INTEGERS, "most": np.array([50])}, **WEIGHTS)
    report, library = compiled(model, tmp_path)
    assert any(part.kinds.startswith("up to 8 rows: ") for part in report.parts)
    loaded = load(library)
    before = count_kernels(loaded, feeds(0, 60, 32))
    for count, is_ours in ((8, True), (9, False), (3, True), (60, False), (0, False)):
        given = feeds(count, 60, 32)
        assert_same(loaded(given), expected(model, given))
        assert (count_kernels(loaded, given) > before) == is_ours


def test_images_of_as_many_rows_are_convolved(tmp_path: Path) -> None:
    text = """net (float[20,6,7,7] x, float[20] p) => (float[n,3,14,14] y, float[n,5] z) {
      flags = Greater (p, half)
      g = Compress <axis = 0> (x, flags)
      c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (g, w1, b1)
      r = Relu (c)
      t = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (r, w2)
      y = Sigmoid (t)
      f = Flatten (r)
      z = Gemm (f, w3)
    }"""
    weights = {"w1": normal(8, 6, 3, 3), "b1": normal(8), "w2": normal(8, 3, 2, 2), "w3": normal(8 * 49, 5)}
    model = model_of(text, half=np.float32(0.5), **weights)
    report, library = compiled(model, tmp_path)
    assert any(part.kinds.startswith("up to 20 rows: ") and "ConvTranspose" in part.kinds for part in report.parts)
    loaded = load(library)
    for count in (0, 1, 5, 20):
        given = feeds(count, 20, 6, 7, 7)
        assert_same(loaded(given), expected(model, given))


def test_boxes_that_a_suppression_leaves_have_features(tmp_path: Path) -> None:
    text = """net (float[1,30,4] boxes, float[1,2,30] scores, float[30,16] x) => (float[n,4] y, int64[n,3] chosen) {
      chosen = NonMaxSuppression (boxes, scores, most, overlap, least)
      which = Gather <axis = 1> (chosen, two)
      g = Gather (x, which)
      s = Shape (g)
      rows = Gather (s, first)
      r = Unsqueeze (rows, zero)
      target = Concat <axis = 0> (r, parts)
      heads = Reshape (g, target)
      h = Transpose <perm = [0, 2, 1]> (heads)
      f = Flatten (h)
      a = Gemm (f, w, b)
      q = Relu (a)
      y = MatMul (q, v)
    }"""
    model = model_of(
        text, most=np.array([9]), overlap=np.array([0.9], np.float32), least=np.array([0.5], np.float32),
        two=np.array(2), first=np.array(0), zero=np.array([0]), parts=np.array([4, 4]), w=normal(16, 24), b=normal(24),
        v=normal(24, 4),
    )  # fmt: skip
    report, library = compiled(model, tmp_path)
    assert any(part.kinds.startswith("up to 18 rows: ") for part in report.parts)
    loaded, draw = load(library), np.random.default_rng(0)
    for share in (0.0, 0.02, 0.3, 1.0):
        corner = draw.random((1, 30, 2)).astype(np.float32) * 100
        given = {
            "boxes": np.concatenate([corner, corner + 1], -1), "x": draw.standard_normal((30, 16)).astype(np.float32),
            "scores": (draw.random((1, 2, 30)) < share).astype(np.float32),
        }  # fmt: skip
        assert_same(loaded(given), expected(model, given))


@pytest.mark.parametrize(
    ("between", "why"),
    [
        ("c = CumSum (a, axis)", "CumSum"),
        ("c = Softmax <axis = 0> (a)", "Softmax"),
        ("s = ReduceSum (a, zero) c = Sub (a, s)", "ReduceSum"),
        ("t = Transpose (a) c = Transpose (t)", "Transpose"),
    ],
)
def test_what_mixes_rows_stays_in_onnx_runtime(tmp_path: Path, between: str, why: str) -> None:
    body = f"{CHOSEN} a = MatMul (g, w) {between} y = MatMul (c, v)"
    text = f"net (float[60,32] x, float[60] p) => (float[n,12] y) {{ {body} }}"
    own = {name: array for name, array in WEIGHTS.items() if name != "b"}
    model = model_of(text, **INTEGERS, **own, **({"axis": np.array(0)} if "axis)" in between else {}))
    report, library = compiled(model, tmp_path)
    ours = " ".join(part.kinds for part in report.parts if part.kinds.startswith("up to"))
    assert "MatMul" in ours
    assert why == "Transpose" or why not in ours
    loaded = load(library)
    for count in (0, 1, 33, 60):
        given = feeds(count, 60, 32)
        assert_same(loaded(given), expected(model, given))


def test_rows_of_two_numbers_are_two_segments(tmp_path: Path) -> None:
    text = """net (float[60,32] x, float[60] p) => (float[n,48] y, float[m,48] z) {
      over = Greater (p, half)
      under = Not (over)
      g = Compress <axis = 0> (x, over)
      h = Compress <axis = 0> (x, under)
      y = Gemm (g, w, b)
      z = Gemm (h, w, b)
    }"""
    model = model_of(text, half=INTEGERS["half"], w=WEIGHTS["w"], b=WEIGHTS["b"])
    report, library = compiled(model, tmp_path)
    assert sum(part.kinds == "up to 60 rows: 1 Gemm" for part in report.parts) == 2
    loaded = load(library)
    for count in (0, 1, 30, 60):
        given = feeds(count, 60, 32)
        assert_same(loaded(given), expected(model, given))


def test_rows_that_meet_a_single_one_are_right(tmp_path: Path) -> None:
    """Two numbers of rows may meet where one of them is 1: then ONNX Runtime runs the segment."""
    text = """net (float[60,32] x, float[60] p, float[60] q) => (float[n,48] y) {
      one = Greater (p, half)
      other = Greater (q, half)
      g = Compress <axis = 0> (x, one)
      h = Compress <axis = 0> (x, other)
      s = Add (g, h)
      y = Gemm (s, w, b)
    }"""
    model = model_of(text, half=INTEGERS["half"], w=WEIGHTS["w"], b=WEIGHTS["b"])
    _, library = compiled(model, tmp_path)
    loaded = load(library)
    for count, other in ((5, 5), (5, 1), (1, 5), (1, 1), (0, 1), (0, 0), (60, 60)):
        given = {**feeds(count, 60, 32), "q": feeds(other, 60, 32)["p"]}
        assert_same(loaded(given), expected(model, given))


BODY = """
  c = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, wc)
  f = Relu (c)
  s = ReduceMax <keepdims = 0> (f, channels)
  over = Greater (s, half)
  k = NonZero (over)
  t = Transpose (k)
  last = Transpose <perm = [0, 2, 3, 1]> (f)
  g = GatherND (last, t)
  a = Gemm (g, w, b)
  r = Relu (a)
  y = MatMul (r, v)
}"""
"""Rows of the places of an image that are above a threshold, and products of them."""


def test_rows_behind_images_of_any_size(tmp_path: Path) -> None:
    text = f"net (float[1,3,height,width] x) => (float[n,6] y) {{{BODY}"
    model = model_of(
        text, wc=normal(16, 3, 3, 3), channels=np.array([1]), half=np.float32(1.5), w=normal(16, 24), b=normal(24),
        v=normal(24, 6),
    )  # fmt: skip
    sizes = {"height": (8, 32, 2), "width": (8, 32, 2)}
    report, library = compiled(model, tmp_path, sizes=sizes)
    assert [part.side for part in report.parts] == ["autofuse", "ONNX Runtime", "autofuse"]
    session, draw = autofuse.Session(str(library)), np.random.default_rng(0)
    assert session.get_inputs()[0].shape == (1, 3, "height", "width")
    for height, width, scale in ((8, 8, 0.0), (32, 32, 1.0), (12, 30, 0.8), (20, 8, 3.0)):
        given = {"x": (draw.standard_normal((1, 3, height, width)) * scale).astype(np.float32)}
        assert_same(session.run(None, given), expected(model, given))


ALONE = """net (float[60,32] x, float[60] p) => (float[n,48] y) {
  k = NonZero (p)
  i = Squeeze (k, zero)
  g = Gather (x, i)
  y = Gemm (g, w, b)
}"""


def test_a_segment_of_rows_may_be_the_only_one(tmp_path: Path) -> None:
    model = model_of(ALONE, zero=INTEGERS["zero"], w=WEIGHTS["w"], b=WEIGHTS["b"])
    report, library = compiled(model, tmp_path)
    assert [part.side for part in report.parts] == ["ONNX Runtime", "autofuse"]
    loaded = load(library)
    prepared = loaded.prepared(feeds(3, 60, 32))
    prepared.run()
    assert_same(prepared.outputs(), expected(model, feeds(3, 60, 32)))
    for count in (0, 1, 60):
        given = feeds(count, 60, 32)
        assert_same(loaded(given), expected(model, given))


def test_strict_compiles_leave_rows_to_onnx_runtime(tmp_path: Path) -> None:
    model = model_of(ALONE, zero=INTEGERS["zero"], w=WEIGHTS["w"], b=WEIGHTS["b"])
    report = api.compile(written(model, tmp_path), dry_run=True, database=str(tmp_path / "a.db"), strict=True)
    assert [part.side for part in report.parts] == ["ONNX Runtime"]


def test_a_session_of_rows_looks_at_numbers_of_a_table(tmp_path: Path) -> None:
    """What is picked by numbers that the data give is refused outside of its table, as by any library."""
    text = """net (float[60,32] x, float[60] p, int64[60] which) => (float[n,48] y) {
      over = Greater (p, half)
      i = Compress <axis = 0> (which, over)
      g = Gather (x, i)
      y = Gemm (g, w, b)
    }"""
    model = model_of(text, half=INTEGERS["half"], w=WEIGHTS["w"], b=WEIGHTS["b"])
    _, library = compiled(model, tmp_path)
    loaded = load(library)
    given = {**feeds(5, 60, 32), "which": np.arange(60)[::-1].copy()}
    assert_same(loaded(given), expected(model, given))
    with pytest.raises(InputError, match="table of 60"):
        loaded({**given, "which": np.full(60, 60)})


@pytest.mark.long
def test_tuning_measures_tiles_of_rows_which_a_compile_takes(tmp_path: Path) -> None:
    model = model_of(PRODUCTS, **INTEGERS, **WEIGHTS)
    path = written(model, tmp_path)
    found = api.tune(path, database=str(tmp_path / "a.db"), threads=1, trials=12)
    assert found.measured > 0
    with Context(Place(str(tmp_path / "a.db"), threads=1), policy=Policy(every_segment=True)) as context:
        compile_in(context, path, tmp_path / "model.so", [{}], None)
    assert TILE in {row.tier for row in read_metadata(tmp_path / "model.so").programs[-1].kernel_rows}
    given = feeds(17, 60, 32)
    assert_same(load(tmp_path / "model.so")(given), expected(model, given))
