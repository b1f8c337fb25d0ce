"""Language models from transformers, at one sequence of fixed length, without their caches."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from experiments.models import torchvision_operators, weights


class Plain(nn.Module):
    """Token ids (and mask, and types) in, one tensor out: what the model returns under the name `result`."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], result: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.result, self.options = model, names, result, options

    def forward(self, *inputs: Tensor) -> Tensor:
        """[1, length] each -> hidden states [1, length, width], or logits."""
        found = self.model(**dict(zip(self.names, inputs, strict=True)), **self.options)
        tensor: Tensor = found[self.result]
        return tensor


IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
TINY = {"num_hidden_layers": 4, "hidden_size": 312, "num_attention_heads": 12, "intermediate_size": 1200}
"""TinyBERT-4 (Jiao et al., 2020)."""


def build(name: str, attention: str = "eager") -> nn.Module:
    """The model called `name` in the catalogue. `attention`: transformers' implementation of it."""
    torchvision_operators.declare()  # transformers imports torchvision where it is installed
    import transformers as hub

    albert = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    match name:
        case "tinybert":
            config, kind = hub.BertConfig(**TINY), hub.BertModel
        case "bert_base":
            config, kind = hub.BertConfig(), hub.BertModel
        case "distilbert":
            config, kind = hub.DistilBertConfig(), hub.DistilBertModel
        case "albert_base":
            config, kind = hub.AlbertConfig(**albert), hub.AlbertModel
        case "mobilebert":
            config, kind = hub.MobileBertConfig(), hub.MobileBertModel
        case "gpt2":
            config, kind = hub.GPT2Config(), hub.GPT2LMHeadModel
        case _:
            raise KeyError(name)
    config._attn_implementation = attention
    without_pooler = {} if name in ("distilbert", "gpt2") else {"add_pooling_layer": False}
    model = kind(config, **without_pooler).eval()
    names = {"gpt2": (IDS,), "distilbert": (IDS, MASK)}.get(name, (IDS, MASK, TYPES))
    options = {"use_cache": False} if name == "gpt2" else {}
    weights.scale_and_shift(model)
    return Plain(model, names, "logits" if name == "gpt2" else "last_hidden_state", options)
