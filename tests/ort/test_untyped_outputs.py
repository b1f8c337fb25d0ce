"""Models that do not say of which type their outputs are: ONNX Runtime infers none of a compiled part."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.ort.compiled import agree, compiled, network

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_an_output_without_a_declared_type_gets_the_inferred_one(tmp_path: Path) -> None:
    model, tuned = network(tmp_path / "model.onnx"), tmp_path / "tuned.onnx"
    content = onnx.load(model)
    declared = content.graph.output[0].type.SerializeToString()
    content.graph.output[0].ClearField("type")
    onnx.save(content, model)
    compiled(model, tuned)
    assert onnx.load(tuned).graph.output[0].type.SerializeToString() == declared
    agree(model, tuned, {"x": np.linspace(-1, 1, 3 * 24 * 24, dtype=np.float32).reshape(1, 3, 24, 24)})
