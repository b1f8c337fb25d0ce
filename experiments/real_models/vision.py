"""torchvision's segmenters and classifiers as the dynamo exporter writes them, with an open batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models import torchvision_operators, weights
from experiments.real_models import torch_export


class First(nn.Module):
    """The main result of a model that gives several by name."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        """As the model, but its result "out" alone."""
        found = self.model(image)
        first: Tensor = found["out"] if isinstance(found, dict) else found
        return first


def export(path: Path, name: str, side: int = 224) -> None:
    """The model of torchvision called so, for a batch of any size."""
    torchvision_operators.declare()
    import torchvision

    torch_export.seeded()
    segmenter = name.split("_")[0] in ("deeplabv3", "fcn", "lraspp")
    side = 320 if segmenter else side
    extra = {"weights_backbone": None} if segmenter else {}
    model = First(torchvision.models.get_model(name, weights=None, **extra)).eval()
    if name.startswith("vit"):
        nn.init.normal_(model.model.heads.head.weight, std=model.model.hidden_dim**-0.5)  # torchvision's are zeros
    else:
        weights.fresh(model, (3, side, side))
    torch_export.dynamo(model, (torch.randn(2, 3, side, side),), path, ["image"], [{0: "batch"}])
