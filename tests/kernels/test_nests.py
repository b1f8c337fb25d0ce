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
    bench.check(small, fitting(small, layouts), SHORT)


POINT = {"w": real(8, 16, 1, 1, seed=1), "b": real(8, seed=2)}
SQUARE = {"w": real(8, 16, 3, 3, seed=1), "b": real(8, seed=2)}
MATRIX = {"w": real(16, 24, seed=1)}
MAP = real(1, 16, 5, 6)


def before(weights: Mapping[str, Array], *nodes: NodeProto, constants: Mapping[str, Array] | None = None, **inputs: Array) -> Small:
    """`nodes` from "x" to "p", then a convolution or product of "p" with `weights` to "y"."""
    kind = "MatMul" if "b" not in weights else "Conv"
    last = node(kind, " ".join(["p", *weights]), "y", **({"pads": [1] * 4} if weights is SQUARE else {}))
    return Small([*nodes, last], {"x": MAP, **inputs}, ["y"], dict(weights) | dict(constants or {}))


ROWS = real(2, 7, 16)
PROLOGUES = {
    "squeeze and excite": before(POINT, node("Mul", "x s", "p"), s=real(1, 16, 1, 1)),
    "relu": before(SQUARE, node("Relu", "x", "p")),
    "hard swish": before(POINT, node("HardSwish", "x", "p")),
    "batch normalisation": before(
        SQUARE, node("BatchNormalization", "x g h m v", "p"),
        constants={"g": real(16), "h": real(16, seed=1), "m": real(16, seed=2), "v": real(16, seed=3, low=0.5)},
    ),
    "padding": before(SQUARE, node("Pad", "x q", "p"), constants={"q": ints(0, 0, 1, 2, 0, 0, 3, 1)}),
    "padding, reflected": before(SQUARE, node("Pad", "x q", "p", mode="reflect"), constants={"q": ints(0, 0, 1, 2, 0, 0, 3, 1)}),
    "padding with a value, of something computed": before(
        SQUARE, node("Exp", "x", "e"), node("Pad", "e q v", "p"),
        constants={"q": ints(0, 0, 1, 1, 0, 0, 0, 0), "v": number(0.5)},
    ),
    "padding of channels": before(POINT, node("Pad", "x q", "p"), constants={"q": ints(0, 8, 0, 0, 0, 0, 0, 0)}, x=real(1, 8, 5, 6)),
    "slice": before(SQUARE, node("Slice", "x s e a", "p"), constants={"s": ints(1, 1), "e": ints(4, 6), "a": ints(2, 3)}),
    "slice of channels": before(POINT, node("Slice", "x s e a", "p"), constants={"s": ints(4), "e": ints(20), "a": ints(1)}, x=real(1, 24, 5, 6)),
    "backwards": before(POINT, node("Slice", "x s e a d", "p"), constants={"s": ints(-1), "e": ints(-9), "a": ints(3), "d": ints(-1)}),
    "concat": before(POINT, node("Concat", "x z", "p", axis=1), x=real(1, 8, 5, 6), z=real(1, 8, 5, 6, seed=9)),
    "concat with itself": before(POINT, node("Concat", "x x", "p", axis=1), x=real(1, 8, 5, 6)),
    "upsampling": before(POINT, node("Resize", "x - k", "p", mode="nearest"), constants={"k": np.array([1, 1, 2, 2], "float32")}),
    "transpose": before(POINT, node("Transpose", "x", "p", perm=[0, 3, 1, 2]), x=real(1, 5, 6, 16)),
    "reshape": before(SQUARE, node("Reshape", "x s", "p"), constants={"s": ints(1, 16, 6, 5)}, x=real(1, 16, 30)),
    "shuffle": before(
        POINT, node("Reshape", "x s", "t"), node("Transpose", "t", "u", perm=[0, 2, 1, 3, 4]), node("Reshape", "u q", "p"),
        constants={"s": ints(1, 4, 4, 5, 6), "q": ints(1, 16, 5, 6)},
    ),
    "expand": before(POINT, node("Expand", "x s", "p"), constants={"s": ints(1, 16, 3, 2)}, x=real(1, 16, 1, 1)),
    "embedding": before(MATRIX, node("Gather", "t x", "p"), constants={"t": real(20, 16)}, x=ints(3, -1, 19, 0, -20)),
    "position": before(MATRIX, node("Add", "x z", "p"), x=ROWS, z=real(7, 16)),
    "scaled queries": before(MATRIX, node("Div", "x k", "p"), constants={"k": number(8)}, x=ROWS),
    "heads joined": before(
        MATRIX, node("Transpose", "x", "t", perm=[0, 2, 1, 3]), node("Reshape", "t s", "p"),
        constants={"s": ints(2, 7, 16)}, x=real(2, 4, 7, 4),
    ),
    "a prologue used twice": before(POINT, node("Sigmoid", "x", "s"), node("Mul", "x s", "p")),
    "integers before": before(MATRIX, node("Cast", "x", "p", to=1), x=np.arange(32).reshape(2, 16)),
}  # fmt: skip


