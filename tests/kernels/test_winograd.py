"""Winograd convolutions agree with ONNX Runtime for any image, staging and surroundings; others fall back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from autofuse.kernels.families.contraction.form import Convolution, contraction_form
from autofuse.kernels.families.contraction.winograd import TRANSFORMS, spaced, winograd_refusal
from tests.kernels.conftest import Array, Bench, Small, parsed, real

Shape = tuple[int, ...]
ALGORITHMS = {2: "winograd2", 4: "winograd4"}
ERROR = {2: 2e-6, 4: 2e-5}
"""Of the result's range: F(4x4) magnifies rounding."""


def conv(x: Shape, columns: int, pads: Shape = (1, 1, 1, 1), after: str = "y = Relu (c)", **inputs: Array) -> Small:
    constants = {"w": real(columns, x[1], 3, 3, seed=1), "b": real(columns, seed=2)}
    text = f"c = Conv <pads={list(pads)}> (x, w, b); {after}"
    return Small(parsed(text), {"x": real(*x), **inputs}, ["y"], constants)


def schedule(m: int, stage: str = "chunk", **knobs: int) -> dict[str, Any]:
    chosen = {"algorithm": ALGORITHMS[m], "stage": stage, "vectors": 1, "pixels": 2, "tiles": 4, **knobs}
    return {f"contraction.{name}": value for name, value in chosen.items()}


@pytest.mark.parametrize("m", ALGORITHMS)
def test_the_transforms_convolve_in_one_dimension(m: int) -> None:
    bt, g, at = (np.array(matrix, "float64") for matrix in TRANSFORMS[m])
    data, kernel = np.arange(1.0, m + 3), np.array([2.0, -1.0, 0.5])
    assert np.allclose(at @ ((g @ kernel) * (bt @ data)), np.correlate(data, kernel, "valid"))


SIZES = [(8, 8), (4, 4), (7, 9), (5, 6), (3, 3), (1, 1), (1, 10), (6, 2)]


@pytest.mark.parametrize(("m", "size"), [*((4, size) for size in SIZES), (2, (5, 4)), (2, (1, 1))])
def test_an_image_need_not_be_a_multiple_of_the_tile(bench: Bench, m: int, size: tuple[int, int]) -> None:
    stage = "root" if sum(size) % 2 else "chunk"
    bench.check(conv((1, 8, *size), 8), {}, schedule(m, stage), limit=ERROR[m])


@pytest.mark.parametrize(("m", "pads"), [(4, (0, 0, 0, 0)), (4, (2, 2, 2, 2)), (4, (0, 2, 1, 0)), (2, (1, 0, 0, 2))])
def test_any_padding_is_handled(bench: Bench, m: int, pads: Shape) -> None:
    bench.check(conv((1, 8, 7, 6), 8, pads), {"x": "c8", "y": "c8"}, schedule(m), limit=ERROR[m])


@pytest.mark.parametrize("stage", ["chunk", "root"])
def test_points_that_would_meet_in_the_cache_lie_a_vector_apart(bench: Bench, stage: str) -> None:
    assert (spaced(256, 16), spaced(1024, 8), spaced(224, 16)) == (272, 1032, 224)
    bench.check(conv((1, 16, 16, 16), 16), {"x": "c16", "y": "c16"}, schedule(4, stage, tiles=16), limit=ERROR[4])


LAYOUTS = [
    ({"x": "c8", "y": "c8"}, "root"),
    ({"x": "c8"}, "chunk"),
    ({"y": "c8"}, "root"),
    ({"x": "c4", "y": "c4"}, "chunk"),
]


@pytest.mark.parametrize(("layouts", "stage"), LAYOUTS)
def test_any_layout_is_read_and_written(bench: Bench, layouts: dict[str, str], stage: str) -> None:
    bench.check(conv((2, 16, 6, 5), 24), layouts, schedule(4, stage, vectors=2), limit=ERROR[4])


TILINGS = [(1, 1, 8, "chunk"), (49, 3, 4, "root"), (7, 4, 3, "chunk"), (28, 8, 5, "root")]


@pytest.mark.parametrize(("tiles", "vectors", "pixels", "stage"), TILINGS)
def test_any_tiling_covers_the_image(bench: Bench, stage: str, tiles: int, vectors: int, pixels: int) -> None:
    knobs = schedule(4, stage, tiles=tiles, vectors=vectors, pixels=pixels, panels_per_task=2)
    bench.check(conv((2, 8, 9, 10), 32), {"x": "c8", "y": "c8"}, knobs, limit=ERROR[4])


