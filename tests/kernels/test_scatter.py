"""ScatterND by rows agrees with ONNX Runtime: every reduction, any depth of indices, negative ones, repeated ones."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from autofuse.kernels.families.registry import is_own, kind_of, nests_of
from tests.kernels.conftest import Array, Bench, Small, real

SHAPES = [((7, 40), (30, 1)), ((5, 130), (9, 1)), ((4, 3, 17), (6, 2)), ((6,), (5, 1)), ((3, 4, 5), (2, 3, 1))]
"""(data, indices)."""


def scatter(data: tuple[int, ...], places: tuple[int, ...], reduction: str, repeated: bool = True) -> Small:
    depth = places[-1]
    count, rows = int(np.prod(places[:-1])), int(np.prod(data[:depth]))
    rng = np.random.default_rng(3)
    flat = rng.integers(0, rows, count) if repeated else rng.permutation(rows)[:count]
    index: Array = np.stack(np.unravel_index(flat, data[:depth]), -1).reshape(places).astype("int64")
    index[..., 0] -= data[0] * rng.integers(0, 2, index.shape[:-1])
    node = helper.make_node("ScatterND", ["d", "i", "u"], ["y"], reduction=reduction)
    updates = real(*places[:-1], *data[depth:], seed=1)
    return Small([node], {"d": real(*data), "i": index, "u": updates}, ["y"], opset=18)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize(("data", "places"), SHAPES)
def test_repeated_rows_are_folded(bench: Bench, data: tuple[int, ...], places: tuple[int, ...], reduction: str) -> None:
    bench.check(scatter(data, places, reduction))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_any_width_of_vectors_agrees(bench: Bench, lanes: int) -> None:
    bench.check(scatter((9, 83), (20, 1), "add"), lanes=lanes)
    bench.check(scatter((31, 64), (20, 1), "none", repeated=False), lanes=lanes)


def test_it_is_a_kernel_of_ours(bench: Bench) -> None:
    workload = bench.bind(scatter((7, 40), (30, 1), "add")).workload
    (nest,) = nests_of(workload)
    assert is_own(workload) and kind_of(workload, nest) == "scatter"
