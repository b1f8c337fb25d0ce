"""Attention of ONNX in products and a softmax, so that it is fused as any other attention.

Y = Attention(Q, K, V, mask, past_K, past_V)   becomes, each head for itself,
Y = Softmax(Q @ Transpose(K) * scale + mask) @ V, present_K = past_K | K, present_V = past_V | V.

Where several heads share keys and values, their queries are further rows of one product, and nothing is copied. What
causality forbids is chosen by the numbers of row and column, without a mask in memory. A row of which a mask leaves
nothing is 0, by the largest of its row; where sizes stay open, behind a cache, by weights that are 0 wherever the mask
forbids a key.
Variants that are not written here (a softcap, windows, products as results, a count of keys) have the body of the
schema, see `autofuse.graph.loading.simplify.bodies`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autofuse.graph.loading.draft import Draft
from autofuse.graph.loading.simplify.writer import Writer
from autofuse.graph.mapping import names
from autofuse.graph.model import Operator

_Q, _K, _V, _MASK, _PAST_K, _PAST_V, _COUNT = range(7)
_HEADS_FIRST = (0, 2, 1, 3)
"""From [batch, steps, heads, width] to [batch, heads, steps, width], and back."""
_ATTRIBUTES = names("is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision")
"""Those that are written here; there are others, such as windows."""
_FLOAT = 1
"""ONNX's number of the type in which a softmax is computed."""


@dataclass(frozen=True)
class _Sizes:
    """`groups` heads of queries share each of `heads` heads of keys; `steps` queries see `past` + `new` keys."""

    batch: int
    heads: int
    groups: int
    steps: int
    past: int
    new: int
    width: int

    @property
    def keys(self) -> int:
        return self.past + self.new


def write_attention(draft: Draft) -> bool:
    """Writes attention whose shapes are known in smaller operators; True when the draft changed."""
    result: list[Operator] = []
    changed = False
    for operator in draft.operators:
        sizes = _sizes(draft, operator) if operator.op_type == "Attention" and not operator.domain else None
        if sizes is None:
            result.append(operator)
        else:
            result += _written(Writer(draft, operator), sizes)
            changed = True
    draft.operators = result
    return changed


def _sizes(draft: Draft, operator: Operator) -> _Sizes | None:
    """The sizes of an attention that is written here; None for another."""
    write = Writer(draft, operator)
    known = [draft.tensors.get(name) for name in operator.inputs if name]
    other = write.input(_COUNT) or write.result(3) or write.number_of("softcap", 0.0)
    if None in known or other or not set(operator.attributes) <= _ATTRIBUTES:
        return None
    dtypes = {draft.tensors[write.input(place)].dtype for place in (_Q, _K, _V)}
    wide = write.number_of("softmax_precision", _FLOAT) == _FLOAT and dtypes in ({"float16"}, {"float32"})
    if not wide or bool(write.input(_PAST_K)) != bool(write.input(_PAST_V)):
        return None
    sizes = _of_shapes(write)
    return sizes if sizes is not None and _mask_fits(write, sizes) else None


