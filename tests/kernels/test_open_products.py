"""Products over an open number of rows: panels of weights outside, tiles of rows inside."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest
import tvm_ffi
from onnx import numpy_helper
from tvm import tirx
from tvm_ffi import structural_walk

from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.jit import JitKernel, tensor
from autofuse.backend.library.threads import configure_threads, usable_threads
from autofuse.device.target import Target
from autofuse.graph.loading.load import from_model
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph, open_graph
from autofuse.kernels.build import Kernel
from autofuse.kernels.open_sizes.open_rows import TILES, Tile, open_kernel
from autofuse.kernels.open_sizes.products.kernel import FEW
from autofuse.kernels.open_sizes.products.tiles import product_tiles
from tests.kernels.test_open_rows import bound, rows_of

DEPTH, GUARD_ROWS = 40, 16
AVX512 = Target("x86-64-v4", 16, 32, 2, 49152, 2 << 20)
ZEN = replace(AVX512, mcpu="znver4")
SHORT: dict[str, int | str] = {"contraction.vectors": 1, "contraction.pixels": 6}
"""A tile of the first kind has 6 of the 16 rows."""
ASKING = {**SHORT, "contraction.next_panel": 1}
WIDE: dict[str, int | str] = {"contraction.vectors": 3, "contraction.pixels": 8}
SMALL_CACHE_BYTES = 2560
"""A second cache that a panel of one vector fills: it is read in parts of a block of channels."""
SIZES = (*range(1, 36), 64, 100)


def product(columns: int) -> OpenGraph:
    """A product of rows with a bias and what is done to each element."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[n, {DEPTH}] x) => (float[n, {columns}] y) {{
          p = MatMul (x, w)
          s = Add (p, b)
          y = Relu (s)
        }}"""
    )
    for name, array in constants(columns).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    first, second = (from_model(model, "rows", {"x": (size, DEPTH)}) for size in (19, 23))
    return open_graph("n", 19, first, 23, second)


def constants(columns: int) -> dict[str, Any]:
    generator = np.random.default_rng(columns)
    shapes = {"w": (DEPTH, columns), "b": (columns,)}
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def made(
    opened: OpenGraph,
    schedule: dict[str, int | str],
    target: Target,
    threads: int = 1,
    times: Sequence[float | None] = (None, None, None),
) -> Kernel:
    tiles = [Tile(rows, bound(opened, rows).workload, schedule, us) for rows, us in zip(TILES, times, strict=True)]
    return open_kernel(tiles, rows_of(opened, bound(opened, 1)), target, threads=threads)


def call(jit: JitKernel, x: Any, packed: Sequence[Any], columns: int) -> Any:
    """The result, with rows behind it that no kernel may touch."""
    whole = tensor(np.full((len(x) + GUARD_ROWS, columns), np.nan, np.float32))
    view = np.from_dlpack(whole)
    jit(tensor(x), *map(tensor, packed), tvm_ffi.from_dlpack(view[: len(x)]))
    assert np.isnan(view[len(x) :]).all()
    return view[: len(x)]


@pytest.mark.parametrize("columns", [5, 32, 100, 200])
@pytest.mark.parametrize("schedule", [{}, SHORT, ASKING, WIDE], ids=["default", "short", "asking", "wide"])
def test_any_number_of_rows_is_right_and_nothing_behind_them_is_written(
    columns: int, schedule: dict[str, int | str]
) -> None:
    """Each panel meets whole tiles, one that is moved back, tiles of the next kind, single rows; the last panel may be
    narrower."""
    check(columns, schedule)


@pytest.mark.parametrize("times", [(60.0, 20.0, 5.0), (100.0, 95.0, 90.0), (100.0, 20.0, 19.0), (100.0, 20.0, 4.0)])
def test_tiles_that_times_choose_are_right_too(times: tuple[float, ...]) -> None:
    check(100, ASKING, times)


@pytest.mark.parametrize("columns", [32, 100])
@pytest.mark.parametrize("schedule", [SHORT, ASKING, WIDE], ids=["short", "asking", "wide"])
def test_a_panel_that_the_second_cache_does_not_hold_is_read_in_parts_and_all_rows_are_right(
    columns: int, schedule: dict[str, int | str]
) -> None:
    """Whatever block of rows a tile is in: one alone, the last of two, the longer ones of three."""
    small = replace(local_device().target(), l2_bytes=SMALL_CACHE_BYTES)
    check(columns, schedule, target=small, sizes=(*range(1, 20), 256, 257, 511, 700))


def test_tiles_that_times_choose_are_right_too_where_a_panel_is_read_in_parts() -> None:
    small = replace(local_device().target(), l2_bytes=SMALL_CACHE_BYTES)
    check(100, ASKING, (100.0, 20.0, 19.0), small, (5, 100, 257))


def test_parts_of_a_panel_meet_the_rows_of_a_block_one_after_the_other() -> None:
    """The loop over parts stands in that over panels, and this in one over blocks of rows, which the last cache holds
    for all panels."""
    function = made(product(256), SHORT, replace(AVX512, l2_bytes=SMALL_CACHE_BYTES)).function
    assert passes(function) == [DEPTH // 8]
    assert passes(made(product(256), SHORT, AVX512).function) == []


def passes(function: Any) -> list[int]:
    """Of the loop over all rows: lengths of the loops in that over panels around ones whose length is not known."""
    *_, panels = loops(function.body, tirx.ForKind.PARALLEL)
    fixed = [loop for loop in loops(panels.body, tirx.ForKind.SERIAL) if isinstance(loop.extent, tirx.IntImm)]
    return [int(loop.extent) for loop in fixed if any(map(is_counted, loops(loop.body, tirx.ForKind.SERIAL)))]


def is_counted(loop: Any) -> bool:
    return not isinstance(loop.extent, tirx.IntImm)


def check(
    columns: int,
    schedule: dict[str, int | str],
    times: Sequence[float | None] = (None, None, None),
    target: Target | None = None,
    sizes: Sequence[int] = SIZES,
) -> None:
    target, own = target or local_device().target(), constants(columns)
    kernel = made(product(columns), schedule, target, times=times)
    given = [own[name] for name in bound(product(columns), 1).constants]
    packed = kernel.pack([given] * len(TILES))
    jit, generator = JitKernel(kernel.function, target), np.random.default_rng(1)
    for rows in sizes:
        x = generator.standard_normal((rows, DEPTH)).astype(np.float32)
        wanted = np.maximum(x @ own["w"] + own["b"], 0)
        np.testing.assert_allclose(call(jit, x, packed, columns), wanted, rtol=1e-4, atol=1e-5)


def test_threads_that_share_panels_give_the_same_bits() -> None:
    target, own = local_device().target(), constants(128)
    kernels = [made(product(128), ASKING, target, threads) for threads in (1, 2)]
    packed = kernels[0].pack([[own[name] for name in bound(product(128), 1).constants]] * len(TILES))
    alone, shared = (JitKernel(kernel.function, target) for kernel in kernels)
    x = np.random.default_rng(2).standard_normal((37, DEPTH)).astype(np.float32)

    def run() -> Any:
        configure_threads(min(2, usable_threads()))
        return call(shared, x, packed, 128)

    with ThreadPoolExecutor(1) as one:
        np.testing.assert_array_equal(one.submit(run).result(), call(alone, x, packed, 128))


def test_the_rows_are_counted_inside_the_loop_over_panels() -> None:
    """So each panel is read from memory once a call."""
    *few, all_rows = loops(made(product(256), SHORT, AVX512).function.body, tirx.ForKind.PARALLEL)
    assert len(few) == len(FEW)
    assert int(all_rows.extent) == 256 // 16
    counted = [loop for loop in loops(all_rows.body, tirx.ForKind.SERIAL) if is_counted(loop)]
    assert len(counted) == 3  # of 6, 5 and 4 rows
    assert not loops(all_rows.body, tirx.ForKind.PARALLEL)


@pytest.mark.parametrize(
    ("columns", "vectors", "threads", "tasks"),
    [
        (1024, 1, 1, [11, 22, 32]),
        (1024, 3, 1, [11, 22, 22]),
        (1008, 3, 1, [11, 21, 21]),
        (384, 1, 1, [4, 8, 12]),
        (304, 1, 2, [4, 10, 10]),
    ],
    ids=["enough sums", "one where it has enough", "a last one of fewer", "whole", "evenly for each thread"],
)
def test_few_rows_read_several_panels_side_by_side(columns: int, vectors: int, threads: int, tasks: list[int]) -> None:
    schedule: dict[str, int | str] = {"contraction.vectors": vectors, "contraction.pixels": 6}
    few = loops(made(product(columns), schedule, AVX512, threads).function.body, tirx.ForKind.PARALLEL)[: len(FEW)]
    assert [int(loop.extent) for loop in few] == tasks


@pytest.mark.parametrize(
    ("schedule", "target", "asking"), [(SHORT, AVX512, 0), (ASKING, AVX512, 3 + 2 + 2), (ASKING, ZEN, 2 + 1 + 1)]
)
def test_the_first_tiles_ask_for_the_next_panel_where_they_are_told_to(
    schedule: dict[str, int | str], target: Target, asking: int
) -> None:
    """In loops of their own: four tiles of the longest kind for a quarter each; two tiles for a half each; one alone
    for all of it, unless the hardware reads its stream."""
    body = made(product(128), schedule, target).function.body
    counted = [loop for loop in loops(body, tirx.ForKind.SERIAL) if is_counted(loop)]
    assert sum("prefetch" in str(loop.body) for loop in counted) == asking


@pytest.mark.parametrize(
    ("columns", "schedules", "threads"),
    [
        (128, [{**SHORT, "contraction.split_k": 2}] * 3, 1),
        (128, [SHORT, SHORT, {"contraction.vectors": 2}], 1),
        (48, [SHORT] * 3, 2),
        (128, [{**SHORT, "contraction.algorithm": "dot"}] * 3, 1),
    ],
    ids=["parts of sums", "weights packed apart", "three panels for two threads", "lanes over the depth"],
)
def test_other_products_are_computed_tile_by_tile(
    columns: int, schedules: list[dict[str, int | str]], threads: int
) -> None:
    opened = product(columns)
    tiles = [(rows, bound(opened, rows).workload, one) for rows, one in zip(TILES, schedules, strict=True)]
    assert product_tiles(tiles, AVX512, threads) is None


def loops(statement: Any, kind: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(statement, (tirx.For, lambda loop: found.append(loop) if loop.kind == kind else None))
    return found
