"""Kernels over an open number of rows: tiles, the last one moved back, single rows below the smallest tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
import tvm_ffi
from onnx import numpy_helper

from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.compile.jit import JitKernel, tensor
from autofuse.errors import InputError
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Tensor
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, open_graph
from autofuse.kernels.open_rows import TILES, Tile, check_elements, open_kernel, tile_rows
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


def test_any_number_of_rows_is_right_and_nothing_behind_them_is_written(opened: OpenGraph) -> None:
    """Whole tiles, a tile that is moved back, tiles of the next size, single rows."""
    target = local_device().target()
    tiles = [Tile(rows, bound(opened, rows).workload, {}) for rows in TILES]
    kernel = open_kernel(tiles, rows_of(opened, bound(opened, 1)), target)
    jit = JitKernel(kernel.function, target)
    generator = np.random.default_rng(1)
    for rows in (*range(1, 36), 100):
        x, shift = (generator.standard_normal(shape).astype(np.float32) for shape in ((rows, 24), (24,)))
        product = np.exp((x + shift) @ W)
        found = call(jit, x, shift, kernel.pack([[W]] * len(TILES)))
        np.testing.assert_allclose(found, product / product.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


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
