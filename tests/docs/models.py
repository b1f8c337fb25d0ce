"""The models that a reader of the documentation has."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import OnnxBuilder


def save_model(path: Path, channels: int) -> None:
    """Two convolutions and a product: milliseconds to run, seconds to tune."""
    builder = OnnxBuilder()
    first = builder.op("Relu", "relu1", builder.conv_bn("conv1", "image", (3, channels)))
    second = builder.op("Relu", "relu2", builder.conv_bn("conv2", first, (channels, channels)))
    flat = builder.op("Flatten", "flat", builder.op("GlobalAveragePool", "pooled", second))
    builder.save(path, {"image": (1, 3, 32, 32)}, [builder.dense("scores", flat, (channels, 10))])
