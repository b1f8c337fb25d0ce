"""GroupQueryAttention of ONNX Runtime in ONNX's Attention, its cache written as a choice between past and new.

y, keys, values = GroupQueryAttention(q, k, v, past_k, past_v, lengths, total, cos, sin, at)   becomes
keys = past_k up to the length of each sequence, then k, turned by its places; values alike, without the turning;
y = Attention(q, keys, values, mask), where a query sees the keys up to its own, or the last of them (a window).
Scores with a cap, cap * Tanh(scores / cap), and weights of which a sink of each head takes a part are written out here.

A length is that of the past, which is data; the sizes of the cache, and whether a call is the first, are not. Where a
size of the model stays open and there is one sequence, its past is the whole of the cache that is given, as the
operator defines it (the total is that of the longest sequence): keys = past_k | k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autofuse.graph.loading.simplify.writer import NotCoveredError, Writer

ATTRIBUTES = """causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads qk_output
    rotary_interleaved scale sliding_window_cache smooth_softmax softcap v_quant_type"""
REFUSED = {
    10: "a bias of its scores",
    12: "a quantised cache",
    13: "a quantised cache",
    14: "a norm of its queries",
    15: "a norm of its keys",
    16: "a length of each query",
}
_PLAIN = {
    "causal": 1,
    "kv_cache_bit_width": 0,
    "qk_output": 0,
    "sliding_window_cache": 0,
}
_Q, _K, _V, _PAST_K, _PAST_V, _LENGTHS, _TOTAL, _COS, _SIN, _AT = range(10)
_SINKS = 11
_HEADS_FIRST = (0, 2, 1, 3)


def group_query_attention(write: Writer) -> bool:
    """See the module; False while sizes are not known yet."""
    for name, plain in _PLAIN.items():
        value = write.number_of(name, plain)
        if value != plain and not (name == "qk_output" and value <= 0):
            raise NotCoveredError(f"an attribute {name!r}")
    if any(write.operator.attributes.get(f"{side}_quant_type", "NONE") != "NONE" for side in "kv"):
        raise NotCoveredError("a quantised cache")
    if write.result(3):
        raise NotCoveredError("a fourth result")
    if bool(write.input(_PAST_K)) != bool(write.input(_PAST_V)):
        raise NotCoveredError("a past of keys or of values alone")
    known = all(write.known(place) for place in (_Q, _K, _V, _PAST_K, _LENGTHS))
    total = write.scalar(_TOTAL, 0)
    if not known or total is None:
        return False
    _Grouped(write, total).write_all()
    return True


@dataclass(eq=False)
class _Grouped:
    """One operator with all its sizes; `total`: the keys that the longest sequence has."""

    write: Writer
    total: int

    def write_all(self) -> None:
        """Writes its operators."""
        write = self.write
        q, k, v = (self._heads_first(label, name) for label, name in zip("qkv", self._apart(), strict=True))
        if write.flag("do_rotary"):
            q, k = self._turned("q", q), self._turned("k", k)
        keys, values = self._present("k", _PAST_K, k, 1), self._present("v", _PAST_V, v, 2)
        scale = write.number_of("scale", 0.0)
        scaled: dict[str, Any] = {"scale": scale} if scale else {}
        window = int(write.number_of("local_window_size", -1))
        if write.number_of("softcap", 0.0) > 0 or self._sinks:
            found = self._written_out(q, keys, values, self._mask(window))
        elif self._is_joined and self.steps == 1 and not 0 <= window < self.total:
            found = write.op("Attention", "attended", q, keys, values, **scaled)
        elif self.is_first and not 0 <= window < self.steps:
            masks = [] if self._is_full() else [self._within()]
            found = write.op("Attention", "attended", q, keys, values, *masks, is_causal=1, **scaled)
        else:
            found = write.op("Attention", "attended", q, keys, values, self._mask(window), **scaled)
        joined = write.integers("joined", [0, 0, -1])
        write.op("Reshape", "", write.op("Transpose", "steps_first", found, perm=_HEADS_FIRST), joined,
                 output=write.result(0))  # fmt: skip

    def _written_out(self, q: str, keys: str, values: str, mask: str) -> str:
        """Attention whose scores have a cap, or whose weights leave a part to sinks."""
        write, (heads, shared), steps = self.write, self.heads, self.steps
        groups, rows = heads // shared, [self.batch, shared, heads // shared * steps]
        q = write.op("Reshape", "grouped", q, write.integers("rows", [*rows, self.width]))
        scores = write.op("MatMul", "scores", q, write.op("Transpose", "turned", keys, perm=(0, 1, 3, 2)))
        scale = write.number_of("scale", 0.0) or 1.0 / math.sqrt(self.width)
        scores = write.op("Mul", "scaled", scores, write.number("scale", scale))
        cap = write.number_of("softcap", 0.0)
        if cap > 0:
            parts = write.op("Tanh", "bent", write.op("Div", "in_caps", scores, write.number("cap", cap)))
            scores = write.op("Mul", "capped", parts, write.number("cap/again", cap))
        five = write.integers("five", [self.batch, shared, groups, steps, self.total])
        seen = write.op("Unsqueeze", "mask/five", mask, write.integers("mask/axis", [1]))
        never = write.number("never", -np.inf)
        scores = write.op("Where", "masked", seen, write.op("Reshape", "apart", scores, five), never)
        weights = self._beside(scores, self._sinks) if self._sinks else write.op("Softmax", "weights", scores, axis=-1)
        weights = write.op("Reshape", "weights/rows", weights, write.integers("flat_rows", [*rows, self.total]))
        found = write.op("MatMul", "found", weights, values)
        return write.op("Reshape", "attended", found, write.integers("heads_apart", [self.batch, heads, steps, -1]))

    @cached_property
    def _sinks(self) -> str:
        """A score that no key has, of each head: [1, heads of keys, heads of queries of each, 1, 1]; "" without any."""
        write, (heads, shared) = self.write, self.heads
        if write.input(_SINKS):
            return write.op(
                "Reshape",
                "sinks",
                write.input(_SINKS),
                write.integers("sinks/five", [1, shared, heads // shared, 1, 1]),
            )
        return write.number("sink", 0.0) if write.number_of("smooth_softmax", 0) > 0 else ""

    def _beside(self, scores: str, sinks: str) -> str:
        """Softmax(scores | sink) without what the sink has of it."""
        write = self.write
        largest = write.op("ReduceMax", "largest", scores, write.integers("largest/axis", [-1]), keepdims=1)
        top = write.op("Max", "top", largest, sinks)
        parts = write.op("Exp", "shares", write.op("Sub", "below", scores, top))
        sums = write.op("ReduceSum", "sums", parts, write.integers("sums/axis", [-1]), keepdims=1)
        rest = write.op("Exp", "sunk", write.op("Sub", "sunk/below", sinks, top))
        return write.op("Div", "weights", parts, write.op("Add", "all", sums, rest))

    @property
    def width(self) -> int:
        """Of a head of queries."""
        heads, shared = self.heads
        return self.write.shape(_Q)[2] // (heads if self.write.input(_K) else heads + 2 * shared)

    @cached_property
    def heads(self) -> tuple[int, int]:
        """Heads of the queries, and of keys and values."""
        queries, keys = (int(self.write.number_of(name, 0)) for name in ("num_heads", "kv_num_heads"))
        if min(queries, keys) < 1 or queries % keys:
            raise NotCoveredError(f"{queries} heads of queries over {keys} of keys")
        return queries, keys

    @property
    def batch(self) -> int:
        return self.write.shape(_Q)[0]

    @property
    def steps(self) -> int:
        return self.write.shape(_Q)[1]

    @property
    def past(self) -> int:
        """Places of the given cache."""
        return self.write.shape(_PAST_K)[2] if self.write.input(_PAST_K) else 0

    @property
    def is_first(self) -> bool:
        """Whether a call has all of its sequences, so that nothing of the past counts."""
        return self.steps == self.total

    @property
    def _is_joined(self) -> bool:
        """Whether new steps stand right behind all places of the cache."""
        opened = self.write.draft.open_sizes and bool(self.write.input(_PAST_K))
        return opened and self.batch == 1 and self.past + self.steps == self.total

    @cached_property
    def before(self) -> str:
        """The length of each past, [batch, 1, 1, 1]."""
        write = self.write
        lengths = write.op("Cast", "lengths", write.input(_LENGTHS), to=7)
        before = write.op("Add", "before", lengths, write.integers("new", [1 - self.steps]))
        return write.op("Reshape", "before/spread", before, write.integers("spread", [self.batch, 1, 1, 1]))

    def _apart(self) -> list[str]:
        """Queries, keys and values, which may lie in one tensor."""
        write, (queries, keys) = self.write, self.heads
        if len(write.shape(_Q)) != 3:
            raise NotCoveredError("queries whose heads are apart already")
        if write.input(_K):
            return [write.input(place) for place in (_Q, _K, _V)]
        width = write.shape(_Q)[2] // (queries + 2 * keys)
        sizes = write.integers("sizes", [queries * width, keys * width, keys * width])
        parts = [write.draft.fresh(f"{write.operator.name}/{label}/part") for label in "qkv"]
        write.several("Split", "parts", [write.input(_Q), sizes], parts, axis=-1)
        return parts

    def _heads_first(self, label: str, x: str) -> str:
        """[batch, steps, heads * width]   becomes   [batch, heads, steps, width]."""
        shape = self.write.integers(f"{label}/shape", [0, 0, self.heads[label != "q"], -1])
        apart = self.write.op("Reshape", f"{label}/apart", x, shape)
        return self.write.op("Transpose", f"{label}/heads", apart, perm=_HEADS_FIRST)

    def _turned(self, label: str, x: str) -> str:
        """Turned by the places of its steps."""
        write = self.write
        interleaved = int(write.flag("rotary_interleaved"))
        return write.op("RotaryEmbedding", f"{label}/turned", x, write.input(_COS), write.input(_SIN), self.places,
                        interleaved=interleaved, rotary_embedding_dim=2 * write.shape(_COS)[1])  # fmt: skip

    @cached_property
    def places(self) -> str:
        """The place of each new step, [batch, steps]."""
        write = self.write
        if write.input(_AT):
            return write.input(_AT)
        steps = np.arange(self.steps, dtype=np.int64).reshape(1, -1)
        if self.is_first:
            spread = np.broadcast_to(steps, (self.batch, self.steps))
            return write.draft.add_constant(f"{write.operator.name}/places", np.ascontiguousarray(spread))
        flat = write.op("Reshape", "before/flat", self.before, write.integers("flat", [self.batch, 1]))
        offsets = write.draft.add_constant(f"{write.operator.name}/offsets", steps)
        return write.op("Add", "places", flat, offsets)

    def _present(self, label: str, past: int, new: str, result: int) -> str:
        """The cache with the new steps; what attention reads of it."""
        write, size = self.write, max(self.past, self.total)
        if self._is_joined:
            whole = write.op("Concat", f"{label}/whole", write.input(past), new, axis=2)
        elif self.is_first:
            whole = self._filled(f"{label}/whole", new, self.steps, size)
        else:
            kept = self._filled(f"{label}/kept", write.input(past), self.past, size)
            places = self._numbers("slots", size, (1, 1, size, 1))
            is_past = self._once("is_past", "Less", places, self.before)
            end = self._once("end", "Add", self.before, write.integers("steps", [self.steps]))
            later = write.op("Where", f"{label}/later", self._once("is_new", "Less", places, end),
                             self._shifted(label, new, size), write.number("zero", 0.0))  # fmt: skip
            whole = write.op("Where", f"{label}/whole", is_past, kept, later)
        if write.result(result):
            write.op("Identity", f"{label}/present", whole, output=write.result(result))
        if size == self.total:
            return whole
        bounds = [write.integers(f"{label}/{what}", [value]) for what, value in
                  (("first", 0), ("last", self.total), ("axis", 2))]  # fmt: skip
        return write.op("Slice", f"{label}/seen", whole, *bounds)

    def _filled(self, label: str, x: str, given: int, size: int) -> str:
        """x with zeros behind, up to so many steps."""
        if given >= size or not x:
            return x
        pads = self.write.integers(f"{label}/pads", [0, 0, 0, 0, 0, 0, size - given, 0])
        return self.write.op("Pad", label, x, pads)

    def _shifted(self, label: str, new: str, size: int) -> str:
        """New steps at the places of the cache; what stands elsewhere does not count."""
        write = self.write
        if self.steps == 1:
            return new
        if self.batch > 1:
            raise NotCoveredError("several new steps behind pasts of several sequences")
        flat = write.op("Reshape", f"{label}/start", self.before, write.integers("one", [1]))
        numbers = self._numbers(f"{label}/numbers", size, (size,))
        after = write.op("Sub", f"{label}/after", numbers, flat)
        bounds = [write.draft.add_constant(f"{write.operator.name}/{label}/{what}", np.asarray(value, np.int64))
                  for what, value in (("least", 0), ("most", self.steps - 1))]  # fmt: skip
        return write.op("Gather", f"{label}/shifted", new, write.op("Clip", f"{label}/at", after, *bounds), axis=2)

    def _is_full(self) -> bool:
        """Whether all sequences are known to be as long as the longest."""
        given = self.write.draft.constants.get(self.write.input(_LENGTHS))
        return given is not None and bool((given == self.total - 1).all())

    def _within(self) -> str:
        """Which keys belong to their sequence, [batch, 1, 1, keys]."""
        write = self.write
        end = write.op("Add", "mask/end", self.before, write.integers("mask/new", [self.steps]))
        return write.op("Less", "mask/within", self._numbers("mask/keys", self.total, (1, 1, 1, self.total)), end)

    def _mask(self, window: int) -> str:
        """Which keys each query sees, [batch, 1, steps, keys]."""
        write = self.write
        keys = self._numbers("mask/all", self.total, (1, 1, 1, self.total))
        own = self._numbers("mask/steps", self.steps, (1, 1, self.steps, 1))
        if not self.is_first:
            own = write.op("Add", "mask/own", self.before, own)
        seen = write.op("LessOrEqual", "mask/seen", keys, own)
        if self.is_first and not self._is_full():
            seen = write.op("And", "mask/both", seen, self._within())
        if window < 0:
            return seen
        first = write.op("Sub", "mask/first", own, write.integers("mask/window", [window]))
        return write.op("And", "mask/near", seen, write.op("Greater", "mask/late", keys, first))

    def _numbers(self, label: str, size: int, shape: tuple[int, ...]) -> str:
        return self.write.draft.add_constant(f"{self.write.operator.name}/{label}",
                                             np.arange(size, dtype=np.int64).reshape(shape))  # fmt: skip

    def _once(self, label: str, op_type: str, *inputs: str) -> str:
        """An operator that keys and values share."""
        made = self._shared.get(label)
        if made is None:
            made = self._shared[label] = self.write.op(op_type, label, *inputs)
        return made

    @cached_property
    def _shared(self) -> dict[str, str]:
        return {}
