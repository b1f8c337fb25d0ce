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
    """The same with two products of 16 MB of weights each, which bytes make faster on any CPU, however busy it is."""
    builder = OnnxBuilder()
    found, width = _features(builder, channels), channels
    for name in ("wide1", "wide2", "wide3"):
        found = builder.op("Relu", f"{name}_relu", builder.dense(name, found, (width, WIDE)))
        width = WIDE
    builder.save(path, IMAGE, [builder.dense("scores", found, (width, 10))])


def _features(builder: OnnxBuilder, channels: int) -> str:
    first = builder.op("Relu", "relu1", builder.conv_bn("conv1", "image", (3, channels)))
    second = builder.op("Relu", "relu2", builder.conv_bn("conv2", first, (channels, channels)))
    return builder.op("Flatten", "flat", builder.op("GlobalAveragePool", "pooled", second))
