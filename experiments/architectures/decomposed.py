"""Transformers as exporters wrote them up to opset 14: LayerNormalization in nine operators, GELU in five to eight.

TinyBERT and GPT-2 as PyTorch's exporter left them, MobileBERT with its elementwise NoNorm. Weights are random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto

from experiments.architectures.bert import LOWEST, TINY, Size
from experiments.architectures.draft import Draft, int64

OPSET = 13
"""Reductions still have their axes as attributes."""


GPT2 = Size(layers=12, hidden=768, heads=12, intermediate=3072, vocabulary=50257)


@dataclass(frozen=True)
class MobileBert:
    """Sizes of MobileBERT (Sun et al., 2020): `inner` is the width between the bottlenecks."""

    layers: int = 24
    hidden: int = 512
    inner: int = 128
    heads: int = 4
    embedding: int = 128
    sequence: int = 128
    vocabulary: int = 30522


def tinybert(size: Size = TINY, seed: int = 0) -> ModelProto:
    """TinyBERT with four layers: token ids, mask and token types -> hidden states and the pooled first token."""
    draft = Draft("tinybert_decomposed", seed)
    x = _embeddings(draft, size.vocabulary, size.hidden, size.sequence)
    x = layer_norm(draft, "embeddings.norm", x, size.hidden)
    mask = _mask(draft, size.sequence)
    for layer in range(size.layers):
        name = f"layer{layer}"
        y = _attention(draft, name, (x, x, x), mask, size.hidden, size.hidden, size.heads, size.sequence)
        y = _linear(draft, f"{name}.output", y, size.hidden, size.hidden)
        x = layer_norm(draft, f"{name}.norm1", draft.node("Add", f"{name}.add1", [y, x]), size.hidden)
        y = gelu(draft, f"{name}.gelu", _linear(draft, f"{name}.wide", x, size.hidden, size.intermediate))
        y = _linear(draft, f"{name}.narrow", y, size.intermediate, size.hidden)
        x = layer_norm(draft, f"{name}.norm2", draft.node("Add", f"{name}.add2", [y, x]), size.hidden)
    first = draft.node("Gather", "pooler.first", [x, draft.constant("pooler.zero", np.array(0, np.int64))], axis=1)
    draft.node("Tanh", "pooler.tanh", [_linear(draft, "pooler", first, size.hidden, size.hidden)])
    return _bert_model(draft, size.sequence, [1, size.hidden])


def mobilebert(size: MobileBert | None = None, seed: int = 0) -> ModelProto:
    """MobileBERT: bottlenecks around shared attention, four feed-forward networks a layer, NoNorm."""
    size = size or MobileBert()
    draft = Draft("mobilebert_decomposed", seed)
    x = _trigrams(draft, size)
    mask = _mask(draft, size.sequence)
    for layer in range(size.layers):
        x = _mobile_layer(draft, f"layer{layer}", x, mask, size)
    draft.node("Relu", "last", [_linear(draft, "head", x, size.hidden, 2)])
    return _bert_model(draft, size.sequence, [1, size.sequence, 2])


def gpt2(size: Size = GPT2, seed: int = 0) -> ModelProto:
    """GPT-2 without its vocabulary projection's tie: token ids -> scores of the next token of the last position."""
    draft = Draft("gpt2_decomposed", seed)
    words = draft.constant("wte", draft.normal((size.vocabulary, size.hidden), 1.0))
    places = draft.constant("wpe", draft.normal((1, size.sequence, size.hidden), 0.3))
    x = draft.node("Add", "embedded", [draft.node("Gather", "tokens", [words, "input_ids"], axis=0), places])
    causal = np.tril(np.ones((1, 1, size.sequence, size.sequence), bool))
    draft.constant("causal", causal)
    draft.scalar("lowest", -1e4)
    for layer in range(size.layers):
        name = f"h{layer}"
        y = layer_norm(draft, f"{name}.ln1", x, size.hidden, 1e-5)
        x = draft.node("Add", f"{name}.add1", [x, _causal_attention(draft, name, y, size)])
        y = layer_norm(draft, f"{name}.ln2", x, size.hidden, 1e-5)
        y = gelu_tanh(draft, f"{name}.gelu", _gemm(draft, f"{name}.wide", y, size.hidden, size.intermediate, size))
        y = _gemm(draft, f"{name}.narrow", y, size.intermediate, size.hidden, size)
        x = draft.node("Add", f"{name}.add2", [x, y])
    x = layer_norm(draft, "ln_f", x, size.hidden, 1e-5)
    last = draft.node("Gather", "last", [x, draft.constant("last.index", np.array(size.sequence - 1))], axis=1)
    head = draft.constant("lm_head", draft.normal((size.hidden, size.vocabulary), 1.0 / math.sqrt(size.hidden)))
    draft.node("MatMul", "logits", [last, head])
    inputs = {"input_ids": [1, size.sequence]}
    return draft.model(inputs, "scores", [1, size.vocabulary], TensorProto.INT64, opset=OPSET)


