"""Networks that torchvision has."""

from __future__ import annotations

from torch import nn

from experiments.models import torchvision_operators, weights


def vision(name: str) -> nn.Module:
    """An image classifier of torchvision by its name there, with fresh weights."""
    torchvision_operators.declare()
    import torchvision

    model: nn.Module = torchvision.models.get_model(name, weights=None)
    weights.fresh(model, (3, 224, 224))
    return model


def s3d() -> nn.Module:
    """S3D (Xie et al., 2018): separable 3D convolutions, 400 classes."""
    torchvision_operators.declare()
    from torchvision.models.video import s3d as build

    model: nn.Module = build(weights=None)
    weights.fresh(model, (3, 16, 224, 224))
    return model
