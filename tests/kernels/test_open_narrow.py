"""Products of bytes over an open number of rows: each panel of weights meets all rows of a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import tirx

from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.jit import JitKernel, tensor
from autofuse.device.target import Target
from autofuse.graph.loading.load import from_model
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph, open_graph
from autofuse.kernels.build import Kernel
from autofuse.kernels.open_sizes.open_rows import TILES, Tile, open_kernel, tile_rows
from autofuse.kernels.open_sizes.products.tiles import product_tiles
from experiments.precisions.files import packed
from tests.kernels.test_open_products import SIZES, loops
from tests.kernels.test_open_rows import bound, rows_of

DEPTH = 40
VNNI = Target("cascadelake", 16, 32, 2, 49152, 2 << 20)
SCHEDULES: dict[str, dict[str, int | str]] = {
    "default": {},
    "short": {"integer.vectors": 1, "integer.pixels": 6},
    "asking ahead": {"integer.vectors": 2, "integer.pixels": 6, "integer.prefetch": 64},
}


def product(columns: int, depth: int = DEPTH) -> OpenGraph:
    """A product of bytes, its scale and what is done to each number; `a`, `z`: the scale and the zero point of x."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        g (uint8[n, {depth}] x, float a, uint8 z) => (float[n, {columns}] y) {{
          p = MatMulInteger (x, w, z)
          r = Cast <to = 1> (p)
          s = Mul (r, a)
          y = Relu (s)
        }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(weights(columns, depth), "w"))
    first, second = (from_model(model, "rows", {"x": (size, depth)}) for size in (19, 23))
    return open_graph("n", 19, first, 23, second)


def weights(columns: int, depth: int = DEPTH) -> Any:
    return np.random.default_rng(columns).integers(-127, 128, (depth, columns), np.int8)


def tiles_of(opened: OpenGraph, schedule: dict[str, int | str]) -> list[Tile]:
    return [Tile(rows, bound(opened, rows).workload, schedule) for rows in TILES]


def made(opened: OpenGraph, schedule: dict[str, int | str], target: Target, threads: int = 1) -> Kernel:
    return open_kernel(tiles_of(opened, schedule), rows_of(opened, bound(opened, 1)), target, threads=threads)


@pytest.mark.parametrize("columns", [5, 32, 100, 200])
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_any_number_of_rows_has_the_exact_sums(columns: int, schedule: dict[str, int | str]) -> None:
    target, w = local_device().target(), weights(columns)
    kernel = made(product(columns), schedule, target)
    held = [tensor(array) for array in kernel.pack([[w]] * len(TILES))]
    jit, generator = JitKernel(kernel.function, target), np.random.default_rng(1)
    scale, zero = np.float32(0.25), np.uint8(113)
    for rows in SIZES:
        x = generator.integers(0, 256, (rows, DEPTH), np.uint8)
        found = tensor(np.full((rows, columns), np.nan, np.float32))
        jit(tensor(x), tensor(np.asarray(zero)), tensor(np.asarray(scale)), *held, found)
        wanted = np.maximum((x.astype(np.int32) - int(zero)) @ w.astype(np.int32) * scale, 0)
        np.testing.assert_array_equal(np.from_dlpack(found), wanted.astype(np.float32))


def test_each_panel_meets_all_rows() -> None:
    """So weights are read from memory once a call."""
    (panels,) = loops(made(product(256), SCHEDULES["short"], VNNI).function.body, tirx.ForKind.PARALLEL)
    assert int(panels.extent) == 256 // 16
    counted = [loop for loop in loops(panels.body, tirx.ForKind.SERIAL) if not isinstance(loop.extent, tirx.IntImm)]
    assert len(counted) == 5  # of 6, 5, 4, 2 and 1 rows


def test_the_first_tile_of_a_panel_asks_ahead() -> None:
    kernel = made(product(256), SCHEDULES["asking ahead"], VNNI)
    (panels,) = loops(kernel.function.body, tirx.ForKind.PARALLEL)
    counted = [loop for loop in loops(panels.body, tirx.ForKind.SERIAL) if not isinstance(loop.extent, tirx.IntImm)]
    assert ["prefetch" in str(loop.body) for loop in counted[:2]] == [True, False]


def test_tiles_share_the_asking_for_the_next_panel_where_weights_come_late() -> None:
    """Four tiles of the longest kind, else two of any, or one alone; two rows and one only read."""
    far = replace(VNNI, l2_bytes=1 << 14)
    (panels,) = loops(made(product(256), SCHEDULES["short"], far).function.body, tirx.ForKind.PARALLEL)
    counted = [loop for loop in loops(panels.body, tirx.ForKind.SERIAL) if not isinstance(loop.extent, tirx.IntImm)]
    asking = ["prefetch" in str(loop.body) for loop in counted]
    assert asking == [True, True, True, False, *[True, True, False] * 2, False, False]


@pytest.mark.long
def test_asking_for_the_next_panel_changes_no_sum() -> None:
    target, w = replace(local_device().target(), l2_bytes=1 << 14), weights(200)
    kernel = made(product(200), SCHEDULES["short"], target)
    held = [tensor(array) for array in kernel.pack([[w]] * len(TILES))]
    jit, x = JitKernel(kernel.function, target), np.full((37, DEPTH), 3, np.uint8)
    found = tensor(np.full((37, 200), np.nan, np.float32))
    jit(tensor(x), tensor(np.asarray(np.uint8(1))), tensor(np.asarray(np.float32(1))), *held, found)
    np.testing.assert_array_equal(np.from_dlpack(found), np.maximum(2.0 * (x // 3) @ w.astype(np.float32), 0))


def test_products_that_unpack_their_weights_have_longer_tiles_and_pairs() -> None:
    """Each tile unpacks all weights."""
    codes, scales = packed(np.ones((64, 32), np.float32))
    node = helper.make_node(
        "MatMulNBits", ["x", "c", "s"], ["y"], domain="com.microsoft", K=64, N=32, bits=4, block_size=32
    )
    constants = [numpy_helper.from_array(codes, "c"), numpy_helper.from_array(scales, "s")]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 64), ("y", 32))
    ]
    graph = helper.make_graph([node], "g", values[:1], values[1:], constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    first, second = (
        from_model(helper.make_model(graph, opset_imports=opsets), "rows", {"x": (size, 64)}) for size in (19, 23)
    )
    opened = open_graph("n", 19, first, 23, second)
    for high, tiles in ((128, (64, 16, 4, 2, 1)), (20, (16, 4, 2, 1)), (3, (2, 1))):
        assert tile_rows(bound(opened, 19).workload, rows_of(opened, bound(opened, 19)), 19, high) == tiles


def test_bytes_that_a_kernel_copies_first_are_computed_tile_by_tile() -> None:
    """A depth that is no whole number of steps is filled up in a copy."""
    opened = product(128, 42)
    tiles = [(tile.rows, tile.workload, tile.schedule) for tile in tiles_of(opened, SCHEDULES["short"])]
    assert product_tiles(tiles, VNNI, 1) is None
