"""Attention of ONNX Runtime in products, a softmax and sums, so that it is fused as any other attention.

y = MultiHeadAttention(q, k, v)   becomes, each head for itself,
y = Softmax(q @ Transpose(k) * scale + masks) @ v.

What is added where a mask forbids is the operator's own number (mask_filter_value); a causal mask adds minus infinity.
"""

from __future__ import annotations

import numpy as np

from autofuse.graph.loading.simplify.writer import NotCoveredError, Writer

_HEADS_FIRST = (0, 2, 1, 3)
"""From [batch, steps, heads, width] to [batch, heads, steps, width], and back."""
_FILTER = -10000.0
_BOOL = 9
"""ONNX's number of the element type bool."""


def attention(write: Writer) -> bool:
    """y, present = Attention(x, w, b, mask, past, bias)   becomes   attention of q, k, v = Split(x @ w + b)."""
    if not write.known(3) or (write.input(3) and not write.known(0)):
        return False
    x, bias = write.input(0), write.input(2)
    product = write.op("MatMul", "products", x, write.input(1))
    product = write.op("Add", "shifted", product, bias) if bias else product
    _of_one_product(write, product, mask=3, past=4, bias=5)
    return True


def quantised_attention(write: Writer) -> bool:
    """y, present = QAttention(x, w, b, sx, sw, mask, zx, zw, past)   becomes   attention of Split(x @ w + b).

    The product is one of bytes: MatMulInteger, then its scales; all behind it is in floats.
    """
    if not write.known(5) or (write.input(5) and not write.known(0)):
        return False
    zeros = [write.input(place) for place in (6, 7)]
    while zeros and not zeros[-1]:
        zeros.pop()
    sums = write.op("MatMulInteger", "sums", write.input(0), write.input(1), *zeros)
    scale = write.op("Mul", "scales", write.input(3), write.input(4))
    product = write.op("Mul", "products", write.op("Cast", "real", sums, to=1), scale)
    _of_one_product(write, write.op("Add", "shifted", product, write.input(2)), mask=5, past=8, bias=9)
    return True


def _of_one_product(write: Writer, product: str, mask: int, past: int, bias: int) -> None:
    """Attention of the queries, keys and values that stand in one product; `mask`, `past`, `bias`: inputs by place."""
    for name in ("do_rotary", "past_present_share_buffer", "rotary_embedding_dim"):
        if write.flag(name):
            raise NotCoveredError(f"an attribute {name!r}")
    parts = [_heads_first(write, label, name) for label, name in zip("qkv", _thirds(write, product), strict=True)]
    q, *kv = parts
    if write.input(past):
        pasts = _pasts(write, write.input(past))
        kv = [_after(write, label, before, new) for label, before, new in zip("kv", pasts, kv, strict=True)]
    if write.result(1):
        axis = write.integers("pair", [0])
        pair = [write.op("Unsqueeze", f"present_{label}", one, axis) for label, one in zip("kv", kv, strict=True)]
        write.op("Concat", "present", *pair, output=write.result(1), axis=0)
    _attended(write, q, kv[0], kv[1], _masks(write, mask, bias, q, kv[0]))


def _thirds(write: Writer, product: str) -> list[str]:
    """Queries, keys and values, beside each other in one product."""
    outputs = [write.draft.fresh(f"{write.operator.name}/{label}") for label in ("queries", "keys", "values")]
    sizes = write.operator.attributes.get("qkv_hidden_sizes", ())
    assert isinstance(sizes, tuple)
    if sizes:
        given = write.integers("sizes", [int(size) for size in sizes])
        write.several("Split", "parts", [product, given], outputs, axis=-1)
    else:
        write.several("Split", "parts", [product], outputs, axis=-1, num_outputs=3)
    return outputs


