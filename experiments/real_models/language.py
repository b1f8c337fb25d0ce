"""Encoders and decoders of Whisper-tiny and T5-small as transformers has them, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.models import torchvision_operators
from experiments.real_models import torch_export
from experiments.real_models.cases import FRAMES, TOKENS

LAYERS, HEADS, WIDTH = 4, 6, 64
"""Of Whisper-tiny; `WIDTH` of a head."""
PAST = 31


def _whisper() -> Any:
    torchvision_operators.declare()
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch_export.seeded()
    config = WhisperConfig(
        d_model=384, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=1536, decoder_ffn_dim=1536,
    )  # fmt: skip
    return WhisperForConditionalGeneration(config).eval()


def _t5() -> Any:
    torchvision_operators.declare()
    from transformers import T5Config, T5ForConditionalGeneration

    torch_export.seeded()
    config = T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, decoder_start_token_id=0)
    return T5ForConditionalGeneration(config).eval()


class Encoder(nn.Module):
    """What an encoder makes of one input, and perhaps of a mask."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, given: Tensor, mask: Tensor | None = None) -> Tensor:
        """The last layer's states."""
        states = self.encoder(given) if mask is None else self.encoder(given, attention_mask=mask)
        found: Tensor = states.last_hidden_state
        return found


class WhisperDecoder(nn.Module):
    """Logits of all tokens so far."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head = model.model.decoder, model.proj_out

    def forward(self, ids: Tensor, heard: Tensor) -> Tensor:
        """[1, tokens], [1, frames, 384] -> [1, tokens, vocabulary]."""
        states = self.decoder(input_ids=ids, encoder_hidden_states=heard, use_cache=False).last_hidden_state
        logits: Tensor = self.head(states)
        return logits


class WhisperStep(nn.Module):
    """Logits of one more token, with the keys and values of those before it and of what was heard."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head = model.model.decoder, model.proj_out

    def forward(self, token: Tensor, position: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """`past`: of each layer own keys, own values, keys and values of what was heard; own ones come back longer."""
        from transformers.cache_utils import DynamicCache, EncoderDecoderCache

        own, heard = DynamicCache(), DynamicCache()
        for layer in range(LAYERS):
            own.update(past[4 * layer], past[4 * layer + 1], layer)
            heard.update(past[4 * layer + 2], past[4 * layer + 3], layer)
        cache = EncoderDecoderCache(own, heard)
        cache.is_updated = dict.fromkeys(range(LAYERS), True)
        found = self.decoder(
            input_ids=token, encoder_hidden_states=torch.zeros(1, FRAMES, 384), past_key_values=cache,
            position_ids=position, use_cache=True,
        )  # fmt: skip
        kept = [
            one for layer in found.past_key_values.self_attention_cache.layers for one in (layer.keys, layer.values)
        ]
        return self.head(found.last_hidden_state), *kept


class T5Decoder(nn.Module):
    """Logits of all tokens so far."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head = model.decoder, model.lm_head

    def forward(self, ids: Tensor, read: Tensor, mask: Tensor) -> Tensor:
        """[1, tokens], [1, read, 512], [1, read] -> [1, tokens, vocabulary]."""
        states = self.decoder(
            input_ids=ids, encoder_hidden_states=read, encoder_attention_mask=mask, use_cache=False
        ).last_hidden_state
        logits: Tensor = self.head(states * 512**-0.5)
        return logits


def whisper_encoder(path: Path) -> None:
    """Mel frequencies [1, 80, 3000] to states [1, 1500, 384]."""
    torch_export.dynamo(Encoder(_whisper().model.encoder), (torch.randn(1, 80, 2 * FRAMES),), path, ["sound"])


def whisper_decoder(path: Path) -> None:
    """Any number of tokens, without a cache."""
    inputs = torch.randint(0, 50000, (1, TOKENS)), torch.randn(1, FRAMES, 384)
    torch_export.dynamo(WhisperDecoder(_whisper()), inputs, path, ["ids", "heard"], [{1: "tokens"}, {}])


def whisper_step(path: Path) -> None:
    """One token behind 31."""
    own, heard = (torch.randn(1, HEADS, length, WIDTH) for length in (PAST, FRAMES))
    past = [one for _ in range(LAYERS) for one in (own, own, heard, heard)]
    names = [f"past.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value", "heard_key", "heard_value")]
    results = ["logits", *(f"present.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value"))]
    inputs = (torch.randint(0, 50000, (1, 1)), torch.full((1, 1), PAST), *past)
    torch_export.traced(WhisperStep(_whisper()), inputs, path, ["token", "position", *names], results)


def t5_encoder(path: Path) -> None:
    """Any number of tokens, and which of them count."""
    inputs = torch.randint(0, 32000, (1, TOKENS)), torch.ones(1, TOKENS, dtype=torch.int64)
    torch_export.dynamo(Encoder(_t5().encoder), inputs, path, ["ids", "mask"], [{1: "tokens"}] * 2)


def t5_decoder(path: Path) -> None:
    """Any number of tokens, and of those that were read, without a cache."""
    ids, mask = torch.randint(0, 32000, (1, TOKENS)), torch.ones(1, TOKENS + 1, dtype=torch.int64)
    inputs = ids, torch.randn(1, TOKENS + 1, 512), mask
    axes = [{1: "tokens"}, {1: "read_tokens"}, {1: "read_tokens"}]
    torch_export.dynamo(T5Decoder(_t5()), inputs, path, ["ids", "read", "mask"], axes)
