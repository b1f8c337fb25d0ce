"""The models that a reader of the documentation has."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import OnnxBuilder

IMAGE = {"image": (1, 3, 32, 32)}
WIDE = 2048


def save_model(path: Path, channels: int) -> None:
    """Two convolutions and a product: milliseconds to run, seconds to tune."""
    builder = OnnxBuilder()
    builder.save(path, IMAGE, [builder.dense("scores", _features(builder, channels), (channels, 10))])


def save_wide_model(path: Path, channels: int) -> None:
    """The same with a product of 16 MB of weights, which bytes make several times as fast on any CPU, busy or not."""
    builder = OnnxBuilder()
    first = builder.op("Relu", "wide1_relu", builder.dense("wide1", _features(builder, channels), (channels, WIDE)))
    second = builder.op("Relu", "wide2_relu", builder.dense("wide2", first, (WIDE, WIDE)))
    builder.save(path, IMAGE, [builder.dense("scores", second, (WIDE, 10))])


def _features(builder: OnnxBuilder, channels: int) -> str:
    first = builder.op("Relu", "relu1", builder.conv_bn("conv1", "image", (3, channels)))
    second = builder.op("Relu", "relu2", builder.conv_bn("conv2", first, (channels, channels)))
    return builder.op("Flatten", "flat", builder.op("GlobalAveragePool", "pooled", second))
