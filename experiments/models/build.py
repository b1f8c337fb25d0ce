"""A network of the catalogue as a torch module: the same weights every time, with the same torch."""

from __future__ import annotations

import importlib
import zlib

import torch
from torch import Tensor, nn

from experiments.catalogue import NETWORKS, SEED


def build(name: str, **arguments: object) -> nn.Module:
    """The network called `name`, in eval mode; KeyError when there is none. `arguments`: more for its builder."""
    network = NETWORKS[name]
    module, _, function = network.exported.partition(":")
    torch.manual_seed(zlib.crc32(name.encode()) + SEED)
    builder = getattr(importlib.import_module(f"experiments.models.{module}"), function)
    made: nn.Module = builder(**network.arguments, **arguments)
    return made.eval()


def example(name: str, seed: int = 1) -> tuple[Tensor, ...]:
    """Inputs of the network called `name`: standard normal, or integers below their bounds."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for wanted in NETWORKS[name].inputs.values():
        if wanted.below is None:
            found.append(torch.randn(wanted.shape, generator=random))
        else:
            found.append(torch.randint(0, wanted.below, wanted.shape, generator=random))
    return tuple(found)
