"""U-Net (Ronneberger et al., 2015) with padding and BatchNormalization, 16 to 256 channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from experiments.models import weights

WIDTHS = (16, 32, 64, 128, 256)
CLASSES = 2


def _double(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
        nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """A mask of two classes for an image whose sides are multiples of 16."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(_double(a, b) for a, b in zip((3, *WIDTHS[:-1]), WIDTHS, strict=True))
        pairs = list(zip(WIDTHS[::-1], WIDTHS[-2::-1], strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(_double(2 * b, b) for _, b in pairs)
        self.pool = nn.MaxPool2d(2)
        self.mask = nn.Conv2d(WIDTHS[0], CLASSES, 1)

    def forward(self, image: Tensor) -> Tensor:
        """[N, 3, H, W] -> [N, 2, H, W] between 0 and 1."""
        kept: list[Tensor] = []
        x = image
        for number, stage in enumerate(self.down):
            x = stage(self.pool(x) if number else x)
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1], strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        mask: Tensor = self.mask(x).sigmoid()
        return mask


def build() -> nn.Module:
    """The network with fresh weights."""
    model = UNet()
    weights.fresh(model, (3, 384, 384))
    return model