def layer_norm(draft: Draft, name: str, x: str, channels: int, epsilon: float = 1e-12) -> str:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias in nine operators."""
    mean = draft.node("ReduceMean", f"{name}.mean", [x], axes=[-1])
    centred = draft.node("Sub", f"{name}.sub", [x, mean])
    square = draft.node("Pow", f"{name}.pow", [centred, draft.constant(f"{name}.two", np.array(2.0, np.float32))])
    variance = draft.node("ReduceMean", f"{name}.variance", [square], axes=[-1])
    draft.scalar(f"{name}.epsilon", epsilon)
    root = draft.node("Sqrt", f"{name}.sqrt", [draft.node("Add", f"{name}.add_epsilon", [variance, f"{name}.epsilon"])])
    scale = draft.constant(f"{name}.scale", draft.normal((channels,), 0.1) + np.float32(1.0))
    bias = draft.constant(f"{name}.bias", draft.normal((channels,), 0.1))
    scaled = draft.node("Mul", f"{name}.mul", [draft.node("Div", f"{name}.div", [centred, root]), scale])
    return draft.node("Add", name, [scaled, bias])


def gelu(draft: Draft, name: str, x: str) -> str:
    """x * (1 + erf(x / sqrt(2))) * 0.5."""
    draft.scalar(f"{name}.sqrt2", math.sqrt(2.0))
    draft.scalar(f"{name}.one", 1.0)
    draft.scalar(f"{name}.half", 0.5)
    y = draft.node("Erf", f"{name}.erf", [draft.node("Div", f"{name}.div", [x, f"{name}.sqrt2"])])
    y = draft.node("Mul", f"{name}.mul", [x, draft.node("Add", f"{name}.add", [y, f"{name}.one"])])
    return draft.node("Mul", name, [y, f"{name}.half"])


def gelu_tanh(draft: Draft, name: str, x: str) -> str:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))."""
    numbers = {"three": 3.0, "cubic": 0.044715, "root": math.sqrt(2.0 / math.pi), "one": 1.0, "half": 0.5}
    for label, value in numbers.items():
        draft.scalar(f"{name}.{label}", value)
    y = draft.node("Mul", f"{name}.cube", [draft.node("Pow", f"{name}.pow", [x, f"{name}.three"]), f"{name}.cubic"])
    y = draft.node("Mul", f"{name}.inner", [draft.node("Add", f"{name}.sum", [x, y]), f"{name}.root"])
    y = draft.node("Add", f"{name}.add", [draft.node("Tanh", f"{name}.tanh", [y]), f"{name}.one"])
    return draft.node("Mul", name, [draft.node("Mul", f"{name}.halved", [x, f"{name}.half"]), y])


def _linear(draft: Draft, name: str, x: str, inputs: int, outputs: int) -> str:
    """MatMul and the addition of a bias."""
    weight = draft.constant(f"{name}.weight", draft.normal((inputs, outputs), 1.0 / math.sqrt(inputs)))
    bias = draft.constant(f"{name}.bias", draft.normal((outputs,), 0.1))
    return draft.node("Add", f"{name}.add", [draft.node("MatMul", f"{name}.matmul", [x, weight]), bias])


def _gemm(draft: Draft, name: str, x: str, inputs: int, outputs: int, size: Size) -> str:
    """GPT-2's Conv1D: rows flattened, a Gemm, rows as before."""
    weight = draft.constant(f"{name}.weight", draft.normal((inputs, outputs), 1.0 / math.sqrt(inputs)))
    bias = draft.constant(f"{name}.bias", draft.normal((outputs,), 0.1))
    flat = draft.node("Reshape", f"{name}.flat", [x, draft.constant(f"{name}.rows", int64([-1, inputs]))])
    y = draft.node("Gemm", f"{name}.gemm", [flat, weight, bias])
    return draft.node("Reshape", name, [y, draft.constant(f"{name}.shape", int64([1, size.sequence, outputs]))])


