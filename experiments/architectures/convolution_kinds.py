"""Convolutional networks whose time goes into moving maps: channel shuffles, dense concats, many groups."""

from __future__ import annotations

from onnx import ModelProto

from experiments.architectures.draft import Draft, int64


def shuffled(
    size: int = 224, stages: tuple[tuple[int, int], ...] = ((116, 4), (232, 8), (464, 4)), seed: int = 0
) -> ModelProto:
    """ShuffleNetV2 1.0x (Ma et al., 2018, Table 5): half of the channels is worked on, then all are shuffled."""
    draft = Draft("shuffled", seed)
    x = draft.max_pool("stem.pool", _unit(draft, "stem", "image", (24, 3, 3, 3), 2), pad=1)
    channels, side = 24, -(-size // 4)
    for number, (out, blocks) in enumerate(stages):
        x, channels, side = _shrink(draft, f"stage{number}", x, (channels, out), side // 2), out, side // 2
        for block in range(1, blocks):
            x = _keep(draft, f"stage{number}.{block}", x, channels, side)
    x = _unit(draft, "head", x, (1024, channels, 1, 1))
    draft.classifier(draft.flat_mean(x), 1024, 1000)
    return draft.model({"image": [1, 3, size, size]}, "scores", [1, 1000])


def dense(size: int = 224, growth: int = 32, blocks: tuple[int, ...] = (6, 12, 8), seed: int = 0) -> ModelProto:
    """DenseNet (Huang et al., 2017) with three blocks: each layer reads all before it in its block."""
    draft = Draft("dense", seed)
    x = draft.max_pool("stem.pool", _unit(draft, "stem", "image", (64, 3, 7, 7), 2), pad=1)
    channels = 64
    for number, layers in enumerate(blocks):
        for layer in range(layers):
            name = f"block{number}.{layer}"
            y = _before(draft, f"{name}.1", x, channels)
            y = draft.convolution(f"{name}.1.conv", y, (4 * growth, channels, 1, 1))
            y = draft.convolution(
                f"{name}.2.conv", _before(draft, f"{name}.2", y, 4 * growth), (growth, 4 * growth, 3, 3)
            )
            x = draft.node("Concat", f"{name}.concat", [x, y], axis=1)
            channels += growth
        if number + 1 < len(blocks):
            y = draft.convolution(
                f"shrink{number}.conv", _before(draft, f"shrink{number}", x, channels), (channels // 2, channels, 1, 1)
            )
            x = draft.node("AveragePool", f"shrink{number}.pool", [y], kernel_shape=[2, 2], strides=[2, 2])
            channels //= 2
    draft.classifier(draft.flat_mean(_before(draft, "last", x, channels)), channels, 1000)
    return draft.model({"image": [1, 3, size, size]}, "scores", [1, 1000])


def grouped(
    size: int = 224,
    stages: tuple[tuple[int, int, int], ...] = ((256, 2, 128), (512, 2, 256), (1024, 2, 512)),
    seed: int = 0,
) -> ModelProto:
    """ResNeXt (Xie et al., 2017) 32x4d with two blocks a stage; each stage: (channels, blocks, width)."""
    draft = Draft("grouped", seed)
    x = draft.max_pool("stem.pool", _unit(draft, "stem", "image", (64, 3, 7, 7), 2), pad=1)
    channels = 64
    for number, (out, blocks, width) in enumerate(stages):
        for block in range(blocks):
            name, stride = f"stage{number}.{block}", 2 if block == 0 and number else 1
            y = _unit(draft, f"{name}.1", x, (width, channels, 1, 1))
            y = _unit(draft, f"{name}.2", y, (width, width // 32, 3, 3), stride, 32)
            y = _linear(draft, f"{name}.3", y, (out, width, 1, 1))
            skipped = x if channels == out else _linear(draft, f"{name}.skip", x, (out, channels, 1, 1), stride)
            x, channels = draft.node("Relu", f"{name}.relu", [draft.node("Add", f"{name}.add", [y, skipped])]), out
    draft.classifier(draft.flat_mean(x), channels, 1000)
    return draft.model({"image": [1, 3, size, size]}, "scores", [1, 1000])


def _shrink(draft: Draft, name: str, x: str, sizes: tuple[int, int], side: int) -> str:
    """Both branches of a unit that halves the map, shuffled."""
    channels, half = sizes[0], sizes[1] // 2
    left = _linear(draft, f"{name}.left.depthwise", x, (channels, 1, 3, 3), 2, channels)
    left = _unit(draft, f"{name}.left.out", left, (half, channels, 1, 1))
    right = _unit(draft, f"{name}.right.in", x, (half, channels, 1, 1))
    right = _linear(draft, f"{name}.right.depthwise", right, (half, 1, 3, 3), 2, half)
    right = _unit(draft, f"{name}.right.out", right, (half, half, 1, 1))
    return _shuffle(draft, name, left, right, sizes[1], side)


def _keep(draft: Draft, name: str, x: str, channels: int, side: int) -> str:
    """A unit that works on half of the channels, and shuffles."""
    half = channels // 2
    sizes = draft.constant(f"{name}.sizes", int64([half, half]))
    left, right = draft.split(f"{name}.split", x, sizes, 2, 1)
    right = _unit(draft, f"{name}.in", right, (half, half, 1, 1))
    right = _linear(draft, f"{name}.depthwise", right, (half, 1, 3, 3), 1, half)
    right = _unit(draft, f"{name}.out", right, (half, half, 1, 1))
    return _shuffle(draft, name, left, right, channels, side)


def _shuffle(draft: Draft, name: str, left: str, right: str, channels: int, side: int) -> str:
    """Channels of two halves, one of each in turn."""
    x = draft.node("Concat", f"{name}.concat", [left, right], axis=1)
    cut = draft.constant(f"{name}.cut.shape", int64([1, 2, channels // 2, side, side]))
    x = draft.node("Transpose", f"{name}.turn", [draft.node("Reshape", f"{name}.cut", [x, cut])], perm=[0, 2, 1, 3, 4])
    return draft.node(
        "Reshape", f"{name}.joined", [x, draft.constant(f"{name}.shape", int64([1, channels, side, side]))]
    )


def _before(draft: Draft, name: str, x: str, channels: int) -> str:
    """BatchNormalization and ReLU before a convolution, which no weights can take in."""
    return draft.node("Relu", f"{name}.relu", [draft.normalization(f"{name}.bn", x, channels)])


def _linear(draft: Draft, name: str, x: str, shape: tuple[int, int, int, int], stride: int = 1, groups: int = 1) -> str:
    """Convolution and BatchNormalization."""
    y = draft.convolution(f"{name}.conv", x, shape, stride, groups, gain=1.0)
    return draft.normalization(f"{name}.bn", y, shape[0])


def _unit(draft: Draft, name: str, x: str, shape: tuple[int, int, int, int], stride: int = 1, groups: int = 1) -> str:
    """Convolution, BatchNormalization, ReLU."""
    y = draft.normalization(f"{name}.bn", draft.convolution(f"{name}.conv", x, shape, stride, groups), shape[0])
    return draft.node("Relu", f"{name}.relu", [y])
