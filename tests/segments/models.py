"""Models with operators that have no kernel of ours, and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper, parser

Array = NDArray[Any]
HEAD = '<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]>'


def model_of(text: str, **weights: Array) -> ModelProto:
    """A model of ONNX's text format."""
    model = parser.parse_model(HEAD + text)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def written(model: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def normal(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.3).astype(np.float32)


def pooled() -> ModelProto:
    """Two products with a MaxPool between them, whose indices are an output, too."""
    return model_of(
        """net (float[6,1,16] x) => (float[6,8] y, int64[6,1,12] h) {
            a = MatMul (x, w)
            b = Relu (a)
            r, h = MaxPool <kernel_shape=[9]> (b)
            q = Squeeze (r, axes)
            u = Reshape (q, sizes)
            t = MatMul (u, v)
            y = Tanh (t)
        }""",
        w=normal(16, 20),
        v=normal(12, 8, seed=3),
        axes=np.array([1], np.int64),
        sizes=np.array([6, 12], np.int64),
    )


def detector() -> ModelProto:
    """Scores by kernels of ours, then a suppression whose number of boxes depends on data."""
    return model_of(
        """net (float[1,6,4] boxes, float[1,2,6] logits) => (int64[n,3] chosen, float[m,4] found) {
            scores = Sigmoid (logits)
            chosen = NonMaxSuppression (boxes, scores, most, overlap, least)
            which = Gather <axis=1> (chosen, two)
            rows = Squeeze (boxes, zero)
            picked = Gather (rows, which)
            found = Mul (picked, scale)
        }""",
        most=np.array([3], np.int64),
        overlap=np.array([0.5], np.float32),
        least=np.array([0.7], np.float32),
        two=np.array(2, np.int64),
        zero=np.array([0], np.int64),
        scale=np.array([640.0], np.float32),
    )


def expected(model: ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """What ONNX Runtime makes of the whole model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def assert_same(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Equal as far as rounding goes; texts and sequences, too."""
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        if isinstance(want, list):
            assert_same(got, want)
        elif isinstance(want, np.ndarray) and want.dtype.kind == "f":
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(got, want)
