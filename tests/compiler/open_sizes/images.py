"""Networks of images whose height and width are open, and their comparison with ONNX Runtime at many sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from autofuse import api
from autofuse.backend.library.compiled import Library
from tests.compiler.open_sizes.models import THREADS, TOLERANCE, Array, weight

Point = dict[str, int]
"""A value for each open size."""

SMALL = """
small (float[1, 3, height, width] x) => (float[1, 8, k, l] y, float[1, 8, 1, 1] z) {
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
  r = Relu (a)
  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
  z = GlobalAveragePool (y)
}"""
SMALL_WEIGHTS = {"w1": weight(8, 3, 3, 3)}
"""A convolution, a pooling, and the mean of all."""
RANGES: dict[str, tuple[int, ...]] = {"height": (2, 40, 2), "width": (4, 72, 2)}
_SHAPES = [(2, 4), (2, 72), (40, 4), (40, 72), (8, 32), (16, 64), (10, 34), (22, 50), (30, 6), (6, 30), (18, 70)]
POINTS: list[Point] = [{"height": high, "width": wide} for high, wide in _SHAPES]
"""The smallest and the largest, fewer places than a tile, whole tiles, and tiles that are moved back."""

FEW_RANGES: dict[str, tuple[int, ...]] = {"height": (8, 40, 8), "width": (4, 72, 2)}
"""Ranges for which the same network compiles in half the time."""
FEW_POINTS: list[Point] = [
    {"height": high, "width": wide}
    for high, wide in ((8, 4), (8, 72), (40, 4), (40, 72), (8, 32), (16, 34), (24, 66), (32, 18))
]

ODD = """
odd (float[1, 3, height, width] x) => (float[1, 8, k, l] y, float[1, 8, 1, 1] z) {
  a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1)
  r = Relu (a)
  b = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r, w2)
  p = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (b)
  sizes = Shape (b)
  u = Resize <mode = "nearest"> (p, , , sizes)
  y = Add (u, b)
  z = GlobalAveragePool (y)
}"""
ODD_WEIGHTS = {"w1": weight(8, 3, 3, 3), "w2": weight(8, 8, 3, 3)}
"""Strides that divide no size, and an image that is made as large as another one; ends of ranges at which windows reach
as far beyond the borders, and sizes between where they do not."""
ODD_RANGES: dict[str, tuple[int, ...]] = {"height": (7, 41), "width": (9, 51)}
_ODD_SHAPES = [(7, 9), (7, 51), (41, 9), (41, 51), (8, 10), (9, 11), (10, 12), (11, 13), (23, 37), (33, 18), (38, 47)]
ODD_POINTS: list[Point] = [{"height": high, "width": wide} for high, wide in _ODD_SHAPES]

CLASSIFIER = """
classifier (float[1, 3, height, width] x) => (float[1, 10] y, float[1, 16, h, w] map) {
  a = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1, b16)
  ar = Relu (a)
  d = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 16> (ar, w2, b16)
  p = Conv <kernel_shape = [1, 1]> (d, w3, b16)
  map = Add (p, ar)
  s = GlobalAveragePool (map)
  e = Conv <kernel_shape = [1, 1]> (s, w3)
  g = Sigmoid (e)
  m = Mul (map, g)
  q = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (m)
  t = ReduceMax <keepdims = 0> (q, axes)
  y = Gemm (t, w4, b10)
}"""
CLASSIFIER_WEIGHTS = {
    "w1": weight(16, 3, 3, 3), "w2": weight(16, 1, 3, 3), "w3": weight(16, 16, 1, 1), "w4": weight(16, 10),
    "b16": weight(16), "b10": weight(10), "axes": np.array([2, 3]),
}  # fmt: skip
"""Strided, depthwise and 1x1 convolutions, a gate of the whole image, pooling over a border, a head without sizes."""

DECODER = """
decoder (float[2, 16, height, width] x) => (float[2, 8, h, w] y, float[2, 4, k, l] z) {
  r = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , twice)
  u = ConvTranspose <kernel_shape = [4, 4], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w1, b16)
  c = Concat <axis = 1> (r, u)
  f = Pad <mode = "reflect"> (c, pads)
  v = Conv <kernel_shape = [3, 3]> (f, w2)
  l = LeakyRelu (v)
  a = BatchNormalization (l, b16, b16, b16, positive)
  i = Conv <kernel_shape = [3, 3], dilations = [2, 2], pads = [2, 2, 2, 2], group = 2> (a, w3, b16)
  n = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (i)
  o = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (n, , twice)
  j = Add (o, a)
  y = Softmax <axis = 1> (k8)
  k8 = Conv <kernel_shape = [1, 1]> (j, w4)
  z = DepthToSpace <blocksize = 2> (j)
}"""
DECODER = DECODER.replace("  y = Softmax <axis = 1> (k8)\n  k8 = Conv <kernel_shape = [1, 1]> (j, w4)\n",
                          "  k8 = Conv <kernel_shape = [1, 1]> (j, w4)\n  y = Softmax <axis = 1> (k8)\n")  # fmt: skip
DECODER_WEIGHTS = {
    "w1": weight(16, 16, 4, 4), "w2": weight(16, 32, 3, 3), "w3": weight(16, 8, 3, 3), "w4": weight(8, 16, 1, 1),
    "b16": weight(16), "twice": np.array([1, 1, 2, 2], np.float32), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "positive": np.abs(weight(16)) + 1,
}  # fmt: skip
"""Images that grow: linear, nearest, transposed with an overlap; borders that reflect, dilated and grouped windows;
a normalisation that nothing folds."""


WIDE = """
wide (float[1, 8, height, width] x) => (float[1, 8, height, width] y) {
  a = Conv <kernel_shape = [1, 1]> (x, w1)
  s = Add (a, x)
  y = Relu (s)
}"""
WIDE_WEIGHTS = {"w1": weight(8, 8, 1, 1)}
"""A convolution with a sum at the same places: where these weights are many, its tiles reach beyond small images."""

DEEP = """
deep (float[1, 8, height, width] x) => (float[1, 8, height, width] y) {
  a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
  s = Add (a, x)
  y = Relu (s)
}"""
DEEP_WEIGHTS = {"w1": weight(8, 8, 3, 3)}
"""The same of windows that look beyond the borders."""


def built_images(model: Path, sizes: dict[str, tuple[int, ...]], threads: int = THREADS, **more: object) -> Library:
    """The library of a model with such sizes open, made without any database."""
    library, base = model.with_suffix(".so"), str(model.with_suffix(".db"))
    api.compile(model, library, database=base, threads=threads, sizes=sizes, **more)  # type: ignore[arg-type]
    loaded = api.load(library)
    assert isinstance(loaded, Library)
    return loaded


def images_at(model: Path, point: Point) -> dict[str, Array]:
    """Inputs of a model at a point."""
    generator = np.random.default_rng([*point.values()])
    return {
        value.name: generator.standard_normal(
            [point.get(dim.dim_param, dim.dim_value) for dim in value.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for value in onnx.load(model).graph.input
    }


def check_images(model: Path, library: Library, points: Iterable[Point]) -> None:
    """Compares a library with ONNX Runtime at points, and what lies behind its results stays as it was."""
    session = onnxruntime.InferenceSession(model)
    for point in points:
        feeds = images_at(model, point)
        for one, other in zip(library(feeds), session.run(None, feeds), strict=True):
            assert one.shape == other.shape, point
            np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE, err_msg=str(point))


class Net:
    """A random network of images of 8 or 16 channels, at most a quarter or four times as large as its input.

    `odd`: its sizes may have any value, so that images are alike only where the same steps halved them, and one may be
    resized to another. `rows`: it makes rows of the places of two images, which are joined.
    """

    def __init__(self, generator: np.random.Generator, odd: bool = False, rows: bool = False) -> None:
        self.generator, self.odd, self.rows = generator, odd, rows
        self.lines: list[str] = []
        self.weights: dict[str, Array] = {"twice": np.array([1, 1, 2, 2], np.float32)}
        self.known: dict[str, tuple[int, int]] = {"x": (8, 0)}
        """Of each tensor its channels, and how often it was made twice as large."""
        self.steps: dict[str, str] = {"x": ""}
        """What made each tensor smaller or larger."""

    def written(self, operators: int = 7) -> tuple[str, dict[str, Array]]:
        """The text of the network, and its weights."""
        made = "x"
        for number in range(operators):
            made = self.add(made, f"t{number}")
        channels = self.known[made][0]
        returned = f"float[1, {channels}, h, w] {made}"
        if self.rows:
            returned += ", float[1, rows, 3] y"
            self.join(made, str(self.generator.choice([*self.known])))
        head = f"random (float[1, 8, height, width] x) => ({returned}) "
        body = "\n".join(self.lines)
        words = set(re.findall(r"\w+", body))
        return head + "{\n" + body + "\n}", {name: array for name, array in self.weights.items() if name in words}

    def join(self, *sources: str) -> None:
        """Rows of three numbers, two for each place of some tensors, as `y`."""
        self.weights["rows"] = np.array([1, -1, 3])
        for number, source in enumerate(sources):
            self.weights[f"scores{number}"] = weight(6, self.known[source][0], 1, 1, seed=number)
            self.lines += [
                f"c{number} = Conv ({source}, scores{number})",
                f"p{number} = Transpose <perm = [0, 2, 3, 1]> (c{number})",
                f"r{number} = Reshape (p{number}, rows)",
            ]
        joined = ", ".join(f"r{number}" for number in range(len(sources)))
        self.lines += [f"j = Concat <axis = 1> ({joined})", "y = Softmax <axis = -1> (j)"]

    def add(self, source: str, made: str) -> str:
        """One more operator, most of them on the newest tensor."""
        channels, level = self.known[source]
        kinds = ["conv", "conv", "depthwise", "relu", "sum", "join"]
        kinds += ["pool", "stride"] if level > -2 else []
        kinds += ["linear", "nearest", "transposed"] if level < 1 else []
        kinds += ["back", "back"] if self.odd else []
        kind = str(self.generator.choice(kinds))
        alike = [name for name, known in self.known.items() if known[1] == level]
        alike = [name for name in alike if self.steps[name] == self.steps[source]] if self.odd else alike
        other = str(self.generator.choice(alike))
        after, steps = channels, self.steps[source]
        if kind in ("conv", "stride"):
            after = int(self.generator.choice([8, 16]))
            taps, dilation = (3, 1) if kind == "stride" else (int(self.generator.choice([1, 3, 5])), 1)
            dilation = int(self.generator.choice([1, 2])) if kind == "conv" and taps == 3 else dilation
            pad, stride = taps // 2 * dilation, 1 + (kind == "stride")
            self.weights[f"w{made}"] = weight(after, channels, taps, taps, seed=len(self.known))
            self.lines.append(
                f"{made} = Conv <pads = [{pad}, {pad}, {pad}, {pad}], strides = [{stride}, {stride}], "
                f"dilations = [{dilation}, {dilation}]> ({source}, w{made})"
            )
        elif kind == "depthwise":
            self.weights[f"w{made}"] = weight(channels, 1, 3, 3, seed=len(self.known))
            self.lines.append(f"{made} = Conv <pads = [1, 1, 1, 1], group = {channels}> ({source}, w{made})")
        elif kind == "transposed":
            self.weights[f"w{made}"] = weight(channels, 8, 4, 4, seed=len(self.known))
            after = 8
            self.lines.append(f"{made} = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> ({source}, w{made})")
        elif kind == "pool":
            self.lines.append(f"{made} = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({source})")
        elif kind in ("linear", "nearest"):
            self.lines.append(f'{made} = Resize <mode = "{kind}"> ({source}, , twice)')
        elif kind == "back":
            other = str(self.generator.choice([*self.known]))
            mode = str(self.generator.choice(["linear", "nearest"]))
            self.lines.append(f"{made}s = Shape ({other})")
            self.weights[f"f{made}"], self.weights[f"e{made}"] = np.array([2]), np.array([4])
            self.weights[f"n{made}"] = np.array([1, channels])
            self.lines.append(f"{made}h = Slice ({made}s, f{made}, e{made})")
            self.lines.append(f"{made}z = Concat <axis = 0> (n{made}, {made}h)")
            self.lines.append(f'{made} = Resize <mode = "{mode}"> ({source}, , , {made}z)')
            level, steps = self.known[other][1], self.steps[other]
        elif kind == "join" and channels + self.known[other][0] <= 32:
            after = channels + self.known[other][0]
            self.lines.append(f"{made} = Concat <axis = 1> ({source}, {other})")
        elif kind == "sum" and self.known[other][0] == channels:
            self.lines.append(f"{made} = Add ({source}, {other})")
        else:
            self.lines.append(f"{made} = Relu ({source})")
        self.known[made] = after, level + (kind in ("linear", "nearest", "transposed")) - (kind in ("pool", "stride"))
        self.steps[made] = steps + kind[0] * (kind in ("linear", "nearest", "transposed", "pool", "stride"))
        return made