@pytest.mark.parametrize("layouts", [{}, BLOCKED], ids=["plain", "blocked"])
@pytest.mark.parametrize("name", PROLOGUES)
def test_what_precedes_an_anchor_is_computed_where_it_is_read(bench: Bench, name: str, layouts: dict[str, str]) -> None:
    small = PROLOGUES[name]
    bench.check(small, fitting(small, layouts), SHORT)


def fitting(small: Small, layouts: Mapping[str, str]) -> dict[str, str]:
    """The layouts of those tensors that can be blocked."""
    shapes = {key: value.shape for key, value in (small.inputs | small.reference()).items()}
    return {key: layout for key, layout in layouts.items() if len(shapes.get(key, ())) == 4 and shapes[key][1] % 8 == 0}


WEIGHTS = {
    "w": real(8, 16, 1, 1, seed=1), "b": real(8, seed=2), "w2": real(16, 8, 3, 3, seed=3), "b2": real(16, seed=4),
    "d": real(8, 1, 3, 3, seed=5), "e": real(8, 16, 3, 3, seed=6),
}  # fmt: skip
HEADS = {"q": real(1, 2, 6, 8, seed=1), "k": real(1, 2, 7, 8, seed=2), "v": real(1, 2, 7, 8, seed=3)}


def several(*nodes: NodeProto, outputs: str = "y", constants: Mapping[str, Array] | None = None, **inputs: Array) -> Small:
    """`nodes` over "x" and the weights above."""
    read = {name for item in nodes for name in item.input}
    made = {name for item in nodes for name in item.output}
    known = {name: array for name, array in {**WEIGHTS, **dict(constants or {})}.items() if name not in made}
    given = {"x": MAP, **inputs}
    return Small(
        nodes,
        {name: array for name, array in given.items() if name in read},
        outputs.split(),
        {name: array for name, array in known.items() if name in read and name not in inputs},
    )


