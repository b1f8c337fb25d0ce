"""The layers of `experiments/recurrent` are what their names say, and are all ours."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.coverage import without_kernel
from experiments.recurrent.cases import GATES, KINDS, STEPS
from experiments.recurrent.run import Row, published

LAYERS = {name: make for kind in KINDS.values() for name, make in kind.items()}


@pytest.mark.parametrize("name", [name for name in LAYERS if name.endswith("128")])
def test_a_layer_is_a_valid_network_of_a_product_and_a_recurrence(name: str, tmp_path: Path) -> None:
    cell, *_, hidden = name.split()
    layer = LAYERS[name]()
    assert (layer.cell, layer.hidden, layer.steps) == (cell, int(hidden), 1 if "cell" in name else STEPS)
    assert layer.weight_bytes == 4 * GATES[cell] * int(hidden) ** 2
    onnx.save(layer.model(), tmp_path / "layer.onnx")
    graph = load(tmp_path / "layer.onnx", {})
    kinds = [operator.op_type for operator in graph.operators]
    assert kinds.count("Gemm") == 1 and kinds[-1] == f"{cell}Recurrence"
    assert without_kernel(graph) == {}


def test_a_ratio_that_is_not_trusted_carries_a_question_mark() -> None:
    row = Row("LSTM 128", 1, 200.0, 300.0, 1.5, 1.4, 1.6, False, 130.0, 65.0)
    assert "1.50 (1.40-1.60) ?" in published([row])
