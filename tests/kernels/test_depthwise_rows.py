"""Depthwise convolutions and pools between maps in rows of pixels, the lanes over pixels, agree with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.families.windowed.pixel_lanes import rows_refusal
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

SAME = "pads=[1, 1, 1, 1]"
AVX512 = Target("znver4", 16, 32, 2, 32768, 1048576)
SPACE = load_space("default", "avx512").schedule
TURNED: dict[str, int | str] = {"windowed.algorithm": "pixel_lanes"}


def depthwise(
    x: tuple[int, ...], taps: tuple[int, ...], attributes: str = "", multiplier: int = 1, then: str = ""
) -> Small:
    """A convolution of each channel by itself, and what follows it."""
    channels = x[1] * multiplier
    listed = f"group={x[1]}{', ' + attributes if attributes else ''}"
    nodes = parsed(f"c = Conv <{listed}> (x, w, b); {then or 'y = Relu (c)'}")
    others: dict[str, Any] = {"r": real(*x, seed=5)} if "r)" in then else {}
    constants = {"w": real(channels, 1, *taps, seed=1), "b": real(channels, seed=2)}
    return Small(nodes, {"x": real(*x)} | others, ["y"], constants)


MODELS = {
    "3x3": depthwise((1, 5, 6, 7), (3, 3), SAME),
    "wider than a vector": depthwise((2, 3, 5, 21), (3, 3), SAME),
    "5x5": depthwise((1, 4, 9, 8), (5, 5), "pads=[2, 2, 2, 2]"),
    "more taps than are unrolled": depthwise((1, 3, 10, 9), (7, 5), "pads=[3, 2, 3, 2]"),
    "dilated": depthwise((1, 3, 9, 9), (3, 3), "dilations=[2, 3], pads=[2, 3, 2, 3]"),
    "asymmetric padding": depthwise((1, 3, 5, 5), (3, 2), "pads=[0, 1, 2, 0]"),
    "padding that windows lie in": depthwise((1, 3, 4, 4), (1, 1), "pads=[1, 2, 0, 3]"),
    "same upper": depthwise((1, 3, 7, 6), (2, 4), 'auto_pad="SAME_UPPER"'),
    "without padding": depthwise((1, 3, 6, 8), (3, 3)),
    "one pixel": depthwise((1, 4, 3, 3), (3, 3)),
    "two results a channel": depthwise((1, 4, 4, 5), (3, 3), SAME, multiplier=2),
    "with a residual": depthwise((1, 4, 6, 5), (3, 3), SAME, then="y = Add (c, r)"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lanes", [16, 8, 4])
@pytest.mark.parametrize("rows", [0, 2])
def test_lanes_over_pixels_agree(bench: Bench, name: str, lanes: int, rows: int) -> None:
    bench.check(MODELS[name], {}, TURNED | {"windowed.pixels": 3, "windowed.rows_per_task": rows}, lanes)


def pool(kind: str, x: tuple[int, ...], attributes: str, then: str = "y = Relu (p)") -> Small:
    """A pool, and what follows it."""
    return Small(parsed(f"p = {kind} <{attributes}> (x); {then}"), {"x": real(*x)}, ["y"])


FUNCTIONS = "a = Tanh (p); b = Exp (a); y = Sigmoid (b)"
POOLS = {
    "maximum": pool("MaxPool", (2, 3, 6, 21), f"kernel_shape=[3, 3], {SAME}"),
    "dilated maximum": pool("MaxPool", (1, 3, 9, 9), "kernel_shape=[3, 2], dilations=[2, 3], pads=[2, 1, 2, 1]"),
    "mean": pool("AveragePool", (2, 3, 6, 21), f"kernel_shape=[3, 3], {SAME}"),
    "mean without padding": pool("AveragePool", (1, 3, 6, 9), "kernel_shape=[2, 3]"),
    "mean over the padding": pool("AveragePool", (1, 3, 6, 9), f"kernel_shape=[3, 3], count_include_pad=1, {SAME}"),
    "mean and functions": pool("AveragePool", (1, 3, 6, 70), f"kernel_shape=[3, 3], {SAME}", FUNCTIONS),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize(("lanes", "rows"), [(16, 0), (4, 2)])
def test_pools_with_lanes_over_pixels_agree(bench: Bench, name: str, lanes: int, rows: int) -> None:
    bench.check(POOLS[name], {}, TURNED | {"windowed.pixels": 3, "windowed.rows_per_task": rows}, lanes)


def test_the_first_guess_of_a_pool_over_rows_has_its_lanes_over_pixels(bench: Bench) -> None:
    workload = bench.bind(POOLS["maximum"]).workload
    assert first_schedules(workload, open_knobs(workload, AVX512, SPACE), AVX512)[0] == {
        **TURNED, "windowed.pixels": 4, "windowed.rows_per_task": 0
    }  # fmt: skip


def test_a_pool_of_bytes_keeps_the_lanes_over_channels(bench: Bench) -> None:
    bytes_in = {"x": np.arange(2 * 5 * 6, dtype="uint8").reshape(1, 2, 5, 6)}
    small = Small(parsed("y = MaxPool <kernel_shape=[3, 3]> (x)"), bytes_in, ["y"])
    workload = bench.bind(small).workload
    assert rows_refusal(workload, workload.operators[0]) == "it is not of float32"


def test_an_activation_above_is_computed_once_an_element(bench: Bench) -> None:
    nodes = parsed(f"a = Sigmoid (x); y = Conv <group=4, {SAME}> (a, w)")
    bench.check(
        Small(nodes, {"x": real(1, 4, 6, 7)}, ["y"], {"w": real(4, 1, 3, 3)}), {}, TURNED | {"windowed.pixels": 2}
    )


@pytest.mark.parametrize(
    ("small", "layouts", "reason"),
    [
        (MODELS["wider than a vector"], {}, None),
        (MODELS["3x3"], {}, None),
        (depthwise((1, 8, 6, 7), (3, 3), SAME), {"x": "c8"}, "blocks of channels"),
        (depthwise((1, 8, 6, 7), (3, 3), SAME), {"y": "c8"}, "blocks of channels"),
        (depthwise((1, 3, 6, 7), (3, 3), "strides=[1, 2]"), {}, "neighbours"),
        (depthwise((1, 3, 9), (3,), "pads=[1, 1]"), {}, "images"),
    ],
)
def test_other_maps_keep_the_lanes_over_channels(
    bench: Bench, small: Small, layouts: dict[str, str], reason: str | None
) -> None:
    workload = bench.bind(small, layouts).workload
    operator = next(operator for operator in workload.operators if operator.op_type == "Conv")
    found = rows_refusal(workload, operator)
    assert found is None if reason is None else reason in str(found)
    assert ("windowed.algorithm" in open_knobs(workload, AVX512, SPACE)) == (reason is None)
    bench.check(small, layouts, TURNED | {"windowed.pixels": 2})


@pytest.mark.parametrize(("width", "first"), [(7, "direct"), (8, "pixel_lanes"), (56, "pixel_lanes")])
def test_the_first_guess_turns_rows_that_fill_vectors(bench: Bench, width: int, first: str) -> None:
    workload = bench.bind(depthwise((1, 32, 6, width), (3, 3), SAME)).workload
    guesses = first_schedules(workload, open_knobs(workload, AVX512, SPACE), AVX512)
    assert [guess["windowed.algorithm"] for guess in guesses[:2]] == sorted(["direct", "pixel_lanes"], key=first.__ne__)


def test_results_that_are_turned_into_rows_of_channels_begin_with_the_lanes_over_channels(bench: Bench) -> None:
    text = "c = Conv <group=13, pads=[1, 1, 1, 1]> (x, w); f = Reshape (c, s); y = Transpose <perm=[0, 2, 1]> (f)"
    small = Small(
        parsed(text), {"x": real(1, 13, 16, 16)}, ["y"], {"w": real(13, 1, 3, 3), "s": np.array([1, 13, 256])}
    )
    workload = bench.bind(small).workload
    guesses = first_schedules(workload, open_knobs(workload, AVX512, SPACE), AVX512)
    assert [guess["windowed.algorithm"] for guess in guesses[:2]] == ["direct", "pixel_lanes"]
