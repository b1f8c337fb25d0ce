"""Where an open size stands in a graph, which operators keep its rows apart, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize, open_sizes, parse_sizes
from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, check_size, is_alike, open_graph
from autofuse.graph.transform.open_sizes.rows import check_rows

W = np.ones((6, 6), np.float32)


def graph_at(
    size: int, body: str, weights: dict[str, Any], signature: str = "float[n, 6] x) => (float[n, 6] y"
) -> Graph:
    """The static graph of a model in ONNX's text form, where `n` is `size`."""
    lines = body.replace(";", "\n")
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\ng ({signature}) {{ {lines} }}')
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items())
    inputs = {value.name: value.type.tensor_type.shape.dim for value in model.graph.input}
    shapes = {name: tuple(size if dim.dim_param else dim.dim_value for dim in dims) for name, dims in inputs.items()}
    return from_model(model, "test", shapes)


def opened(body: str, weights: dict[str, Any] | None = None, *signature: str) -> OpenGraph:
    first, second = (graph_at(size, body, weights or {}, *signature) for size in (19, 23))
    return open_graph("n", 19, first, 23, second)


def test_ranges_are_read() -> None:
    assert parse_sizes(["batch=1:16,seq=128", "rows"]) == {"batch": (1, 16), "seq": 128, "rows": (1, 32)}
    assert open_sizes({"batch": (1, 16), "seq": 128}) == (OpenSize("batch", 1, 16), OpenSize("seq", 128, 128))
    assert str(open_sizes(["batch=2:5"])[0]) == "batch 2 to 5"


def test_texts_by_name_are_ranges_as_on_the_command_line() -> None:
    texts = {"batch": "1:16", "seq": "128", "past": (0, 8), "total": "past+1"}
    assert open_sizes(texts) == open_sizes({**texts, "batch": (1, 16), "seq": 128})
    with pytest.raises(InputError, match="--sizes: got 'batch=1-4', allowed: NAME=LOW:HIGH"):
        open_sizes({"batch": "1-4"})


