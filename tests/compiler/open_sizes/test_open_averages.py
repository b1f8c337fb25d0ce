"""Means of windows that count fewer elements at the borders of images whose sizes are open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.graph.loading.load import load
from autofuse.graph.transform.open_sizes.images.forms.averages import with_counts_at_borders
from autofuse.measure.checking.reference import run_references
from tests.compiler.open_sizes.images import ODD_RANGES, Point, built_images, check_images
from tests.compiler.open_sizes.models import weight, write

POOLS = """
pools (float[1, 8, {sizes}] x) => (float[1, 8, k, l] y) {{
  a = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
  d = Sub (a, x)
  b = AveragePool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 0, 1]> (d)
  y = AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (b)
}}"""
TWO = """
two (float[1, 8, height, width] x) => (float[1, 8, k, l] y) {
  a = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
  y = AveragePool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (a)
}"""
POINTS: list[Point] = [{"height": high, "width": wide} for high, wide in ((7, 9), (7, 51), (41, 9), (41, 51), (24, 38))]


@pytest.mark.long
def test_means_of_fewer_elements_at_the_borders_are_right_at_any_size(tmp_path: Path) -> None:
    model = write(tmp_path / "two.onnx", TWO, {})
    check_images(model, built_images(model, ODD_RANGES), POINTS)


@pytest.mark.parametrize("sizes", ["7, 9", "12, 11"])
def test_a_quotient_of_means_is_the_mean_of_what_is_inside(tmp_path: Path, sizes: str) -> None:
    graph = load(write(tmp_path / "pools.onnx", POOLS.format(sizes=sizes), {}))
    written = with_counts_at_borders(graph)
    pools = [one for one in written.operators if one.op_type == "AveragePool"]
    assert len(pools) == 6 and all(one.attributes["count_include_pad"] == 1 for one in pools)
    inputs = [{"x": weight(*graph.tensors["x"].shape)}]
    (wanted,), (found,) = run_references(graph, inputs), run_references(written, inputs)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-5, atol=1e-6)
