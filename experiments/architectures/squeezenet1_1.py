"""SqueezeNet 1.1 (Iandola et al., 2016, with its authors' cheaper version of the year after)."""

from __future__ import annotations

from onnx import ModelProto

from experiments.architectures.draft import Draft

# (squeezed channels, channels of each half of the expansion), None for a pooling
LAYERS = (None, (16, 64), (16, 64), None, (32, 128), (32, 128), None, (48, 192), (48, 192), (64, 256), (64, 256))
STEM_CHANNELS, CLASSES = 64, 1000


def build(size: int = 224, classes: int = CLASSES, seed: int = 0) -> ModelProto:
    """The network for one image of `size` x `size` pixels."""
    draft = Draft("squeezenet1_1", seed)
    x = _unit(draft, "stem", "image", (STEM_CHANNELS, 3, 3, 3), stride=2, pad=0)
    channels = STEM_CHANNELS
    for number, layer in enumerate(LAYERS):
        if layer is None:
            x = draft.max_pool(f"pool{number}", x, ceil=True)
        else:
            x, channels = _fire(draft, f"fire{number}", x, channels, *layer), 2 * layer[1]
    x = _unit(draft, "classifier", x, (classes, channels, 1, 1))
    draft.flat_mean(x)
    return draft.model({"image": [1, 3, size, size]}, "scores", [1, classes])


def _fire(draft: Draft, name: str, x: str, channels: int, squeezed: int, expanded: int) -> str:
    """1 x 1 to few channels, then 1 x 1 and 3 x 3 side by side, concatenated."""
    x = _unit(draft, f"{name}.squeeze", x, (squeezed, channels, 1, 1))
    halves = [_unit(draft, f"{name}.expand{k}x{k}", x, (expanded, squeezed, k, k)) for k in (1, 3)]
    return draft.node("Concat", f"{name}.concat", halves, axis=1)


def _unit(
    draft: Draft, name: str, x: str, shape: tuple[int, int, int, int], stride: int = 1, pad: int | None = None
) -> str:
    """Convolution with bias, ReLU."""
    return draft.node("Relu", f"{name}.relu", [draft.convolution(f"{name}.conv", x, shape, stride, pad=pad, bias=0.0)])
