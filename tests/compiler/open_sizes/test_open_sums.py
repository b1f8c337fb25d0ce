"""Running sums over all rows of an open size: positions that are counted in a mask, as RoBERTa and OPT have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse import api
from tests.compiler.open_sizes.models import Array, built, built_over, check, check_over, weight, write

POSITIONS = """
counted (int64[batch, tokens] ids) => (float[batch, tokens, 24] y) {
  padding = Equal (ids, pad)
  real = Not (padding)
  kept = Cast <to = 6> (real)
  count = CumSum (kept, axis)
  places = Mul (count, kept)
  wide = Cast <to = 7> (places)
  behind = Add (wide, pad)
  words = Gather (table, ids)
  where = Gather (positions, behind)
  y = Add (words, where)
}"""
WEIGHTS = {"pad": np.int64(1), "axis": np.int32(1), "table": weight(8, 24), "positions": weight(60, 24)}


def test_positions_are_counted_in_every_sequence(tmp_path: Path) -> None:
    model = write(tmp_path / "counted.onnx", POSITIONS, WEIGHTS)
    library = built_over(model, {"batch": (1, 5), "tokens": (1, 40)})
    check_over(model, library, [{"batch": b, "tokens": t} for b in (1, 2, 5) for t in (1, 2, 7, 16, 33, 40)])


@pytest.mark.parametrize("columns", [1, 5, 40])
@pytest.mark.parametrize("how", ["", "<exclusive = 1>", "<reverse = 1>", "<exclusive = 1, reverse = 1>"])
def test_sums_in_every_direction_over_rows_of_any_width(tmp_path: Path, columns: int, how: str) -> None:
    weights: dict[str, Array] = {"axis": np.int64(-2), "w": weight(3, columns)}
    text = f"running (float[n, 3] x) => (float[n, {columns}] y) {{ h = MatMul (x, w) y = CumSum {how} (h, axis) }}"
    model = write(tmp_path / "running.onnx", text, weights)
    check(model, built(model, "n", 1, 70), "n", (1, 2, 3, 16, 17, 64, 70))


def test_a_sum_inside_of_each_row_is_refused_by_name(tmp_path: Path) -> None:
    """No family of ours emits it."""
    weights: dict[str, Array] = {"axis": np.int64(1)}
    model = write(
        tmp_path / "inside.onnx", "inside (float[n, 6] x) => (float[n, 6] y) { y = CumSum (x, axis) }", weights
    )
    with pytest.raises(Exception, match=r"n cannot stay open at CumSum"):
        api.compile(model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes={"n": (1, 4)})
