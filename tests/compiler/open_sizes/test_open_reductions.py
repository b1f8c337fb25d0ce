"""Reductions over all rows of an open size: means over tokens, as sentence embeddings have them, and over a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse import api
from autofuse.backend.library.compiled import Library
from tests.compiler.open_sizes.models import built, check, inputs_at, weight, write

EMBEDDING = """
pooled (float[1, tokens, 24] x, int64[1, tokens] mask) => (float[1, 88] y, float[1, 88] least, float[1, tokens, 88] z) {
  h = MatMul (x, w)
  shape = Shape (h)
  column = Unsqueeze (mask, last)
  spread = Expand (column, shape)
  kept = Cast <to = 1> (spread)
  product = Mul (h, kept)
  total = ReduceSum <keepdims = 0> (product, axis)
  count = ReduceSum <keepdims = 0> (kept, axis)
  some = Clip (count, tiny)
  mean = Div (total, some)
  length = ReduceL2 <keepdims = 1> (mean, last)
  y = Div (mean, length)
  least = ReduceMin <keepdims = 0> (h, axis)
  middle = ReduceMean <keepdims = 1> (h, axis)
  z = Sub (h, middle)
}"""
"""88 columns are vectors together, vectors alone and single ones, on every kind of CPU."""
WEIGHTS = {
    "w": weight(24, 88), "axis": np.array([1]), "last": np.array([-1]), "tiny": np.float32(1e-9),
}  # fmt: skip
MOST = 1200


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A masked mean of rows, their least, and rows less their mean."""
    return write(tmp_path_factory.mktemp("pooled") / "pooled.onnx", EMBEDDING, WEIGHTS)


@pytest.fixture(scope="module")
def library(model: Path) -> Library:
    return built(model, "tokens", 1, MOST)


def test_reductions_are_right_at_any_number_of_rows(model: Path, library: Library) -> None:
    check(model, library, "tokens", (*range(1, 20), 63, 64, 65, 127, 128, 129, 200, 511, 512, 513, 1024, MOST))


def test_rows_behind_the_last_one_count_for_nothing(model: Path, library: Library) -> None:
    """Memory that a longer call has left there."""
    feeds = inputs_at(model, "tokens", 5)
    before = library(feeds)
    library(inputs_at(model, "tokens", MOST))
    for one, other in zip(before, library(feeds), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare"])
def test_every_kind_over_a_batch(tmp_path: Path, kind: str) -> None:
    body = f"float[n, 3, 5] x) => (float[3, 5] y) {{ y = Reduce{kind} <keepdims = 0> (x, axis) }}"
    model = write(tmp_path / "one.onnx", f"one ({body}", {"axis": np.array([0])})
    check(model, built(model, "n", 1, 12), "n", (1, 2, 3, 11, 12))


@pytest.mark.parametrize("channels", [16, 10])
def test_over_a_batch_of_maps_whose_channels_lie_in_blocks(tmp_path: Path, channels: int) -> None:
    """Between convolutions channels lie in blocks where they can; a reduction over rows reads them one by one."""
    body = "c = Conv (x, w, b) r = ReduceMin <keepdims = 1> (c, axis) d = Sub (c, r) e = Conv (d, v) y = Relu (e)"
    weights = {
        "w": weight(channels, 8, 1, 1), "b": weight(channels), "v": weight(16, channels, 1, 1), "axis": np.array([0]),
    }  # fmt: skip
    text = f"maps (float[n, 8, 5, 6] x) => (float[n, 16, 5, 6] y, float[1, {channels}, 5, 6] r) {{ {body} }}"
    model = write(tmp_path / "maps.onnx", text, weights)
    check(model, built(model, "n", 1, 20), "n", (1, 2, 5, 16, 17, 20))


def test_long_sums_lose_little(tmp_path: Path) -> None:
    """One after the other they would lose ten times as much."""
    body = "float[n, 1] x) => (float[1] y) { y = ReduceSum <keepdims = 0> (x, axis) }"
    model = write(tmp_path / "long.onnx", f"long ({body}", {"axis": np.array([0])})
    values = np.full((200_000, 1), 0.1, np.float32)
    (found,) = built(model, "n", 1, 200_000)([values])
    exact = values.sum(dtype=np.float64)
    plain = np.cumsum(values, dtype=np.float32)[-1]
    assert abs(float(found[0]) - exact) < abs(float(plain) - exact) / 10


def test_the_report_says_that_any_number_of_rows_is_reduced(model: Path, tmp_path: Path) -> None:
    report: Any = api.compile(
        model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes={"tokens": (1, MOST)}
    )
    assert sum(group.source == "any number of rows" for group in report.groups) == 4


@pytest.mark.parametrize(
    "body",
    ["axes = Constant <value_ints = [0, 1]> () y = ReduceSum <keepdims = 1> (x, axes)", "y = ReduceMean (x)"],
)
def test_a_reduction_over_more_than_rows_is_refused_by_name(tmp_path: Path, body: str) -> None:
    model = write(tmp_path / "both.onnx", f"both (float[n, 6] x) => (float[1, 1] y) {{ {body} }}", {})
    with pytest.raises(Exception, match=r"n cannot stay open at Reduce(Sum|Mean) .* it mixes them"):
        api.compile(model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes={"n": (1, 4)})
