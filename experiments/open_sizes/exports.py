"""Networks with open sizes, as torch's exporter writes them; runs in the environment that has torch."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models import language, torchvision_operators, unet
from experiments.open_sizes.cases import CASES
from experiments.real_models import torch_export, vision
from experiments.real_models.language import t5_encoder

BATCH, TOKENS, PAST, SIDE = 2, 19, 23, 96
"""Sizes that the exporter sees; it leaves them open. None of them stands for anything else in a network."""
VOCABULARY = 30_000
"""Token ids are drawn below it."""


class Texts(nn.Module):
    """A model of the catalogue, with its inputs by name, as the exporter wants them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """[batch, tokens] each -> [batch, tokens, width]."""
        found: Tensor = self.model(*(one for one in (ids, mask, types) if one is not None))
        return found


def encoder(path: Path, name: str) -> None:
    """An encoder of the catalogue for any number of texts of any length: ids, a mask, and perhaps types."""
    module = Texts(language.build(name))
    count = {"distilbert": 2}.get(name, 3)
    ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
    inputs = (ids, torch.ones_like(ids), torch.zeros_like(ids))[:count]
    names = ["input_ids", "attention_mask", "token_type_ids"][:count]
    torch_export.dynamo(module, inputs, path, names, [{0: "batch", 1: "tokens"}] * count)


def prompt(path: Path) -> None:
    """GPT-2's logits of every token of a prompt of any length."""
    ids = torch.randint(0, VOCABULARY, (1, TOKENS))
    torch_export.dynamo(Texts(language.build("gpt2")), (ids,), path, ["input_ids"], [{1: "tokens"}])


class Step(nn.Module):
    """Logits of one more token, and the keys and values with it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, position: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """[1, 1], [1, 1], keys and values [1, heads, past, width] of each layer in turn."""
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.model(input_ids=token, position_ids=position, past_key_values=cache, use_cache=True)
        return found.logits, *(one for kept in found.past_key_values.layers for one in (kept.keys, kept.values))


def step(path: Path) -> None:
    """GPT-2's next token behind any number of them."""
    model = language.build("gpt2").model
    config = model.config
    shape = (1, config.n_head, PAST, config.n_embd // config.n_head)
    past = [torch.randn(shape) for _ in range(2 * config.n_layer)]
    parts = [f"{layer}.{part}" for layer in range(config.n_layer) for part in ("key", "value")]
    names = ["input_ids", "position_ids", *(f"past.{part}" for part in parts)]
    results = ["logits", *(f"present.{part}" for part in parts)]
    axes = {f"past.{part}": {2: "past"} for part in parts}
    inputs = (torch.randint(0, VOCABULARY, (1, 1)), torch.full((1, 1), PAST), *past)
    torch_export.traced(Step(model), inputs, path, names, results, axes)


class Scores(nn.Module):
    """The scores of classes alone, of a classifier of transformers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        """[batch, 3, 224, 224] -> [batch, classes]."""
        found: Tensor = self.model(pixel_values=image).logits
        return found


def vision_transformer(path: Path) -> None:
    """ViT-B/16 of transformers for any number of images."""
    torchvision_operators.declare()
    from transformers import ViTConfig, ViTForImageClassification

    torch_export.seeded()
    model = ViTForImageClassification(ViTConfig(num_labels=1000)).eval()
    torch_export.dynamo(Scores(model), (torch.randn(BATCH, 3, 224, 224),), path, ["image"], [{0: "batch"}])


def classifier(path: Path, name: str) -> None:
    """A classifier of torchvision for any number of images."""
    vision.export(path, name)


def segmenter(path: Path) -> None:
    """The U-Net of `experiments/models` for images of any height and width."""
    model = unet.build()
    axes = {"image": {2: "height", 3: "width"}, "mask": {2: "height", 3: "width"}}
    torch_export.traced(model, (torch.randn(1, 3, SIDE, SIDE + 16),), path, ["image"], ["mask"], axes)


def main(path: Path, name: str) -> None:
    """Write the network called so."""
    case = CASES[name]
    makers = {"t5_encoder": t5_encoder, **globals()}
    part = path.with_suffix(".part")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        makers[case.maker](part, **case.arguments)
    part.replace(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
