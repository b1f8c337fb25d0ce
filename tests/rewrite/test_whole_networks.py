"""Networks rewritten greedily, every rule at work at once, compute what they computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model
from autofuse.rewrite.driver import apply, greedy
from experiments.architectures.decomposed import MobileBert, Size, gpt2, mobilebert, tinybert

SMALL = Size(layers=2, hidden=24, heads=3, intermediate=40, sequence=8, vocabulary=50)
NETWORKS: dict[str, Callable[[], ModelProto]] = {
    "gpt2": lambda: gpt2(SMALL),
    "tinybert": lambda: tinybert(SMALL),
    "mobilebert": lambda: mobilebert(MobileBert(2, 40, 24, 3, 16, 8, 50)),
}


def run(model: ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(item) for item in session.run(None, feeds)]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_the_same(name: str, exact: bool) -> None:
    graph = from_model(NETWORKS[name](), name)
    rewritten = greedy(graph, exact)
    assert rewritten.applied or exact
    assert all(site.rule.exact or not exact for site in rewritten.applied)
    assert apply(graph, rewritten.steps).operators == rewritten.graph.operators
    feeds = generate_inputs(graph, 0)
    for got, wanted in zip(run(to_model(rewritten.graph), feeds), run(to_model(graph), feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * float(np.abs(wanted).max()))
