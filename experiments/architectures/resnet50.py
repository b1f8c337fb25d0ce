"""ResNet-50 (He et al., 2015, Table 1), with the stride in the 3 x 3 convolution as everybody trains it now."""

from __future__ import annotations

from onnx import ModelProto

from experiments.architectures.draft import Draft

# channels of the 3 x 3 convolution, blocks, stride of the first
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
STEM_CHANNELS, EXPANSION, CLASSES = 64, 4, 1000


def build(
    size: int = 224, classes: int = CLASSES, stages: tuple[tuple[int, int, int], ...] = STAGES, seed: int = 0
) -> ModelProto:
    """The network for one image of `size` x `size` pixels."""
    draft = Draft("resnet50", seed)
    x = draft.convolution("stem.conv", "image", (STEM_CHANNELS, 3, 7, 7), 2)
    x = draft.node("Relu", "stem.relu", [draft.normalization("stem.bn", x, STEM_CHANNELS)])
    x = draft.max_pool("stem.pool", x, pad=1)
    channels = STEM_CHANNELS
    for stage, (width, blocks, first_stride) in enumerate(stages):
        for block in range(blocks):
            x = _bottleneck(draft, f"stage{stage}.{block}", x, channels, width, first_stride if block == 0 else 1)
            channels = width * EXPANSION
    draft.classifier(draft.flat_mean(x), channels, classes, gain=0.1)
    return draft.model({"image": [1, 3, size, size]}, "scores", [1, classes])


def _bottleneck(draft: Draft, name: str, x: str, channels: int, width: int, stride: int) -> str:
    """1 x 1 down, 3 x 3, 1 x 1 up; added to the input, which is projected where shapes differ; ReLU."""
    out = width * EXPANSION
    y = x
    for number, (shape, step) in enumerate((((width, channels, 1, 1), 1), ((width, width, 3, 3), stride)), 1):
        y = draft.convolution(f"{name}.conv{number}", y, shape, step)
        y = draft.node("Relu", f"{name}.relu{number}", [draft.normalization(f"{name}.bn{number}", y, width)])
    # Less gain on the way that is added, so that sixteen sums do not swell.
    y = draft.convolution(f"{name}.conv3", y, (out, width, 1, 1), gain=0.5)
    y = draft.normalization(f"{name}.bn3", y, out)
    if stride != 1 or channels != out:
        x = draft.convolution(f"{name}.project.conv", x, (out, channels, 1, 1), stride)
        x = draft.normalization(f"{name}.project.bn", x, out)
    return draft.node("Relu", f"{name}.relu3", [draft.node("Add", f"{name}.add", [y, x])])
