"""Decoders that take a few more tokens at a time and hand on their keys and values, as exporters write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from tests.compiler.open_sizes.models import Array, weight, write

MOST = 128
"""Positions that a decoder knows."""


@dataclass(frozen=True)
class Decoder:
    """How a decoder is written.

    `shared`: heads of queries for each head of keys and values. `masks`: those of "padding" (of an input), "causal" (a
    constant cut to size). `scale`: of the scores ("scores"), or of queries and keys by the root ("both"). `turned`:
    keys lie as [heads, width, tokens]. `tokens`: new ones of a step. `most`: positions. `batched`: any number of
    sequences, `batch`. `places`: positions are "given", "counted" from the length of the cache (Range), as the "causal"
    mask is then, or rows "cut" out of their table there (Slice).
    """

    heads: int = 2
    width: int = 8
    layers: int = 2
    words: int = 8
    shared: int = 1
    masks: tuple[str, ...] = ("padding",)
    scale: str = "scores"
    turned: bool = False
    tokens: int = 1
    most: int = MOST
    batched: bool = False
    places: str = "given"

    @property
    def count(self) -> str:
        """The first axis of inputs and outputs."""
        return "batch" if self.batched else "1"


def written(path: Path, form: Decoder) -> Path:
    """The model of a decoder: a step over `past` tokens."""
    return _named(write(path, *_Writer(form).whole()), form.tokens)


@dataclass
class _Writer:
    form: Decoder
    lines: list[str] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def whole(self) -> tuple[str, dict[str, Array]]:
        """The model in ONNX's text form, and its weights."""
        form = self.form
        given = ("token", "position") if form.places == "given" else ("token",)
        inputs = [f"int64[{form.count}, {form.tokens}] {name}" for name in given]
        outputs = [f"float[{form.count}, {form.tokens}, {form.words}] logits"]
        self._constants()
        self.lines += ["e = Gather (words, token)", *self._places(), "h0 = Add (e, w)"]
        if "padding" in form.masks:
            inputs.append(f"int64[{form.count}, later] mask")
            self.lines += ["m4 = Unsqueeze (mask, i12)", "mf = Cast <to = 1> (m4)", "mn = Sub (one, mf)"]
            self.lines += ["bias = Mul (mn, lowest)"]
        few = form.heads // form.shared
        for layer in range(form.layers):
            for name in "kv":
                turned = form.turned and name == "k"
                shape = f"{few}, {form.width}, LENGTH" if turned else f"{few}, LENGTH, {form.width}"
                shape = f"{form.count}, {shape}"
                inputs.append(f"float[{shape.replace('LENGTH', 'past')}] past{layer}{name}")
                outputs.append(f"float[{shape.replace('LENGTH', 'later')}] present{layer}{name}")
            self.lines += [line.replace("@", str(layer)) for line in self._layer(layer)]
        self.lines += [f"l = LayerNormalization <axis = -1> (h{form.layers}, g, b)", "logits = MatMul (l, wl)"]
        body = "\n".join(self.lines)
        return f"decoder ({', '.join(inputs)}) => ({', '.join(outputs)}) {{\n{body}\n}}", self.weights

    def _places(self) -> list[str]:
        """The rows of the table of positions."""
        if self.form.places == "given":
            return ["w = Gather (places, position)"]
        lines = ["first = Shape <start = 2, end = 3> (past0v)", "end = Add (first, news)"]
        if self.form.places == "cut":
            return [*lines, "w = Slice (places, first, end, i0)"]
        lines += ["first0 = Squeeze (first)", "end0 = Squeeze (end)", "step0 = Squeeze (i1)"]
        return [*lines, "now = Range (first0, end0, step0)", "w = Gather (places, now)"]

    def _constants(self) -> None:
        form, size = self.form, self.form.heads * self.form.width
        few = form.heads // form.shared
        self.weights |= {
            "words": weight(form.words, size) * 2, "places": weight(form.most, size) * 2, "one": np.float32(1),
            "lowest": np.float32(-1e9), "root": np.float32(form.width**-0.5), "quarter": np.float32(form.width**-0.25),
            "zero": np.array(0), "i0": np.array([0]), "i1": np.array([1]), "i2": np.array([2]), "i3": np.array([3]),
            "i12": np.array([1, 2]), "split_q": np.array([0, form.tokens, form.heads, form.width]),
            "split_k": np.array([0, form.tokens, few, form.width]), "joined": np.array([0, form.tokens, size]),
            "few1": np.array([few]), "heads1": np.array([form.heads]), "width1": np.array([form.width]),
            "news": np.array([form.tokens]), "shared1": np.array([form.shared]),
            "triangle": np.tril(np.ones((1, 1, form.most, form.most), bool)),
            "g": weight(size) + 1, "b": weight(size), "wl": weight(size, form.words),
        }  # fmt: skip

    def _layer(self, layer: int) -> list[str]:
        form, size = self.form, self.form.heads * self.form.width
        self.weights |= {
            f"g{layer}": weight(size) + 1, f"b{layer}": weight(size, seed=layer),
            f"wo{layer}": weight(size, size, seed=layer), f"wf{layer}": weight(size, 2 * size, seed=layer),
            f"wp{layer}": weight(2 * size, size, seed=layer),
        }  # fmt: skip
        return [
            f"n@ = LayerNormalization <axis = -1> (h{layer}, g@, b@)", *self._projected(layer),
            f"present@k = Concat <axis = {3 if form.turned else 2}> (past@k, t@k)",
            "present@v = Concat <axis = 2> (past@v, t@v)", "lengths@ = Shape (present@v)",
            "length@ = Slice (lengths@, i2, i3, i0)", *self._shares(),
            "back@ = Transpose <perm = [0, 2, 1, 3]> (mix@)", "join@ = Reshape (back@, joined)",
            "o@ = MatMul (join@, wo@)", f"a@ = Add (h{layer}, o@)", "f@ = MatMul (a@, wf@)", "fr@ = Relu (f@)",
            "fp@ = MatMul (fr@, wp@)", f"h{layer + 1} = Add (a@, fp@)",
        ]  # fmt: skip

    def _projected(self, layer: int) -> list[str]:
        """Queries, keys and values of the new tokens as [1, heads, tokens, width]."""
        form, lines = self.form, list[str]()
        size, few = form.heads * form.width, form.heads // form.shared
        for number, (name, heads) in enumerate({"q": form.heads, "k": few, "v": few}.items()):
            matrix = weight(size, heads * form.width, seed=layer * 3 + number)
            self.weights[f"w{layer}{name}"] = matrix * (2 if number < 2 else 1)
            order = "0, 2, 3, 1" if name == "k" and form.turned else "0, 2, 1, 3"
            lines += [
                f"p@{name} = MatMul (n@, w@{name})",
                f"s@{name} = Reshape (p@{name}, {'split_q' if name == 'q' else 'split_k'})",
                f"t@{name} = Transpose <perm = [{order}]> (s@{name})",
            ]
        return lines

    def _shares(self) -> list[str]:
        """The attention of the new tokens to all of them."""
        form, keys, values, lines = self.form, "present@k", "present@v", list[str]()
        if form.shared > 1:
            lines += [
                "wide@ = Concat <axis = 0> (i1, few1, shared1, length@, width1)",
                "flat@ = Concat <axis = 0> (i0, heads1, length@, width1)",
            ]
            for name, source in (("k", keys), ("v", values)):
                lines += [f"u@{name} = Unsqueeze ({source}, i2)", f"x@{name} = Expand (u@{name}, wide@)"]
                lines += [f"r@{name} = Reshape (x@{name}, flat@)"]
            keys, values = "r@k", "r@v"
        if not form.turned:
            lines += [f"turned@ = Transpose <perm = [0, 1, 3, 2]> ({keys})"]
            keys = "turned@"
        query = "t@q"
        if form.scale == "both":
            lines += ["q@ = Mul (t@q, quarter)", f"k@ = Mul ({keys}, quarter)"]
            query, keys = "q@", "k@"
        lines += [f"sc0@ = MatMul ({query}, {keys})"]
        lines += ["sc1@ = Mul (sc0@, root)" if form.scale == "scores" else "sc1@ = Identity (sc0@)"]
        score = "sc1@"
        if "causal" in form.masks and form.places == "counted":
            lines += ["length0@ = Squeeze (length@)", "all@ = Range (zero, length0@, step0)"]
            lines += ["row@ = Unsqueeze (now, i1)", "later@ = Greater (all@, row@)"]
            lines += [f"sc2@ = Where (later@, lowest, {score})"]
            score = "sc2@"
        elif "causal" in form.masks:
            lines += ["before@ = Sub (length@, news)", "cut0@ = Slice (triangle, before@, length@, i2)"]
            lines += ["cut1@ = Slice (cut0@, i0, length@, i3)", f"sc2@ = Where (cut1@, {score}, lowest)"]
            score = "sc2@"
        if "padding" in form.masks:
            lines += [f"sc3@ = Add ({score}, bias)"]
            score = "sc3@"
        return [*lines, f"share@ = Softmax <axis = -1> ({score})", f"mix@ = MatMul (share@, {values})"]


