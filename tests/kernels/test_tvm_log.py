"""TVM's warnings reach no screen; errors, and what a crash says, do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from autofuse.environment.named_plans import named_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.importer.tvm_log import without_warnings
from experiments.fuzz.bombs import model

WARNING = b"[14:20:22] /project/src/tirx/op/op.cc:275: Warning: Detected pow(x, y) where y >= 3\n"


def test_warnings_of_tvm_are_dropped_and_all_else_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with without_warnings():
        for said in (b"before\n", WARNING, b"[14:20:22] /project/a.cc:1: Error: lost\n", WARNING, b"after"):
            os.write(2, said)
    os.write(2, b", then")
    assert capfd.readouterr().err == "before\n[14:20:22] /project/a.cc:1: Error: lost\nafter, then"


def test_what_was_said_before_an_error_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), without_warnings():
        os.write(2, b"why\n")
        raise ValueError("no")
    assert capfd.readouterr().err == "why\n"


def test_a_crash_still_says_where() -> None:
    code = "import os; from autofuse.kernels.importer.tvm_log import without_warnings as w\nwith w(): os.abort()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert "Fatal Python error: Aborted" in done.stderr
    assert "<string>" in done.stderr


def test_tvms_partition_of_a_lookup_and_a_power_warns_of_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its importer warns of both."""
    nodes = [
        helper.make_node("Pow", ["x", "three"], ["p"]),
        helper.make_node("Gather", ["p", "i"], ["y"], axis=0),
    ]
    made = model(nodes, {"x": [8, 4]}, "y", three=np.float32(3), i=np.array([1, 2]))
    made.graph.initializer[-1].name = "unused"
    made.graph.input.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [2]))
    path = tmp_path / "m.onnx"
    onnx.save(made, path)
    assert len(named_plan(load(path, {}), "tvm-partition").groups) >= 1
    assert "Warning" not in capfd.readouterr().err