@pytest.mark.parametrize(
    "text", ["batch=", "=1:2", "batch=a", "batch=1:2:3:4", "batch=-1", "batch=1,batch=2", "batch=1:"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--sizes: "):
        parse_sizes([text])


@pytest.mark.parametrize("ends", [(-1, 4), (5, 4), (1, 1 << 40)])
def test_a_range_that_holds_nothing_or_too_much_is_refused(ends: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="the smaller number first"):
        open_sizes({"batch": ends})


def test_the_size_is_found_in_merged_axes_and_target_shapes() -> None:
    body = "s = Shape <start = 0, end = 1> (x); k = Mul (s, three); t = Concat <axis = 0> (k, two); y = Reshape (x, t)"
    found = opened(body, {"three": [3], "two": [2]}, "float[n, 6] x) => (float[m, 2] y")
    assert found.axes["x"] == OpenAxis(0, 1)
    assert found.axes["y"] == OpenAxis(0, 3)
    made = found.at(5)
    assert made.tensors["y"].shape == (15, 2)
    assert [array.tolist() for name, array in made.constants.items() if name in found.targets] == [[15, 2]]
    check_rows(found)
    check_size("n", "5", found.at(5), graph_at(5, body, {"three": [3], "two": [2]}, "float[n, 6] x) => (float[m, 2] y"))


def test_a_resize_to_the_shape_of_another_tensor_has_the_size_in_its_target() -> None:
    body = """
      p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
      inner = Shape <start = 2> (x)
      outer = Shape <end = 2> (p)
      t = Concat <axis = 0> (outer, inner)
      r = Resize <mode = "nearest"> (p, , , t)
      y = Add (r, x)
    """
    signature = "float[n, 2, 8, 6] x) => (float[n, 2, 8, 6] y"
    found = opened(body, {}, signature)
    check_rows(found)
    check_size("n", "5", found.at(5), graph_at(5, body, {}, signature))
    assert [array.tolist() for name, array in found.at(5).constants.items() if name in found.targets] == [[5, 2, 8, 6]]


def test_a_constant_of_equal_rows_has_as_many_as_there_are() -> None:
    body = """s = Shape <start = 0, end = 1> (x); t = Concat <axis = 0> (s, six); e = Expand (w, t)
              y = Concat <axis = 1> (x, e)"""
    found = opened(body, {"six": [6], "w": W[:1]}, "float[n, 6] x) => (float[n, 12] y")
    check_rows(found)
    (rows,) = (found.at(4).constants[name] for name in found.axes if name in found.graph.constants)
    assert rows.shape == (4, 6)


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_a_mask_that_is_widened_for_a_batch_is_the_same_at_each_size(size: int) -> None:
    body = """
      s = Shape <start = 0, end = 1> (x)
      t = Concat <axis = 0> (s, side, side)
      wide = Expand (seen, t)
      mask = Where (wide, zero, low)
      a = Add (x, mask)
      b = Softmax <axis = 2> (a)
      c = Add (b, mask)
      y = Softmax <axis = 2> (c)
    """
    seen = np.tri(200, dtype=bool)[np.newaxis]  # 40,000 of them: of a larger batch they would not be folded
    weights = {"side": [200], "seen": seen, "zero": np.float32(0), "low": np.float32(-1e9)}
    graph = graph_at(size, body, weights, "float[n, 200, 200] x) => (float[n, 200, 200] y")
    assert [operator.op_type for operator in graph.operators] == ["Add", "Softmax", "Add", "Softmax"]
    assert [array.shape for array in graph.constants.values()] == [(1, 200, 200)]


KEPT = {
    "less their mean": ("s = ReduceMean <keepdims = 1> (x, zero); y = Sub (x, s)", {"zero": [0]}),
    "product": ("y = MatMul (x, w)", {"w": W}),
    "broadcast": ("y = Add (x, b)", {"b": W[0]}),
    "softmax of a row": ("y = Softmax <axis = 1> (x)", {}),
    "a table of bytes": (
        "q = QuantizeLinear (x, s, z); d = DequantizeLinear (q, s, z); e = Sigmoid (d); "
        "r = QuantizeLinear (e, s, z); y = DequantizeLinear (r, s, z)",
        {"s": np.float32(0.01), "z": np.uint8(9)},
    ),
    "turned and back": ("u = Unsqueeze (x, one); t = Transpose <perm = [0, 2, 1]> (u); y = Squeeze (t, two)",
                        {"one": [1], "two": [2]}),
    "cut and joined": ("a, b = Split <axis = 1, num_outputs = 2> (x); y = Concat <axis = 1> (b, a)", {}),
    "padded": ("p = Pad (x, pads); s = Slice (p, one, seven, one); y = Relu (s)",
               {"pads": [0, 1, 0, 0], "one": [1], "seven": [7]}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_operators_that_keep_rows_apart_may_have_an_open_size(name: str) -> None:
    check_rows(opened(*KEPT[name]))


MIXED = {
    "softmax over rows": ("y = Softmax <axis = 0> (x)", {}, "Softmax '.*': it mixes rows"),
    "sum over all": ("s = ReduceSum <keepdims = 1> (x, both); y = Sub (x, s)", {"both": [0, 1]}, "it mixes them"),
    "rows in reverse": ("y = Slice (x, last, least, zero, last)", {"last": [-1], "least": [-(2**31)], "zero": [0]},
                        "Slice '.*': it mixes rows"),
    "a sum of doubles": ("c = Cast <to = 11> (x); d = CumSum (c, zero); y = Cast <to = 1> (d)", {"zero": 0},
                         "CumSum '.*': it mixes"),
    "each with each": ("t = Transpose <perm = [1, 0]> (x); p = MatMul (x, t); y = MatMul (p, x)", {}, "leading axis"),
    "the number of rows": ("s = Shape <start = 0, end = 1> (x); c = Cast <to = 1> (s); y = Div (x, c)", {},
                           "the value of .* depends on it"),
    "padded rows": ("p = Pad (x, pads); y = Slice (p, zero, minus, zero)",
                    {"pads": [1, 0, 0, 0], "zero": [0], "minus": [-1]}, "no multiple of it"),
    "a position": ("s = Shape <start = 0, end = 1> (x); q = Squeeze (s); r = Range (zero, q, one); "
                   "c = Cast <to = 1> (r); u = Unsqueeze (c, first); y = Mul (x, u)",
                   {"zero": np.int64(0), "one": np.int64(1), "first": [1]}, "differs from row to row"),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXED)
def test_operators_that_mix_rows_are_named(name: str) -> None:
    body, weights, reason = MIXED[name]
    with pytest.raises(InputError, match=f"--sizes: n cannot stay open at .*{reason}.*--shape or --buckets"):
        check_rows(opened(body, weights))


def test_a_model_that_is_another_for_a_single_row_is_seen() -> None:
    body = """
      s = Shape <start = 0, end = 1> (x)
      single = Equal (s, one)
      q = Squeeze (single)
      y = If (q) <
        then_branch = a () => (float[n, 6] c) { c = Tanh (x) },
        else_branch = b () => (float[n, 6] d) { d = Relu (x) }
      >
    """
    found = opened(body, {"one": [1]})
    check_rows(found)
    check_size("n", "4", found.at(4), graph_at(4, body, {"one": [1]}))
    assert not is_alike(found.at(1), graph_at(1, body, {"one": [1]}))


def test_a_model_that_is_another_at_a_further_size_is_refused() -> None:
    body = """
      s = Shape <start = 0, end = 1> (x)
      m = Max (s, five)
      t = Concat <axis = 0> (m, six)
      e = Expand (w, t)
      y = Add (e, r)
    """
    static = "float[n, 6] x) => (float[k, 6] y"
    weights = {"five": [5], "six": [6], "w": W[:1], "r": W[0]}
    found = opened(body, weights, static)
    with pytest.raises(InputError, match="where it is 3"):
        check_size("n", "3", found.at(3), graph_at(3, body, weights, static))
