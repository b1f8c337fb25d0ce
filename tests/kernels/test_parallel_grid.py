"""Jobs of the parallel loop: cut as the knobs say, and shared evenly by the first guess for several threads."""

from __future__ import annotations

import pytest

from autofuse.device.target import Target
from autofuse.environment.space import load_space
from autofuse.kernels.families.contraction.parallel_grid import ParallelGrid, evenness
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from tests.kernels.conftest import Bench, Small, parsed, real

AVX512 = Target("znver5", 16, 32, 2, 49152, 1048576)


def point(columns: int, depth: int, size: int) -> Small:
    """A 1x1 convolution of an image of this size."""
    return Small(parsed("y = Conv (x, w)"), {"x": real(1, depth, size, size)}, ["y"], {"w": real(columns, depth, 1, 1)})


def first(bench: Bench, small: Small, threads: int) -> dict[str, int | str]:
    layouts = {"x": "c16", "y": "c16"}
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
