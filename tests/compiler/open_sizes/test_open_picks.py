"""Rows that are picked by a number which the model computes: the last token by its mask, the one that ends a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.open_sizes.models import Array, built_over, check_over, weight, write

POINTS = [{"batch": b, "tokens": t} for b, t in ((1, 1), (1, 40), (5, 1), (5, 40), (3, 7), (2, 17))]
PICK = """
  sizes = Shape (ids) first = Slice (sizes, zero, one, zero) count = Squeeze (first)
  all = Range (nought, count, single) rows = Unsqueeze (all, one) column = Unsqueeze (place, one)
  pairs = Concat <axis = 1> (rows, column) y = GatherND (h, pairs)
"""
"""h[arange(batch), place], as torch exports it."""
WORDS = "words = Gather (table, ids) h = MatMul (words, w)"
CONSTANTS: dict[str, Array] = {
    "table": weight(8, 12), "w": weight(12, 20), "zero": np.array([0]), "one": np.array([1]), "nought": np.int64(0),
    "single": np.int64(1), "two": np.array([2]),
}  # fmt: skip
PLACES = {
    "most": "place = ArgMax <axis = 1, keepdims = 0> (ids)",
    "last of the most": "place = ArgMax <axis = -1, keepdims = 0, select_last_index = 1> (ids)",
    "least": "small = Cast <to = 6> (ids) place = ArgMin <axis = 1, keepdims = 0> (small)",
    "of numbers": "r = ReduceSum <keepdims = 0> (h, two) place = ArgMax <axis = 1, keepdims = 0> (r)",
    "given from the end": "b = Cast <to = 7> (ids) n = ReduceMin <keepdims = 0> (b, one) z = Mul (n, nought) "
    "place = Sub (z, single)",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sizes", [{"batch": (1, 5), "tokens": (1, 40)}, {"batch": (1, 5)}], ids=["both", "batch"])
def test_one_row_of_each_sequence(tmp_path: Path, place: str, sizes: dict[str, tuple[int, int]]) -> None:
    tokens = "tokens" if "tokens" in sizes else "17"
    text = f"picked (int64[batch, {tokens}] ids) => (float[batch, 20] y, int64[batch] place)"
    model = write(tmp_path / "picked.onnx", f"{text} {{ {WORDS} {PLACES[place]} {PICK} }}", CONSTANTS)
    library = built_over(model, sizes)
    check_over(model, library, POINTS if "tokens" in sizes else [{"batch": b} for b in (1, 2, 3, 5)])


@pytest.mark.long
def test_one_row_of_each_sequence_whose_rows_are_merged(tmp_path: Path) -> None:
    """h[arange(batch), place] as torch's older exporter has it: the number of a row among those of all sequences."""
    merged = """
      sizes = Shape (ids) first = Slice (sizes, zero, one, zero) second = Slice (sizes, one, two, zero)
      count = Squeeze (first) long = Squeeze (second) all = Range (nought, count, single) starts = Mul (all, long)
      number = Add (place, starts) shape = Concat <axis = 0> (below, wide) rows = Reshape (h, shape)
      y = Gather (rows, number)"""
    text = f"picked (int64[batch, tokens] ids) => (float[batch, 20] y) {{ {WORDS} {PLACES['most']} {merged} }}"
    constants = CONSTANTS | {"below": np.array([-1]), "wide": np.array([20])}
    model = write(tmp_path / "merged.onnx", text, constants)
    check_over(model, built_over(model, {"batch": (1, 5), "tokens": (1, 40)}), POINTS)


def test_one_row_by_elements(tmp_path: Path) -> None:
    """As torch exports `h.gather(1, n[:, None, None].expand(-1, 1, 20))`."""
    spread = """
      rows = Unsqueeze (place, last) sizes = Shape (ids) first = Slice (sizes, zero, one, zero)
      shape = Concat <axis = 0> (first, one, wide) indices = Expand (rows, shape)
      picked = GatherElements <axis = 1> (h, indices) y = Squeeze (picked, one)"""
    place = PLACES["most"]
    text = f"picked (int64[batch, tokens] ids) => (float[batch, 20] y) {{ {WORDS} {place} {spread} }}"
    constants = CONSTANTS | {"last": np.array([1, 2]), "wide": np.array([20])}
    model = write(tmp_path / "elements.onnx", text, constants)
    check_over(model, built_over(model, {"batch": (1, 5), "tokens": (1, 40)}), POINTS)
