"""Networks with an LSTM inside, of the form of PP-OCR's recogniser and of Silero VAD, written out here.

PP-OCR and Silero VAD themselves come as files only. What is alike: the operators, their order, their sizes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models import weights
from experiments.real_models import torch_export

CLASSES = 6625
"""Characters of PP-OCR's Chinese dictionary, and the blank."""
DEPTHWISE = ((16, 32, (1, 1)), (32, 64, (2, 1)), (64, 128, (1, 1)), (128, 256, (2, 1)), (256, 512, (2, 1)))
"""(channels, out, stride) of MobileNetV1's layers in a recogniser, which keep the width."""
WINDOW, BINS, STATE = 256, 129, 128


class Recogniser(nn.Module):
    """An image of a line of text to the probability of each character at each place: CNN, two LSTMs, CTC head."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
        for channels, out, stride in DEPTHWISE:
            layers += [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False)]
            layers += [nn.BatchNorm2d(channels), nn.Hardswish(), nn.Conv2d(channels, out, 1, bias=False)]
            layers += [nn.BatchNorm2d(out), nn.Hardswish()]
        self.body = nn.Sequential(*layers, nn.MaxPool2d((3, 2), (3, 2)))
        self.lstm = nn.LSTM(512, 48, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(96, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """[N, 3, 48, W] -> [N, W / 4, 6625]."""
        places = self.body(image).squeeze(2).permute(0, 2, 1)
        found, _ = self.lstm(places)
        return self.head(found).softmax(2)


class Detector(nn.Module):
    """A piece of sound to the chance that somebody speaks; the state of an LSTM is handed on."""

    def __init__(self, window: int) -> None:
        super().__init__()
        bins = window // 2 + 1
        angle = 2 * math.pi / window * torch.arange(bins)[:, None] * torch.arange(window)[None]
        shape = torch.hann_window(window)
        self.register_buffer("basis", torch.cat([angle.cos() * shape, -angle.sin() * shape])[:, None])
        self.window, self.bins = window, bins
        widths = (bins, 128, 64, 64, 128)
        self.encoder = nn.Sequential(
            *(
                nn.Sequential(nn.Conv1d(widths[number], widths[number + 1], 3, stride, 1), nn.ReLU())
                for number, stride in enumerate((1, 2, 2, 1))
            )
        )
        self.lstm = nn.LSTM(STATE, STATE)
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(STATE, 1, 1), nn.Sigmoid())

    def forward(self, sound: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """[N, samples], [2, N, 128] -> [N, 1] and the next state."""
        padded = nn.functional.pad(sound.unsqueeze(1), (0, self.window // 4), mode="reflect")
        both = nn.functional.conv1d(padded, self.basis, stride=self.window // 2)
        real, imaginary = both[:, : self.bins], both[:, self.bins :]
        features = self.encoder((real**2 + imaginary**2).sqrt())
        found, (hidden, cell) = self.lstm(features.permute(2, 0, 1), (state[:1], state[1:]))
        chance = self.head(found.permute(1, 2, 0)).mean(2)
        return chance, torch.cat([hidden, cell])


class BothRates(nn.Module):
    """A detector for each of two rates, chosen by the input `sr`: the exporter writes an If."""

    def __init__(self, fast: Any, slow: Any) -> None:
        super().__init__()
        self.fast, self.slow = fast, slow

    def forward(self, input: Tensor, state: Tensor, sr: Tensor) -> tuple[Tensor, Tensor]:  # noqa: A002 Silero's name
        """As a detector; `sr`: 16000, or less."""
        if bool(sr == 16000):
            chance, after = self.fast(input, state)
        else:
            chance, after = self.slow(input, state)
        return chance, after


def recogniser(path: Path) -> None:
    """A line of text 48 pixels high, of any width."""
    torch_export.seeded()
    model = Recogniser()
    weights.fresh(model, (3, 48, 320))
    axes = {"image": {0: "batch", 3: "width"}, "characters": {0: "batch", 1: "places"}}
    torch_export.traced(model, (torch.randn(1, 3, 48, 320),), path, ["image"], ["characters"], axes)


def vad(path: Path) -> None:
    """576 samples and the state before them."""
    torch_export.seeded()
    inputs = torch.randn(1, 576), torch.zeros(2, 1, STATE)
    fast, slow = (torch.jit.trace(Detector(window).eval(), inputs) for window in (WINDOW, WINDOW // 2))
    both = torch.jit.script(BothRates(fast, slow).eval())
    names, results = ["input", "state", "sr"], ["output", "stateN"]
    axes = {"input": {0: "batch", 1: "samples"}, "state": {1: "batch"}, "output": {0: "batch"}, "stateN": {1: "batch"}}
    torch_export.traced(both, (*inputs, torch.tensor(16000)), path, names, results, axes)
