"""Models with recurrences, whose batch, length, or both are open."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.compiler.open_sizes.models import Array, weight, write

DEPTH, HIDDEN = 6, 20
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
SHAPES = """
zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()
two = Constant <value = int64[1] {2}> () sizes = Shape (x)
length = Slice (sizes, zero, one) batch_size = Slice (sizes, one, two) all = Constant <value = int64[1] {-1}> ()
joined = Concat <axis = 0> (length, batch_size, all)
"""
"""Of what is read with the steps in front, `x` [length, batch, depth]."""
FRONT = "x = Transpose <perm = [1, 0, 2]> (given)"
TAGS = "tags = MatMul (y2j, v) y = Transpose <perm = [1, 0, 2]> (tags)"
JOIN = """
{0}t = Transpose <perm = [0, 2, 1, 3]> ({0}) {0}j = Reshape ({0}t, joined)
"""
"""The results of both directions side by side, as torch exports a layer."""


def layer(cell: str, number: int, read: str, directions: int, *given: str, more: str = "", results: str = "") -> str:
    """A recurrent operator, and what torch's exporter writes behind it; `given`: inputs behind the bias."""
    direction = "bidirectional" if directions == 2 else "forward"
    attributes = ", ".join(filter(None, (f'direction = "{direction}"', f"hidden_size = {HIDDEN}", more)))
    inputs = ", ".join([read, f"w{number}", f"r{number}", f"b{number}", *(name or "" for name in given)])
    made = results or f"y{number}"
    return f"{made} = {cell} <{attributes}> ({inputs})" + JOIN.format(f"y{number}")


def weights_of(cell: str, number: int, depth: int, directions: int) -> dict[str, Array]:
    """Constants of such a layer."""
    width, seed = GATES[cell] * HIDDEN, 10 * number
    arrays = {
        f"w{number}": weight(directions, width, depth, seed=seed + 1),
        f"r{number}": weight(directions, width, HIDDEN, seed=seed + 2),
        f"b{number}": weight(directions, 2 * width, seed=seed + 3),
    }
    return {name: (array * np.float32(2)).astype(np.float32) for name, array in arrays.items()}


def zeros(directions: int) -> str:
    """States before the first step as torch's exporter writes them, of zeros."""
    many = "one" if directions == 1 else "two"
    return (
        f"hidden = Constant <value = int64[1] {{{HIDDEN}}}> ()\n"
        f"states = Concat <axis = 0> ({many}, batch_size, hidden)\n"
        "h0 = Expand (nought, states)\n"
    )


def stacked(path: Path, cell: str, directions: int, signature: str, before: str, after: str, **more: Array) -> Path:
    """Two layers from `x` [length, batch, depth], which `before` makes; `after` reads `y2j` and the last state `s2`.
    `more`: constants of these."""
    body = SHAPES + zeros(directions)
    body += layer(cell, 1, "x", directions, "", "h0")
    body += layer(cell, 2, "y1j", directions, results="y2, s2")
    weights = weights_of(cell, 1, DEPTH, directions) | weights_of(cell, 2, directions * HIDDEN, directions)
    weights |= more | {"v": weight(directions * HIDDEN, 5), "nought": np.zeros((1, 1, 1), np.float32)}
    return write(path / "layers.onnx", f"layers {signature} {{ {before} {body} {after} }}", weights)


def carried(path: Path, batch: str = "batch", steps: str = "1") -> Path:
    """A layer whose states are inputs and outputs, [directions, batch, width]."""
    states = f"float[2, {batch}, {HIDDEN}]"
    given, made = f"{states} h, {states} c", f"{states} hn, {states} cn"
    signature = f"(float[{batch}, {steps}, {DEPTH}] given, {given}) => (float[{batch}, {steps}, 5] y, {made})"
    body = SHAPES + layer("LSTM", 2, "x", 2, "", "h", "c", results="y2, hn, cn")
    weights = weights_of("LSTM", 2, DEPTH, 2) | {"v": weight(2 * HIDDEN, 5)}
    return write(path, f"carried {signature} {{ {FRONT} {body} {TAGS} }}", weights)
