"""Groups of several operators: what precedes an anchor, what follows it, several anchors, several results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from tests.kernels.conftest import Array, Bench, Small, real

from autofuse.kernels.knobs import nests_of

SHORT = {"contraction.vectors": 1, "contraction.pixels": 2, "contraction.rows_per_job": 2, "windowed.pixels": 2}
BLOCKED = {"x": "c8", "y": "c8", "r": "c8", "z": "c8"}


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A node whose tensors are given as words; "-" is an absent one."""
    names = [[("" if word == "-" else word) for word in words.split()] for words in (inputs, outputs)]
    return helper.make_node(op_type, *names, **attributes)


def ints(*values: int) -> Array:
    return np.array(values, "int64")


def number(value: float) -> Array:
    return np.array(value, "float32")


def after_conv(*nodes: NodeProto, constants: Mapping[str, Array] | None = None, **inputs: Array) -> Small:
    """A 3x3 convolution from "x" (1, 16, 5, 6) to "c" (1, 8, 5, 6), then `nodes` up to "y"."""
    weights = {"w": real(8, 16, 3, 3, seed=1), "b": real(8, seed=2)}
    first = node("Conv", "x w b", "c", pads=[1, 1, 1, 1])
    return Small([first, *nodes], {"x": real(1, 16, 5, 6), **inputs}, ["y"], weights | dict(constants or {}))