def _pasts(write: Writer, past: str) -> list[str]:
    """Keys and values of the past, which stand behind each other."""
    outputs = [write.draft.fresh(f"{write.operator.name}/past_{label}") for label in "kv"]
    write.several("Split", "past", [past], outputs, axis=0, num_outputs=2)
    axis = write.integers("pasts", [0])
    return [write.op("Squeeze", f"only_{place}", name, axis) for place, name in enumerate(outputs)]


def multi_head_attention(write: Writer) -> bool:
    """y, keys, values, _ = MultiHeadAttention(q, k, v, b, mask, bias, past_k, past_v)   becomes   attention."""
    if write.result(3):
        raise NotCoveredError("a fourth result")
    if not all(write.known(place) for place in ((0, 1, 2, 4) if write.input(4) or write.input(3) else (0, 1))):
        return False
    if len(write.shape(0)) != 3 or not write.input(1) or not write.input(2):
        raise NotCoveredError("queries, keys and values in one tensor")
    names = [write.input(place) for place in range(3)]
    apart = len(write.shape(1)) == 3
    if write.input(3):
        if not apart:
            raise NotCoveredError("a bias for keys whose heads are apart already")
        names = _with_biases(write, names)
    q = _heads_first(write, "q", names[0])
    kv = [_heads_first(write, label, name) if apart else name for label, name in zip("kv", names[1:], strict=True)]
    pasts = [write.input(6), write.input(7)]
    if all(pasts):
        kv = [_after(write, label, past, new) for label, past, new in zip("kv", pasts, kv, strict=True)]
    for place, name in enumerate(kv, 1):
        if write.result(place):
            write.op("Identity", f"present_{place}", name, output=write.result(place))
    _attended(write, q, kv[0], kv[1], _masks(write, 4, 5, q, kv[0]))
    return True


def _with_biases(write: Writer, names: list[str]) -> list[str]:
    """Queries, keys and values, each with its part of the bias."""
    parts = [write.draft.fresh(f"{write.operator.name}/bias_{label}") for label in "qkv"]
    sizes = write.integers("bias_sizes", [write.shape(place)[2] for place in range(3)])
    write.several("Split", "biases", [write.input(3), sizes], parts, axis=0)
    pairs = zip("qkv", names, parts, strict=True)
    return [write.op("Add", f"shifted_{label}", name, part) for label, name, part in pairs]


def _heads_first(write: Writer, label: str, x: str) -> str:
    """[batch, steps, heads * width]   becomes   [batch, heads, steps, width]."""
    heads = write.operator.attributes.get("num_heads", 0)
    if not isinstance(heads, int) or heads < 1:
        raise NotCoveredError("no number of heads")
    shape = write.integers(f"{label}/shape", [0, 0, heads, -1])
    return write.op("Transpose", f"{label}/heads", write.op("Reshape", f"{label}/apart", x, shape), perm=_HEADS_FIRST)


def _after(write: Writer, label: str, past: str, new: str) -> str:
    return write.op("Concat", f"{label}/all", past, new, axis=2)


def _attended(write: Writer, q: str, k: str, v: str, masks: list[str]) -> None:
    product = write.op("MatMul", "scores", q, write.op("Transpose", "turned", k, perm=(0, 1, 3, 2)))
    scale = write.number_of("scale", 0.0)
    if scale:
        product = write.op("Mul", "scaled", product, write.like("scale", scale, q))
    else:
        width = write.op("CastLike", "width", write.op("Shape", "size", q, start=3), q)
        product = write.op("Div", "scaled", product, write.op("Sqrt", "root", width))
    for place, mask in enumerate(masks):
        product = write.op("Add", f"masked_{place}", product, mask)
    found = write.op("MatMul", "found", write.op("Softmax", "weights", product, axis=-1), v)
    joined = write.integers("joined", [0, 0, -1])
    found = write.op("Transpose", "steps_first", found, perm=_HEADS_FIRST)
    write.op("Reshape", "", found, joined, output=write.result(0))


