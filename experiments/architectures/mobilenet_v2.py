"""MobileNetV2 (Sandler et al., 2018, Table 2)."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from experiments.architectures.draft import Draft

# expansion, output channels, repeats, stride of the first
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
STEM_CHANNELS, HEAD_CHANNELS, CLASSES = 32, 1280, 1000


def build(width: float = 1.0, size: int = 224, classes: int = CLASSES, seed: int = 0) -> ModelProto:
    """The network for one image of `size` x `size` pixels; `width` scales its channels (to multiples of 8)."""
    draft = Draft("mobilenet_v2", seed)
    draft.constant("zero", np.array(0, np.float32))
    draft.constant("six", np.array(6, np.float32))
    channels = scaled(STEM_CHANNELS, width)
    x = _unit(draft, "stem", "image", (3, channels), 3, stride=2)
    number = 0
    for expansion, out, repeats, first_stride in BLOCKS:
        for repeat in range(repeats):
            sizes = (channels, scaled(out, width))
            x = _block(draft, f"block{number}", x, sizes, expansion, first_stride if repeat == 0 else 1)
            channels, number = sizes[1], number + 1
    head = max(HEAD_CHANNELS, scaled(HEAD_CHANNELS, width))
    x = _unit(draft, "head", x, (channels, head), 1)
    draft.classifier(draft.flat_mean(x), head, classes)
    return draft.model({"image": [1, 3, size, size]}, "scores", [1, classes])


def scaled(channels: int, width: float, multiple: int = 8) -> int:
    """Channels of a wider or narrower network: the nearest multiple of 8 that is at least 90 % of the product."""
    wanted = channels * width
    rounded = max(multiple, int(wanted + multiple / 2) // multiple * multiple)
    return rounded + multiple if rounded < 0.9 * wanted else rounded


def _unit(
    draft: Draft, name: str, x: str, sizes: tuple[int, int], kernel: int, stride: int = 1, depthwise: bool = False
) -> str:
    """Convolution, BatchNormalization, ReLU6."""
    channels_in, channels_out = sizes
    shape = (channels_out, 1 if depthwise else channels_in, kernel, kernel)
    x = draft.convolution(f"{name}.conv", x, shape, stride, channels_in if depthwise else 1)
    return draft.node("Clip", f"{name}.relu6", [draft.normalization(f"{name}.bn", x, channels_out), "zero", "six"])


def _block(draft: Draft, name: str, x: str, sizes: tuple[int, int], expansion: int, stride: int) -> str:
    """Inverted residual: expand, filter depthwise, project; added to its input where shapes agree."""
    channels_in, channels_out = sizes
    hidden = channels_in * expansion
    y = x if expansion == 1 else _unit(draft, f"{name}.expand", x, (channels_in, hidden), 1)
    y = _unit(draft, f"{name}.depthwise", y, (hidden, hidden), 3, stride, depthwise=True)
    y = draft.convolution(f"{name}.project.conv", y, (channels_out, hidden, 1, 1))
    y = draft.normalization(f"{name}.project.bn", y, channels_out)
    return draft.node("Add", f"{name}.add", [x, y]) if stride == 1 and channels_in == channels_out else y
