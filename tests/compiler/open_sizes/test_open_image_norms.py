"""Norms over all places of images whose sizes are open: of each channel, of groups of them, of a whole image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autofuse.graph.loading.load import load
from autofuse.graph.transform.open_sizes.images.forms.places import with_places_apart
from autofuse.measure.checking.reference import run_references
from tests.compiler.open_sizes.images import Point, built_images, check_images
from tests.compiler.open_sizes.models import Array, weight, write

CHANNELS = 32
OPEN = "1, 32, height, width"
ONES, ZEROS = np.ones(8, np.float32), np.zeros(8, np.float32)
SHIFTED = weight(32, 32, 1, 1)
CONSTANTS: dict[str, Array] = {
    "s": np.abs(weight(CHANNELS)) + 1, "b": weight(CHANNELS), "s8": ONES, "b8": ZEROS, "s1": ONES[:1], "b1": ZEROS[:1],
    "all": np.array([0, 8, -1]), "one": np.array([0, 1, -1]), "w": SHIFTED, "c": weight(CHANNELS) + 3,
    "column": weight(CHANNELS, 1, 1), "axes": np.array([1, 2, 3]),
    "ones": np.ones(CHANNELS, np.float32), "zeros": np.zeros(CHANNELS, np.float32), "places": np.array([2, 3]),
    "least": np.float32(1e-3),
}  # fmt: skip
CONV = "a = Conv <kernel_shape = [1, 1]> (x, w, c)\n"
GROUPED = """
  g = Reshape (a, {form})
  n = InstanceNormalization <epsilon = 0.001> (g, {scale})
  sizes = Shape (a)
  r = Reshape (n, sizes)
  m = Mul (r, column)
  q = Add (m, column)
  y = Relu (q)"""
BODIES = {
    "of each channel": CONV + "n = InstanceNormalization (a, s, b)\ny = Add (n, x)",
    "of each channel, without a scale": CONV + "n = InstanceNormalization (a, ones, zeros)\ny = Add (n, x)",
    "of each channel, in steps": CONV
    + "m = ReduceMean (a, places)\nd = Sub (a, m)\nf = Mul (d, d)\nv = ReduceMean (f, places)\ne = Add (v, least)\n"
    + "r = Sqrt (e)\ny = Div (d, r)",
    "of eight groups": CONV + GROUPED.format(form="all", scale="s8, b8"),
    "of one group": CONV + GROUPED.format(form="one", scale="s1, b1"),
    "of an operator": CONV + "n = GroupNormalization <num_groups = 4> (a, s, b)\ny = Mul (n, a)",
    "of all": CONV + "m = ReduceMean (a, axes)\nd = Sub (a, m)\nh = ReduceMax (d, axes)\ny = Sub (d, h)",
}
BRIEF = ("of eight groups",)
RANGES: dict[str, tuple[int, ...]] = {"height": (2, 40, 2), "width": (4, 72, 2)}
POINTS: list[Point] = [
    {"height": high, "width": wide} for high, wide in ((2, 4), (2, 72), (40, 4), (40, 72), (22, 50), (6, 30), (18, 70))
]


def written(folder: Path, body: str, shape: str = OPEN, **constants: Any) -> Path:
    """A model of norms of images of `shape`."""
    text = f"norms (float[{shape}] x) => (float[{shape}] y) {{\n{body}\n}}"
    path = write(folder / "norms.onnx", text, {**CONSTANTS, **constants})
    model = onnx.load(path)
    model.opset_import[0].version = 21  # GroupNormalization is deprecated in 18
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BRIEF else pytest.mark.long) for name in BODIES]
)
def test_norms_over_all_places_are_right_at_any_size(tmp_path: Path, name: str) -> None:
    model = written(tmp_path, BODIES[name])
    check_images(model, built_images(model, RANGES), POINTS)


@pytest.mark.long
@pytest.mark.parametrize("name", ["of each channel", "of eight groups", "of an operator"])
def test_norms_of_several_images_are_those_of_each(tmp_path: Path, name: str) -> None:
    model = written(tmp_path, BODIES[name], "batch, 32, height, width")
    library = built_images(model, {"batch": (1, 3), **RANGES}, threads=1)
    check_images(model, library, [{"batch": 1 + n % 3, **point} for n, point in enumerate(POINTS)])


@pytest.mark.long
@pytest.mark.parametrize("channels", [3, 24])
def test_channels_that_fill_no_vector_are_normalised_alike(tmp_path: Path, channels: int) -> None:
    own = {"w": weight(channels, channels, 1, 1), "c": weight(channels), "s": weight(channels), "b": weight(channels)}
    model = written(tmp_path, BODIES["of each channel"], f"1, {channels}, height, width", **own)
    check_images(model, built_images(model, {"height": (1, 20), "width": (1, 20)}), [
        {"height": high, "width": wide} for high, wide in ((1, 1), (1, 20), (20, 1), (7, 13), (20, 20))
    ])  # fmt: skip


ROWS = """
  w1 = MaxPool <kernel_shape = [1, 1]> (x)
  t = Transpose <perm = [0, 2, 3, 1]> (w1)
  n = ReduceL2 (t, rows)
  q = Mul (t, t)
  m = ReduceMean (q, rows)
  h = ReduceMax <keepdims = 0> (t, rows)
  d = Div (t, n)
  e = Add (d, m)
  f = Sub (e, h)
  y = Transpose <perm = [0, 3, 1, 2]> (f)"""


@pytest.mark.long
def test_channels_behind_their_places_are_reduced_alike(tmp_path: Path) -> None:
    model = written(tmp_path, ROWS, "1, 21, height, width", rows=np.array([1, 2]))
    check_images(model, built_images(model, {"height": (2, 40), "width": (2, 40)}), [
        {"height": high, "width": wide} for high, wide in ((2, 2), (2, 40), (40, 2), (33, 17), (40, 40))
    ])  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_graph_with_places_apart_computes_the_same(tmp_path: Path, name: str) -> None:
    graph = load(written(tmp_path, BODIES[name], "2, 32, 6, 10"))
    apart = with_places_apart(graph)
    assert not {"InstanceNormalization", "GroupNormalization"} & {operator.op_type for operator in apart.operators}
    inputs = [{"x": weight(2, CHANNELS, 6, 10) + 1}]
    (wanted,), (found,) = run_references(graph, inputs), run_references(apart, inputs)
    np.testing.assert_allclose(found["y"], wanted["y"], rtol=1e-4, atol=1e-4)


def test_places_that_something_else_reads_stay_merged(tmp_path: Path) -> None:
    body = CONV + GROUPED.format(form="all", scale="s8, b8").replace("y = Relu (q)", "t = Softmax (n)")
    graph = load(written(tmp_path, f"{body}\nback = Reshape (t, sizes)\ny = Add (back, q)", "1, 32, 6, 10"))
    apart = with_places_apart(graph)
    assert {(1, 8, 240)} <= {tensor.shape for tensor in apart.tensors.values()}


@pytest.mark.parametrize("made", ["Conv <kernel_shape = [1, 1]> (x, w)", "Softmax <axis = 1> (x)"])
def test_what_sums_channels_stands_in_a_kernel_before_that_of_a_reduction(tmp_path: Path, made: str) -> None:
    """The plan has both in one."""
    text = "1, 32, height, width"
    body = (
        f"s (float[{text}] x) => (float[1, 32, 1, 1] y) {{\n a = {made}\n r = Tanh (a)\n y = GlobalAveragePool (r)\n}}"
    )
    model = write(tmp_path / "sums.onnx", body, {"w": SHIFTED})
    library = built_images(model, {"height": (2, 9), "width": (2, 9)}, plan="always")
    check_images(model, library, [{"height": high, "width": wide} for high, wide in ((2, 2), (9, 9), (5, 7))])
