"""Decoders whose tokens, or whose past, and the places that they attend to are of two open lengths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.compiler.open_sizes.models import Array, weight, write

HEADS, WIDTH, MOST = 2, 8, 32
ALL = HEADS * WIDTH


@dataclass(frozen=True)
class Form:
    """`step`: of a decoder's step with a past, not of a prompt. `batched`: of several sequences. `shared`: one mask,
    spread over all scores, for two layers. `spoilt`: the scores are an output."""

    step: bool = False
    batched: bool = False
    shared: bool = False
    spoilt: bool = False


class Writer:
    """Writes the model of a form, line by line."""

    def __init__(self, form: Form) -> None:
        self.form, self.lines = form, list[str]()
        self.batch = "batch" if form.batched else "1"
        self.weights: dict[str, Array] = {"heads": np.array([0, -1, HEADS, WIDTH]), "flat": np.array([0, -1, ALL])}
        self.weights |= {"between": np.array([1, 2]), "one": np.float32(1), "low": np.float32(-50)}
        self.weights |= {"ones": np.ones(ALL, np.float32), "zeros": np.zeros(ALL, np.float32)}

    def weight(self, name: str) -> str:
        self.weights[name] = weight(ALL, ALL, seed=len(self.weights))
        return name

    def heads(self, value: str, name: str) -> str:
        self.lines += [f"{name}p = MatMul ({value}, {self.weight(f'w{name}')})", f"{name}s = Reshape ({name}p, heads)"]
        self.lines.append(f"{name} = Transpose <perm = [0, 2, 1, 3]> ({name}s)")
        return name

    def attention(self, queries: str, keys: str, values: str, name: str, mask: str = "") -> str:
        made = self.lines.append
        made(f"{name}t = Transpose <perm = [0, 1, 3, 2]> ({keys})")
        made(f"{name}m = MatMul ({queries}, {name}t)")
        made(f"{name}a = Add ({name}m, {mask})" if mask else f"{name}a = Identity ({name}m)")
        made(f"{name}x = Softmax <axis = -1> ({name}a)")
        made(f"{name}y = MatMul ({name}x, {values})")
        made(f"{name}z = Transpose <perm = [0, 2, 1, 3]> ({name}y)")
        made(f"{name}r = Reshape ({name}z, flat)")
        made(f"{name}o = MatMul ({name}r, {self.weight(f'w{name}o')})")
        return f"{name}o"

    def mask(self) -> str:
        self.lines += ["kept = Cast <to = 1> (mask)", "lost = Sub (one, kept)", "bias = Mul (lost, low)"]
        self.lines.append("spread = Unsqueeze (bias, between)")
        if not self.form.shared:
            return "spread"
        self.lines += ["sx = Shape <start = 0, end = 2> (x)", "ss = Shape <start = 1, end = 2> (source)"]
        self.weights |= {"first": np.array([0]), "second": np.array([1]), "single": np.array([1])}
        self.lines += ["sb = Gather <axis = 0> (sx, first)", "st = Gather <axis = 0> (sx, second)"]
        self.lines += ["all = Concat <axis = 0> (sb, single, st, ss)", "whole = Expand (spread, all)"]
        return "whole"

    def written(self) -> tuple[str, dict[str, Array]]:
        form, batch = self.form, self.batch
        self.lines.append("encoded = LayerNormalization <axis = -1> (source, ones, zeros)")
        mask, now = self.mask(), "x"
        given = f"float[{batch}, {'1' if form.step else 'target'}, {ALL}] x, float[{batch}, source, {ALL}] source"
        given, results = f"{given}, int64[{batch}, source] mask", []
        for layer in "ab":
            queries, keys, values = (self.heads(now, f"{layer}{name}") for name in "qkv")
            if form.step:
                for name, new in (("k", keys), ("v", values)):
                    past = f"past{layer}{name}"
                    given += f", float[{batch}, {HEADS}, past, {WIDTH}] {past}"
                    results.append(f"float[{batch}, {HEADS}, longer, {WIDTH}] new{layer}{name}")
                    self.lines.append(f"new{layer}{name} = Concat <axis = 2> ({past}, {new})")
                keys, values = f"new{layer}k", f"new{layer}v"
            now = self.added(now, self.attention(queries, keys, values, f"{layer}self"), f"{layer}1")
            queries = self.heads(now, f"{layer}c")
            keys, values = (self.heads("encoded", f"{layer}e{name}") for name in "kv")
            now = self.added(now, self.attention(queries, keys, values, f"{layer}cross", mask), f"{layer}2")
        shape = f"float[{batch}, {'1' if form.step else 'target'}, {ALL}]"
        results = [f"{shape} {now}", *results]
        if form.spoilt:
            results.append(f"float[{batch}, {HEADS}, target, source] bcrossx")
        body = "\n".join(f"  {line}" for line in self.lines)
        return f"two ({given}) => ({', '.join(results)}) {{\n{body}\n}}", self.weights

    def added(self, now: str, more: str, name: str) -> str:
        self.lines += [f"{name}s = Add ({now}, {more})"]
        self.lines += [f"{name} = LayerNormalization <axis = -1> ({name}s, ones, zeros)"]
        return name


def model_of(folder: Path, form: Form) -> Path:
    text, weights = Writer(form).written()
    return write(folder / "two.onnx", text, weights)
