"""The audio encoder compiles, though its position convolution has many taps, and computes what it should."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from autofuse import api
from experiments.architectures.audio_encoder import Audio, build

SMALL = Audio(samples=6_400, channels=32, hidden=64, heads=4, intermediate=64, transformers=1)


@pytest.mark.long
def test_an_audio_encoder_compiles_and_agrees_with_onnx_runtime(tmp_path: Path) -> None:
    path = tmp_path / "audio.onnx"
    onnx.save(build(SMALL), path)
    api.compile(path, tmp_path / "audio.so", database=str(tmp_path / "a.db"), threads=1)
    feeds = {"samples": np.random.default_rng(0).standard_normal((1, SMALL.samples)).astype(np.float32)}
    (expected,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    (result,) = api.load(tmp_path / "audio.so")(feeds)
    assert result.shape == (1, SMALL.frames, SMALL.hidden)
    np.testing.assert_allclose(result, expected, atol=1e-5 * float(np.ptp(expected)))