def _embeddings(draft: Draft, vocabulary: int, hidden: int, sequence: int) -> str:
    words = draft.constant("embeddings.words", draft.normal((vocabulary, hidden), 1.0))
    types = draft.constant("embeddings.types", draft.normal((2, hidden), 0.5))
    places = draft.constant("embeddings.positions", draft.normal((1, sequence, hidden), 0.5))
    x = draft.node("Gather", "embeddings.word", [words, "input_ids"], axis=0)
    x = draft.node(
        "Add", "embeddings.sum", [x, draft.node("Gather", "embeddings.type", [types, "token_type_ids"], axis=0)]
    )
    return draft.node("Add", "embeddings.all", [x, places])


def _mask(draft: Draft, sequence: int) -> str:
    """(1 - mask) * lowest, as Hugging Face's encoders compute it."""
    shape = draft.constant("mask.shape", int64([1, 1, 1, sequence]))
    draft.scalar("mask.one", 1.0)
    draft.scalar("mask.lowest", LOWEST)
    tokens = draft.node("Reshape", "mask.spread", ["attention_mask", shape])
    tokens = draft.node("Cast", "mask.cast", [tokens], to=TensorProto.FLOAT)
    return draft.node("Mul", "mask.mul", [draft.node("Sub", "mask.sub", ["mask.one", tokens]), "mask.lowest"])