def _of_shapes(write: Writer) -> _Sizes | None:
    q, k = write.shape(_Q), write.shape(_K)
    if len(q) == len(k) == 4:
        (batch, all_heads, steps, width), heads, new = q, k[1], k[2]
    elif len(q) == len(k) == 3:
        all_heads, heads = int(write.number_of("q_num_heads", 0)), int(write.number_of("kv_num_heads", 0))
        batch, steps, width, new = q[0], q[1], q[2] // max(1, all_heads), k[1]
    else:
        return None
    past = write.shape(_PAST_K)[2] if write.input(_PAST_K) else 0
    if not all((batch, all_heads, heads, steps, new, width)) or all_heads % heads:
        return None
    return _Sizes(batch, heads, all_heads // heads, steps, past, new, width)


def _mask_fits(write: Writer, sizes: _Sizes) -> bool:
    """Whether a mask is absent, or says something of every key."""
    if not write.input(_MASK):
        return True
    mask = write.draft.tensors[write.input(_MASK)]
    wanted = (sizes.batch, sizes.heads * sizes.groups, sizes.steps, sizes.keys)
    fits = all(size in (1, most) for size, most in zip(mask.shape[::-1], wanted[::-1], strict=False))
    whole = 1 <= len(mask.shape) <= 4 and mask.shape[-1] == sizes.keys
    return fits and whole and mask.dtype in ("bool", write.draft.tensors[write.input(_Q)].dtype)


def _written(write: Writer, sizes: _Sizes) -> list[Operator]:
    q, k, v = (_heads_first(write, place, sizes) for place in (_Q, _K, _V))
    k, v = (_with_past(write, place, name) for place, name in ((_K, k), (_V, v)))
    if sizes.groups > 1:
        rows = write.integers("rows", [sizes.batch, sizes.heads, sizes.groups * sizes.steps, sizes.width])
        q = write.op("Reshape", "grouped", q, rows)
    scores = write.op("MatMul", "scores", q, write.op("Transpose", "turned", k, perm=(0, 1, 3, 2)))
    scale = write.number_of("scale", 1.0 / math.sqrt(sizes.width))
    scores = write.op("Mul", "scaled", scores, write.number("scale", scale))
    mask = _mask(write, sizes) if write.input(_MASK) else ""
    if write.flag("is_causal"):
        seen, never = _seen(write, sizes), write.number("never", -np.inf)
        if mask:
            mask = write.op("Where", "mask/causal", seen, mask, never)
        else:
            scores = write.op("Where", "causal", seen, scores, never)
    scores = write.op("Add", "masked", scores, mask) if mask else scores
    weights = write.op("Softmax", "weights", scores, axis=-1)
    # Where the number of keys stays open, no operator but a softmax goes over a row of them.
    open_keys = write.draft.open_sizes and (bool(write.input(_PAST_K)) or sizes.steps != sizes.new)
    if mask and open_keys:
        nothing = write.op("Equal", "mask/forbids", mask, write.number("mask/nothing", -np.inf))
        weights = write.op("Where", "kept", nothing, write.number("zero", 0.0), weights)
    found = write.op("MatMul", "found", weights, v)
    if mask and not open_keys:
        found = write.op("Where", "kept", _empty_rows(write, mask), write.number("zero", 0.0), found)
    _give_back(write, found, sizes)
    return write.made


def _heads_first(write: Writer, place: int, sizes: _Sizes) -> str:
    """[batch, steps, heads * width]   becomes   [batch, heads, steps, width]."""
    name, label = write.input(place), "qkv"[place]
    if len(write.shape(place)) == 4:
        return name
    heads = sizes.heads * (sizes.groups if place == _Q else 1)
    apart = write.op("Reshape", f"{label}/apart", name, write.integers(f"{label}/shape", [0, 0, heads, -1]))
    return write.op("Transpose", f"{label}/heads", apart, perm=_HEADS_FIRST)


def _with_past(write: Writer, place: int, new: str) -> str:
    """Keys or values behind those of the past; they are results, too, where somebody wants them."""
    past, label = write.input(place + _PAST_K - _K), "qkv"[place]
    if past:
        return write.op("Concat", f"{label}/all", past, new, output=write.result(place), axis=2)
    if write.result(place):
        write.op("Identity", f"{label}/present", new, output=write.result(place))
    return new


def _seen(write: Writer, sizes: _Sizes) -> str:
    """Whether a key stands at its query or before it. Their numbers are floats: those are compared in vectors."""
    steps = np.tile(np.arange(sizes.past, sizes.past + sizes.steps, dtype=np.float32), sizes.groups)
    rows = write.draft.add_constant(f"{write.operator.name}/steps", steps.reshape(-1, 1))
    places = np.arange(sizes.keys, dtype=np.float32).reshape(1, -1)
    columns = write.draft.add_constant(f"{write.operator.name}/places", places)
    return write.op("LessOrEqual", "seen", columns, rows)


def _mask(write: Writer, sizes: _Sizes) -> str:
    """What a mask adds to the scores, for the rows of all heads that share their keys."""
    mask, known = write.input(_MASK), write.draft.tensors[write.input(_MASK)]
    if known.dtype == "bool":
        mask = write.op(
            "Where", "mask/added", mask, write.number("mask/none", 0.0), write.number("mask/never", -np.inf)
        )
    if sizes.groups == 1:
        return mask
    batch, heads, steps, keys = (1,) * (4 - len(known.shape)) + known.shape
    shared = heads == 1
    five = [batch, 1 if shared else sizes.heads, 1 if shared else sizes.groups, steps, keys]
    whole = [*five[:2], sizes.groups, sizes.steps, keys]
    mask = write.op("Reshape", "mask/apart", mask, write.integers("mask/five", five))
    mask = write.op("Expand", "mask/spread", mask, write.integers("mask/whole", whole))
    rows = write.integers("mask/rows", [*five[:2], sizes.groups * sizes.steps, keys])
    return write.op("Reshape", "mask/grouped", mask, rows)


def _empty_rows(write: Writer, mask: str) -> str:
    """Whether a mask leaves nothing of a row, [..., rows, 1]."""
    largest = write.op("ReduceMax", "mask/largest", mask, write.integers("mask/axis", [-1]), keepdims=1)
    return write.op("Equal", "mask/empty", largest, write.number("mask/nothing", -np.inf))


def _give_back(write: Writer, found: str, sizes: _Sizes) -> None:
    """[batch, heads, rows, width] in the form of the queries."""
    apart = write.integers("apart", [sizes.batch, sizes.heads * sizes.groups, sizes.steps, -1])
    if len(write.shape(_Q)) == 4:
        write.op("Reshape", "", found, apart, output=write.result(0))
        return
    if sizes.groups > 1:
        found = write.op("Reshape", "heads_apart", found, apart)
    turned = write.op("Transpose", "steps_first", found, perm=_HEADS_FIRST)
    write.op("Reshape", "", turned, write.integers("joined", [0, 0, -1]), output=write.result(0))
