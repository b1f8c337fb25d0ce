"""A model of sequences that merges them with their tokens."""

from __future__ import annotations

import numpy as np

from tests.compiler.open_sizes.models import weight

MERGED = """
merged (int64[batch, tokens] kind, int64[batch, tokens] mask) => (float[all, 24] y, float[batch, 7] pooled) {
  shape = Shape (kind)
  rows = Gather <axis = 0> (table, kind)
  flat = Reshape (rows, wide)
  y = Gemm (flat, w, b)
  target = Concat <axis = 0> (shape, width)
  apart = Reshape (y, target)
  column = Unsqueeze (mask, two)
  real = Cast <to = 1> (column)
  kept = Mul (apart, real)
  total = ReduceSum <keepdims = 0> (kept, one)
  many = ReduceSum <keepdims = 0> (real, one)
  least = Max (many, single)
  mean = Div (total, least)
  logits = MatMul (mean, v)
  pooled = Softmax <axis = -1> (logits)
}"""
"""A sentence embedding that merges the sequences and their tokens: a mean with a mask, and a classifier."""
MERGED_WEIGHTS = {
    "table": weight(8, 16), "w": weight(16, 24), "b": weight(24), "v": weight(24, 7), "wide": np.array([-1, 16]),
    "width": np.array([24]), "one": np.array([1]), "two": np.array([2]), "single": np.float32(1),
}  # fmt: skip
