"""The random networks that times are to be collected from: the same on every machine, and nothing without a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.coverage import require_kernels
from experiments.catalogue import build
from experiments.model_files import write


@pytest.mark.parametrize("name", ["cnn0", "attention2", "pointwise1"])
def test_a_generated_network_can_be_tuned_and_is_always_the_same(name: str, tmp_path: Path) -> None:
    path = write(name, tmp_path)
    graph = load(path)
    require_kernels(graph)
    assert len(graph.operators) >= 15
    assert build(name).SerializeToString() == build(name).SerializeToString()
