"""The first guesses: Winograd by the number of tiles, the widest tiles of products, and no idle choices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autofuse.device.rates import CoreRates
from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.contraction.guesses import tiles
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

AVX2 = Target("znver3", 8, 16, 2, 32768, 524288)


def guesses(bench: Bench, small: Small) -> list[dict[str, int | str]]:
    workload = bench.bind(small).workload
    return first_schedules(workload, open_knobs(workload, AVX2, load_space("default", "avx2").schedule), AVX2)


def square(size: int) -> Small:
    """A 3x3 convolution of an image of this size."""
    text = "y = Conv <pads=[1, 1, 1, 1]> (x, w)"
    return Small(parsed(text), {"x": real(1, 16, size, size)}, ["y"], {"w": real(32, 16, 3, 3)})


@pytest.mark.parametrize(
    ("size", "first"),
    [(4, ("direct", None)), (7, ("winograd2", "chunk")), (14, ("winograd4", "root")), (56, ("winograd4", "chunk"))],
)
def test_winograd_comes_first_where_its_tiles_are_many_enough(
    bench: Bench, size: int, first: tuple[str, str | None]
) -> None:
    made = guesses(bench, square(size))
    assert (made[0]["contraction.algorithm"], made[0].get("contraction.stage")) == first
    assert {guess["contraction.algorithm"] for guess in made} == {"direct", "winograd2", "winograd4"}


@pytest.mark.parametrize(
    ("size", "tiles", "stage"), [(56, 14, "chunk"), (28, 49, "root"), (24, 49, "root"), (14, 49, "root")]
)
def test_few_tiles_of_an_image_are_transformed_together(bench: Bench, size: int, tiles: int, stage: str) -> None:
    first = guesses(bench, square(size))[0]
    assert (first["contraction.tiles"], first["contraction.stage"], first["contraction.pixels"]) == (tiles, stage, 6)


def test_a_product_begins_with_the_tiles_that_keep_most_accumulators_busy(bench: Bench) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(64, 32)}, ["y"], {"w": real(32, 64)})
    made = guesses(bench, small)
    tiles = [(guess["contraction.vectors"], guess["contraction.pixels"]) for guess in made]
    assert tiles == [(2, 6), (3, 4), (2, 4)]
    assert all(guess["contraction.pixel_rows"] == 1 and "contraction.order" not in guess for guess in made)


@pytest.mark.parametrize(
    ("shape", "threads", "split"),
    [
        ((3072, 384, 384), 1, 16),  # 4.7 MB of rows, by 8 panels of weights
        ((3072, 384, 384), 16, 16),
        ((3072, 384, 384), 10, 1),  # of 16 tasks, some threads would have two
        ((4096, 384, 96), 1, 16),
        ((1024, 384, 1536), 1, 4),
        ((4096, 384, 48), 1, 1),  # one panel, which reads all rows once
        ((128, 768, 768), 1, 1),  # they fit
        ((128, 3072, 768), 1, 1),  # more weights than rows
    ],
)
def test_rows_beyond_the_second_cache_meet_all_panels_before_the_next_rows(
    bench: Bench, shape: tuple[int, int, int], threads: int, split: int
) -> None:
    target, (rows, depth, columns) = Target("znver4", 16, 32, 16, 32768, 1 << 20), shape
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(rows, depth)}, ["y"], {"w": real(depth, columns)})
    workload = bench.bind(small).workload
    knobs = open_knobs(workload, target, load_space("default", "avx512").schedule)
    first = first_schedules(workload, knobs, target, threads)[0]
    cut = [first.get(f"contraction.{name}") for name in ("pixel_rows", "rows_per_task", "panels_per_task")]
    assert (cut[0] if cut[1:] == [1, 0] else 1) == split


def test_a_batched_product_begins_with_the_widest_tile_too(bench: Bench) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(3, 40, 16), "w": real(3, 16, 32)}, ["y"])
    assert guesses(bench, small)[0]["contraction.pixels"] == 6


def test_a_single_row_has_nothing_to_put_in_order(bench: Bench) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(1, 64)}, ["y"], {"w": real(64, 80)})
    workload = bench.bind(small).workload
    names = set(open_knobs(workload, AVX2, load_space("default", "avx2").schedule))
    assert (
        not {"contraction.order", "contraction.rows_per_task", "contraction.pixels", "contraction.pixel_rows"} & names
    )
    assert {"contraction.vectors", "contraction.panels_per_task"} <= names


@pytest.mark.parametrize(("rows", "vectors", "pixels"), [(1, 4, None), (4, 3, 4), (8, 3, 4), (17, 2, 6)])
def test_few_rows_begin_with_a_wide_panel(bench: Bench, rows: int, vectors: int, pixels: int | None) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(rows, 64)}, ["y"], {"w": real(64, 80)})
    first = guesses(bench, small)[0]
    assert (first["contraction.vectors"], first.get("contraction.pixels")) == (vectors, pixels)


@pytest.mark.parametrize(("rows", "vectors"), [(1, 8), (4, 4)])
def test_a_single_row_takes_wider_panels_of_long_vectors(bench: Bench, rows: int, vectors: int) -> None:
    target = Target("znver5", 16, 32, 2, 49152, 1 << 20)
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(rows, 64)}, ["y"], {"w": real(64, 256)})
    workload = bench.bind(small).workload
    knobs = open_knobs(workload, target, load_space("default", "avx512").schedule)
    assert first_schedules(workload, knobs, target)[0]["contraction.vectors"] == vectors


@pytest.mark.parametrize(("columns", "threads", "alone"), [(256, 2, True), (256, 1, False), (8192, 2, False)])
def test_a_small_product_of_a_row_is_soon_tried_by_one_thread(
    bench: Bench, columns: int, threads: int, alone: bool
) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(1, 64)}, ["y"], {"w": real(64, columns)})
    workload = bench.bind(small).workload
    knobs = open_knobs(workload, AVX2, load_space("default", "avx2").schedule)
    first, second, *_ = first_schedules(workload, knobs, AVX2, threads)
    assert first["contraction.panels_per_task"] == 1
    assert (second == first | {"contraction.panels_per_task": 0}) == alone


@pytest.mark.parametrize(("size", "copied"), [((8, 16, 16), True), ((8, 15, 15), False)])
def test_maps_of_whole_pages_begin_with_copied_rows(bench: Bench, size: tuple[int, ...], copied: bool) -> None:
    text = "y = Conv <pads=[1, 0, 0, 1, 0, 0]> (x, w)"
    small = Small(parsed(text), {"x": real(1, 96, *size)}, ["y"], {"w": real(16, 96, 3, 1, 1)})
    workload = bench.bind(small, {"x": "c8", "y": "c8"}).workload
    made = first_schedules(workload, open_knobs(workload, AVX2, load_space("default", "avx2").schedule), AVX2)
    assert (made[0]["contraction.order"] == "copied") == copied
    assert any(guess["contraction.order"] == "weights" for guess in made)


@pytest.mark.parametrize(("size", "tile"), [(7, (3, 4)), (14, (3, 4)), (30, (2, 6))])
def test_a_strided_convolution_begins_with_the_tile_that_its_rows_fill_best(
    bench: Bench, size: int, tile: tuple[int, int]
) -> None:
    text = "y = Conv <pads=[1, 1, 1, 1], strides=[2, 2]> (x, w)"
    small = Small(parsed(text), {"x": real(1, 16, 2 * size, 2 * size)}, ["y"], {"w": real(256, 16, 3, 3)})
    workload = bench.bind(small, {"x": "c8", "y": "c8"}).workload
    first = first_schedules(workload, open_knobs(workload, AVX2, load_space("default", "avx2").schedule), AVX2)[0]
    assert (first["contraction.vectors"], first["contraction.pixels"]) == tile


AVX512 = Target("znver4", 16, 32, 2, 32768, 1048576)
EMERALD_RAPIDS, ZEN4, ZEN5 = CoreRates(185.0, 29.9), CoreRates(118.2, 98.3), CoreRates(254.3, 109.6)
"""As probed on one core of each."""


@pytest.mark.parametrize(
    ("channels", "size", "rates", "first"),
    [
        (256, 14, None, "winograd4"), (256, 14, ZEN4, "winograd4"), (256, 14, ZEN5, "winograd4"),
        (512, 7, None, "winograd2"), (512, 7, ZEN4, "winograd2"), (512, 7, ZEN5, "winograd2"),
        (256, 14, EMERALD_RAPIDS, "winograd2"), (512, 7, EMERALD_RAPIDS, "direct"),
        (128, 28, EMERALD_RAPIDS, "winograd4"), (64, 56, EMERALD_RAPIDS, "winograd4"),
    ],
)  # fmt: skip
def test_winograd_reads_no_more_than_the_last_cache_gives(
    bench: Bench, channels: int, size: int, rates: CoreRates | None, first: str
) -> None:
    text = "y = Conv <pads=[1, 1, 1, 1]> (x, w)"
    small = Small(parsed(text), {"x": real(1, channels, size, size)}, ["y"], {"w": real(channels, channels, 3, 3)})
    workload = bench.bind(small).workload
    knobs = open_knobs(workload, AVX512, load_space("default", "avx512").schedule)
    made, plain = (first_schedules(workload, knobs, AVX512, 1, known) for known in (rates, None))
    assert made[0]["contraction.algorithm"] == first
    assert sorted(map(str, made)) == sorted(map(str, plain))


@pytest.mark.parametrize(
    ("apart", "first"), [(1, "winograd4"), (2, "winograd4"), (4, "winograd4"), (8, "direct"), (12, "direct")]
)
def test_a_dilated_convolution_must_fill_its_tiles(bench: Bench, apart: int, first: str) -> None:
    text = f"y = Conv <pads={[apart] * 4}, dilations={[apart] * 2}> (x, w)"
    small = Small(parsed(text), {"x": real(1, 64, 40, 40)}, ["y"], {"w": real(64, 64, 3, 3)})
    assert schedules(bench, small, 1)["contraction.algorithm"] == first


@pytest.mark.parametrize(("channels", "tiles"), [(32, 14), (64, 14), (128, 49), (512, 49)])
def test_large_transformed_weights_are_read_for_many_tiles(bench: Bench, channels: int, tiles: int) -> None:
    """Each chunk of tiles reads all of them from beyond the second cache."""
    text = "y = Conv <pads=[1, 1, 1, 1]> (x, w)"
    small = Small(parsed(text), {"x": real(1, channels, 56, 56)}, ["y"], {"w": real(channels, channels, 3, 3)})
    first = schedules(bench, small, 1)
    assert (first["contraction.algorithm"], first["contraction.tiles"]) == ("winograd4", tiles)


@pytest.mark.parametrize(
    ("depth", "size", "passes"), [(512, 40, 1), (1024, 40, 4), (2048, 40, 8), (1024, 14, 1), (2048, 7, 1)]
)
def test_maps_of_many_channels_are_read_in_passes(bench: Bench, depth: int, size: int, passes: int) -> None:
    """The hardware reads ahead from so many places at a time, and only large maps are far away."""
    small = Small(parsed("y = Conv (x, w)"), {"x": real(1, depth, size, size)}, ["y"], {"w": real(256, depth, 1, 1)})
    first = schedules(bench, small, 1, {"x": "c16", "y": "c16"})
    assert first.get("contraction.k_blocking", 1) == passes


@pytest.mark.parametrize(("layout", "wide"), [("c8", False), ("c16", True), ("plain", True)])
def test_short_blocks_of_channels_begin_with_a_narrower_panel(bench: Bench, layout: str, wide: bool) -> None:
    small = Small(parsed("y = Conv (x, w)"), {"x": real(1, 48, 6, 8)}, ["y"], {"w": real(64, 48, 1, 1)})
    workload = bench.bind(small, {"x": layout, "y": "c16"}).workload
    first = first_schedules(workload, open_knobs(workload, AVX512, load_space("default", "avx512").schedule), AVX512)[0]
    assert (first["contraction.vectors"] == 4) == wide


def test_rates_count_where_both_were_probed() -> None:
    assert CoreRates.of({"gflops_1": 185, "l3_gbs_1": 29.9, "threads": 1}) == CoreRates(185.0, 29.9)
    assert CoreRates.of({"gflops_1": 185.0, "l3_gbs_1": 0.0}) is None
    assert CoreRates.of({"gflops_1": 185.0}) is None
    assert CoreRates.of(None) is None


@pytest.mark.parametrize(("depth", "tile"), [(64, (4, 6)), (768, (3, 8))])
def test_with_registers_to_spare_the_tile_with_the_fewest_loads_comes_first(
    bench: Bench, depth: int, tile: tuple[int, int]
) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(128, depth)}, ["y"], {"w": real(depth, 768)})
    workload = bench.bind(small).workload
    first = first_schedules(workload, open_knobs(workload, AVX512, load_space("default", "avx512").schedule), AVX512)[0]
    assert (first["contraction.vectors"], first["contraction.pixels"]) == tile


@pytest.mark.parametrize("channels", [8, 16])
def test_winograd_over_a_part_of_a_register_is_shared_by_the_threads_too(bench: Bench, channels: int) -> None:
    """Blocks of eight channels on a device with sixteen lanes."""
    small = Small(
        parsed("y = Conv <pads=[1, 1, 1, 1]> (x, w)"),
        {"x": real(1, channels, 16, 16)},
        ["y"],
        {"w": real(8, channels, 3, 3)},
    )
    workload = bench.bind(small, {"x": "c8", "y": "c8"}).workload
    knobs = open_knobs(workload, AVX512, load_space("default", "avx512").schedule)
    made = first_schedules(workload, knobs, AVX512, threads=2)
    assert {guess["contraction.algorithm"] for guess in made} >= {"direct", "winograd4"}


@pytest.mark.parametrize(
    ("rows", "columns", "asked"), [(1, 2048, None), (4, 2048, 0), (8, 2048, 64), (8, 64, 0), (128, 2048, None)]
)
def test_few_rows_ask_ahead_for_weights_that_no_second_cache_holds(
    bench: Bench, rows: int, columns: int, asked: int | None
) -> None:
    """One to four rows read as fast as memory gives; many have the weights in the cache."""
    w = np.ones((512, columns), "int8")
    small = Small(parsed("y = MatMulInteger (x, w)"), {"x": np.ones((rows, 512), "uint8")}, ["y"], {"w": w})
    assert guesses(bench, small)[0].get("integer.prefetch") == asked


def test_sums_are_exact_however_far_ahead_weights_are_asked_for(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (8, 70), "uint8"), rng.integers(-128, 128, (70, 40), "int8")
    small = Small(parsed("y = MatMulInteger (x, w)"), {"x": x}, ["y"], {"w": w})
    target, bound = bench.target(16), bench.bind(small)
    for ahead in (0, 32, 64):
        kernel = build_kernel(bound.workload, {"integer.prefetch": ahead}, target)
        wanted = x.astype("int32") @ w.astype("int32")
        np.testing.assert_array_equal(bench.run(small, bound, kernel, target)["y"], wanted)


@pytest.mark.parametrize(
    ("rows", "columns", "mcpu", "asked"),
    [
        (1, 1024, "emeraldrapids", None),
        (2, 1024, "emeraldrapids", 1),
        (2, 1024, "znver4", None),
        (32, 1024, "znver4", 1),
        (32, 48, "znver4", None),
        (128, 1024, "znver4", None),
    ],
)
def test_few_rows_ask_for_the_next_panel_where_weights_fill_an_eighth_of_the_second_cache(
    bench: Bench, rows: int, columns: int, mcpu: str, asked: int | None
) -> None:
    """A row alone is a stream, which the hardware fetches, and so is one tile on AMD's cores; many rows have enough
    tiles to ask without being told."""
    small, target = Small(parsed("y = MatMul (x, w)"), {"x": real(rows, 512)}, ["y"], {"w": real(512, columns)}), AVX512
    target = replace(target, mcpu=mcpu)
    knobs = open_knobs(bench.bind(small).workload, target, load_space("default", "avx512").schedule)
    assert first_schedules(bench.bind(small).workload, knobs, target)[0].get("contraction.next_panel") == asked


@pytest.mark.parametrize(("depth", "columns", "asked"), [(512, 1024, 1), (512, 128, 0), (4096, 64, None)])
def test_panels_ask_for_the_next_one_where_weights_fill_an_eighth_of_the_second_cache(
    bench: Bench, depth: int, columns: int, asked: int | None
) -> None:
    """One panel has no next one."""
    w = np.ones((depth, columns), "int8")
    small = Small(parsed("y = MatMulInteger (x, w)"), {"x": np.ones((128, depth), "uint8")}, ["y"], {"w": w})
    knobs = open_knobs(bench.bind(small).workload, AVX512, load_space("default", "avx512").schedule)
    assert first_schedules(bench.bind(small).workload, knobs, AVX512)[0].get("integer.next_panel") == asked


@pytest.mark.parametrize("rows", [17, 49])
@pytest.mark.parametrize("depth", [64, 68])
@pytest.mark.parametrize("pixels", [4, 7])
def test_sums_are_exact_whether_panels_ask_for_the_next_one_or_not(
    bench: Bench, rows: int, depth: int, pixels: int
) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (rows, depth), "uint8"), rng.integers(-128, 128, (depth, 150), "int8")
    small = Small(parsed("y = MatMulInteger (x, w)"), {"x": x}, ["y"], {"w": w})
    target, bound = bench.target(16), bench.bind(small)
    asked = {"integer.next_panel": 1, "integer.vectors": 2, "integer.pixels": pixels}
    kernel = build_kernel(bound.workload, asked, target)
    assert "llvm.prefetch" in kernel.function.script()
    wanted = x.astype("int32") @ w.astype("int32")
    np.testing.assert_array_equal(bench.run(small, bound, kernel, target)["y"], wanted)


def test_a_convolution_is_right_when_its_panels_ask_for_the_next_one(bench: Bench) -> None:
    x, w = np.ones((1, 16, 9, 10), "uint8"), np.ones((70, 16, 3, 3), "int8")
    small = Small(parsed("y = ConvInteger <pads=[1, 1, 1, 1]> (x, w)"), {"x": x}, ["y"], {"w": w})
    target, bound = bench.target(16), bench.bind(small)
    kernel = build_kernel(bound.workload, {"integer.next_panel": 1, "integer.vectors": 2, "integer.pixels": 4}, target)
    reference = small.reference()["y"]
    np.testing.assert_array_equal(bench.run(small, bound, kernel, target)["y"], reference)


def test_widened_numbers_are_tried_beside_an_instruction_on_bfloat16(bench: Bench) -> None:
    text = "h = Cast <to=16> (x); r = Cast <to=1> (h); y = MatMul (r, w)"
    small = Small(parsed(text), {"x": real(128, 64)}, ["y"], {"w": np.ones((64, 128), "float32")})
    workload = bench.bind(small).workload
    knobs = open_knobs(workload, AVX512, load_space("default", "avx512").schedule)
    first, second = first_schedules(workload, knobs, AVX512)[:2]
    assert first | {"bfloat16.algorithm": "widened"} == second != first


def schedules(bench: Bench, small: Small, threads: int, layouts: dict[str, str] | None = None) -> dict[str, int | str]:
    """The first one on a CPU with AVX-512 whose last cache is slow."""
    wide = Target("sapphirerapids", 16, 32, 2, 49152, 2 << 20)
    workload = bench.bind(small, layouts or {}).workload
    knobs = open_knobs(workload, wide, load_space("default", "avx512").schedule)
    return first_schedules(workload, knobs, wide, threads, CoreRates(185.0, 30.0))[0]


@pytest.mark.parametrize("columns", [2032, 1008])
def test_threads_share_the_weights_of_some_rows_rather_than_the_rows(bench: Bench, columns: int) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(32, 512)}, ["y"], {"w": real(512, columns)})
    first = schedules(bench, small, 2)
    assert (first["contraction.pixel_rows"], first["contraction.panels_per_task"]) == (1, 1)


@pytest.mark.parametrize(("columns", "vectors"), [(2048, 2), (512, 4)])
@pytest.mark.parametrize("threads", [1, 2])
def test_weights_that_are_waited_for_are_asked_for_ahead(
    bench: Bench, columns: int, vectors: int, threads: int
) -> None:
    small = Small(parsed("y = MatMul (x, w)"), {"x": real(32, 512)}, ["y"], {"w": real(512, columns)})
    first = schedules(bench, small, threads)
    assert first["contraction.vectors"] == (vectors if columns == 2048 or threads == 2 else 3)


@pytest.mark.parametrize(("channels", "copied"), [(16, True), (512, False)])
def test_rows_are_copied_first_only_where_the_second_cache_holds_the_weights(
    bench: Bench, channels: int, copied: bool
) -> None:
    text = "y = Conv <pads=[12, 12, 12, 12], dilations=[12, 12]> (x, w)"
    small = Small(parsed(text), {"x": real(1, 512, 16, 16)}, ["y"], {"w": real(channels, 512, 3, 3)})
    first = schedules(bench, small, 2, {"x": "c16", "y": "c16"})
    assert first["contraction.order"] == "copied" if copied else first["contraction.panels_per_task"] == 1


@pytest.mark.parametrize(("channels", "rows"), [(16, 7), (24, 0), (48, 7), (256, 0)])
def test_few_channels_are_shared_by_rows(bench: Bench, channels: int, rows: int) -> None:
    text = f"y = Conv <pads=[1, 1, 1, 1], group={channels}> (x, w)"
    small = Small(parsed(text), {"x": real(1, channels, 28, 28)}, ["y"], {"w": real(channels, 1, 3, 3)})
    block = "c16" if channels % 16 == 0 else "c8"
    assert schedules(bench, small, 2, {"x": block, "y": block}).get("windowed.rows_per_task", 0) == rows
    assert schedules(bench, small, 1, {"x": block, "y": block}).get("windowed.rows_per_task", 0) == 0


def test_tasks_of_tiles_are_looked_at_once_whatever_their_pixels(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is most of what first guesses take."""
    asked, looked_at = [], tiles._evenness

    def noted(case: Any, form: Any, guess: dict[str, int | str], columns: int) -> float:
        asked.append(tuple(guess.get(name) for name in (tiles.VECTORS, tiles.PIXEL_ROWS, tiles.ROWS, tiles.PANELS)))
        return looked_at(case, form, guess, columns)

    monkeypatch.setattr(tiles, "_evenness", noted)
    small = Small(parsed("y = Conv (x, w)"), {"x": real(1, 64, 14, 14)}, ["y"], {"w": real(256, 64, 1, 1)})
    schedules(bench, small, 2, {"x": "c16", "y": "c16"})
    assert len(asked) == len(set(asked)) > 1


@pytest.mark.parametrize(("rows", "operand"), [(1, "direct"), (16, "direct"), (17, "packed")])
def test_few_rows_read_a_computed_matrix_where_it_lies(bench: Bench, rows: int, operand: str) -> None:
    small = Small(parsed("y = MatMul (p, v)"), {"p": real(2, rows, 70), "v": real(2, 70, 64, seed=1)}, ["y"])
    assert guesses(bench, small)[0]["contraction.operand"] == operand