def _heads(draft: Draft, name: str, x: str, width: int, heads: int, sequence: int, perm: list[int]) -> str:
    shape = draft.constant(f"{name}.split", int64([1, sequence, heads, width // heads]))
    return draft.node("Transpose", f"{name}.heads", [draft.node("Reshape", f"{name}.reshape", [x, shape])], perm=perm)


def _joined(draft: Draft, name: str, x: str, width: int, sequence: int) -> str:
    turned = draft.node("Transpose", f"{name}.turned", [x], perm=[0, 2, 1, 3])
    return draft.node(
        "Reshape", f"{name}.joined", [turned, draft.constant(f"{name}.join", int64([1, sequence, width]))]
    )


def _attention(
    draft: Draft, name: str, read: tuple[str, str, str], mask: str, inputs: int, width: int, heads: int,
    sequence: int, value_inputs: int | None = None,
) -> str:  # fmt: skip
    """softmax(q k' / sqrt(d) + mask) v, heads joined; q, k and v are linear in the three tensors of `read`."""
    parts = []
    sizes = (inputs, inputs, value_inputs or inputs)
    for part, x, count, perm in zip("qkv", read, sizes, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True):
        y = _linear(draft, f"{name}.{part}", x, count, width)
        parts.append(_heads(draft, f"{name}.{part}", y, width, heads, sequence, perm))
    draft.scalar(f"{name}.scale", math.sqrt(width / heads))
    scores = draft.node("MatMul", f"{name}.scores", parts[:2])
    scores = draft.node("Add", f"{name}.masked", [draft.node("Div", f"{name}.scaled", [scores, f"{name}.scale"]), mask])
    weights = draft.node("Softmax", f"{name}.softmax", [scores], axis=3)
    return _joined(draft, name, draft.node("MatMul", f"{name}.context", [weights, parts[2]]), width, sequence)


def _causal_attention(draft: Draft, name: str, x: str, size: Size) -> str:
    """GPT-2's: one Gemm for q, k and v, a Split, scores below the diagonal."""
    hidden, heads, sequence = size.hidden, size.heads, size.sequence
    y = _gemm(draft, f"{name}.qkv", x, hidden, 3 * hidden, size)
    sizes = draft.constant(f"{name}.sizes", int64([hidden] * 3))
    parts = draft.split(f"{name}.split", y, sizes, 3, axis=2)
    perms = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    named = zip("qkv", parts, perms, strict=True)
    q, k, v = (_heads(draft, f"{name}.{part}", z, hidden, heads, sequence, perm) for part, z, perm in named)
    draft.scalar(f"{name}.scale", math.sqrt(hidden / heads))
    scores = draft.node("Div", f"{name}.scaled", [draft.node("MatMul", f"{name}.scores", [q, k]), f"{name}.scale"])
    scores = draft.node("Where", f"{name}.masked", ["causal", scores, "lowest"])
    weights = draft.node("Softmax", f"{name}.softmax", [scores], axis=3)
    y = _joined(draft, name, draft.node("MatMul", f"{name}.context", [weights, v]), hidden, sequence)
    return _gemm(draft, f"{name}.output", y, hidden, hidden, size)


def _trigrams(draft: Draft, size: MobileBert) -> str:
    """Vectors of a token and its two neighbours, joined and widened, with types and positions."""
    words = draft.constant("words", draft.normal((size.vocabulary, size.embedding), 1.0))
    x = draft.node("Gather", "word", [words, "input_ids"], axis=0)
    turned = []
    for label, start, pads in (("next", 1, [0, 0, 0, 0, 1, 0]), ("previous", 0, [0, 1, 0, 0, 0, 0])):
        ends = start + size.sequence - 1
        cut = [draft.constant(f"{label}.{key}", int64([value])) for key, value in (("from", start), ("to", ends))]
        part = draft.node("Slice", f"{label}.slice", [x, *cut, draft.constant(f"{label}.axis", int64([1]))])
        turned.append(draft.node("Pad", f"{label}.pad", [part, draft.constant(f"{label}.pads", int64(pads))]))
    x = draft.node("Concat", "trigrams", [turned[0], x, turned[1]], axis=2)
    x = _linear(draft, "widen", x, 3 * size.embedding, size.hidden)
    types = draft.constant("types", draft.normal((2, size.hidden), 0.5))
    places = draft.constant("positions", draft.normal((1, size.sequence, size.hidden), 0.5))
    x = draft.node("Add", "placed", [x, places])
    x = draft.node("Add", "typed", [x, draft.node("Gather", "type", [types, "token_type_ids"], axis=0)])
    return _no_norm(draft, "embeddings.norm", x, size.hidden)


def _mobile_layer(draft: Draft, name: str, x: str, mask: str, size: MobileBert) -> str:
    inner, hidden = size.inner, size.hidden
    narrow = _dense_norm(draft, f"{name}.bottleneck", x, hidden, inner)
    shared = _dense_norm(draft, f"{name}.shared", x, hidden, inner)
    y = _attention(
        draft, f"{name}.attention", (shared, shared, x), mask, inner, inner, size.heads, size.sequence, hidden
    )
    y = _residual(draft, f"{name}.attention.output", y, narrow, inner, inner)
    for number in range(4):
        wide = draft.node(
            "Relu", f"{name}.ffn{number}.relu", [_linear(draft, f"{name}.ffn{number}.wide", y, inner, hidden)]
        )
        y = _residual(draft, f"{name}.ffn{number}.narrow", wide, y, hidden, inner)
    return _residual(draft, f"{name}.output", y, x, inner, hidden)


def _dense_norm(draft: Draft, name: str, x: str, inputs: int, outputs: int) -> str:
    return _no_norm(draft, f"{name}.norm", _linear(draft, name, x, inputs, outputs), outputs)


def _residual(draft: Draft, name: str, x: str, skipped: str, inputs: int, outputs: int) -> str:
    y = _linear(draft, name, x, inputs, outputs)
    return _no_norm(draft, f"{name}.norm", draft.node("Add", f"{name}.residual", [y, skipped]), outputs)


def _no_norm(draft: Draft, name: str, x: str, channels: int) -> str:
    """MobileBERT's normalisation: a scale and a shift for each channel."""
    scale = draft.constant(f"{name}.scale", draft.normal((channels,), 0.1) + np.float32(1.0))
    shift = draft.constant(f"{name}.shift", draft.normal((channels,), 0.1))
    return draft.node("Add", name, [draft.node("Mul", f"{name}.mul", [x, scale]), shift])


def _bert_model(draft: Draft, sequence: int, shape: list[int]) -> ModelProto:
    inputs = {name: [1, sequence] for name in ("input_ids", "attention_mask", "token_type_ids")}
    return draft.model(inputs, "result", shape, TensorProto.INT64, opset=OPSET)
