"""Readers of text as paddle2onnx exports them: our kernels run all of them, whatever is computed of their shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import autofuse
from autofuse.graph.loading.load import from_model, load
from autofuse.kernels.lowering.coverage import without_kernel
from experiments.architectures.text_reading import detector, recogniser

MODELS = {
    "detector": lambda: detector("rows", "columns"),
    "attention": lambda: recogniser("columns", classes=100),
    "lstm": lambda: recogniser("columns", "lstm", classes=100),
}
SIZES = {"detector": (1, 3, 64, 96), "attention": (1, 3, 48, 96), "lstm": (1, 3, 48, 96)}


def test_sizes_that_are_written_need_no_computed_shape() -> None:
    loaded = from_model(detector(64, 64), "one")
    assert without_kernel(loaded) == {}
    assert not {"Shape", "Slice", "Concat"} & {
        one.op_type for one in loaded.operators if one.name.startswith("level1.up")
    }


@pytest.mark.parametrize("name", MODELS)
def test_open_sizes_leave_nothing_to_onnx_runtime(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(MODELS[name](), path)
    loaded = load(path, {"image": SIZES[name]})
    assert without_kernel(loaded) == {}
    assert not {"Shape", "Cast"} & {one.op_type for one in loaded.operators}


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_the_library_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(MODELS[name](), path)
    shapes = {"image": SIZES[name]}
    report = autofuse.compile(path, tmp_path / "net.so", database=str(tmp_path / "no.db"), threads=1, shapes=shapes)
    assert report.parts == ()
    x = np.random.default_rng(0).standard_normal(SIZES[name]).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"image": x})
    (found,) = autofuse.Session(tmp_path / "net.so").run(None, {"image": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * float(np.ptp(wanted)))
