"""Kernels ask for the next panel of weights while they work on this one, and keep their sums in registers."""

from __future__ import annotations

import pytest

from autofuse.backend.compile.function import assembly
from autofuse.device.target import Target
from autofuse.kernels.build import build_kernel
from autofuse.kernels.families.contraction.panels import LINE, PrefetchShare
from tests.kernels.conftest import Bench, Small, parsed, real

AVX512 = Target("znver4", 16, 32, 2, 32768, 1048576)
TILE = {"contraction.vectors": 4, "contraction.pixels": 6}
IMAGE = Small(
    parsed("y = Conv <pads=[1, 1, 1, 1]> (x, w)"), {"x": real(1, 16, 16, 16)}, ["y"], {"w": real(64, 16, 3, 3)}
)
WIDE = Small(
    parsed("y = Conv <pads=[1, 1, 1, 1]> (x, w)"), {"x": real(1, 16, 28, 28)}, ["y"], {"w": real(64, 16, 3, 3)}
)
MAPS = {"x": "c16", "y": "c16"}


def product(rows: int, constant: bool = True) -> Small:
    """A product of `rows` rows with a matrix of two panels."""
    x, w = real(rows, 64), {"w": real(64, 128)}
    nodes = parsed("y = MatMul (x, w)")
    return Small(nodes, {"x": x}, ["y"], w) if constant else Small(nodes, {"x": x} | w, ["y"])


def cut(columns: int, groups: int = 1) -> Small:
    """A 1x1 convolution whose last panel of each group has fewer vectors than the others."""
    x, w = {"x": real(1, 16 * groups, 5, 7)}, {"w": real(columns * groups, 16, 1, 1)}
    return Small(parsed(f"y = Conv <group={groups}> (x, w)"), x, ["y"], w)


def asked(bench: Bench, small: Small, schedule: dict[str, int | str], layouts: dict[str, str] | None = None) -> bool:
    function = build_kernel(bench.bind(small, layouts).workload, TILE | schedule, AVX512).function
    return "llvm.prefetch" in function.script()


CASES = {
    "a product of many rows": (product(64), {}, None, True),
    "few rows, which only stream": (product(4), {}, None, False),
    "few rows that are told to": (product(4), {"contraction.next_panel": 1}, None, True),
    "few rows, their tiles cut short": (product(9), {"contraction.next_panel": 1}, None, True),
    "a row alone cannot be told": (product(1), {"contraction.split_k": 2, "contraction.next_panel": 1}, None, False),
    "parts of few rows": (product(8), {"contraction.split_k": 2}, None, False),
    "a computed matrix, packed a moment ago": (product(64, constant=False), {}, None, False),
    "all rows for a panel": (IMAGE, {"contraction.rows_per_task": 0}, MAPS, True),
    "all rows for a panel, in passes": (
        IMAGE,
        {"contraction.rows_per_task": 0, "contraction.k_blocking": 2},
        MAPS,
        True,
    ),
    "some rows for a panel": (IMAGE, {"contraction.rows_per_task": 4}, MAPS, False),
    "all panels for a row": (IMAGE, {"contraction.rows_per_task": 0, "contraction.order": "pixels"}, MAPS, False),
    "Winograd, many tiles": (WIDE, {"contraction.algorithm": "winograd4", "contraction.tiles": 49}, MAPS, True),
    "Winograd, few tiles": (IMAGE, {"contraction.algorithm": "winograd4", "contraction.tiles": 16}, MAPS, False),
}


@pytest.mark.parametrize("name", CASES)
def test_weights_are_asked_for_where_a_sweep_over_all_rows_comes_before(bench: Bench, name: str) -> None:
    small, schedule, layouts, expected = CASES[name]
    assert asked(bench, small, schedule, layouts) == expected


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[3]])
def test_what_asks_ahead_agrees(bench: Bench, name: str) -> None:
    small, schedule, layouts, _ = CASES[name]
    bench.check(small, layouts, TILE | schedule, lanes=16)


@pytest.mark.parametrize(
    ("small", "numbers"),
    [
        (cut(80), 16 * 80),
        (cut(72), 16 * 80),
        (cut(80, groups=3), 3 * 16 * 80),
        (cut(128), 16 * 128),
        (cut(48), 16 * 48),
        (cut(120), 16 * 128),
    ],
    ids=["a vector left", "part of a vector left", "groups", "whole", "less than a panel", "as many vectors as others"],
)
def test_the_last_panel_is_as_narrow_as_its_columns(bench: Bench, small: Small, numbers: int) -> None:
    """A product of 128 columns in panels of 48 would read a ninth in vain."""
    bound = bench.bind(small)
    (packed,) = build_kernel(bound.workload, TILE, AVX512).pack(bench.constants(small, bound))
    assert packed.size == numbers
    bench.check(small, None, TILE, lanes=16)


def test_sums_are_on_no_heap(bench: Bench) -> None:
    """24 accumulators of 64 bytes in one buffer would be taken from the heap, cleared and stored for each tile."""
    kernel = build_kernel(bench.bind(product(64)).workload, TILE, AVX512)
    text = assembly(kernel.function, AVX512)
    assert "AllocWorkspace" not in text and "memset" not in text


@pytest.mark.parametrize(
    ("tiles", "pieces", "lines"),
    [(32, 1, 2), (9, 4, 2), (4, 1, 16)],
    ids=["few lines at once", "more lines in pieces", "too many, never asked for"],
)
def test_a_tile_asks_for_few_lines_at_once(tiles: int, pieces: int, lines: int) -> None:
    """Of a panel of 64 lines in 16 steps; the first cache bears few misses at a time."""
    share = PrefetchShare(0, tiles, 64 * LINE, 16)
    assert share.pieces(16) == pieces
    assert share.part(0, pieces).lines == lines
    assert share.worth_it == (tiles > 4)
    assert share.pieces(15) == 1, "steps that do not divide"


@pytest.mark.parametrize("width", [3, 7])
def test_what_asks_in_pieces_agrees(bench: Bench, width: int) -> None:
    small = Small(parsed("y = Conv (x, w)"), {"x": real(1, 32, 7, 7)}, ["y"], {"w": real(128, 32, 1, 1)})
    bench.check(small, MAPS, {"contraction.vectors": 4, "contraction.pixels": width}, lanes=16)
