"""Encoders of the BERT kind (Devlin et al., 2018): embeddings, then equal layers of attention and a GELU network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto

from experiments.architectures.draft import Draft, int64

LOWEST = float(np.finfo(np.float32).min)
"""Added to the scores of masked positions, as the exporters do."""


@dataclass(frozen=True)
class Size:
    """`hidden` must be a multiple of `heads`."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    sequence: int = 128
    vocabulary: int = 30522
    positions: int = 512


TINY = Size(layers=4, hidden=312, heads=12, intermediate=1200)
BASE = Size(layers=12, hidden=768, heads=12, intermediate=3072)


def tinybert(seed: int = 0) -> ModelProto:
    """TinyBERT with four layers (Jiao et al., 2019)."""
    return build("tinybert", TINY, seed)


def bert_base(seed: int = 0) -> ModelProto:
    """BERT-base, 0.4 GB."""
    return build("bert_base", BASE, seed)


def build(name: str, size: Size, seed: int = 0) -> ModelProto:
    """The encoder of one sequence: int64 token ids, mask (1: a token) and token types -> hidden states."""
    draft = Draft(name, seed)
    draft.scalar("sqrt2", math.sqrt(2.0))
    draft.scalar("one", 1.0)
    draft.scalar("half", 0.5)
    draft.scalar("zero", 0.0)
    draft.scalar("lowest", LOWEST)
    draft.scalar("scale", 1.0 / math.sqrt(size.hidden // size.heads))
    draft.constant("split", int64([1, size.sequence, size.heads, size.hidden // size.heads]))
    draft.constant("merge", int64([1, size.sequence, size.hidden]))
    x = _embeddings(draft, size)
    tokens = draft.node("Cast", "mask.bool", ["attention_mask"], to=TensorProto.BOOL)
    tokens = draft.node("Unsqueeze", "mask.spread", [tokens, draft.constant("mask.axes", int64([1, 2]))])
    mask = draft.node("Where", "mask", [tokens, "zero", "lowest"])
    for layer in range(size.layers):
        x = _layer(draft, f"layer{layer}", x, mask, size)
    inputs = {name: [1, size.sequence] for name in ("input_ids", "attention_mask", "token_type_ids")}
    return draft.model(inputs, "hidden_states", [1, size.sequence, size.hidden], TensorProto.INT64)


def _embeddings(draft: Draft, size: Size) -> str:
    """Vectors of the token, its type and its position, added and normalised."""
    words = draft.constant("embeddings.words", draft.normal((size.vocabulary, size.hidden), 1.0))
    types = draft.constant("embeddings.types", draft.normal((2, size.hidden), 0.5))
    table = draft.constant("embeddings.positions", draft.normal((size.positions, size.hidden), 0.5))
    positions = draft.constant("embeddings.range", int64(np.arange(size.sequence)[None]))
    x = draft.node("Gather", "embeddings.word", [words, "input_ids"], axis=0)
    y = draft.node("Gather", "embeddings.type", [types, "token_type_ids"], axis=0)
    z = draft.node("Gather", "embeddings.position", [table, positions], axis=0)
    x = draft.node("Add", "embeddings.sum", [x, y])
    return _norm(draft, "embeddings.norm", draft.node("Add", "embeddings.all", [x, z]), size.hidden)


def _layer(draft: Draft, name: str, x: str, mask: str, size: Size) -> str:
    """Attention and feed-forward network, each added to its input and normalised."""
    y = _attention(draft, f"{name}.attention", x, mask, size)
    x = _norm(draft, f"{name}.norm1", draft.node("Add", f"{name}.add1", [y, x]), size.hidden)
    y = _gelu(draft, f"{name}.gelu", _linear(draft, f"{name}.wide", x, size.hidden, size.intermediate))
    y = _linear(draft, f"{name}.narrow", y, size.intermediate, size.hidden)
    return _norm(draft, f"{name}.norm2", draft.node("Add", f"{name}.add2", [y, x]), size.hidden)


def _attention(draft: Draft, name: str, x: str, mask: str, size: Size) -> str:
    """softmax(q k' * scale + mask) v, a head at a time, and the output layer."""
    parts = {}
    for part in ("query", "key", "value"):
        y = _linear(draft, f"{name}.{part}", x, size.hidden, size.hidden)
        y = draft.node("Reshape", f"{name}.{part}.split", [y, "split"])
        parts[part] = draft.node("Transpose", f"{name}.{part}.heads", [y], perm=[0, 2, 1, 3])
    keys = draft.node("Transpose", f"{name}.key.turned", [parts["key"]], perm=[0, 1, 3, 2])
    scores = draft.node("MatMul", f"{name}.scores", [parts["query"], keys])
    scores = draft.node("Mul", f"{name}.scaled", [scores, "scale"])
    scores = draft.node("Softmax", f"{name}.softmax", [draft.node("Add", f"{name}.masked", [scores, mask])], axis=-1)
    y = draft.node("MatMul", f"{name}.context", [scores, parts["value"]])
    y = draft.node("Transpose", f"{name}.context.turned", [y], perm=[0, 2, 1, 3])
    y = draft.node("Reshape", f"{name}.context.merged", [y, "merge"])
    return _linear(draft, f"{name}.output", y, size.hidden, size.hidden)


def _linear(draft: Draft, name: str, x: str, inputs: int, outputs: int) -> str:
    """MatMul and the addition of a bias."""
    weight = draft.constant(f"{name}.weight", draft.normal((inputs, outputs), 1.0 / math.sqrt(inputs)))
    bias = draft.constant(f"{name}.bias", draft.normal((outputs,), 0.1))
    return draft.node("Add", f"{name}.add", [draft.node("MatMul", f"{name}.matmul", [x, weight]), bias])


def _norm(draft: Draft, name: str, x: str, channels: int) -> str:
    """LayerNormalization over the last axis."""
    scale = draft.constant(f"{name}.scale", draft.normal((channels,), 0.1) + np.float32(1.0))
    bias = draft.constant(f"{name}.bias", draft.normal((channels,), 0.1))
    return draft.node("LayerNormalization", name, [x, scale, bias], axis=-1, epsilon=1e-12)


def _gelu(draft: Draft, name: str, x: str) -> str:
    """x * 0.5 * (1 + erf(x / sqrt(2)))."""
    y = draft.node("Erf", f"{name}.erf", [draft.node("Div", f"{name}.div", [x, "sqrt2"])])
    y = draft.node("Mul", f"{name}.half", ["half", draft.node("Add", f"{name}.add", [y, "one"])])
    return draft.node("Mul", name, [x, y])