SAME = {"pads": [1, 1, 1, 1]}
CHAINS = {
    "two convolutions": several(node("Conv", "x w b", "c"), node("Relu", "c", "r"), node("Conv", "r w2 b2", "y", **SAME)),
    "bottleneck": several(
        node("Conv", "x w b", "c"), node("Relu", "c", "r"), node("Conv", "r w2 b2", "f", **SAME),
        node("Add", "f x", "a"), node("Relu", "a", "y"),
    ),
    "depthwise separable": several(node("Conv", "x w b", "c"), node("Clip", "c lo hi", "p"), node("Conv", "p d", "q", group=8, **SAME),
        node("Clip", "q lo hi", "r"), node("Conv", "r w2 b2", "y"), constants={"lo": number(0), "hi": number(6)}),
    "convolution, pool": several(node("Conv", "x w b", "c"), node("Relu", "c", "r"), node("MaxPool", "r", "y", kernel_shape=[2, 2])),
    "convolution, global pool, scale": several(
        node("Conv", "x w b", "c"), node("GlobalAveragePool", "c", "g"), node("Sigmoid", "g", "s"), node("Mul", "c s", "y"),
    ),
    "squeeze and excite": several(
        node("GlobalAveragePool", "x", "g"), node("Conv", "g w b", "c"), node("Relu", "c", "r"), node("Conv", "r u b2", "s"),
        node("Sigmoid", "s", "t"), node("Mul", "x t", "y"), constants={"u": real(16, 8, 1, 1)},
    ),
    "fire": several(
        node("Conv", "x w b", "s"), node("Relu", "s", "r"), node("Conv", "r u b2", "m"), node("Relu", "m", "n"),
        node("Conv", "r w2 b2", "o", **SAME), node("Relu", "o", "p"), node("Concat", "n p", "y", axis=1),
        constants={"u": real(16, 8, 1, 1)},
    ),
    "siblings": several(node("Conv", "x w b", "m"), node("Conv", "x e b", "n", **SAME), node("Add", "m n", "y")),
    "siblings with two results": several(node("Conv", "x w b", "m"), node("Conv", "x e b", "n", **SAME), outputs="m n"),
    "attention": several(
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]), node("MatMul", "q t", "s"), node("Div", "s root", "z"),
        node("Softmax", "z", "p", axis=-1), node("MatMul", "p v", "y"), constants={"root": number(8**0.5)}, **HEADS,
    ),
    "masked attention, heads joined": several(
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]), node("MatMul", "q t", "s"), node("Add", "s mask", "z"),
        node("Softmax", "z", "p", axis=-1), node("MatMul", "p v", "o"), node("Transpose", "o", "u", perm=[0, 2, 1, 3]),
        node("Reshape", "u shape", "y"), constants={"shape": ints(1, 6, 16)}, mask=real(1, 1, 1, 7, low=-9), **HEADS,
    ),
    "layer normalisation in parts": several(
        node("ReduceMean", "x", "m", axes=[-1]), node("Sub", "x m", "d"), node("Pow", "d two", "s"),
        node("ReduceMean", "s", "v", axes=[-1]), node("Add", "v eps", "e"), node("Sqrt", "e", "r"), node("Div", "d r", "n"),
        node("Mul", "n g", "o"), node("Add", "o h", "y"),
        constants={"two": number(2), "eps": number(1e-5), "g": real(16), "h": real(16, seed=2)}, x=ROWS,
    ),
    "add, normalise, project": several(
        node("Add", "x z", "a"), node("LayerNormalization", "a g h", "n", axis=-1), node("MatMul", "n m", "o"),
        node("Add", "o f", "y"), constants={"g": real(16), "h": real(16, seed=2), "m": MATRIX["w"], "f": real(24)}, x=ROWS, z=ROWS,
    ),
    "perceptron": several(
        node("Gemm", "x a f", "c", transB=1), node("Relu", "c", "r"), node("Gemm", "r g h", "o", transB=1),
        node("Softmax", "o", "y", axis=-1),
        constants={"a": real(12, 16), "f": real(12), "g": real(10, 12), "h": real(10)}, x=real(3, 16),
    ),
    "softmax of a product's columns": several(
        node("MatMul", "x m", "c"), node("ReduceMax", "c", "t", axes=[-1]), node("Sub", "c t", "s"), node("Exp", "s", "e"),
        node("ReduceSum", "e a", "u"), node("Div", "e u", "y"), constants={"m": MATRIX["w"], "a": ints(-1)}, x=ROWS,
    ),
    "instance normalisation in parts": several(
        node("Conv", "x w b", "c"), node("ReduceMean", "c", "m", axes=[2, 3]), node("Sub", "c m", "d"), node("Mul", "d d", "s"),
        node("ReduceMean", "s", "v", axes=[2, 3]), node("Add", "v eps", "e"), node("Sqrt", "e", "r"), node("Div", "d r", "y"),
        constants={"eps": number(1e-5)},
    ),
    "a result and what follows": several(node("Conv", "x w b", "c"), node("Relu", "c", "r"), node("Neg", "r", "n"), outputs="c n r"),
    "a result before and after a view": several(
        node("Conv", "x w b", "c"), node("Reshape", "c s", "t"), node("Exp", "t", "u"), outputs="c t u", constants={"s": ints(8, 30)},
    ),
    "results of two shapes": several(node("Relu", "x", "r"), node("GlobalAveragePool", "r", "g"), node("Transpose", "r", "t", perm=[1, 0, 2, 3]), outputs="r g t"),
    "a normalised sum and the sum": several(
        node("Add", "x z", "s"), node("LayerNormalization", "s g h", "n", axis=-1), outputs="s n",
        constants={"g": real(16), "h": real(16, seed=2)}, x=ROWS, z=ROWS,
    ),
    "split in three, each used": several(
        node("MatMul", "x m", "c"), node("Split", "c s", "q k v", axis=-1), node("Relu", "k", "l"), node("Mul", "q v", "o"),
        outputs="l o k", constants={"m": MATRIX["w"], "s": ints(8, 8, 8)}, x=ROWS,
    ),
    "concat read and returned": several(
        node("Conv", "x w b", "c"), node("Concat", "c x", "d", axis=1), node("Relu", "d", "r"), node("MaxPool", "d", "p", kernel_shape=[2, 2]), outputs="d r p",
    ),
    "concat of concats": several(
        node("Conv", "x w b", "c"), node("Relu", "c", "d"), node("Concat", "c d", "e", axis=1), node("Exp", "x", "f"),
        node("Concat", "e f", "y", axis=1),
    ),
    "a value in two concats": several(
        node("Conv", "x w b", "c"), node("Concat", "c x", "p", axis=1), node("Concat", "x c", "q", axis=1), outputs="p q",
    ),
    "right side computed by an anchor": several(
        node("MatMul", "x m", "k"), node("Transpose", "k", "t", perm=[0, 2, 1]), node("MatMul", "k t", "y"), constants={"m": MATRIX["w"]}, x=ROWS,
    ),
    "a nest's value needed by an earlier epilogue": several(
        node("Conv", "x w b", "c"), node("Conv", "x e b", "n", **SAME), node("Mul", "c n", "p"), node("Add", "p c", "y"),
    ),
    "reduction of a reshaped product": several(
        node("MatMul", "x m", "c"), node("Reshape", "c s", "t"), node("ReduceSum", "t a", "y", keepdims=0),
        constants={"m": MATRIX["w"], "s": ints(2, 7, 4, 6), "a": ints(2)}, x=ROWS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("layouts", [{}, {name: "c8" for name in "xymncrdpqgt"}], ids=["plain", "blocked"])
@pytest.mark.parametrize("name", CHAINS)
def test_several_anchors_and_results_share_one_kernel(bench: Bench, name: str, layouts: dict[str, str]) -> None:
    small = CHAINS[name]
    bench.check(small, fitting(small, layouts), SHORT)