def _named(path: Path, more: int) -> Path:
    """The size of a longer cache under the name that torch gives it, which ONNX's text form does not allow."""
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "later":
                dim.dim_param = f"past + {more}"
    onnx.save(model, path)
    return path


def step_inputs(model: Path, past: int, seed: int = 0, batch: int = 1) -> dict[str, Array]:
    """Inputs of a step behind so many tokens of `batch` sequences, some of which are masked."""
    generator = np.random.default_rng([past, seed])
    feeds: dict[str, Array] = {}
    for value in onnx.load(model).graph.input:
        shape = [_size(dim, past, batch) for dim in value.type.tensor_type.shape.dim]
        if value.name == "mask":
            feeds["mask"] = (generator.random(shape) < 0.8).astype(np.int64)
            feeds["mask"][..., -1] = 1
        elif value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            feeds[value.name] = generator.integers(0, MOST if value.name == "position" else 8, shape)
        else:
            feeds[value.name] = generator.standard_normal(shape).astype(np.float32)
    return feeds


def _size(dim: onnx.TensorShapeProto.Dimension, past: int, batch: int) -> int:
    if not dim.dim_param:
        return dim.dim_value
    if dim.dim_param == "batch":
        return batch
    _, _, more = dim.dim_param.partition(" + ")
    return past + int(more or 0)
