"""Windows that slide over one another agree with ONNX Runtime by bands of rows; only the rows of a band exist."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.fused.band import Band, banded
from autofuse.kernels.families.registry import nests_of
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from tests.kernels.conftest import Array, Bench, Small, parsed, real

SHORT = {"contraction.vectors": 2, "contraction.pixels": 3, "windowed.pixels": 2}
AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)
DEPTH = "d = Conv <group=16, pads=[1, 1, 1, 1]> (x, w)"
POINT = "y = Conv (r, v)"


def band(text: str, x: Array, outputs: tuple[str, ...] = ("y",), **constants: Any) -> Small:
    return Small(parsed(text), {"x": x}, outputs, constants)


IMAGE, NARROW = real(1, 16, 9, 7), real(1, 5, 9, 7)
SQUARE = {"w": real(24, 16, 3, 3, seed=1), "v": real(16, 24, 3, 3, seed=2)}
PAIR = "c = Conv <pads=[1, 1, 1, 1]> (x, w); r = Relu (c)"

BANDS = {
    "depthwise, pointwise": band(
        f"{DEPTH}; r = Relu (d); {POINT}", IMAGE, w=real(16, 1, 3, 3, seed=1), v=real(24, 16, 1, 1, seed=2)
    ),
    "an inverted residual": band(
        "e = Conv (x, u, b); r = Clip (e, low, six); d = Conv <group=48, pads=[1, 1, 1, 1]> (r, w); "
        "s = Clip (d, low, six); p = Conv (s, v); y = Add (p, x)",
        IMAGE,
        u=real(48, 16, 1, 1, seed=1),
        b=real(48, seed=2),
        low=np.float32(0),
        six=np.float32(6),
        w=real(48, 1, 3, 3, seed=3),
        v=real(16, 48, 1, 1, seed=4),
    ),
    "convolution, convolution": band(f"{PAIR}; y = Conv <pads=[1, 1, 1, 1]> (r, v)", IMAGE, **SQUARE),
    "strided": band(f"{PAIR}; y = Conv <pads=[1, 1, 1, 1], strides=[2, 2]> (r, v)", IMAGE, **SQUARE),
    "both strided": band(
        "c = Conv <pads=[1, 0, 0, 1], strides=[2, 2]> (x, w); r = Relu (c); y = Conv <strides=[2, 1]> (r, v)",
        real(1, 16, 17, 9),
        **SQUARE,
    ),
    "dilated": band(f"{PAIR}; y = Conv <pads=[2, 2, 2, 2], dilations=[2, 2]> (r, v)", IMAGE, **SQUARE),
    "unpadded": band("c = Conv (x, w); r = Relu (c); y = Conv (r, v)", IMAGE, **SQUARE),
    "wide padding": band(f"{PAIR}; y = Conv <pads=[2, 1, 2, 1]> (r, v)", real(1, 16, 2, 7), **SQUARE),
    "two images": band(f"{PAIR}; y = Conv <pads=[1, 1, 1, 1]> (r, v)", real(2, 16, 6, 7), **SQUARE),
    "odd channels": band(
        f"{PAIR}; y = Conv <pads=[1, 1, 1, 1]> (r, v)",
        NARROW,
        w=real(11, 5, 3, 3, seed=1),
        v=real(13, 11, 3, 3, seed=2),
    ),
    "groups": band(
        f"{PAIR}; y = Conv <pads=[1, 1, 1, 1], group=2> (r, v)",
        IMAGE,
        w=SQUARE["w"],
        v=real(16, 12, 3, 3, seed=2),
    ),
    "convolution, largest": band(
        f"{PAIR}; y = MaxPool <kernel_shape=[2, 2], strides=[2, 2]> (r)", IMAGE, w=SQUARE["w"]
    ),
    "convolution, mean": band(
        f"{PAIR}; y = AveragePool <kernel_shape=[3, 3], pads=[1, 1, 1, 1]> (r)", IMAGE, w=SQUARE["w"]
    ),
    "largest, convolution": band(
        "r = MaxPool <kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]> (x); y = Conv <pads=[1, 1, 1, 1]> (r, w)",
        IMAGE,
        w=SQUARE["w"],
    ),
    "space and time": band(
        "c = Conv <pads=[1, 1, 1, 1, 1, 1]> (x, w); r = Relu (c); y = Conv <pads=[0, 1, 1, 0, 1, 1]> (r, v)",
        real(1, 3, 5, 6, 4),
        w=real(8, 3, 3, 3, 3, seed=1),
        v=real(9, 8, 1, 3, 3, seed=2),
    ),
}


@pytest.mark.parametrize(
    ("rows", "order", "blocked"), [(1, "pixels", False), (2, "weights", True), (4, "pixels", True)]
)
@pytest.mark.parametrize("name", BANDS)
def test_bands_of_any_height_agree(bench: Bench, name: str, rows: int, order: str, blocked: bool) -> None:
    small = BANDS[name]
    shapes = {"x": small.inputs["x"].shape, "y": small.reference()["y"].shape}
    layouts = {key: "c8" for key, shape in shapes.items() if blocked and shape[1] % 8 == 0}
    bench.check(small, layouts, {**SHORT, "band.rows": rows, "contraction.order": order}, limit=5e-5)


def units(bench: Bench, small: Small) -> list[int]:
    """How many nests each unit of a kernel has."""
    workload = bench.bind(small).workload
    return [len(unit.nests) if isinstance(unit, Band) else 1 for unit in banded(workload, nests_of(workload))]


@pytest.mark.parametrize("name", BANDS)
def test_every_nest_of_a_band_is_found(bench: Bench, name: str) -> None:
    assert units(bench, BANDS[name]) == [len(nests_of(bench.bind(BANDS[name]).workload))]


APART = {
    "the map is wanted": band(f"{PAIR}; y = Conv (r, v)", IMAGE, ("y", "r"), **SQUARE),
    "read twice": band(
        f"{PAIR}; p = Conv <pads=[1, 1, 1, 1]> (r, v); q = GlobalAveragePool (r); y = Conv (q, u); z = Relu (p)",
        IMAGE, ("y", "z"), u=real(8, 24, 1, 1), **SQUARE),
    "turned": band("c = Conv (x, w); t = Transpose <perm=[0, 1, 3, 2]> (c); y = Conv (t, v)", IMAGE, **SQUARE),
    "a row of pixels": Small(
        parsed("c = Conv (x, w); r = Relu (c); y = Conv (r, v)"),
        {"x": real(1, 8, 20)}, ["y"], {"w": real(16, 8, 3, seed=1), "v": real(8, 16, 3, seed=2)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_maps_that_others_need_are_made_as_a_whole(bench: Bench, name: str) -> None:
    assert max(units(bench, APART[name])) == 1
    bench.check(APART[name], schedule={**SHORT, "band.rows": 2}, limit=5e-5)


def test_a_map_exists_by_bands_only(bench: Bench) -> None:
    small = band("c = Conv <pads=[1, 1, 1, 1]> (x, w); r = Relu (c); y = Conv <pads=[1, 1, 1, 1]> (r, v)",
                 real(1, 16, 32, 10), **SQUARE)  # fmt: skip
    workload = bench.bind(small).workload

    def largest(rows: int) -> int:
        text = build_kernel(workload, {"band.rows": rows}, AVX2).function.script()
        return max(int(size) for size in re.findall(r"alloc_buffer\(\((\d+),\)", text))

    assert largest(0) == 24 * 32 * 10
    assert largest(4) == 24 * 6 * 10, "four rows and their halo"


def test_bands_are_a_choice_that_makes_other_knobs_idle(bench: Bench) -> None:
    workload = bench.bind(BANDS["convolution, convolution"]).workload
    knobs = open_knobs(workload, AVX2, load_space("default", "avx2").schedule)
    assert knobs["band.rows"] == (0, 4, 8, 2)
    guesses = first_schedules(workload, knobs, AVX2)
    assert {guess["band.rows"] for guess in guesses} == {0, 4, 8}
    kept = canonical({name: values[-1] for name, values in knobs.items()}, knobs)
    assert kept["band.rows"] == 2 and "contraction.algorithm" not in kept
    copied = canonical({"band.rows": 4, "contraction.order": "copied"}, knobs)
    assert copied["contraction.order"] == "pixels", "the rows of a band stand side by side already"


def test_where_a_band_begins_is_computed_once_and_stands_in_no_index(bench: Bench) -> None:
    """Positions cut at the padding, one in the other in every index, kept TVM's passes for a minute."""
    text = (
        "a = Conv <pads=[1, 1, 1, 1]> (x, w); b = Conv <pads=[1, 1, 1, 1]> (a, v); "
        "c = Conv <pads=[1, 1, 1, 1]> (b, w); y = Conv <pads=[1, 1, 1, 1]> (c, v)"
    )
    workload = bench.bind(band(text, real(1, 16, 40, 12), **SQUARE)).workload
    code = build_kernel(workload, SHORT | {"band.rows": 4}, AVX2).function.script()
    assert not re.search(r"T\.max\([^()]*T\.m(ax|in)\(.*weights", code)
    assert sum(line.count("T.max(") + line.count("T.min(") > 2 for line in code.splitlines()) <= 8
