"""YOLOv4 (Bochkovskiy et al., 2020): CSPDarknet-53, spatial pyramid pooling, path aggregation, three heads."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from experiments.models import weights

# (out channels, residual blocks) of the five stages
STAGES = ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4))
POOLS = (5, 9, 13)
CLASSES = 80
STRIDES = (8, 16, 32)
ANCHORS = (((12, 16), (19, 36), (40, 28)), ((36, 75), (76, 55), (72, 146)), ((142, 110), (192, 243), (459, 401)))


def _mish(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out), nn.Mish()
    )


def _leaky(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out), nn.LeakyReLU(0.1)
    )


def _alternating(channels: int, out: int, count: int) -> nn.Sequential:
    """1 x 1 to `out` channels and 3 x 3 to twice as many, in turn, `count` layers."""
    layers = []
    for number in range(count):
        wide = number % 2 == 1
        layers.append(_leaky(channels, 2 * out if wide else out, 3 if wide else 1))
        channels = 2 * out if wide else out
    return nn.Sequential(*layers)


class Residual(nn.Module):
    """x + 3 x 3 (1 x 1 (x))."""

    def __init__(self, channels: int, inside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_mish(channels, inside, 1), _mish(inside, channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape."""
        return x + self.body(x)


class CspStage(nn.Module):
    """Half the resolution; one part of the channels goes through residual blocks, the other past them."""

    def __init__(self, channels: int, out: int, blocks: int) -> None:
        super().__init__()
        part = out if blocks == 1 else out // 2  # the first stage does not split
        self.down = _mish(channels, out, 3, 2)
        self.past, self.into = _mish(out, part, 1), _mish(out, part, 1)
        inside = out // 2 if blocks == 1 else part
        self.blocks = nn.Sequential(*(Residual(part, inside) for _ in range(blocks)), _mish(part, part, 1))
        self.join = _mish(2 * part, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, out, H / 2, W / 2]."""
        x = self.down(x)
        joined: Tensor = self.join(torch.cat([self.blocks(self.into(x)), self.past(x)], 1))
        return joined


class Neck(nn.Module):
    """Spatial pyramid pooling, then features of each resolution mixed with those of its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = _alternating(1024, 512, 3), _alternating(2048, 512, 3)
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in POOLS)
        self.lift_5, self.side_4, self.up_4 = _leaky(512, 256, 1), _leaky(512, 256, 1), _alternating(512, 256, 5)
        self.lift_4, self.side_3, self.up_3 = _leaky(256, 128, 1), _leaky(256, 128, 1), _alternating(256, 128, 5)
        self.drop_3, self.down_4 = _leaky(128, 256, 3, 2), _alternating(512, 256, 5)
        self.drop_4, self.down_5 = _leaky(256, 512, 3, 2), _alternating(1024, 512, 5)
        self.twice = nn.Upsample(scale_factor=2)

    def forward(self, c3: Tensor, c4: Tensor, c5: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features at strides 8, 16 and 32 -> the same, 128, 256 and 512 channels."""
        x = self.before(c5)
        p5 = self.after(torch.cat([*(pool(x) for pool in reversed(self.pools)), x], 1))
        p4 = self.up_4(torch.cat([self.side_4(c4), self.twice(self.lift_5(p5))], 1))
        n3 = self.up_3(torch.cat([self.side_3(c3), self.twice(self.lift_4(p4))], 1))
        n4 = self.down_4(torch.cat([self.drop_3(n3), p4], 1))
        n5 = self.down_5(torch.cat([self.drop_4(n4), p5], 1))
        return n3, n4, n5


class YoloV4(nn.Module):
    """Boxes, objectness and class probabilities of every anchor; no suppression of overlapping ones."""

    def __init__(self, size: int) -> None:
        super().__init__()
        channels = 32
        self.stem = _mish(3, channels, 3)
        self.stages = nn.ModuleList()
        for out, blocks in STAGES:
            self.stages.append(CspStage(channels, out, blocks))
            channels = out
        self.neck = Neck()
        outputs = 3 * (5 + CLASSES)
        self.heads = nn.ModuleList(
            nn.Sequential(_leaky(width, 2 * width, 3), nn.Conv2d(2 * width, outputs, 1)) for width in (128, 256, 512)
        )
        for stride, anchors in zip(STRIDES, ANCHORS, strict=True):
            steps = torch.arange(size // stride, dtype=torch.float32)
            rows, columns = torch.meshgrid(steps, steps, indexing="ij")
            self.register_buffer(f"grid_{stride}", torch.stack([columns, rows], -1)[None, None], persistent=False)
            pixels = torch.tensor(anchors, dtype=torch.float32).view(1, 3, 1, 1, 2)
            self.register_buffer(f"anchors_{stride}", pixels, persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """[N, 3, S, S] -> [N, anchors, 85]: centre and size in pixels, objectness, 80 classes."""
        maps = []
        x = self.stem(image)
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        found = []
        for stride, head, features in zip(STRIDES, self.heads, self.neck(*maps[2:]), strict=True):
            found.append(self._decoded(head(features), stride))
        return torch.cat(found, 1)

    def _decoded(self, raw: Tensor, stride: int) -> Tensor:
        rows, columns = raw.shape[2:]
        raw = raw.view(-1, 3, 5 + CLASSES, rows, columns).permute(0, 1, 3, 4, 2)
        centre = (raw[..., :2].sigmoid() + self.get_buffer(f"grid_{stride}")) * stride
        size = raw[..., 2:4].exp() * self.get_buffer(f"anchors_{stride}")
        boxes = torch.cat([centre, size, raw[..., 4:].sigmoid()], -1)
        return boxes.reshape(-1, 3 * rows * columns, 5 + CLASSES)


def build(size: int = 320) -> nn.Module:
    """The network for images of `size` x `size` pixels, with fresh weights."""
    model = YoloV4(size)
    weights.fresh(model, (3, size, size))
    for head in model.heads:
        nn.init.normal_(head[1].weight, 0.0, 0.5 / math.sqrt(head[1].in_channels))  # sizes are its exponential
    return model
