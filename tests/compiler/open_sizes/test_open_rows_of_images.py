"""Convolutions of images of open sizes that are computed row by row, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse import api
from autofuse.kernels.open_sizes.images.row_parts import RowCover, row_cover, row_split
from tests.compiler.open_sizes.images import built_images, check_images
from tests.compiler.open_sizes.models import weight, write

NET = """
net (float[N, 16, height, width] x) => (float[N, 2, h, w] y, float[N, 32, k, l] z) {
  a = Conv <kernel_shape = [1, 1]> (x, w1, b16)
  s = Add (a, x)
  r = Relu (s)
  u = ConvTranspose <kernel_shape = [2, 2], strides = [2, 2]> (r, w2, b16)
  m = Conv <kernel_shape = [1, 1]> (u, w3)
  y = Sigmoid (m)
  z = Conv <kernel_shape = [2, 3], strides = [2, 1]> (r, w4)
}"""
WEIGHTS = {
    "w1": weight(16, 16, 1, 1), "b16": weight(16), "w2": weight(16, 16, 2, 2), "w3": weight(2, 16, 1, 1),
    "w4": weight(32, 16, 2, 3),
}  # fmt: skip
"""A 1x1 convolution with a sum, a transposed one, one to few channels, and one with windows and no borders."""


@pytest.mark.parametrize(("images", "threads"), [("1", 1), pytest.param("1", 2, marks=pytest.mark.long), ("batch", 2)])
def test_images_of_any_size_are_right(tmp_path: Path, images: str, threads: int) -> None:
    model = write(tmp_path / "net.onnx", NET.replace("N", images), WEIGHTS)
    sizes: dict[str, tuple[int, ...]] = {"height": (2, 50, 2), "width": (3, 60)}
    sizes |= {"batch": (1, 3)} if images == "batch" else {}
    library = built_images(model, sizes, threads=threads)
    shapes = [(2, 3), (2, 60), (50, 3), (50, 60), (4, 5), (8, 12), (18, 13), (22, 27), (36, 41)]
    points = [{"height": high, "width": wide} for high, wide in shapes]
    if images == "batch":
        points = [{"batch": 1 + number % 3, **point} for number, point in enumerate(points)]
    check_images(model, library, points)
    found = api.compile(model, database=str(tmp_path / "a.db"), threads=threads, dry_run=True, sizes=sizes)
    assert {"the whole image at once" in group.source for group in found.groups if "Conv" in group.group} == {True}


BORDERS = """
borders (float[N, 3, height, width] x) => (float[N, 16, h, w] y, float[N, 8, k, l] z) {
  a = Conv <kernel_shape = [7, 7], strides = [2, 2], pads = [3, 3, 3, 3]> (x, w1, b16)
  r = Relu (a)
  y = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r, w2)
  d = Conv <kernel_shape = [3, 3], dilations = [2, 2], pads = [2, 0, 1, 2]> (r, w2)
  z = Conv <kernel_shape = [5, 3], pads = [2, 1, 2, 1]> (d, w3)
}"""
BORDER_WEIGHTS = {
    "w1": weight(16, 3, 7, 7), "b16": weight(16), "w2": weight(16, 16, 3, 3), "w3": weight(8, 16, 5, 3),
}  # fmt: skip
"""Windows of several sizes, steps and distances that look beyond the borders, not alike on all sides."""


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.long)])
def test_borders_are_right_at_any_size(tmp_path: Path, threads: int) -> None:
    model = write(tmp_path / "borders.onnx", BORDERS.replace("N", "1"), BORDER_WEIGHTS)
    library = built_images(model, {"height": (8, 100, 4), "width": (12, 140, 4)}, threads=threads)
    shapes = [(8, 12), (8, 140), (100, 12), (100, 140), (12, 16), (24, 28), (40, 56), (60, 100), (36, 60)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])


WINDOWS = """
windows (float[N, 3, height, width] x) => (float[N, 32, h, w] y, float[N, 32, k, l] z, float[N, 32, m, n] v) {
  a = Conv <kernel_shape = [1, 1]> (x, w1)
  r = Relu (a)
  d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 32> (r, w2, b32)
  e = Clip (d, least, most)
  y = Conv <kernel_shape = [5, 3], strides = [2, 2], pads = [2, 0, 2, 1], group = 32> (e, w3)
  p = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r)
  q = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (p)
  z = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (q)
  g = Conv <kernel_shape = [3, 3], strides = [2, 3], pads = [1, 1, 1, 1], group = 2> (r, w4)
  s = Add (g, g)
  v = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 8> (s, w5)
}"""
WINDOW_WEIGHTS = {
    "w1": weight(32, 3, 1, 1), "b32": weight(32), "w2": weight(32, 1, 3, 3), "w3": weight(32, 1, 5, 3),
    "w4": weight(32, 16, 3, 3), "w5": weight(32, 4, 3, 3), "least": np.float32(0), "most": np.float32(6),
}  # fmt: skip
"""Depthwise convolutions, poolings and convolutions of groups; strides leave each rest at some size."""


@pytest.mark.long
@pytest.mark.parametrize(("images", "threads"), [("1", 1), ("batch", 2)])
def test_windows_over_channels_and_groups_are_right_at_any_size(tmp_path: Path, images: str, threads: int) -> None:
    model = write(tmp_path / "windows.onnx", WINDOWS.replace("N", images), WINDOW_WEIGHTS)
    sizes: dict[str, tuple[int, ...]] = {"height": (5, 70), "width": (8, 90)}
    sizes |= {"batch": (1, 3)} if images == "batch" else {}
    library = built_images(model, sizes, threads=threads)
    shapes = [(5, 8), (5, 90), (70, 8), (70, 90), (6, 9), (7, 10), (8, 11), (9, 12), (23, 37), (31, 58), (64, 83)]
    points = [{"height": high, "width": wide} for high, wide in shapes]
    if images == "batch":
        points = [{"batch": 1 + number % 3, **point} for number, point in enumerate(points)]
    check_images(model, library, points)
    found = api.compile(model, database=str(tmp_path / "a.db"), threads=threads, dry_run=True, sizes=sizes)
    kinds = ("Conv", "Pool")
    whole = [("the whole image at once" in one.source, one.group) for one in found.groups]
    assert [group for is_whole, group in whole if not is_whole and any(kind in group for kind in kinds)] == []


ROW = """
row (float[1, 32, height, width] x, float[1, 1, height, 1] s) => (float[1, 32, h, w] y, float[1, 32, k, l] z) {
  a, b = Split <axis = 1, num_outputs = 2> (x)
  c = Conv <kernel_shape = [1, 1]> (b, w1, b16)
  r = Relu (c)
  j = Concat <axis = 1> (a, r)
  sides = Shape <start = 2> (x)
  apart = Concat <axis = 0> (parted, sides)
  p = Reshape (j, apart)
  t = Transpose <perm = [0, 2, 1, 3, 4]> (p)
  whole = Concat <axis = 0> (together, sides)
  y = Reshape (t, whole)
  z = Mul (x, s)
}"""
ROW_WEIGHTS = {
    "w1": weight(16, 16, 1, 1), "b16": weight(16), "parted": np.array([1, 2, 16]),
    "together": np.array([1, 32]),
}  # fmt: skip
"""A unit of a ShuffleNet, and a product with an image of one column."""


def test_places_in_one_row_are_right_at_any_size(tmp_path: Path) -> None:
    model = write(tmp_path / "row.onnx", ROW, ROW_WEIGHTS)
    sizes = {"height": (2, 40), "width": (2, 50)}
    library = built_images(model, sizes, threads=2)
    shapes = [(2, 2), (2, 50), (40, 2), (40, 50), (3, 3), (7, 11), (8, 16), (13, 17), (16, 24), (37, 41)]
    check_images(model, library, [{"height": high, "width": wide} for high, wide in shapes])
    found = api.compile(model, database=str(tmp_path / "a.db"), threads=2, dry_run=True, sizes=sizes)
    rows = {one.source.split()[2] for one in found.groups}
    assert {"1x128", "1x32"} <= rows


def test_places_that_padding_of_a_transposed_window_passes_over_are_not_read(tmp_path: Path) -> None:
    text = """
      cut (float[1, 16, height, width] x) => (float[1, 16, h, w] y) {
        y = ConvTranspose <kernel_shape = [2, 2], pads = [2, 2, 2, 2]> (x, w2)
      }"""
    model = write(tmp_path / "cut.onnx", text, {"w2": WEIGHTS["w2"]})
    library = built_images(model, {"height": (4, 20), "width": (4, 20)}, threads=1)
    check_images(model, library, [{"height": high, "width": wide} for high, wide in ((4, 4), (20, 5), (11, 20))])


@pytest.mark.parametrize(("pixels", "least"), [(14, 1), (6, 4), (8, 2), (1, 1)])
def test_a_row_of_any_length_is_parted(pixels: int, least: int) -> None:
    split = row_split(pixels, least)
    assert split.lengths[0] == pixels
    for results in range(least, 80):
        counts = split.counts(results)
        taken = [length for length, count in zip(split.lengths, counts, strict=True) if count]
        assert results <= sum(a * b for a, b in zip(split.lengths, counts, strict=True)) < results + pixels
        assert max(taken) <= results


COVERS = [
    (14, 2, (1, 1), range(2, 300), 3, 2), (14, 2, (2, 2), range(16, 160), 7, 2), (4, 8, (1, 0), range(1, 90), 3, 1),
    (14, 2, (1, 0), range(8, 161, 4), 3, 1), (6, 4, (9, 12), range(21, 200), 3, 4), (1, 1, (1, 1), range(2, 9), 3, 1),
]  # fmt: skip


@pytest.mark.parametrize(("pixels", "vectors", "ends", "lengths", "taps", "rests"), COVERS)
def test_a_row_with_ends_is_covered_and_no_tile_sees_both(
    pixels: int, vectors: int, ends: tuple[int, int], lengths: range, taps: int, rests: int
) -> None:
    cover, (first, last) = row_cover(pixels, vectors, ends, lengths, taps, rests), ends
    heads_of, tails_of = len(cover.firsts), len(cover.firsts) + len(cover.between)
    for results in lengths:
        widths = (*cover.firsts, *cover.between, *cover.lasts)
        taken = [width for width, count in zip(widths, cover.counts(results), strict=True) for _ in range(count)]
        heads, tails = sum(cover.counts(results)[:heads_of]), sum(cover.counts(results)[tails_of:])
        begin, inside, end = taken[:heads], taken[heads : len(taken) - tails], taken[len(taken) - tails :]
        assert (len(begin), len(end)) == (int(first > 0), int(last > 0))
        assert sum((*begin, *inside, *end)) >= results
        assert all(first <= width <= results - last for width in begin)
        assert all(last <= width <= results - first for width in end)
        assert all(width <= results - first - last for width in inside)


def test_rows_of_a_few_results_are_not_computed_one_by_one() -> None:
    """Sums of one result wait for each other: a row of ten is a tile, or two where both borders are seen."""
    one = row_cover(14, 2, (1, 0), range(2, 21), 3, 1)
    assert max(one.cost(results) / results for results in range(5, 20)) < 1.3
    both = row_cover(14, 2, (1, 1), range(2, 64), 3, 2)
    assert max(both.cost(results) / results for results in range(10, 64)) < 1.3
    assert RowCover((1, 1), (14, 1), (14, 1), (14, 1), 4).cost(10) / 10 > 2
