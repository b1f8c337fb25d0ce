"""The single operators of `experiments/operators` are what their names say."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from experiments.operators.cases import FAMILIES, FEW, LAYERS, MANY

SMALL = {
    name: build
    for family in FAMILIES
    if family != "skinny"
    for name, build in FAMILIES[family].items()
    if not name.startswith(f"{MANY} x ")
}


@pytest.mark.parametrize("name", SMALL)
def test_an_operator_is_a_valid_network_of_one_kernel_a_layer(name: str, tmp_path: Path) -> None:
    model = SMALL[name]()
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "operator.onnx")
    graph = load(tmp_path / "operator.onnx", {})
    assert FEW == LAYERS and len(default_plan(graph).groups) == (LAYERS if " x " in name else 1)
    (result,) = (graph.tensors[output].shape for output in graph.outputs)
    if sizes := re.search(r"(?<!<)->(\d+)@(\d+)", name):
        channels, image = map(int, sizes.groups())
        side = image // 2 if " s2 " in name else image
        assert result == (1, channels, side, side)