SURROUNDINGS = {
    "a residual": conv((1, 8, 6, 6), 8, after="a = Add (c, r); y = Relu (a)", r=real(1, 8, 6, 6)),
    "silu": conv((1, 8, 6, 6), 8, after="s = Sigmoid (c); y = Mul (c, s)"),
    "a transpose": conv((1, 8, 6, 5), 8, after="y = Transpose <perm=[0, 2, 3, 1]> (c)"),
    "a concat": conv((1, 8, 6, 5), 8, after="y = Concat <axis=1> (c, x)"),
    "a pool": conv((1, 8, 6, 5), 8, after="r = Relu (c); y = MaxPool <kernel_shape=[2, 2]> (r)"),
    "a point convolution": conv((1, 8, 6, 5), 8, after="r = Relu (c); y = Conv (r, v)"),
}
SURROUNDINGS["a point convolution"].constants["v"] = real(16, 8, 1, 1, seed=5)  # type: ignore[index]


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_what_follows_is_fused_as_in_the_direct_form(bench: Bench, name: str) -> None:
    number = list(SURROUNDINGS).index(name)
    m, stage = (2, 4)[number % 2], ("chunk", "root")[number // 2 % 2]
    bench.check(SURROUNDINGS[name], {}, schedule(m, stage), limit=5 * ERROR[m])


def test_what_precedes_is_read_by_the_input_transform(bench: Bench) -> None:
    constants = {"w": real(8, 16, 3, 3, seed=1)}
    small = Small(
        parsed("p = Mul (x, s); y = Conv <pads=[1, 1, 1, 1]> (p, w)"),
        {"x": real(1, 16, 7, 6), "s": real(1, 16, 1, 1)},
        ["y"],
        constants,
    )
    for layouts in ({}, {"x": "c8", "y": "c8", "s": "c8"}):
        bench.check(small, layouts, schedule(4), limit=ERROR[4])


def volume(x: Shape, columns: int, taps: int = 3, after: str = "y = Relu (c)", **attributes: Any) -> Small:
    """A convolution of a volume, 3x3 in its last two dimensions."""
    constants = {"w": real(columns, x[1], taps, 3, 3, seed=1), "b": real(columns, seed=2)}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes), *parsed(after)]
    return Small(nodes, {"x": real(*x)}, ["y"], constants)


VOLUMES = {
    "c3d": volume((1, 8, 4, 6, 7), 16, pads=[1] * 6),
    "two layers": volume((1, 8, 2, 7, 7), 8, pads=[1] * 6),
    "one slice": volume((1, 8, 1, 5, 6), 8, pads=[1] * 6),
    "no padding": volume((2, 8, 4, 5, 6), 8),
    "frames apart": volume((1, 8, 3, 6, 6), 8, 1, pads=[0, 1, 1, 0, 1, 1]),
    "strided in depth": volume((1, 8, 5, 6, 6), 8, strides=[2, 1, 1], pads=[1, 1, 1, 0, 1, 1]),
    "dilated in all": volume((1, 8, 4, 7, 8), 8, 2, dilations=[2, 2, 3], pads=[1, 2, 3, 1, 2, 3]),
    "dilated in depth": volume((1, 8, 5, 4, 4), 8, 2, dilations=[3, 1, 1], pads=[2, 1, 1, 1, 1, 1]),
    "its layers become channels": volume((1, 8, 3, 4, 4), 8, after="y = Transpose <perm=[0, 2, 1, 3, 4]> (c)"),
}


@pytest.mark.parametrize("m", ALGORITHMS)
@pytest.mark.parametrize("name", VOLUMES)
def test_a_volume_is_summed_over_its_slices(bench: Bench, name: str, m: int) -> None:
    number = list(VOLUMES).index(name) + m // 2
    blocked = {"x": "c8", "y": "c8"} if "become" not in name else {"x": "c8"}
    bench.check(
        VOLUMES[name], blocked if number % 2 else {}, schedule(m, ("chunk", "root")[number // 2 % 2]), limit=ERROR[m]
    )


DILATED = [
    ((9, 9), (2, 2), (2, 2, 2, 2)), ((7, 10), (1, 2), (1, 2, 1, 2)), ((10, 6), (4, 3), (4, 3, 4, 3)),
    ((8, 9), (2, 4), (0, 3, 2, 4)), ((5, 5), (6, 2), (6, 2, 6, 2)), ((16, 16), (2, 2), (2, 2, 2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("m", ALGORITHMS)
@pytest.mark.parametrize(("size", "dilations", "pads"), DILATED)
def test_tiles_of_a_dilated_convolution_are_of_results_apart(
    bench: Bench, m: int, size: tuple[int, int], dilations: tuple[int, int], pads: Shape
) -> None:
    text = f"c = Conv <pads={list(pads)}, dilations={list(dilations)}> (x, w, b); y = Relu (c)"
    small = Small(parsed(text), {"x": real(2, 8, *size)}, ["y"], {"w": real(16, 8, 3, 3), "b": real(16, seed=2)})
    layouts = {"x": "c8", "y": "c8"} if size[0] % 2 else {}
    bench.check(small, layouts, schedule(m, ("chunk", "root")[size[1] % 2]), limit=ERROR[m])


REFUSED = {
    "5x5": "c = Conv <pads=[2, 2, 2, 2]> (x, five)",
    "stride": "c = Conv <strides=[2, 2]> (x, w)",
    "groups": "c = Conv <group=2> (x, half)",
    "channels in": "z = Slice (x, zero, five_channels, one); c = Conv (z, narrow)",
    "channels out": "c = Conv (x, few)",
}
WEIGHTS = {
    "five": real(16, 16, 5, 5),
    "w": real(16, 16, 3, 3),
    "half": real(16, 8, 3, 3),
    "narrow": real(16, 5, 3, 3),
    "few": real(12, 16, 3, 3),
    "zero": np.array([0]),
    "five_channels": np.array([5]),
    "one": np.array([1]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_convolutions_are_computed_directly_whatever_the_schedule_says(bench: Bench, name: str) -> None:
    nodes = parsed(REFUSED[name])
    read = {word for item in nodes for word in item.input}
    small = Small(nodes, {"x": real(1, 16, 9, 9)}, ["c"], {key: value for key, value in WEIGHTS.items() if key in read})
    bound = bench.bind(small)
    anchor = bound.workload.operators[-1]
    form = contraction_form(bound.workload, anchor)
    assert isinstance(form, Convolution)
    assert winograd_refusal(bound.workload, anchor, form, 8) is not None
    bench.check(small, {}, schedule(4))
