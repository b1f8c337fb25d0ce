"""Kernels over an open number of rows: tiles, the last one moved back, single rows below the smallest tile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx.parser
import pytest
import tvm_ffi
from onnx import numpy_helper
from tvm import tirx
from tvm.sym.analyzer import Analyzer
from tvm_ffi import structural_walk

from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.jit import JitKernel, tensor
from autofuse.backend.library.threads import configure_threads, usable_threads
from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Tensor
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, open_graph
from autofuse.kernels.open_sizes.open_rows import (
    LEAST_WORK,
    TILES,
    Tile,
    check_elements,
    open_kernel,
    shared_tiles,
    tile_rows,
    work,
)
from autofuse.kernels.workload.workload import BoundWorkload, Value, Workload, WorkloadOperator, bind_workload

GUARD_ROWS = 16
BODY = """<ir_version: 9, opset_import: ["" : 18]>
g (float[n, 24] x, float[24] shift) => (float[n, 40] y) {
  s = Add (x, shift)
  p = MatMul (s, w)
  y = Softmax <axis = -1> (p)
}"""
W = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)


@pytest.fixture(scope="module")
def opened() -> OpenGraph:
    """A product and a softmax of rows, with an input that is the same for all of them."""
    model = onnx.parser.parse_model(BODY)
    model.graph.initializer.append(numpy_helper.from_array(W, "w"))
    first, second = (from_model(model, "rows", {"x": (size, 24)}) for size in (19, 23))
    return open_graph("n", 19, first, 23, second)


def bound(opened: OpenGraph, rows: int) -> BoundWorkload:
    graph = opened.at(rows)
    return bind_workload(graph, [operator.name for operator in graph.operators], {})


def rows_of(opened: OpenGraph, workload: BoundWorkload) -> dict[int, OpenAxis]:
    """The inputs and outputs of a workload that have the open size, by their index."""
    inputs = zip(workload.workload.of_kind("input"), workload.inputs, strict=True)
    outputs = zip(workload.workload.of_kind("output"), workload.outputs, strict=True)
    return {index: opened.axes[name] for index, name in (*inputs, *outputs) if name in opened.axes}


def call(kernel: JitKernel, x: Any, shift: Any, packed: list[Any]) -> Any:
    """The result, with rows behind it that no kernel may touch."""
    whole = tensor(np.full((len(x) + GUARD_ROWS, 40), np.nan, np.float32))
    view = np.from_dlpack(whole)

    kernel(tensor(x), tensor(shift), *map(tensor, packed), tvm_ffi.from_dlpack(view[: len(x)]))
    assert np.isnan(view[len(x) :]).all()
    return view[: len(x)]


@pytest.mark.parametrize(
    "times",
    [(None, None, None), (100.0, 30.0, 10.0), (100.0, 95.0, 90.0), (100.0, 20.0, 19.0), (100.0, 20.0, 4.0)],
    ids=["rule", "cheap rows", "dear tiles", "fours", "ones"],
)
def test_any_number_of_rows_is_right_and_nothing_behind_them_is_written(
    opened: OpenGraph, times: tuple[float | None, ...]
) -> None:
    """Whole tiles, a tile that is moved back, tiles of the next size, single rows, by the rule and by times."""
    target = local_device().target()
    tiles = [Tile(rows, bound(opened, rows).workload, {}, us) for rows, us in zip(TILES, times, strict=True)]
    kernel = open_kernel(tiles, rows_of(opened, bound(opened, 1)), target)
    jit = JitKernel(kernel.function, target)
    generator = np.random.default_rng(1)
    for rows in (*range(1, 36), 100):
        x, shift = (generator.standard_normal(shape).astype(np.float32) for shape in ((rows, 24), (24,)))
        product = np.exp((x + shift) @ W)
        found = call(jit, x, shift, kernel.pack([[W]] * len(TILES)))
        np.testing.assert_allclose(found, product / product.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_tiles_that_threads_share_out_give_the_same_bits(opened: OpenGraph) -> None:
    """Fewer tiles than threads, as many, more, some left, one that is moved back; on one thread and on two."""
    target = local_device().target()
    tiles = [Tile(rows, bound(opened, rows).workload, {}) for rows in TILES]
    kernels = [open_kernel(tiles, rows_of(opened, bound(opened, 1)), target, threads=count) for count in (1, 2, 3)]
    plain, *spread = [JitKernel(kernel.function, target) for kernel in kernels]
    packed = kernels[0].pack([[W]] * len(TILES))
    generator = np.random.default_rng(2)

    def compare() -> None:
        for rows in (1, 15, 16, 31, 32, 33, 47, 48, 63, 64, 65, 95, 96, 97, 100, 333):
            x, shift = (generator.standard_normal(shape).astype(np.float32) for shape in ((rows, 24), (24,)))
            alone = call(plain, x, shift, packed)
            for kernel in spread:
                np.testing.assert_array_equal(call(kernel, x, shift, packed), alone)

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        one.submit(lambda: (configure_threads(1), compare())).result()
        two.submit(lambda: (configure_threads(min(2, usable_threads())), compare())).result()


@pytest.mark.parametrize(
    ("threads", "rows", "shared"), [(2, 1, 0), (2, 31, 0), (2, 32, 2), (2, 63, 2), (2, 64, 4), (3, 64, 3), (3, 95, 3)]
)
def test_every_thread_takes_as_many_whole_tiles(opened: OpenGraph, threads: int, rows: int, shared: int) -> None:
    tile = Tile(16, bound(opened, 16).workload, {})
    assert work(tile.workload) > LEAST_WORK
    assert _shared(tile, rows, threads) == shared


def test_tiles_of_little_work_wait_until_they_are_many() -> None:
    values = (Value("input", (16, 64), "float32"), Value("output", (16, 64), "float32"))
    relu = Workload(values, (WorkloadOperator("Relu", (0,), (1,)),), 18)
    assert work(relu) == 3 * 16 * 64
    least = 2 * -(-LEAST_WORK // work(relu))
    assert [_shared(Tile(16, relu, {}), 16 * count, 2) for count in (2, least - 2, least)] == [0, 0, least]


def _shared(tile: Tile, rows: int, threads: int) -> int:
    return int(Analyzer().simplify(shared_tiles(tile, tirx.const(rows, "int32"), threads)))


@pytest.mark.parametrize(("threads", "loops"), [(1, 0), (2, 1)])
def test_threads_are_started_once_for_all_whole_tiles(opened: OpenGraph, threads: int, loops: int) -> None:
    """A parallel loop whose count is read from the arguments, around loops of one thread."""
    target = Target("x86-64-v3", 8, 16, 2, 32768, 262144)
    schedule = {"chain.rows": 4}
    tiles = [Tile(count, bound(opened, count).workload, schedule) for count in TILES]
    function = open_kernel(tiles, rows_of(opened, bound(opened, 1)), target, threads=threads).function
    inside = [_parallel(loop.body) for loop in _parallel(function.body) if not isinstance(loop.extent, tirx.IntImm)]
    assert inside == [[]] * loops
    assert len(_parallel(function.body)) > loops


def _parallel(statement: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(
        statement, (tirx.For, lambda loop: found.append(loop) if loop.kind == tirx.ForKind.PARALLEL else None)
    )
    return found


def test_rows_that_are_large_come_one_at_a_time(opened: OpenGraph) -> None:
    workload = bound(opened, opened.size)
    rows = rows_of(opened, workload)
    assert tile_rows(workload.workload, rows, opened.size, 100) == TILES
    assert tile_rows(workload.workload, rows, opened.size, 5) == (4, 1)
    assert tile_rows(workload.workload, rows, opened.size, 1) == (1,)
    with pytest.raises(InputError, match="single row"):
        open_kernel([Tile(4, bound(opened, 4).workload, {})], rows, local_device().target())


def test_a_row_that_uses_its_weights_often_is_a_tile_by_itself() -> None:
    """A pixel of a map and a token of a sequence use every weight once more; elements without weights only have to be
    many."""

    def tiles(*operators: WorkloadOperator, **values: tuple[int, ...]) -> tuple[int, ...]:
        found = tuple(Value(kind.rstrip("0123456789"), shape, "float32") for kind, shape in values.items())
        last = len(found) - 1
        return tile_rows(Workload(found, operators, 18), {last: OpenAxis(0)}, 19, 64)

    gemm, conv = (WorkloadOperator(kind, (0, 1), (2,)) for kind in ("Gemm", "Conv"))
    relu = WorkloadOperator("Relu", (0,), (1,))
    assert tiles(gemm, input=(19, 25088), constant=(25088, 4096), output=(19, 4096)) == TILES
    assert tiles(conv, input=(19, 8, 1, 1), constant=(64, 8, 1, 1), output=(19, 64, 1, 1)) == TILES
    assert tiles(conv, input=(19, 8, 7, 7), constant=(64, 8, 1, 1), output=(19, 64, 7, 7)) == (1,)
    assert tiles(relu, input=(19, 10), output=(19, 10)) == TILES
    assert tiles(relu, input=(19, 64, 64), output=(19, 64, 64)) == (1,)


def test_a_tensor_that_32_bits_cannot_count_is_refused() -> None:
    check_elements(Tensor("x", (2047, 1 << 20), "float32"))
    with pytest.raises(InputError, match="elements at the largest size"):
        check_elements(Tensor("x", (2048, 1 << 20), "float32"))
