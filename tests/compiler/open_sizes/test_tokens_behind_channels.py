"""Tokens behind channels, where products are convolutions of one place, as SqueezeBERT's: right at any number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.open_sizes.models import Array, built, built_over, check, check_over, weight, write

SIZES = (1, 2, 3, 7, 8, 9, 16, 31, 33, 40)
WEIGHTS: dict[str, Array] = {
    "positions": weight(1, 40, 16), "wq": weight(16, 4, 1), "wk": weight(16, 4, 1), "wv": weight(16, 16, 1),
    "wo": weight(16, 8, 1), "b": weight(16), "scale": weight(16) + 1, "root": np.float32(2), "zero": np.array([0]),
    "one": np.array([1]), "two": np.array([2]), "heads": np.array([2]), "wide": np.array([8]), "all": np.array([16]),
}  # fmt: skip
BODY = """
  sizes = Shape (x)
  sequences = Slice (sizes, zero, one, zero)
  tokens = Slice (sizes, one, two, zero)
  apart = Concat <axis = 0> (sequences, heads, wide, tokens)
  together = Concat <axis = 0> (sequences, all, tokens)
  placed = Slice (positions, zero, tokens, one)
  sum = Add (x, placed)
  maps = Transpose <perm = [0, 2, 1]> (sum)
  q1 = Conv <kernel_shape = [1], group = 4> (maps, wq, b) q2 = Reshape (q1, apart)
  q = Transpose <perm = [0, 1, 3, 2]> (q2)
  k1 = Conv <kernel_shape = [1], group = 4> (maps, wk) k = Reshape (k1, apart)
  v1 = Conv <kernel_shape = [1]> (maps, wv, b) v2 = Reshape (v1, apart) v = Transpose <perm = [0, 1, 3, 2]> (v2)
  scores = MatMul (q, k)
  less = Div (scores, root)
  shares = Softmax <axis = -1> (less)
  seen = MatMul (shares, v)
  s1 = Transpose <perm = [0, 1, 3, 2]> (seen)
  s2 = Reshape (s1, together)
  o = Conv <kernel_shape = [1], group = 2> (s2, wo, b)
  r = Add (o, maps)
  rows = Transpose <perm = [0, 2, 1]> (r)
  normal = LayerNormalization <axis = -1> (rows, scale, b)
  again = Transpose <perm = [0, 2, 1]> (normal)
  c = Conv <kernel_shape = [1], group = 4> (again, wq, b)
  e = Relu (c)
  f = Add (e, again)
  y = Transpose <perm = [0, 2, 1]> (f)
"""


def model_of(folder: Path, first: str) -> Path:
    text = f"channels (float[{first}, tokens, 16] x) => (float[{first}, tokens, 16] y) {{ {BODY} }}"
    return write(folder / "channels.onnx", text, WEIGHTS)


def test_convolutions_of_one_place_are_products_of_rows(tmp_path: Path) -> None:
    model = model_of(tmp_path, "1")
    check(model, built(model, "tokens", 1, 40), "tokens", SIZES)


@pytest.mark.long
def test_so_they_are_for_several_sequences(tmp_path: Path) -> None:
    model = model_of(tmp_path, "batch")
    library = built_over(model, {"batch": (1, 3), "tokens": (1, 40)})
    check_over(model, library, [{"batch": 1 + n % 3, "tokens": size} for n, size in enumerate(SIZES)])
