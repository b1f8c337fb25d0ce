"""EfficientNet-B0 (Tan and Le, 2019, Table 1)."""

from __future__ import annotations

from onnx import ModelProto

from experiments.architectures.draft import Draft

# expansion, kernel, stride of the first, output channels, repeats
BLOCKS = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
STEM_CHANNELS, HEAD_CHANNELS, CLASSES = 32, 1280, 1000
SWISH = 1.7
"""Gain of the weights before a swish: its results have the scale of what the convolution read."""


def build(
    size: int = 224, classes: int = CLASSES, blocks: tuple[tuple[int, int, int, int, int], ...] = BLOCKS, seed: int = 0
) -> ModelProto:
    """The network for one image of `size` x `size` pixels."""
    draft = Draft("efficientnet_b0", seed)
    x = _unit(draft, "stem", "image", (STEM_CHANNELS, 3, 3, 3), 2)
    channels, number = STEM_CHANNELS, 0
    for expansion, kernel, first_stride, out, repeats in blocks:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            x = _block(draft, f"block{number}", x, (channels, out), expansion, kernel, stride)
            channels, number = out, number + 1
    x = _unit(draft, "head", x, (HEAD_CHANNELS, channels, 1, 1))
    draft.classifier(draft.flat_mean(x), HEAD_CHANNELS, classes)
    return draft.model({"image": [1, 3, size, size]}, "scores", [1, classes])


def _block(draft: Draft, name: str, x: str, sizes: tuple[int, int], expansion: int, kernel: int, stride: int) -> str:
    """Expand, filter depthwise, excite, project; added to its input where shapes agree."""
    channels, out = sizes
    hidden = channels * expansion
    y = x if expansion == 1 else _unit(draft, f"{name}.expand", x, (hidden, channels, 1, 1))
    y = _unit(draft, f"{name}.depthwise", y, (hidden, 1, kernel, kernel), stride, hidden)
    y = _excite(draft, f"{name}.excite", y, hidden, max(1, channels // 4))
    y = draft.convolution(f"{name}.project.conv", y, (out, hidden, 1, 1), gain=1.0)
    y = draft.normalization(f"{name}.project.bn", y, out)
    return draft.node("Add", f"{name}.add", [y, x]) if stride == 1 and channels == out else y


def _excite(draft: Draft, name: str, x: str, channels: int, squeezed: int) -> str:
    """Each channel scaled by what two small layers make of all channels' means."""
    y = draft.node("GlobalAveragePool", f"{name}.pool", [x])
    y = draft.convolution(f"{name}.reduce", y, (squeezed, channels, 1, 1), bias=0.0, gain=SWISH)
    y = draft.convolution(f"{name}.widen", _swish(draft, f"{name}.swish", y), (channels, squeezed, 1, 1), bias=1.0)
    return draft.node("Mul", f"{name}.scale", [draft.node("Sigmoid", f"{name}.gate", [y]), x])


def _unit(draft: Draft, name: str, x: str, shape: tuple[int, int, int, int], stride: int = 1, groups: int = 1) -> str:
    """Convolution, BatchNormalization, swish."""
    x = draft.convolution(f"{name}.conv", x, shape, stride, groups, gain=SWISH)
    return _swish(draft, f"{name}.swish", draft.normalization(f"{name}.bn", x, shape[0]))


def _swish(draft: Draft, name: str, x: str) -> str:
    """x * sigmoid(x)."""
    return draft.node("Mul", name, [x, draft.node("Sigmoid", f"{name}.sigmoid", [x])])
