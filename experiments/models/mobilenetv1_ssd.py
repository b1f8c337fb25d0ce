"""SSD (Liu et al., 2016) on MobileNetV1 (Howard et al., 2017), 300 pixels, 91 classes, 1917 anchors."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from experiments.models import weights

# (out channels, stride) of the thirteen depthwise separable blocks; features are taken after 11 and 13
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1), (512, 1), (512, 1),
    (1024, 2), (1024, 1),
)  # fmt: skip
FIRST_MAP = 11
# (channels inside, out channels) of the four further maps, each half as large as the one before
EXTRAS = ((256, 512), (128, 256), (128, 256), (64, 128))
SIZES, ANCHORS = (19, 10, 5, 3, 2, 1), (3, 6, 6, 6, 6, 6)
CLASSES, SMALLEST, LARGEST = 91, 0.2, 0.95
CENTRE_SCALE, SIZE_SCALE = 0.1, 0.2


def _layer(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.ReLU6())


def _anchors() -> Tensor:
    """[1917, 4]: centre and size of each anchor as parts of the image, in the order of the outputs."""
    found = []
    for level, (size, count) in enumerate(zip(SIZES, ANCHORS, strict=True)):
        scale = SMALLEST + (LARGEST - SMALLEST) * level / (len(SIZES) - 1)
        ratios = [1.0, 2.0, 0.5, 3.0, 1 / 3, 1.2][:count]
        for y, x in itertools.product(range(size), repeat=2):
            for ratio in ratios:
                root = math.sqrt(ratio)
                found.append([(y + 0.5) / size, (x + 0.5) / size, scale / root, scale * root])
    return torch.tensor(found)


class MobileNetV1Ssd(nn.Module):
    """Boxes and class probabilities of every anchor; no suppression of overlapping ones."""

    def __init__(self) -> None:
        super().__init__()
        channels = 32
        blocks: list[nn.Module] = []
        self.stem = _layer(3, channels, 3, 2)
        for out, stride in BLOCKS:
            blocks.append(nn.Sequential(_layer(channels, channels, 3, stride, channels), _layer(channels, out, 1)))
            channels = out
        self.near, self.far = nn.Sequential(*blocks[:FIRST_MAP]), nn.Sequential(*blocks[FIRST_MAP:])
        self.extras = nn.ModuleList()
        for inside, out in EXTRAS:
            self.extras.append(nn.Sequential(_layer(channels, inside, 1), _layer(inside, out, 3, 2)))
            channels = out
        maps = (BLOCKS[FIRST_MAP - 1][0], BLOCKS[-1][0], *(out for _, out in EXTRAS))
        self.boxes = nn.ModuleList(nn.Conv2d(a, 4 * b, 1) for a, b in zip(maps, ANCHORS, strict=True))
        self.classes = nn.ModuleList(nn.Conv2d(a, CLASSES * b, 1) for a, b in zip(maps, ANCHORS, strict=True))
        self.register_buffer("anchors", _anchors(), persistent=False)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """[N, 3, 300, 300] -> corners [N, 1917, 4] and probabilities [N, 1917, 91]."""
        maps = [self.near(self.stem(image))]
        for stage in (self.far, *self.extras):
            maps.append(stage(maps[-1]))
        raw = torch.cat([_rows(head(x), 4) for head, x in zip(self.boxes, maps, strict=True)], 1)
        scores = torch.cat([_rows(head(x), CLASSES) for head, x in zip(self.classes, maps, strict=True)], 1)
        centre, size = self.anchors[:, :2], self.anchors[:, 2:]
        middle = raw[..., :2] * CENTRE_SCALE * size + centre
        half = (raw[..., 2:] * SIZE_SCALE).exp() * size / 2
        return torch.cat([middle - half, middle + half], -1), scores.softmax(-1)


def _rows(x: Tensor, columns: int) -> Tensor:
    """[N, A * columns, H, W] -> [N, H * W * A, columns]."""
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, columns)


def build() -> nn.Module:
    """The network with fresh weights."""
    model = MobileNetV1Ssd()
    weights.fresh(model, (3, 300, 300))
    for head in (*model.boxes, *model.classes):
        nn.init.normal_(head.weight, 0.0, 1 / math.sqrt(head.in_channels))
    return model
