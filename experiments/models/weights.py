"""Random weights under which a deep network still answers to its input, and normalisations that do something."""

from __future__ import annotations

import torch
from torch import nn

CALIBRATION_IMAGES = 2
NORMALISATIONS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


def fresh(module: nn.Module, shape: tuple[int, ...]) -> None:
    """All of the below, for a network (in eval mode afterwards) whose input has `shape`, without the batch."""
    module.eval()
    he_normal(module)
    scale_and_shift(module)
    calibrate(module, shape)


def scale_and_shift(module: nn.Module) -> None:
    """Scale and shift of every normalisation, different for each channel, so that none can be left out."""
    for part in module.modules():
        if isinstance(part, NORMALISATIONS) or type(part).__name__ == "NoNorm":
            nn.init.uniform_(part.weight, 0.6, 1.4)
            nn.init.normal_(part.bias, 0.0, 0.2)


def calibrate(module: nn.Module, shape: tuple[int, ...]) -> None:
    """BatchNormalization's mean and variance as they are on standard normal images, each layer's own.

    So signals neither vanish nor swell, however deep the network is.
    """
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average
        norm.train()
    with torch.no_grad():
        module(torch.randn(CALIBRATION_IMAGES, *shape))
    module.eval()
    for norm in norms:
        norm.momentum = 0.1


def he_normal(module: nn.Module) -> None:
    """Weights before a ReLU (He et al., 2015), small biases."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if part.bias is not None:
                nn.init.normal_(part.bias, 0.0, 0.1)
