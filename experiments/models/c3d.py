"""C3D (Tran et al., 2015): eight 3 x 3 x 3 convolutions, five poolings, three fully connected layers."""

from __future__ import annotations

from torch import Tensor, nn

from experiments.models import weights

# out channels of the convolutions between two poolings
STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))
FEATURES, HIDDEN, CLASSES = 8192, 4096, 487


class C3D(nn.Module):
    """Scores of 487 kinds of sport for a clip of 16 frames of 112 x 112 pixels."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for number, stage in enumerate(STAGES):
            for out in stage:
                layers += [nn.Conv3d(channels, out, 3, padding=1), nn.ReLU()]
                channels = out
            pool = (1, 2, 2) if number == 0 else (2, 2, 2)
            layers.append(nn.MaxPool3d(pool, pool, padding=(0, 1, 1) if number == len(STAGES) - 1 else 0))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
        )

    def forward(self, clip: Tensor) -> Tensor:
        """[N, 3, 16, 112, 112] -> [N, 487], each row summing to one."""
        scores: Tensor = self.classifier(self.features(clip).flatten(1)).softmax(-1)
        return scores


def build() -> nn.Module:
    """The network with fresh weights."""
    model = C3D()
    weights.fresh(model, (3, 16, 112, 112))
    nn.init.normal_(model.classifier[-1].weight, 0.0, 0.005)  # else softmax would answer with a single one
    return model
