"""WeeNet, the smallest network that fusion can help: convolution, BatchNormalization, ReLU."""

from __future__ import annotations

from onnx import ModelProto

from experiments.architectures.draft import Draft


def build(channels: int = 64, size: int = 128, seed: int = 0) -> ModelProto:
    """3 x 3 convolution of `channels` x `size` x `size` to as many, BatchNormalization, ReLU."""
    draft = Draft("weenet", seed)
    x = draft.convolution("conv", "image", (channels, channels, 3, 3))
    draft.node("Relu", "relu", [draft.normalization("bn", x, channels)])
    shape = [1, channels, size, size]
    return draft.model({"image": shape}, "result", shape)
