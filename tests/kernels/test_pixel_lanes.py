"""1x1 convolutions between maps in rows, with the lanes over pixels, agree with ONNX Runtime and are offered there."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)
PIXEL_LANES: dict[str, Any] = {"contraction.algorithm": "pixel_lanes", "contraction.pixels": 3}


def point(text: str, x: tuple[int, ...], w: tuple[int, ...], **others: Any) -> Small:
    constants = {"w": real(*w, seed=1)} | ({"b": real(w[0], seed=2)} if "b)" in text else {})
    return Small(parsed(text), {"x": real(*x), **others}, ["y"], constants)


MODELS = {
    "a map": point("c = Conv (x, w, b); y = Relu (c)", (1, 12, 5, 7), (9, 12, 1, 1)),
    "a batch": point("y = Conv (x, w)", (2, 8, 4, 4), (16, 8, 1, 1)),
    "fewer pixels than lanes": point("y = Conv (x, w, b)", (1, 10, 1, 3), (5, 10, 1, 1)),
    "1d": point("y = Conv (x, w)", (1, 6, 19), (8, 6, 1)),
    "3d": point("c = Conv (x, w, b); y = Sigmoid (c)", (1, 8, 3, 4, 3), (7, 8, 1, 1, 1)),
    "grouped": point("y = Conv <group=2> (x, w, b)", (2, 12, 3, 5), (8, 6, 1, 1)),
    "a residual": point("c = Conv (x, w); y = Add (c, r)", (1, 9, 4, 6), (12, 9, 1, 1), r=real(1, 12, 4, 6)),
    "a scale of each channel": point(
        "c = Conv (x, w); y = Mul (c, s)", (1, 9, 4, 6), (12, 9, 1, 1), s=real(1, 12, 1, 1)
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("operand", ["direct", "packed"])
@pytest.mark.parametrize("lanes", [8, 4])
def test_lanes_over_pixels_agree(bench: Bench, name: str, operand: str, lanes: int) -> None:
    bench.check(MODELS[name], {}, PIXEL_LANES | {"contraction.operand": operand}, lanes)


@pytest.mark.parametrize("split", [2, 4])
@pytest.mark.parametrize("order", ["weights", "pixels"])
def test_output_channels_are_cut_into_rows(bench: Bench, split: int, order: str) -> None:
    rows: dict[str, Any] = {"contraction.pixel_rows": split, "contraction.rows_per_task": 2, "contraction.order": order}
    bench.check(MODELS["a batch"], {}, PIXEL_LANES | rows)


def test_a_sum_is_taken_in_one_go_whatever_the_schedule_says(bench: Bench) -> None:
    bench.check(MODELS["a batch"], {}, PIXEL_LANES | {"contraction.split_k": 2, "contraction.k_blocking": 4})


def test_maps_in_blocks_of_channels_are_computed_directly(bench: Bench) -> None:
    bench.check(MODELS["a batch"], {"x": "c8", "y": "c8"}, PIXEL_LANES)
    bench.check(MODELS["a batch"], {"y": "c8"}, PIXEL_LANES)


def test_it_is_the_first_guess_between_maps_in_rows_and_offered_nowhere_else(bench: Bench) -> None:
    space = load_space("default", "avx2").schedule

    def offered(small: Small, layouts: dict[str, str]) -> bool:
        workload = bench.bind(small, layouts).workload
        knobs = open_knobs(workload, AVX2, space)
        first = first_schedules(workload, knobs, AVX2)[0]
        able = "pixel_lanes" in knobs.get("contraction.algorithm", ())
        assert able == (first.get("contraction.algorithm") == "pixel_lanes")
        return able

    assert offered(MODELS["a map"], {})
    assert not offered(MODELS["a batch"], {"x": "c8"})
    assert not offered(MODELS["a batch"], {"y": "c8"})
    assert not offered(point("y = Conv <strides=[2, 2]> (x, w)", (1, 8, 6, 6), (8, 8, 1, 1)), {})
    assert not offered(point("y = Conv (x, w)", (1, 8, 6, 6), (8, 8, 3, 3)), {})
    assert not offered(point("y = ConvTranspose (x, w)", (1, 8, 6, 6), (8, 8, 1, 1)), {})
    computed = Small(parsed("y = Conv (x, w)"), {"x": real(1, 8, 4, 4), "w": real(8, 8, 1, 1)}, ["y"])
    assert not offered(computed, {})
    behind = point("a = Relu (x); y = Conv (a, w)", (1, 8, 4, 4), (8, 8, 1, 1))
    assert not offered(behind, {}), "every tile of channels would compute the activation again"


def test_how_the_map_is_read_matters_only_here(bench: Bench) -> None:
    workload = bench.bind(MODELS["a map"], {}).workload
    knobs = open_knobs(workload, AVX2, load_space("default", "avx2").schedule)
    assert "direct" in knobs["contraction.operand"]
    direct = {"contraction.algorithm": "direct", "contraction.operand": "direct"}
    assert "contraction.operand" not in canonical(direct, knobs)
    assert canonical(PIXEL_LANES | {"contraction.operand": "direct"}, knobs)["contraction.operand"] == "direct"


@pytest.mark.parametrize(("side", "first"), [(7, "direct"), (14, "pixel_lanes"), (28, "pixel_lanes")])
def test_the_lanes_over_pixels_come_first_where_pixels_fill_them(bench: Bench, side: int, first: str) -> None:
    small = Small(parsed("y = Conv (x, w)"), {"x": real(1, 13, side, side)}, ["y"], {"w": real(26, 13, 1, 1)})
    workload = bench.bind(small).workload
    target = Target("znver4", 16, 32, 2, 32768, 1048576)
    guesses = first_schedules(workload, open_knobs(workload, target, load_space("default", "avx512").schedule), target)
    assert [guess["contraction.algorithm"] for guess in guesses].index(first) == 0
    assert {guess["contraction.algorithm"] for guess in guesses[:2]} == {"direct", "pixel_lanes"} or first != "direct"
