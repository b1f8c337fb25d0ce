"""Attention over an open number of tokens as exporters write it, in many forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.compiler.open_sizes.models import Array, weight

MOST = 64
"""Tokens of the longest sequence, for which constants are made."""
TRIANGLE = np.tril(np.ones((1, 1, MOST, MOST), bool))
BAND = np.abs(np.subtract.outer(np.arange(MOST), np.arange(MOST)))[None, None] <= 24
"""The neighbours that each token reads, which are all of up to 25."""


@dataclass(frozen=True)
class Form:
    """How attention is written.

    `scale`: of the scores ("scores"), of queries and keys by the root ("both"), or none (""). `masks`: those of
    "padding" (of an input), "expanded" (the same, spread over all scores), "causal" (a constant cut to size), "bias"
    (learned for each pair of positions). `flat`: heads are the only axis before matrices. `turned`: rotary positions.
    `shared`: heads of queries for each head of keys. `safe`: what is no number becomes 0 behind the softmax. `fused`:
    queries, keys and values come from one product. `layers`: of them, each with the same masks. `batched`:
    of several sequences. `mean`: the mean over the tokens of a sentence is an output, too.
    """

    heads: int = 2
    width: int = 8
    scale: str = "scores"
    masks: tuple[str, ...] = ()
    flat: bool = False
    turned: bool = False
    shared: int = 1
    safe: bool = False
    fused: bool = False
    layers: int = 1
    picked: int | None = None
    batched: bool = False
    mean: bool = False


@dataclass
class Writer:
    """Writes the model of a form, line by line. `spoilt`: one operator that no library with open tokens can have."""

    form: Form
    spoilt: str = ""
    lines: list[str] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def constant(self, name: str, array: Any) -> str:
        self.weights[name] = np.asarray(array)
        return name

    def ints(self, *values: int) -> str:
        return self.constant("i" + "_".join(str(value).replace("-", "m") for value in values), np.array(values))

    def made(self, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def text(self) -> str:
        form, width = self.form, self.form.heads * self.form.width
        self.shape = self.made("Shape (x)")
        self.tokens = self.made(f"Slice ({self.shape}, {self.ints(1)}, {self.ints(2)}, {self.ints(0)})")
        self.sequences = self.ints(1)
        if form.batched:
            self.sequences = self.made(f"Slice ({self.shape}, {self.ints(0)}, {self.ints(1)}, {self.ints(0)})")
        table = self.constant("positions", weight(1, MOST, width))
        now = self.made(f"Slice ({table}, {self.ints(0)}, {self.tokens}, {self.ints(1)})")
        now = self.made(f"Add (x, {now})")
        masks = [getattr(self, f"_{mask}")() for mask in form.masks]
        for layer in range(form.layers):
            now = self._attention(now, layer, masks)
        first = "batch" if form.batched else "1"
        outputs = f"float[{first}, tokens, {width}] {now}"
        if form.mean:
            mean = self.made(f"ReduceMean <keepdims = 0> ({now}, {self.ints(1)})")
            outputs += f", float[{first}, {width}] {mean}"
        if form.picked is not None:
            one = self.made(f"Gather <axis = 1> ({now}, {self.constant('number', np.array(form.picked))})")
            outputs += f", float[{first}, {width}] {one}"
        if self.spoilt == "output":
            outputs += f", float[{first}, {form.heads}, tokens, tokens] {self.probabilities}"
        mask = f", int64[{first}, tokens] mask" if {"padding", "expanded"} & set(form.masks) else ""
        body = "\n".join(self.lines)
        return f"tokens (float[{first}, tokens, {width}] x{mask}) => ({outputs}) {{\n{body}\n}}"

    def _spread(self) -> str:
        unsqueezed = self.made(f"Unsqueeze (mask, {self.ints(1, 2)})")
        return self.made(f"Cast <to = 1> ({unsqueezed})")

    def _padding(self) -> str:
        scale = self.constant("least", np.float32(-3))
        return f"Add (@, {self.made(f'Mul ({self._spread()}, {scale})')})"

    def _expanded(self) -> str:
        target = self.made(f"Concat <axis = 0> ({self.sequences}, {self.ints(1)}, {self.tokens}, {self.tokens})")
        flags = self.made(f"Cast <to = 9> ({self.made(f'Expand ({self._spread()}, {target})')})")
        return f"Where ({flags}, @, {self.constant('infinite', np.float32(-np.inf))})"

    def _cut(self, name: str, whole: Array) -> str:
        cut = self.constant(name, whole)
        for axis in (2, 3):
            cut = self.made(f"Slice ({cut}, {self.ints(0)}, {self.tokens}, {self.ints(axis)})")
        return cut

    def _causal(self) -> str:
        lowest = self.constant("lowest", np.finfo(np.float32).min)
        return f"Where ({self._cut('triangle', TRIANGLE)}, @, {lowest})"

    def _near(self) -> str:
        lowest = self.constant("lowest", np.finfo(np.float32).min)
        return f"Where ({self._cut('band', BAND)}, @, {lowest})"

    def _bias(self) -> str:
        return f"Add (@, {self._cut('bias', weight(1, self.form.heads, MOST, MOST) * 50)})"

    def _heads(self, value: str, count: int) -> str:
        """[1, tokens, heads x width] as [1, heads, tokens, width]."""
        target = self.made(
            f"Concat <axis = 0> ({self.sequences}, {self.tokens}, {self.ints(count)}, {self.ints(self.form.width)})"
        )
        split = self.made(f"Reshape ({value}, {target})")
        return self.made(f"Transpose <perm = [0, 2, 1, 3]> ({split})")

    def _projected(self, now: str, layer: int) -> list[str]:
        form = self.form
        few = form.heads // form.shared
        counts = [form.heads, few, few]
        width, parts = form.heads * form.width, [count * form.width for count in counts]
        names = [f"w{layer}{name}" for name in "qkv"]
        arrays = [weight(width, part, seed=layer * 3 + n) for n, part in enumerate(parts)]
        if form.fused:
            product = self.made(f"MatMul ({now}, {self.constant(names[0], np.concatenate(arrays, 1))})")
            made = [f"s{layer}{name}" for name in "qkv"]
            self.lines.append(f"{', '.join(made)} = Split <axis = 2> ({product}, {self.ints(*parts)})")
        else:
            made = [self.made(f"MatMul ({now}, {self.constant(*one)})") for one in zip(names, arrays, strict=True)]
        return [self._heads(one, count) for one, count in zip(made, counts, strict=True)]

    def _rotated(self, value: str) -> str:
        half, form = self.form.width // 2, self.form
        tables = [weight(1, 1, MOST, form.width, seed=seed) * 8 for seed in (5, 6)]
        cosine, sine = (
            self.made(f"Slice ({self.constant(name, table)}, {self.ints(0)}, {self.tokens}, {self.ints(2)})")
            for name, table in zip(("cosine", "sine"), tables, strict=True)
        )
        first, second = (
            self.made(f"Slice ({value}, {self.ints(low)}, {self.ints(high)}, {self.ints(3)})")
            for low, high in ((0, half), (half, form.width))
        )
        turned = self.made(f"Concat <axis = 3> ({self.made(f'Neg ({second})')}, {first})")
        parts = self.made(f"Mul ({value}, {cosine})"), self.made(f"Mul ({turned}, {sine})")
        return self.made(f"Add ({parts[0]}, {parts[1]})")

    def _repeated(self, value: str) -> str:
        """Each head of keys or values for several heads of queries."""
        form = self.form
        few = form.heads // form.shared
        column = self.made(f"Unsqueeze ({value}, {self.ints(2)})")
        sizes = (self.sequences, self.ints(few), self.ints(form.shared), self.tokens, self.ints(form.width))
        spread = self.made(f"Concat <axis = 0> ({', '.join(sizes)})")
        wide = self.made(f"Expand ({column}, {spread})")
        target = self.made(
            f"Concat <axis = 0> ({self.sequences}, {self.ints(form.heads)}, {self.tokens}, {self.ints(form.width)})"
        )
        return self.made(f"Reshape ({wide}, {target})")

    def _attention(self, now: str, layer: int, masks: list[str]) -> str:
        form = self.form
        queries, keys, values = self._projected(now, layer)
        if form.turned:
            queries, keys = self._rotated(queries), self._rotated(keys)
        if form.shared > 1:
            keys, values = self._repeated(keys), self._repeated(values)
        keys = self.made(f"Transpose <perm = [0, 1, 3, 2]> ({keys})")
        if form.scale == "both":
            root = self.constant("root", np.float32(form.width**-0.25))
            queries, keys = self.made(f"Mul ({queries}, {root})"), self.made(f"Mul ({keys}, {root})")
        if form.flat:
            queries, keys, values = map(self._flattened, (queries, keys, values))
        scores = self.made(f"MatMul ({queries}, {keys})")
        if form.flat:
            scores = self._unfolded(scores)
        if form.scale == "scores":
            scores = self.made(f"Div ({scores}, {self.constant('scale', np.float32(form.width**0.5))})")
        for mask in masks:
            scores = self.made(mask.replace("@", scores))
        found = self._mixed(self._softmax(scores), values)
        target = self.made(f"Concat <axis = 0> ({self.sequences}, {self.tokens}, {self.ints(form.heads * form.width)})")
        joined = self.made(f"Reshape ({found}, {target})")
        return self.made(f"Add ({joined}, {now})")

    def _flattened(self, value: str) -> str:
        """[batch, heads, ...] as [batch x heads, ...]."""
        if not self.form.batched:
            return self.made(f"Squeeze ({value}, {self.ints(0)})")
        shape = self.made(f"Shape <start = 2> ({value})")
        return self.made(f"Reshape ({value}, {self.made(f'Concat <axis = 0> ({self.ints(-1)}, {shape})')})")

    def _unfolded(self, value: str) -> str:
        """[batch x heads, ...] as [batch, heads, ...]."""
        if not self.form.batched:
            return self.made(f"Unsqueeze ({value}, {self.ints(0)})")
        shape, heads = self.made(f"Shape <start = 1> ({value})"), self.ints(self.form.heads)
        target = self.made(f"Concat <axis = 0> ({self.sequences}, {heads}, {shape})")
        return self.made(f"Reshape ({value}, {target})")

    def _softmax(self, scores: str) -> str:
        if self.spoilt == "turned":
            scores = self.made(f"Transpose <perm = [0, 1, 3, 2]> ({scores})")
        axis = 2 if self.spoilt == "axis" else -1
        found = scores if self.spoilt == "plain" else self.made(f"Softmax <axis = {axis}> ({scores})")
        self.probabilities = found
        if self.form.safe:
            unknown, zero = self.made(f"IsNaN ({found})"), self.constant("nothing", np.float32(0))
            found = self.made(f"Where ({unknown}, {zero}, {found})")
        return found

    def _mixed(self, found: str, values: str) -> str:
        if self.form.flat:
            found = self._flattened(found)
        mixed = self.made(f"MatMul ({found}, {values})")
        if self.form.flat:
            mixed = self._unfolded(mixed)
        return self.made(f"Transpose <perm = [0, 2, 1, 3]> ({mixed})")


def written(form: Form, spoilt: str = "") -> tuple[str, dict[str, Array]]:
    """The model of a form in ONNX's text form, and its weights."""
    writer = Writer(form, spoilt)
    text = writer.text()
    return text, writer.weights
