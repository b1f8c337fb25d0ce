"""Jobs of the parallel loop: cut as the knobs say, and shared evenly by the first guess for several threads."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.graph.own.rounding import rounded
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.contraction.parallel_grid import ParallelGrid, evenness
from autofuse.kernels.families.narrow.products.family import ENOUGH, waited_sums
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.tir.digest import code_text
from tests.kernels.conftest import Bench, Small, parsed, real

BLOCKED = {"x": "c16", "y": "c16"}
AVX512 = Target("znver5", 16, 32, 2, 49152, 1048576)


def point(columns: int, depth: int, size: int) -> Small:
    """A 1x1 convolution of an image of this size."""
    return Small(parsed("y = Conv (x, w)"), {"x": real(1, depth, size, size)}, ["y"], {"w": real(columns, depth, 1, 1)})


def first(bench: Bench, small: Small, threads: int, layouts: Mapping[str, str] = BLOCKED) -> dict[str, int | str]:
    workload = bench.bind(small, layouts).workload
    knobs = open_knobs(workload, AVX512, load_space("default", "avx512").schedule)
    return first_schedules(workload, knobs, AVX512, threads)[0]


@pytest.mark.parametrize(
    ("panels", "rows", "expected"),
    [
        (1, 4, ParallelGrid(1, 4, (2, 6, 3))),
        (0, 0, ParallelGrid(6, 12, (2, 1, 1))),
        (4, 5, ParallelGrid(3, 4, (2, 2, 3))),
    ],
)
def test_jobs_are_cut_as_nearly_as_it_divides(panels: int, rows: int, expected: ParallelGrid) -> None:
    assert ParallelGrid.cut(2, 6, 12, {"panels_per_task": panels, "rows_per_task": rows}) == expected


def test_threads_that_end_together_share_evenly() -> None:
    assert evenness([1], 1) == evenness([3, 1, 2, 2], 2) == 1.0
    assert evenness([1], 2) == 0.5
    assert evenness([1, 1, 1], 2) == 0.75
    assert evenness([4, 4, 1], 2) == 9 / 16


def test_a_narrow_last_panel_counts_for_less() -> None:
    assert ParallelGrid(1, 1, (1, 3, 1)).evenness(9, 4, 2) == 9 / 16
    assert ParallelGrid(3, 1, (1, 1, 2)).evenness(9, 4, 2) == 1.0, "each job has all panels"
    assert ParallelGrid(1, 1, (2, 1, 1)).evenness(3, 4, 2) == 1.0, "a batch for each thread"


@pytest.mark.parametrize(("columns", "depth", "size"), [(16, 32, 56), (64, 64, 28), (144, 32, 28)])
def test_the_pixels_of_a_large_image_are_split_where_panels_are_too_few(
    bench: Bench, columns: int, depth: int, size: int
) -> None:
    one, two = (first(bench, point(columns, depth, size), threads) for threads in (1, 2))
    assert one["contraction.pixel_rows"] == 1
    assert int(two["contraction.pixel_rows"]) % 2 == 0 and "contraction.rows_per_task" in two
    tile = ("contraction.vectors", "contraction.pixels")
    assert [one.get(name) for name in tile] == [two.get(name) for name in tile]


def test_panels_that_share_evenly_stay_as_they_are(bench: Bench) -> None:
    small = point(256, 64, 28)
    assert first(bench, small, 1) == first(bench, small, 2)


def test_winograd_gets_chunks_for_every_thread(bench: Bench) -> None:
    text = "y = Conv <pads=[1, 1, 1, 1]> (x, w)"
    small = Small(parsed(text), {"x": real(1, 32, 13, 13)}, ["y"], {"w": real(64, 32, 3, 3)})
    one, two = first(bench, small, 1), first(bench, small, 2)
    assert (one["contraction.tiles"], two["contraction.tiles"], two["contraction.stage"]) == (49, 7, "root")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_first_guess_of_any_number_of_threads_agrees(bench: Bench, threads: int) -> None:
    small = point(24, 32, 8)
    bench.check(small, {"x": "c16", "y": "c8"}, first(bench, small, threads), lanes=16)


BFLOAT16 = "h = Cast <to=16> (x); r = Cast <to=1> (h); "


def rounded_product(rows: int, depth: int, columns: int) -> Small:
    weights = {"w": rounded(real(depth, columns))}
    return Small(parsed(BFLOAT16 + "y = MatMul (r, w)"), {"x": real(rows, depth)}, ["y"], weights)


def rounded_convolution(columns: int, size: int) -> Small:
    weights = {"w": rounded(real(columns, 16, 3, 3))}
    text = BFLOAT16 + "y = Conv <pads=[1, 1, 1, 1]> (r, w)"
    return Small(parsed(text), {"x": real(1, 16, size, size)}, ["y"], weights)


def parallel_loops(bench: Bench, small: Small, schedule: dict[str, int | str]) -> list[int]:
    """The tasks of each parallel loop of a kernel."""
    code = code_text(build_kernel(bench.bind(small).workload, schedule, AVX512).function)
    return [int(count) for count in re.findall(r"T\.parallel\((\d+)\)", code)]


def test_narrow_products_share_rows_where_panels_are_uneven(bench: Bench) -> None:
    """312 columns are five panels of four vectors: one thread of two would compute three of them."""
    small = rounded_product(128, 32, 312)
    one, two = (first(bench, small, threads, {}) for threads in (1, 2))
    assert (one["bfloat16.pixel_rows"], two["bfloat16.pixel_rows"]) == (1, 2)
    assert first(bench, rounded_product(128, 32, 512), 2, {})["bfloat16.pixel_rows"] == 1
    assert parallel_loops(bench, small, two)[-1] == 5 * 2


def test_narrow_convolutions_share_rows_where_there_is_one_panel(bench: Bench) -> None:
    small = rounded_convolution(64, 56)
    one, two = (first(bench, small, threads, {}) for threads in (1, 2))
    assert (one["bfloat16.rows_per_task"], two["bfloat16.rows_per_task"]) == (0, 4)
    assert parallel_loops(bench, small, two)[-1] == 56 // 4
    assert first(bench, rounded_convolution(128, 14), 2, {})["bfloat16.rows_per_task"] == 0


def test_narrow_tiles_are_cut_so_that_enough_sums_are_left(bench: Bench) -> None:
    """Seven pixels are 4 + 3 where six are wanted, and three pixels by four vectors wait for one another."""

    def tile(small: Small) -> tuple[int | str, ...]:
        guess = first(bench, small, 1, {})
        return guess["bfloat16.vectors"], guess["bfloat16.pixels"]

    assert tile(rounded_convolution(512, 7)) == (3, 7)
    assert tile(rounded_convolution(256, 14)) == tile(rounded_convolution(512, 28)) == (4, 6)
    assert tile(rounded_product(3136, 96, 32)) == (2, 8)
    assert waited_sums(32, 4, 7, 6) == 8 * (4 * 4 + ENOUGH)
    assert waited_sums(32, 3, 7, 7) == 10 * 3 * 7 + ENOUGH


def test_narrow_tiles_make_panels_that_threads_share(bench: Bench) -> None:
    """320 columns are five panels of four vectors; 49 rows cannot be cut."""
    one, two = (first(bench, rounded_product(49, 96, 320), threads, {}) for threads in (1, 2))
    assert (one["bfloat16.vectors"], two["bfloat16.vectors"]) == (4, 2)


def test_threads_share_the_rounding_of_a_products_rows(bench: Bench) -> None:
    assert parallel_loops(bench, rounded_product(128, 32, 512), {}) == [128, 8]


@pytest.mark.parametrize("threads", [2, 3])
def test_narrow_products_shared_by_rows_are_right(bench: Bench, threads: int) -> None:
    for small in (rounded_product(24, 30, 40), rounded_convolution(24, 6)):
        bench.check(small, {}, first(bench, small, threads, {}), lanes=16, limit=1e-4)
