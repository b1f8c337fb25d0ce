"""What was chosen for a graph at one size is carried out at another, where rewrites name what they make otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse.errors import PlanError
from autofuse.graph.loading.load import load
from autofuse.rewrite.driver import replay, rewrite
from tests.compiler.open_sizes.models import write

HEADS = """
heads (float[4, n, 8] p, float[1, 2, 1, n, 8] k) => (float[1, 4, n, m] y) {
  sizes = Shape (p) count = Slice (sizes, one, two) kept = Concat <axis = 0> (one, two, two, count, eight)
  many = Expand (k, kept) joined = Concat <axis = 0> (one, four, count, eight) keys = Reshape (many, joined)
  q = Reshape (p, joined)
  turned = Transpose <perm = [0, 1, 3, 2]> (keys) scores = MatMul (q, turned)
  apart = Concat <axis = 0> (one, two, two, count, count) seen = Reshape (scores, apart) s = Relu (seen)
  together = Concat <axis = 0> (one, four, count, count) y = Reshape (s, together)
}"""
NUMBERS = {name: np.array([value]) for name, value in (("one", 1), ("two", 2), ("four", 4), ("eight", 8))}


def test_steps_at_what_other_rewrites_made(tmp_path: Path) -> None:
    """Heads that share keys become rows, in views whose shapes have the size in them, and so have their names."""
    model = write(tmp_path / "heads.onnx", HEADS, NUMBERS)
    graph, other = (load(model, {"p": (4, n, 8), "k": (1, 2, 1, n, 8)}) for n in (19, 23))
    found = rewrite(graph, lambda _match: True)
    with pytest.raises(PlanError, match="the rule does not apply there"):
        replay(other, found.steps)
    made = replay(other, found.steps, like=graph).graph
    assert [one.op_type for one in made.operators] == [one.op_type for one in found.graph.operators]