STATISTICS = {"g": real(8, seed=3), "h": real(8, seed=4), "m": real(8, seed=5), "v": real(8, seed=6, low=0.5)}
EPILOGUES = {
    "relu": after_conv(node("Relu", "c", "y")),
    "clip": after_conv(node("Clip", "c lo hi", "y"), constants={"lo": number(0), "hi": number(0.5)}),
    "clip below": after_conv(node("Clip", "c lo", "y"), constants={"lo": number(-0.25)}),
    "residual": after_conv(node("Add", "c r", "a"), node("Relu", "a", "y"), r=real(1, 8, 5, 6)),
    "residual on the left": after_conv(node("Sub", "r c", "y"), r=real(1, 8, 5, 6)),
    "batch normalisation": after_conv(node("BatchNormalization", "c g h m v", "y", epsilon=1e-3), constants=STATISTICS),
    "silu": after_conv(node("Sigmoid", "c", "s"), node("Mul", "c s", "y")),
    "gelu": after_conv(
        node("Div", "c root", "d"), node("Erf", "d", "e"), node("Add", "e one", "f"),
        node("Mul", "c f", "h"), node("Mul", "h half", "y"),
        constants={"root": number(2**0.5), "one": number(1), "half": number(0.5)},
    ),
    "prelu of a channel": after_conv(node("PRelu", "c p", "y"), constants={"p": real(8, 1, 1)}),
    "prelu of all": after_conv(node("PRelu", "c p", "y"), constants={"p": real(1)}),
    "twice itself": after_conv(node("Mul", "c c", "y")),
    "a channel's factor": after_conv(node("Mul", "c f", "y"), constants={"f": real(1, 8, 1, 1)}),
    "a channel's factor, computed": after_conv(node("Mul", "c f", "y"), f=real(1, 8, 1, 1)),
    "a column's factor": after_conv(node("Mul", "c f", "y"), constants={"f": real(6)}),
    "a row's factor": after_conv(node("Add", "c f", "y"), f=real(5, 1)),
    "a pixel's factor": after_conv(node("Mul", "c f", "y"), constants={"f": real(1, 1, 5, 6)}),
    "more dimensions": after_conv(node("Add", "c f", "y"), f=real(1, 1, 1, 1, 1)),
    "spread over a batch": after_conv(node("Add", "c f", "y"), f=real(3, 8, 1, 1)),
    "select": after_conv(node("Greater", "c f", "g"), node("Where", "g c f", "y"), constants={"f": real(8, 1, 1)}),
    "to integers": after_conv(node("Cast", "c", "y", to=6)),
    "transposed": after_conv(node("Transpose", "c", "y", perm=[0, 2, 3, 1])),
    "transposed and used": after_conv(node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Add", "t f", "y"), f=real(8)),
    "reshaped": after_conv(node("Reshape", "c s", "y"), constants={"s": ints(1, 8, 30)}),
    "reshaped and used": after_conv(
        node("Reshape", "c s", "t"), node("Mul", "t f", "u"), node("Relu", "u", "y"),
        constants={"s": ints(2, 120), "f": real(2, 1)},
    ),
    "flattened": after_conv(node("Flatten", "c", "y", axis=1)),
    "unsqueezed": after_conv(node("Unsqueeze", "c a", "t"), node("Neg", "t", "y"), constants={"a": ints(2)}),
    "heads": after_conv(
        node("Reshape", "c s", "t"), node("Transpose", "t", "u", perm=[0, 2, 1]), node("Relu", "u", "y"),
        constants={"s": ints(2, 4, 30)},
    ),
    "there and back": after_conv(
        node("Reshape", "c s", "t"), node("Relu", "t", "u"), node("Reshape", "u q", "y"),
        constants={"s": ints(8, 30), "q": ints(1, 8, 5, 6)},
    ),
    "itself transposed": after_conv(node("Transpose", "r", "t", perm=[0, 1, 3, 2]), node("Add", "c t", "y"), r=real(1, 8, 6, 5)),
    "itself and its transpose": after_conv(
        node("Slice", "c s e a", "k"), node("Transpose", "k", "t", perm=[0, 1, 3, 2]), node("Add", "k t", "y"),
        constants={"s": ints(0), "e": ints(5), "a": ints(3)},
    ),
    "a path through a reshape and one beside it": after_conv(
        node("Reshape", "c s", "t"), node("Reshape", "t q", "u"), node("Add", "c u", "y"),
        constants={"s": ints(240), "q": ints(1, 8, 5, 6)},
    ),
    "sliced": after_conv(node("Slice", "c s e a", "y"), constants={"s": ints(1), "e": ints(4), "a": ints(2)}),
    "padded": after_conv(node("Pad", "c p", "y"), constants={"p": ints(0, 0, 1, 0, 0, 0, 0, 2)}),
    "shuffled to space": after_conv(node("DepthToSpace", "c", "y", blocksize=2)),
    "resized": after_conv(node("Resize", "c - k", "y", mode="nearest"), constants={"k": np.array([1, 1, 2, 2], "float32")}),
    "split": after_conv(node("Split", "c s", "p q", axis=1), node("Add", "p q", "y"), constants={"s": ints(4, 4)}),
    "gathered": after_conv(node("Gather", "c i", "y", axis=1), constants={"i": ints(3, 1, 0)}),
    "concat with an input": after_conv(node("Relu", "c", "d"), node("Concat", "d r", "y", axis=1), r=real(1, 8, 5, 6)),
    "concat with itself": after_conv(node("Relu", "c", "d"), node("Concat", "d d", "y", axis=1)),
    "concat of two uses": after_conv(node("Relu", "c", "d"), node("Neg", "c", "e"), node("Concat", "d e", "y", axis=1)),
    "concat of rows": after_conv(node("Concat", "r c", "y", axis=2), r=real(1, 8, 2, 6)),
    "concat, then more": after_conv(
        node("Concat", "c r", "d", axis=1), node("Mul", "d f", "e"), node("Relu", "e", "y"),
        constants={"f": real(16, 1, 1)}, r=real(1, 8, 5, 6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("layouts", [{}, BLOCKED], ids=["plain", "blocked"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_what_follows_a_convolution_is_computed_with_it(bench: Bench, name: str, layouts: dict[str, str]) -> None:
    small = EPILOGUES[name]
    shapes = {key: value.shape for key, value in (small.inputs | {"y": small.reference()["y"]}).items()}
    fitting = {key: layout for key, layout in layouts.items() if len(shapes.get(key, ())) == 4 and shapes[key][1] % 8 == 0}
    bench.check(small, fitting, SHORT)
