"""Attention whose scores are picked by relative positions, as DeBERTa's: right at any number of tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.models import Array, built, built_over, check, check_over, weight, write

HEADS, WIDTH, DISTANCES, MOST = 2, 8, 12, 40
SIZES = (1, 2, 3, 7, 8, 9, 16, 31, 33, 40)
PLACES = np.arange(MOST)
TO_KEYS = np.clip(PLACES[:, None] - PLACES + DISTANCES // 2, 0, DISTANCES - 1)[None]
TO_QUERIES = np.clip(PLACES - PLACES[:, None] + DISTANCES // 2, 0, DISTANCES - 1)[None]
WEIGHTS: dict[str, Array] = {
    **{f"w{name}": weight(16, 16, seed=seed) for seed, name in enumerate("qkv")},
    "near": weight(HEADS, WIDTH, DISTANCES, seed=5), "far": weight(HEADS, WIDTH, DISTANCES, seed=6),
    "tokeys": TO_KEYS, "toqueries": TO_QUERIES, "zero": np.array([0]), "first": np.array([1]), "second": np.array([2]),
    "heads": np.array([HEADS]), "wide": np.array([WIDTH]), "all": np.array([HEADS * WIDTH]), "root": np.float32(3),
}  # fmt: skip
ATTENTION = """
  sizes = Shape (x)
  sequences = Slice (sizes, zero, first, zero)
  tokens = Slice (sizes, first, second, zero)
  apart = Concat <axis = 0> (sequences, tokens, heads, wide)
  together = Concat <axis = 0> (sequences, tokens, all)
  both = Mul (sequences, heads)
  merged = Concat <axis = 0> (both, tokens, wide)
  pairs = Concat <axis = 0> (both, tokens, tokens)
  q1 = MatMul (x, wq) q2 = Reshape (q1, apart) q3 = Transpose <perm = [0, 2, 1, 3]> (q2) q = Reshape (q3, merged)
  k1 = MatMul (x, wk) k2 = Reshape (k1, apart) k3 = Transpose <perm = [0, 2, 1, 3]> (k2) k = Reshape (k3, merged)
  v1 = MatMul (x, wv) v2 = Reshape (v1, apart) v3 = Transpose <perm = [0, 2, 1, 3]> (v2) v = Reshape (v3, merged)
  turned = Transpose <perm = [0, 2, 1]> (k)
  plain = MatMul (q, turned)
  repeated = Concat <axis = 0> (sequences, first, first)
  nearby = Tile (near, repeated)
  distant = Tile (far, repeated)
  c1 = Slice (tokeys, zero, tokens, first) c2 = Slice (c1, zero, tokens, second) c3 = Expand (c2, pairs)
  p1 = Slice (toqueries, zero, tokens, first) p2 = Slice (p1, zero, tokens, second) p3 = Expand (p2, pairs)
  ahead = MatMul (q, nearby) tokey = GatherElements <axis = {axis}> (ahead, c3)
  back = MatMul (k, distant) toquery1 = GatherElements <axis = {axis}> (back, p3)
  toquery = Transpose <perm = [0, 2, 1]> (toquery1)
  one = Add (plain, tokey) two = Add (one, toquery) scores = Div (two, root)
  shares = Softmax <axis = -1> (scores)
  seen = MatMul (shares, v)
  split = Concat <axis = 0> (sequences, heads, tokens, wide)
  s1 = Reshape (seen, split) s2 = Transpose <perm = [0, 2, 1, 3]> (s1) s3 = Reshape (s2, together)
  y = Add (s3, x)
"""


def model_of(folder: Path, first: str, axis: int = -1) -> Path:
    body = ATTENTION.replace("{axis}", str(axis))
    text = f"relative (float[{first}, tokens, 16] x) => (float[{first}, tokens, 16] y) {{ {body} }}"
    return write(folder / "relative.onnx", text, WEIGHTS)


def test_scores_are_picked_by_distance_at_every_number_of_tokens(tmp_path: Path) -> None:
    model = model_of(tmp_path, "1")
    check(model, built(model, "tokens", 1, MOST), "tokens", SIZES)


@pytest.mark.long
def test_so_they_are_for_several_sequences(tmp_path: Path) -> None:
    model = model_of(tmp_path, "batch")
    library = built_over(model, {"batch": (1, 3), "tokens": (1, MOST)})
    check_over(model, library, [{"batch": 1 + n % 3, "tokens": size} for n, size in enumerate(SIZES)])


def test_what_is_picked_among_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="GatherElements '.*'"):
        built(model_of(tmp_path, "1", 1), "tokens", 13, MOST)


def test_each_sequence_has_a_copy_of_a_table_that_the_model_computes(tmp_path: Path) -> None:
    """As DeBERTa v2 repeats its distances for all heads of all sequences."""
    body = """
      table = MatMul (distances, w) sizes = Shape (x) count = Slice (sizes, zero, first, zero)
      often = Concat <axis = 0> (count, first) copies = Tile (table, often)
      apart = Concat <axis = 0> (count, heads, wide) each = Reshape (copies, apart) y = Add (x, each)"""
    weights = WEIGHTS | {"w": weight(4, WIDTH)}
    text = f"copied (float[batch, {HEADS}, {WIDTH}] x, float[{HEADS}, 4] distances)"
    text += f" => (float[batch, {HEADS}, {WIDTH}] y) {{ {body} }}"
    model = write(tmp_path / "copied.onnx", text, weights)
    check(model, built(model, "batch", 1, 20), "batch", (1, 2, 3, 17, 20))
