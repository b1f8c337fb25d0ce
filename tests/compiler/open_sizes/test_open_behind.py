"""A batch that stands behind the tokens inside of a model, as in torch's attention: right at each size, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.errors import InputError
from tests.compiler.open_sizes.models import built, check, weight, write

TOKENS, HEADS, WIDTH = 5, 3, 4
BATCHES = range(1, 10)

ATTENTION = """
moved = Transpose <perm = [1, 0, 2]> (x)
product = MatMul (moved, w)
biased = Add (product, b)
{split}
q1 = Reshape (q, merged) q2 = Transpose <perm = [1, 0, 2]> (q1) q3 = Reshape (q2, headed)
k1 = Reshape (k, merged) k2 = Transpose <perm = [1, 2, 0]> (k1) k3 = Reshape (k2, turned)
v1 = Reshape (v, merged) v2 = Transpose <perm = [1, 0, 2]> (v1) v3 = Reshape (v2, headed)
scores = MatMul (q3, k3)
weights = Softmax <axis = 3> (scores)
seen = MatMul (weights, v3)
behind = Transpose <perm = [2, 0, 1, 3]> (seen)
rows = Reshape (behind, flat)
out = Gemm <transB = 1> (rows, p, c)
apart = Reshape (out, tokens_first)
{after}
"""
STACKED = """
four = Reshape (biased, stacked) five = Unsqueeze (four, zero)
six = Transpose <perm = [3, 1, 2, 0, 4]> (five) seven = Squeeze (six, three)
n0 = Constant <value = int64 {0}> () n1 = Constant <value = int64 {1}> () n2 = Constant <value = int64 {2}> ()
q = Gather <axis = 0> (seven, n0) k = Gather <axis = 0> (seven, n1) v = Gather <axis = 0> (seven, n2)
"""
SPLIT = "parts = Constant <value = int64[3] {12, 12, 12}> () q, k, v = Split <axis = 2> (biased, parts)"
SHAPES = f"""
zero = Constant <value = int64[1] {{0}}> () one = Constant <value = int64[1] {{1}}> ()
three = Constant <value = int64[1] {{3}}> () four_ = Constant <value = int64[1] {{{WIDTH}}}> ()
five_ = Constant <value = int64[1] {{{TOKENS}}}> () twelve = Constant <value = int64[1] {{12}}> ()
heads = Constant <value = int64[1] {{{HEADS}}}> ()
sizes = Shape (x) batch = Slice (sizes, zero, one) several = Mul (batch, heads) all = Mul (batch, five_)
merged = Concat <axis = 0> (five_, several, four_)
headed = Concat <axis = 0> (batch, heads, five_, four_)
turned = Concat <axis = 0> (batch, heads, four_, five_)
flat = Concat <axis = 0> (all, twelve)
tokens_first = Concat <axis = 0> (five_, batch, twelve)
stacked = Concat <axis = 0> (five_, batch, three, twelve)
"""
BACK = "back = Transpose <perm = [1, 0, 2]> (apart) y = Add (back, x)"
TABLE = """
placed = Add (apart, table) normal = LayerNormalization <axis = 2> (placed, c)
ends = Constant <value = int64[1] {3}> () first = Slice (normal, zero, ends, zero)
both = Concat <axis = 0> (first, apart) over = Softmax <axis = 0> (both)
back = Transpose <perm = [1, 0, 2]> (over) y = Relu (back)
"""


def model_of(path: Path, split: str, after: str, rows: str = f"batch, {TOKENS}") -> Path:
    body = SHAPES + ATTENTION.format(split=split, after=after)
    weights = {"w": weight(12, 36), "b": weight(36), "p": weight(12, 12), "c": weight(12), "table": weight(5, 1, 12)}
    text = f"behind (float[batch, {TOKENS}, 12] x) => (float[{rows}, 12] y) {{ {body} }}"
    return write(path / "behind.onnx", text, weights)


@pytest.mark.long
@pytest.mark.parametrize("split", [STACKED, SPLIT], ids=["stacked", "split"])
@pytest.mark.parametrize(("after", "tokens"), [(BACK, 5), (TABLE, 8)], ids=["back", "table"])
def test_a_batch_behind_the_tokens_is_put_in_front(tmp_path: Path, split: str, after: str, tokens: int) -> None:
    model = model_of(tmp_path, split, after, f"batch, {tokens}")
    check(model, built(model, "batch", 1, 9), "batch", BATCHES)


@pytest.mark.parametrize(
    ("after", "rows"),
    [
        ("one_ = CumSum (apart, one) back = Transpose <perm = [1, 0, 2]> (one_) y = Relu (back)", "batch, 5"),
        ("mixed = Reshape (apart, headless) y = Relu (mixed)", "batch, 5"),
    ],
    ids=["a running sum over it", "a view that mixes it"],
)
def test_a_batch_that_is_mixed_is_refused(tmp_path: Path, after: str, rows: str) -> None:
    if "headless" in after:
        after = f"headless = Concat <axis = 0> (batch, five_, twelve) {after}"
    with pytest.raises(InputError, match="batch cannot stay open"):
        built(model_of(tmp_path, SPLIT, after, rows), "batch", 1, 9)


@pytest.mark.long
def test_an_output_that_has_the_batch_behind_its_tokens(tmp_path: Path) -> None:
    model = model_of(tmp_path, SPLIT, "y = Relu (apart)", f"{TOKENS}, batch")
    check(model, built(model, "batch", 1, 9), "batch", BATCHES)


INPUTS = f"float[{TOKENS}, batch, 12] x, int64[3, batch] kind, float[4, batch] z"
OUTPUTS = f"float[{TOKENS}, batch, 20] y, float[3, batch, 6] k, float[4, batch] d, int64[3, batch] e"


def test_inputs_and_outputs_that_have_the_batch_behind_other_axes(tmp_path: Path) -> None:
    body = "p = MatMul (x, w) y = Tanh (p) k = Gather (table, kind) s = Exp (z) d = Add (s, z) e = Add (kind, kind)"
    weights = {"w": weight(12, 20), "table": weight(8, 6)}
    model = write(tmp_path / "inputs.onnx", f"behind ({INPUTS}) => ({OUTPUTS}) {{ {body} }}", weights)
    check(model, built(model, "batch", 1, 40), "batch", (1, 2, 3, 15, 16, 17, 31, 40))
