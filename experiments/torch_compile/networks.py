"""Networks as torch modules of our own, in eval mode, with weights drawn at random; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions, `width` and four times as many channels wide, beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_convolution(channels, width, 1), nn.ReLU(), *_convolution(width, width, 3, stride), nn.ReLU(),
            *_convolution(width, 4 * width, 1),
        )  # fmt: skip
        fits = stride == 1 and channels == 4 * width
        self.shortcut = nn.Identity() if fits else nn.Sequential(*_convolution(channels, 4 * width, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _convolution(channels: int, width: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels, width, size, stride, size // 2, bias=False), nn.BatchNorm2d(width)


def resnet50() -> nn.Module:
    """ResNet-50 (He et al., 2015) with the stride in the middle convolution: 25.6 M weights."""
    blocks: list[nn.Module] = []
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(count):
            width, stride = 64 << stage, 2 if stage and not number else 1
            blocks.append(Bottleneck(channels, width, stride))
            channels = 4 * width
    head = (*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*head, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Layer(nn.Module):
    """A transformer's layer; `first`: normalised before attention and products (a ViT), else after them (BERT)."""

    def __init__(self, width: int, heads: int, first: bool, epsilon: float) -> None:
        super().__init__()
        self.heads, self.first = heads, first
        self.projections, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, epsilon) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x + self.attended(self.norms[0](x))
            return x + self.fed(self.norms[1](x))
        x = self.norms[0](x + self.attended(x))
        normalised: Tensor = self.norms[1](x + self.fed(x))
        return normalised

    def attended(self, x: Tensor) -> Tensor:
        """Self-attention."""
        split = self.projections(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = nn.functional.scaled_dot_product_attention(split[0], split[1], split[2])
        mixed: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return mixed

    def fed(self, x: Tensor) -> Tensor:
        """Two products with GELU between them."""
        made: Tensor = self.down(nn.functional.gelu(self.up(x)))
        return made


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al., 2020) over 14 x 14 patches of 16 x 16."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads, True, 1e-6) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.places
        scores: Tensor = self.head(self.norm(self.layers(x))[:, 0])
        return scores


class Bert(nn.Module):
    """BERT's encoder (Devlin et al., 2018): hidden states and the pooled first of them."""

    def __init__(self, width: int, heads: int, layers: int, words: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.Sequential(*(Layer(width, heads, False, 1e-12) for _ in range(layers)))
        self.pool = nn.Linear(width, width)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        x = self.layers(x)
        return x, torch.tanh(self.pool(x[:, 0]))


BUILDERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "resnet50": (resnet50, lambda: torch.randn(1, 3, 224, 224)),
    "vit_s16": (lambda: VisionTransformer(384, 6, 12), lambda: torch.randn(1, 3, 224, 224)),
    "bert_base": (lambda: Bert(768, 12, 12, 30522), lambda: torch.randint(0, 30522, (1, 128))),
}
"""How a network is built, and its input."""


def build(name: str) -> nn.Module:
    """A network by its name: the same weights each time, with the same torch."""
    torch.manual_seed(0)
    return BUILDERS[name][0]().eval().requires_grad_(False)


def example(name: str) -> Tensor:
    """Its input."""
    torch.manual_seed(1)
    return BUILDERS[name][1]()