def _masks(write: Writer, place: int, bias: int, q: str, k: str) -> list[str]:
    """What is added to the scores [batch, heads, queries, keys]: a mask of keys, a causal one, a given bias."""
    masks = [_key_mask(write, place, q, k)] if write.input(place) else []
    if write.flag("unidirectional"):
        masks.append(_causal(write, q, k))
    return [*masks, write.input(bias)] if write.input(bias) else masks


def _causal(write: Writer, q: str, k: str) -> str:
    """Minus infinity above the diagonal that ends in the last corner."""
    queries, keys = (write.op("Shape", f"causal/{label}", of, start=2, end=3) for label, of in (("q", q), ("k", k)))
    shape = write.op("Concat", "causal/shape", queries, keys, axis=0)
    never = write.op("Expand", "causal/never", write.like("causal/infinity", -np.inf, q), shape)
    first = write.op("Add", "causal/first", write.op("Sub", "causal/past", keys, queries), write.integers("one", [1]))
    only = write.op("Squeeze", "causal/only", first)
    return write.op("Trilu", "causal/mask", never, only, upper=1)


def _key_mask(write: Writer, place: int, q: str, k: str) -> str:
    """What a mask of keys adds: 0, or the operator's number where the mask is not above 0, or behind its lengths."""
    mask, rank = write.input(place), len(write.shape(place))
    batch = write.shape(0)[0]
    if rank == 1 and write.shape(place) == (batch,):
        count = write.op("Shape", "mask/count", k, start=2, end=3)
        zero, one = (
            write.draft.add_constant(f"{write.operator.name}/mask/{n}", np.asarray(n, np.int64)) for n in (0, 1)
        )
        steps = write.op("Range", "mask/steps", zero, write.op("Squeeze", "mask/all", count), one)
        lengths = write.op("Unsqueeze", "mask/lengths", mask, write.integers("mask/axis", [1]))
        kept = write.op("Less", "mask/kept", steps, write.op("Cast", "mask/wide", lengths, to=7))
        axes = [1, 2]
    elif rank == 2:
        kept, axes = write.op("Cast", "mask/kept", mask, to=_BOOL), [1, 2]
    elif rank == 3:
        kept, axes = write.op("Cast", "mask/kept", mask, to=_BOOL), [1]
    else:
        raise NotCoveredError(f"a mask of shape {list(write.shape(place))}")
    kept = write.op("Unsqueeze", "mask/spread", kept, write.integers("mask/axes", axes))
    never = write.like("mask/filter", write.number_of("mask_filter_value", _FILTER), q)
    return write.op("Where", "mask/added", kept, write.like("mask/none", 0.0, q), never)


def rotary_embedding(write: Writer) -> bool:
    """RotaryEmbedding(x, at, cos, sin)   becomes   RotaryEmbedding(x, cos, sin, at) of ONNX."""
    if write.flag("is_packed_batching") or write.number_of("scale", 1.0) != 1.0:
        raise NotCoveredError("packed batches, or a scale")
    if not all(write.known(place) for place in (0, 1, 2)):
        return False
    x, (at, cos, sin) = write.input(0), (write.input(place) for place in (1, 2, 3))
    shape, part = write.shape(0), write.operator.attributes.get("rotary_embedding_dim", 0)
    heads = write.operator.attributes.get("num_heads", 0) or (
        shape[2] // (2 * write.shape(2)[1]) if len(shape) == 3 else 0
    )
    steps = shape[1] if len(shape) == 3 else shape[2]
    if len(write.shape(1)) == 1:
        all_steps = write.draft.add_constant(f"{write.operator.name}/steps", np.arange(steps, dtype=np.int64))
        at = write.op("Add", "places", at, all_steps)
        at = write.op("Expand", "all_places", at, write.integers("places_shape", [shape[0], steps]))
    interleaved = int(write.flag("interleaved"))
    write.op("RotaryEmbedding", "", x, cos, sin, at, output=write.result(0), interleaved=interleaved, num_heads=heads,
             rotary_embedding_dim=part)  # fmt: skip
    return True
