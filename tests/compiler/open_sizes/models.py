"""Models with an open size, compiled once and compared with ONNX Runtime at many sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from autofuse import api
from autofuse.backend.compile.host_cpu import local_device
from autofuse.backend.library.compiled import Library

Array = NDArray[Any]
TOLERANCE = 1e-3
"""Of results whose numbers are of the order of one."""
THREADS = min(2, local_device().cores)
"""Libraries are for two threads also where this process may use one core: what threads share is emitted everywhere, and
one thread computes it there."""


def attends(rows: str) -> str:
    """Two heads of self attention to some rows, and their sum with these, `h`."""
    return f"""  q = MatMul ({rows}, wq)
  qh = Reshape (q, heads)
  qt = Transpose <perm = [0, 2, 1, 3]> (qh)
  k = MatMul ({rows}, wk)
  kh = Reshape (k, heads)
  kt = Transpose <perm = [0, 2, 3, 1]> (kh)
  v = MatMul ({rows}, wv)
  vh = Reshape (v, heads)
  vt = Transpose <perm = [0, 2, 1, 3]> (vh)
  s = MatMul (qt, kt)
  scaled = Mul (s, scale)
  f = Softmax <axis = -1> (scaled)
  o = MatMul (f, vt)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  oj = Reshape (ot, joined)
  h = Add ({rows}, oj)"""


def write(path: Path, text: str, weights: Mapping[str, Array]) -> Path:
    """A model in ONNX's own text form, with the `weights` as its initializers."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    onnx.save(model, path)
    return path


def weight(*shape: int, seed: int = 0) -> Array:
    """Normal float32 values such that products keep the order of one."""
    generator = np.random.default_rng([seed, *shape])
    return (generator.standard_normal(shape) / np.sqrt(shape[0] if len(shape) < 3 else np.prod(shape[1:]))).astype(
        np.float32
    )


def built(model: Path, name: str, low: int, high: int, **more: Any) -> Library:
    """The library of a model whose size `name` is open, made without any database, for two threads."""
    return built_over(model, {name: (low, high)}, **more)


def built_over(model: Path, sizes: Mapping[str, tuple[int, int]], **more: Any) -> Library:
    """The library of a model whose `sizes` are open; see `built`."""
    library, base = model.with_suffix(".so"), str(model.with_suffix(".db"))
    api.compile(model, library, database=base, threads=THREADS, sizes=sizes, **more)
    loaded = api.load(library)
    assert isinstance(loaded, Library)
    return loaded


def inputs_at(model: Path, name: str, size: int) -> dict[str, Array]:
    """Inputs of a model where its open size is `size`: integers are ones of a table of 8 rows."""
    return inputs_of(model, {name: size})


def inputs_of(model: Path, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Inputs of a model at these sizes; see `inputs_at`."""
    generator = np.random.default_rng(list(sizes.values()))
    feeds: dict[str, Array] = {}
    for value in onnx.load(model).graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in dims]
        real = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        made = generator.standard_normal(shape) if real else generator.integers(0, 8, shape)
        feeds[value.name] = made.astype(np.float32 if real else np.int64)
    return feeds


def check(model: Path, library: Library, name: str, sizes: Iterable[int]) -> None:
    """The library computes what ONNX Runtime does, to the exact shape, at each size."""
    check_over(model, library, [{name: size} for size in sizes])


def check_over(model: Path, library: Library, points: Iterable[Mapping[str, int]]) -> None:
    """See `check`: at each of these sizes."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for point in points:
        feeds = inputs_of(model, point)
        for found, wanted in zip(library(feeds), session.run(None, feeds), strict=True):
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"at {point}")


PERCEPTRON = """
rows (float[batch, 24] x) => (float[batch, 40] y, float[batch, 1] most) {
  a = Gemm (x, w, b)
  r = Relu (a)
  s = MatMul (r, v)
  t = Add (s, r)
  y = Softmax <axis = -1> (t)
  most = ReduceMax <keepdims = 1> (t, axes)
}"""
PERCEPTRON_WEIGHTS = {
    "w": weight(24, 40), "b": weight(40), "v": weight(40, 40), "axes": np.array([1], np.int64),
}  # fmt: skip

MAPS = """
maps (float[batch, 3, 12, 12] x) => (float[batch, 10] y, float[batch, 16, 12, 12] m) {
  c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1)
  r1 = Relu (c1)
  c2 = Conv <pads = [1, 1, 1, 1]> (r1, w2, b2)
  sum = Add (c2, r1)
  m = Relu (sum)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (m)
  shape = Shape (p)
  n = Gather <axis = 0> (shape, zero)
  n1 = Unsqueeze (n, first)
  target = Concat <axis = 0> (n1, rest)
  flat = Reshape (p, target)
  logits = Gemm (flat, w3, b3)
  y = LogSoftmax <axis = 1> (logits)
}"""
MAPS_WEIGHTS = {
    "w1": weight(16, 3, 3, 3), "b1": weight(16), "w2": weight(16, 16, 3, 3), "b2": weight(16),
    "w3": weight(576, 10), "b3": weight(10),
    "zero": np.array(0), "first": np.array([0]), "rest": np.array([-1]),
}  # fmt: skip

ATTENTION = """
tokens (float[batch, 16, 32] x, int64[batch, 16] kind) => (float[batch, 7] y) {
  shape = Shape (x)
  n = Gather <axis = 0> (shape, zero)
  n1 = Unsqueeze (n, first)
  one_token = Concat <axis = 0> (n1, one, width)
  class_tokens = Expand (cls, one_token)
  table_row = Gather <axis = 0> (table, kind)
  known = Add (x, table_row)
  all = Concat <axis = 1> (class_tokens, known)
  h = Add (all, position)
  l = LayerNormalization <axis = -1> (h, g, b)
  heads = Concat <axis = 0> (n1, minus, four, eight)
  q = MatMul (l, wq)
  k = MatMul (l, wk)
  v = MatMul (l, wv)
  q4 = Reshape (q, heads)
  k4 = Reshape (k, heads)
  v4 = Reshape (v, heads)
  qt = Transpose <perm = [0, 2, 1, 3]> (q4)
  kt = Transpose <perm = [0, 2, 3, 1]> (k4)
  vt = Transpose <perm = [0, 2, 1, 3]> (v4)
  scores = MatMul (qt, kt)
  scaled = Div (scores, root)
  p = Softmax <axis = -1> (scaled)
  c = MatMul (p, vt)
  ct = Transpose <perm = [0, 2, 1, 3]> (c)
  joined = Concat <axis = 0> (n1, minus, width)
  c3 = Reshape (ct, joined)
  o = MatMul (c3, wo)
  h2 = Add (o, h)
  token = Gather <axis = 1> (h2, zero)
  y = Gemm (token, wc, bc)
}"""
ATTENTION_WEIGHTS = {
    "cls": weight(1, 1, 32), "table": weight(8, 32), "position": weight(1, 17, 32), "g": weight(32), "b": weight(32),
    **{f"w{name}": weight(32, 32, seed=ord(name)) for name in "qkvo"}, "wc": weight(32, 7), "bc": weight(7),
    "zero": np.array(0), "first": np.array([0]), "one": np.array([1]), "width": np.array([32]),
    "minus": np.array([-1]), "four": np.array([4]), "eight": np.array([8]), "root": np.float32(2.83),
}  # fmt: skip
