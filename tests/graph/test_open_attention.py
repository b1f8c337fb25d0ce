"""Which operators of a graph with open tokens are an attention, what of it is shared, and constants that grow."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.errors import InputError
from autofuse.graph.transform.open_sizes.attention import attentions
from autofuse.graph.transform.open_sizes.group_kinds import Picked
from autofuse.graph.transform.open_sizes.lengths import OpenLengths, with_lengths_given, with_own_operators
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, open_graph
from autofuse.graph.transform.open_sizes.rows import check_rows, picked_rows
from tests.graph.test_open_sizes import graph_at

SIGNATURE = "float[1, n, 8] x) => (float[1, n, 8] y"
WHOLE = 40
LOW = np.float32(-9)
TRIANGLE = np.tril(np.ones((WHOLE, WHOLE), bool))
CAUSAL = """
  s = Shape <start = 1, end = 2> (x)
  m0 = Slice (triangle, zero, s, zero)
  m1 = Slice (m0, zero, s, one)
  m2 = Cast <to = 1> (m1)
"""
LAYER = """
  t{0} = Transpose <perm = [0, 2, 1]> ({1})
  q{0} = MatMul ({1}, t{0})
  k{0} = Where (w, q{0}, low)
  p{0} = Softmax <axis = -1> (k{0})
  {2} = MatMul (p{0}, {1})
"""
CONSTANTS = {"triangle": TRIANGLE, "zero": [0], "one": [1], "low": LOW}


def opened(body: str, constants: dict[str, object], signature: str = SIGNATURE) -> OpenGraph:
    first, second, largest = (graph_at(size, body, constants, signature) for size in (19, 23, WHOLE))
    return open_graph("n", 19, first, 23, second, largest)


def causal(layers: int) -> OpenGraph:
    """Attention without heads; the mask is made of an input and of a constant, once for all layers."""
    names = ["x", *(f"o{layer}" for layer in range(1, layers)), "y"]
    mask = CAUSAL + "  f = ReduceMax <keepdims = 1> (x, last)\n  r = Add (f, m2)\n  w = Greater (r, low)\n"
    body = mask + "".join(LAYER.format(layer, *names[layer : layer + 2]) for layer in range(layers))
    return opened(body, {**CONSTANTS, "last": [2]})


def test_a_constant_that_grows_is_a_part_of_the_longest() -> None:
    found = causal(1)
    (name,) = found.parts
    assert found.grids[name] == (1, 1)
    assert found.at(5).constants[name].shape == (5, 5)
    np.testing.assert_array_equal(found.at(5).constants[name], TRIANGLE[:5, :5].astype(np.float32))
    given = with_lengths_given(OpenLengths((found,)), [30])
    assert given.graph.inputs == ("x", name)
    assert name not in given.graph.constants
    assert given.parts[name].shape == (30, 30)


def test_an_attention_is_all_between_rows_and_rows() -> None:
    found = causal(1)
    check_rows(found)
    (attention,) = attentions(found)
    kinds = [found.graph.by_name[name].op_type for name in attention.operators]
    assert sorted(kinds) == ["Add", "Greater", "MatMul", "MatMul", "Softmax", "Transpose", "Where"]
    assert attention.result == "y"
    assert attention.after == ()
    assert found.axes["y"] == OpenAxis(1)


def test_what_two_share_is_copied_for_the_second() -> None:
    found = causal(2)
    first, second = attentions(found)
    assert len(set(first.operators) & set(second.operators)) == 2
    copied = with_own_operators(OpenLengths((found,)))
    (apart,) = copied.views
    first, second = attentions(apart)
    assert not set(first.operators) & set(second.operators)
    assert len(apart.graph.operators) == len(found.graph.operators) + 2
    check_rows(apart)
    assert with_own_operators(copied) is copied


def test_a_constant_that_changes_with_the_size_is_refused() -> None:
    body = """
      s = Shape <start = 1, end = 2> (x)
      n = Squeeze (s)
      r = Range (zero, n, one)
      b = Sub (n, r)
      c = Cast <to = 1> (b)
      u = Unsqueeze (c, axes)
      y = Mul (x, u)
    """
    constants = {"zero": np.int64(0), "one": np.int64(1), "axes": [0, 2]}
    found = opened(body, constants)
    assert len(found.tails) == 1  # n, ..., 2, 1 is the end of a longer one, which an attention alone may read
    with pytest.raises(InputError, match="differs from row to row"):
        check_rows(found)


PICKED = {
    "y = Gather <axis = 1> (x, zero)": Picked(1),
    "y = Gather <axis = 1> (x, last)": Picked(1, last=True),
    "y = Slice (x, zero, three, one)": Picked(3),
    "y = Slice (x, last, end, one)": Picked(1, last=True),
    "y = Gather <axis = 2> (x, zero)": None,
    "y = Gather <axis = 1> (x, mixed)": None,
}


@pytest.mark.parametrize("body", PICKED)
def test_rows_are_picked_by_their_number(body: str) -> None:
    signature = f"float[1, n, 8] x) => (float[1, {'n' if 'axis = 2' in body else 'k'}, k] y"
    constants = {
        "zero": [0], "last": [-1], "three": [3], "one": [1], "end": [2**31 - 1], "mixed": [0, -1],
    }  # fmt: skip
    found = opened(body, constants, signature)
    (operator,) = found.graph.operators
    assert picked_rows(found, operator) == PICKED[body]
