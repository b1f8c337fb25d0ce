"""Softmax over open tokens that is no attention: pooling by learned scores, and products that sum over tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autofuse import api
from autofuse.errors import InputError
from tests.compiler.open_sizes.models import built, built_over, check, check_over, weight, write

SIZES = (1, 2, 3, 5, 16, 17, 40, 96)
WEIGHTS = {
    "w": weight(24, 16), "v": weight(16, 1), "many": weight(16, 3), "one": np.array([1]), "last": np.array([-1]),
    "low": np.float32(-1e9),
}  # fmt: skip
SCORES = "l = MatMul (x, w) h = Tanh (l) s = MatMul (h, v)"
POOLED = {
    "weights along tokens": f"""{SCORES} a = Softmax <axis = 1> (s) m = Mul (a, x)
      y = ReduceSum <keepdims = 0> (m, one)""",
    "logarithms": f"{SCORES} y = LogSoftmax <axis = 1> (s)",
    "a product with rows": f"""{SCORES} t = Transpose <perm = [0, 2, 1]> (s) a = Softmax <axis = -1> (t)
      y = MatMul (a, x)""",
    "several queries": """l = MatMul (x, w) h = Tanh (l) s = MatMul (h, many) t = Transpose <perm = [0, 2, 1]> (s)
      a = Softmax <axis = -1> (t) y = MatMul (a, x)""",
}


@pytest.mark.parametrize("body", POOLED.values(), ids=POOLED.keys())
def test_shares_of_tokens_are_right_at_any_number_of_sequences(tmp_path: Path, body: str) -> None:
    shape = {"y = LogS": "batch, tokens, 1", "y = Redu": "batch, 24"}.get(
        body[body.index("y = ") :][:8], "batch, n, 24"
    )
    text = f"pooled (float[batch, tokens, 24] x) => (float[{shape}] y) {{ {body} }}"
    model = write(tmp_path / "pooled.onnx", text, WEIGHTS)
    library = built_over(model, {"batch": (1, 3), "tokens": (1, 96)})
    check_over(model, library, [{"batch": batch, "tokens": tokens} for batch in (1, 3) for tokens in SIZES])


def test_masked_shares_may_be_an_output(tmp_path: Path) -> None:
    body = f"""{SCORES} e = Squeeze (s, last) zero = Constant <value_int = 0> () away = Equal (mask, zero)
      k = Where (away, low, e) a = Softmax <axis = -1> (k) r = Unsqueeze (a, one) p = MatMul (r, x)
      y = Squeeze (p, one)"""
    text = f"""masked (float[batch, tokens, 24] x, int64[batch, tokens] mask)
      => (float[batch, 24] y, float[batch, tokens] a) {{ {body} }}"""
    model = write(tmp_path / "masked.onnx", text, WEIGHTS)
    library = built_over(model, {"batch": (1, 3), "tokens": (1, 96)})
    check_over(model, library, [{"batch": batch, "tokens": tokens} for batch in (1, 3) for tokens in SIZES])


def test_vectors_in_products_are_rows_and_columns(tmp_path: Path) -> None:
    body = "l = MatMul (x, w) h = Tanh (l) s = MatMul (h, v) a = Softmax <axis = 0> (s) y = MatMul (a, x)"
    text = f"vectors (float[tokens, 24] x) => (float[24] y, float[tokens] a) {{ {body} }}"
    model = write(tmp_path / "vectors.onnx", text, {"w": WEIGHTS["w"], "v": weight(16)})
    check(model, built(model, "tokens", 1, 96), "tokens", SIZES)


def test_heads_in_front_of_tokens_have_shares_of_their_own(tmp_path: Path) -> None:
    """Tokens stand behind heads: what goes over them is written with the tokens in front."""
    body = """s = MatMul (x, w) t = Transpose <perm = [0, 2, 1]> (s) a = Softmax <axis = -1> (t)
      m = ReduceMax <keepdims = 1> (t, last) d = Sub (t, m) y = Mul (d, a)"""
    text = f"heads (float[1, tokens, 24] x) => (float[1, 16, tokens] y) {{ {body} }}"
    model = write(tmp_path / "heads.onnx", text, WEIGHTS)
    check(model, built(model, "tokens", 1, 96), "tokens", SIZES)


def test_a_sum_of_too_many_products_is_refused_by_name(tmp_path: Path) -> None:
    """128 numbers of one factor times 128 of the other, for each token."""
    body = "l = MatMul (x, left) r = MatMul (x, right) t = Transpose <perm = [0, 2, 1]> (l) y = MatMul (t, r)"
    text = f"both (float[1, tokens, 24] x) => (float[1, 128, 128] y) {{ {body} }}"
    model = write(tmp_path / "both.onnx", text, {"left": weight(24, 128), "right": weight(24, 128, seed=1)})
    with pytest.raises(InputError, match=r"tokens cannot stay open at Transpose .*leading axis"):
        api.compile(model, database=str(tmp_path / "a.db"), threads=1, dry_run=True, sizes={"tokens": (1, 40)})
