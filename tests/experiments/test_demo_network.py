"""The demo's network is MobileNetV2: its size, its operators, and outputs that mean something."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime

from experiments.architectures import mobilenet_v2


def test_the_full_network_has_the_papers_layers_and_parameters() -> None:
    model = mobilenet_v2.build(size=64)
    counts = Counter(node.op_type for node in model.graph.node)
    assert (counts["Conv"], counts["BatchNormalization"], counts["Clip"], counts["Add"]) == (52, 52, 35, 10)
    statistics = ("mean", "var")
    parameters = sum(
        int(np.prod(weight.dims))
        for weight in model.graph.initializer
        if weight.dims and weight.name.rpartition(".")[2] not in statistics
    )
    assert parameters == 3_504_872


def test_it_answers_differently_to_different_images() -> None:
    model = mobilenet_v2.build(width=0.35, size=64, classes=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    first, second = (
        session.run(None, {"image": random.standard_normal((1, 3, 64, 64), np.float32)})[0] for _ in range(2)
    )
    assert np.isfinite(first).all()
    assert first.std() > 0.1
    assert np.abs(first - second).max() > 1e-3 * np.abs(first).max()


def test_the_same_seed_gives_the_same_network() -> None:
    first, second = (mobilenet_v2.build(0.35, 32, 10, seed=3).SerializeToString() for _ in range(2))
    assert first == second
    assert mobilenet_v2.build(0.35, 32, 10, seed=4).SerializeToString() != first


def test_channels_are_rounded_as_in_the_paper() -> None:
    assert [mobilenet_v2.scaled(n, 0.35) for n in (16, 24, 32, 1280)] == [8, 8, 16, 448]
