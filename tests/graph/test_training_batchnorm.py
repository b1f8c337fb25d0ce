"""BatchNormalization in training mode: outputs and running statistics are those of the standard."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from autofuse.fusion.planner.baselines import default_plan, none_plan
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from autofuse.views.inspect import bytes_moved

TEXT = """g (float[3,4,6,5] x, float[8] m, float[8] v) => (float[3,8,6,5] z, float[8] rm, float[8] rv) {
    c = Conv <pads: ints = [1, 1, 1, 1]> (x, w)
    y, rm, rv = BatchNormalization <training_mode: int = 1, momentum: float = 0.7, epsilon: float = 0.01>
        (c, s, b, m, v)
    z = Relu(y)
}"""


def weights() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    drawn = {"w": rng.standard_normal((8, 4, 3, 3)), "s": rng.uniform(0.5, 1.5, 8), "b": rng.standard_normal(8)}
    return {name: array.astype(np.float32) for name, array in drawn.items()}


@pytest.mark.parametrize("seed", range(3))
def test_outputs_and_running_statistics_are_right(
    model: Callable[..., ModelProto], run: Callable[..., list[NDArray[np.generic]]], seed: int
) -> None:
    proto = model(TEXT, 15, weights())
    rng = np.random.default_rng(seed)
    feeds = {"x": rng.standard_normal((3, 4, 6, 5)) + seed, "m": rng.standard_normal(8), "v": rng.random(8)}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    graph = from_model(proto, "test")
    assert "BatchNormalization" not in {operator.op_type for operator in graph.operators}
    for got, wanted in zip(run(to_model(graph), feeds), ReferenceEvaluator(proto).run(None, feeds), strict=True):
        np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-4, atol=1e-5)


def test_fused_statistics_and_scales_move_fewer_bytes(model: Callable[..., ModelProto]) -> None:
    graph = from_model(model(TEXT, 15, weights()), "test")
    assert bytes_moved(graph, default_plan(graph)) < 0.7 * bytes_moved(graph, none_plan(graph))
