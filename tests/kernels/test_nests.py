"""Groups of several operators: what precedes an anchor, what follows it, several anchors, several results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from autofuse.kernels.families.registry import nests_of
from tests.kernels.conftest import Array, Bench, Small, parsed, real

SHORT = {"contraction.vectors": 1, "contraction.pixels": 2, "contraction.rows_per_task": 2, "windowed.pixels": 2}


def ints(*values: int) -> Array:
    return np.array(values, "int64")


def number(value: float) -> Array:
    return np.array(value, "float32")


def after_conv(text: str, constants: Mapping[str, Array] | None = None, **inputs: Array) -> Small:
    """A 3x3 convolution from "x" (1, 16, 5, 6) to "c" (1, 8, 5, 6), then `text` up to "y"."""
    weights = {"w": real(8, 16, 3, 3, seed=1), "b": real(8, seed=2)}
    first = "c = Conv <pads=[1, 1, 1, 1]> (x, w, b)"
    return Small(parsed(f"{first}; {text}"), {"x": real(1, 16, 5, 6), **inputs}, ["y"], weights | dict(constants or {}))


STATISTICS = {"g": real(8, seed=3), "h": real(8, seed=4), "m": real(8, seed=5), "v": real(8, seed=6, low=0.5)}
EPILOGUES = {
    "relu": after_conv("y = Relu (c)"),
    "clip": after_conv("y = Clip (c, lo, hi)", constants={"lo": number(0), "hi": number(0.5)}),
    "clip below": after_conv("y = Clip (c, lo)", constants={"lo": number(-0.25)}),
    "residual": after_conv("a = Add (c, r); y = Relu (a)", r=real(1, 8, 5, 6)),
    "residual on the left": after_conv("y = Sub (r, c)", r=real(1, 8, 5, 6)),
    "batch normalisation": after_conv("y = BatchNormalization <epsilon=1e-3> (c, g, h, m, v)", constants=STATISTICS),
    "silu": after_conv("s = Sigmoid (c); y = Mul (c, s)"),
    "gelu": after_conv(
        "d = Div (c, root); e = Erf (d); f = Add (e, one); h = Mul (c, f); y = Mul (h, half)",
        constants={"root": number(2**0.5), "one": number(1), "half": number(0.5)},
    ),
    "prelu of a channel": after_conv("y = PRelu (c, p)", constants={"p": real(8, 1, 1)}),
    "prelu of all": after_conv("y = PRelu (c, p)", constants={"p": real(1)}),
    "twice itself": after_conv("y = Mul (c, c)"),
    "a channel's factor": after_conv("y = Mul (c, f)", constants={"f": real(1, 8, 1, 1)}),
    "a channel's factor, computed": after_conv("y = Mul (c, f)", f=real(1, 8, 1, 1)),
    "a column's factor": after_conv("y = Mul (c, f)", constants={"f": real(6)}),
    "a row's factor": after_conv("y = Add (c, f)", f=real(5, 1)),
    "a pixel's factor": after_conv("y = Mul (c, f)", constants={"f": real(1, 1, 5, 6)}),
    "more dimensions": after_conv("y = Add (c, f)", f=real(1, 1, 1, 1, 1)),
    "spread over a batch": after_conv("y = Add (c, f)", f=real(3, 8, 1, 1)),
    "select": after_conv("g = Greater (c, f); y = Where (g, c, f)", constants={"f": real(8, 1, 1)}),
    "to integers": after_conv("y = Cast <to=6> (c)"),
    "transposed": after_conv("y = Transpose <perm=[0, 2, 3, 1]> (c)"),
    "transposed and used": after_conv("t = Transpose <perm=[0, 2, 3, 1]> (c); y = Add (t, f)", f=real(8)),
    "reshaped": after_conv("y = Reshape (c, s)", constants={"s": ints(1, 8, 30)}),
    "reshaped and used": after_conv(
        "t = Reshape (c, s); u = Mul (t, f); y = Relu (u)",
        constants={"s": ints(2, 120), "f": real(2, 1)},
    ),
    "flattened": after_conv("y = Flatten <axis=1> (c)"),
    "unsqueezed": after_conv("t = Unsqueeze (c, a); y = Neg (t)", constants={"a": ints(2)}),
    "heads": after_conv(
        "t = Reshape (c, s); u = Transpose <perm=[0, 2, 1]> (t); y = Relu (u)",
        constants={"s": ints(2, 4, 30)},
    ),
    "there and back": after_conv(
        "t = Reshape (c, s); u = Relu (t); y = Reshape (u, q)",
        constants={"s": ints(8, 30), "q": ints(1, 8, 5, 6)},
    ),
    "itself transposed": after_conv("t = Transpose <perm=[0, 1, 3, 2]> (r); y = Add (c, t)", r=real(1, 8, 6, 5)),
    "itself and its transpose": after_conv(
        "k = Slice (c, s, e, a); t = Transpose <perm=[0, 1, 3, 2]> (k); y = Add (k, t)",
        constants={"s": ints(0), "e": ints(5), "a": ints(3)},
    ),
    "a path through a reshape and one beside it": after_conv(
        "t = Reshape (c, s); u = Reshape (t, q); y = Add (c, u)",
        constants={"s": ints(240), "q": ints(1, 8, 5, 6)},
    ),
    "sliced": after_conv("y = Slice (c, s, e, a)", constants={"s": ints(1), "e": ints(4), "a": ints(2)}),
    "padded": after_conv("y = Pad (c, p)", constants={"p": ints(0, 0, 1, 0, 0, 0, 0, 2)}),
    "shuffled to space": after_conv("y = DepthToSpace <blocksize=2> (c)"),
    "resized": after_conv('y = Resize <mode="nearest"> (c, , k)', constants={"k": np.array([1, 1, 2, 2], "float32")}),
    "split": after_conv("p, q = Split <axis=1> (c, s); y = Add (p, q)", constants={"s": ints(4, 4)}),
    "gathered": after_conv("y = Gather <axis=1> (c, i)", constants={"i": ints(3, 1, 0)}),
    "concat with an input": after_conv("d = Relu (c); y = Concat <axis=1> (d, r)", r=real(1, 8, 5, 6)),
    "concat with itself": after_conv("d = Relu (c); y = Concat <axis=1> (d, d)"),
    "concat of two uses": after_conv("d = Relu (c); e = Neg (c); y = Concat <axis=1> (d, e)"),
    "concat of rows": after_conv("y = Concat <axis=2> (r, c)", r=real(1, 8, 2, 6)),
    "concat, then more": after_conv(
        "d = Concat <axis=1> (c, r); e = Mul (d, f); y = Relu (e)",
        constants={"f": real(16, 1, 1)},
        r=real(1, 8, 5, 6),
    ),
    "concat, then more, and read by others": after_conv(
        "d = Concat <axis=1> (c, r); e = Relu (d); f = Neg (d); y = Add (e, f)", r=real(1, 8, 5, 6)
    ),
    "concat of two uses, then more": after_conv("d = Relu (c); e = Concat <axis=1> (c, d); y = Exp (e)"),
    "concat, then what is as large": after_conv(
        "d = Concat <axis=1> (r, c); e = Add (d, s); y = Relu (e)", r=real(1, 8, 5, 6), s=real(1, 16, 5, 6)
    ),
    "concat, then a larger shape": after_conv(
        "d = Concat <axis=1> (c, r); y = Mul (d, f)", constants={"f": real(2, 16, 1, 1)}, r=real(1, 8, 5, 6)
    ),
    "concat, then itself": after_conv("d = Concat <axis=1> (c, r); y = Mul (d, d)", r=real(1, 8, 5, 6)),
}


MOVING = ("pad", "slice", "concat", "gather", "split", "reshape", "transpose", "resize", "shuffle", "heads", "back")


def in_layouts(cases: Mapping[str, Small]) -> list[Any]:
    """(case, whether its maps are blocked): both ways where data moves, else in turns."""
    found = []
    for number, (name, small) in enumerate(cases.items()):
        both = any(word in name for word in MOVING)
        for blocked in (False, True) if both else (number % 2 == 0,):
            found.append(pytest.param(small, blocked, id=f"{name}, {'blocked' if blocked else 'plain'}"))
    return found


def fitting(small: Small, blocked: bool) -> dict[str, str]:
    """Layouts of the maps that have blocks."""
    shapes = {key: value.shape for key, value in (small.inputs | small.reference()).items()}
    return {key: "c8" for key, shape in shapes.items() if blocked and len(shape) == 4 and shape[1] % 8 == 0}


@pytest.mark.parametrize(("small", "blocked"), in_layouts(EPILOGUES))
def test_what_follows_a_convolution_is_computed_with_it(bench: Bench, small: Small, blocked: bool) -> None:
    bench.check(small, fitting(small, blocked), SHORT)


POINT = {"w": real(8, 16, 1, 1, seed=1), "b": real(8, seed=2)}
SQUARE = {"w": real(8, 16, 3, 3, seed=1), "b": real(8, seed=2)}
MATRIX = {"w": real(16, 24, seed=1)}
MAP = real(1, 16, 5, 6)


def before(
    weights: Mapping[str, Array], text: str, constants: Mapping[str, Array] | None = None, **inputs: Array
) -> Small:
    """`text` from "x" to "p", then a convolution or product of "p" with `weights` to "y"."""
    kind = "MatMul" if "b" not in weights else "Conv"
    attributes = " <pads=[1, 1, 1, 1]>" if weights is SQUARE else ""
    last = f"y = {kind}{attributes} ({', '.join(['p', *weights])})"
    return Small(parsed(f"{text}; {last}"), {"x": MAP, **inputs}, ["y"], dict(weights) | dict(constants or {}))


ROWS = real(2, 7, 16)
PROLOGUES = {
    "squeeze and excite": before(POINT, "p = Mul (x, s)", s=real(1, 16, 1, 1)),
    "relu": before(SQUARE, "p = Relu (x)"),
    "hard swish": before(POINT, "p = HardSwish (x)"),
    "batch normalisation": before(
        SQUARE,
        "p = BatchNormalization (x, g, h, m, v)",
        constants={"g": real(16), "h": real(16, seed=1), "m": real(16, seed=2), "v": real(16, seed=3, low=0.5)},
    ),
    "padding": before(SQUARE, "p = Pad (x, q)", constants={"q": ints(0, 0, 1, 2, 0, 0, 3, 1)}),
    "padding, reflected": before(
        SQUARE, 'p = Pad <mode="reflect"> (x, q)', constants={"q": ints(0, 0, 1, 2, 0, 0, 3, 1)}
    ),
    "padding with a value, of something computed": before(
        SQUARE,
        "e = Exp (x); p = Pad (e, q, v)",
        constants={"q": ints(0, 0, 1, 1, 0, 0, 0, 0), "v": number(0.5)},
    ),
    "padding of channels": before(
        POINT, "p = Pad (x, q)", constants={"q": ints(0, 8, 0, 0, 0, 0, 0, 0)}, x=real(1, 8, 5, 6)
    ),
    "slice": before(SQUARE, "p = Slice (x, s, e, a)", constants={"s": ints(1, 1), "e": ints(4, 6), "a": ints(2, 3)}),
    "slice of channels": before(
        POINT, "p = Slice (x, s, e, a)", constants={"s": ints(4), "e": ints(20), "a": ints(1)}, x=real(1, 24, 5, 6)
    ),
    "backwards": before(
        POINT, "p = Slice (x, s, e, a, d)", constants={"s": ints(-1), "e": ints(-9), "a": ints(3), "d": ints(-1)}
    ),
    "concat": before(POINT, "p = Concat <axis=1> (x, z)", x=real(1, 8, 5, 6), z=real(1, 8, 5, 6, seed=9)),
    "concat with itself": before(POINT, "p = Concat <axis=1> (x, x)", x=real(1, 8, 5, 6)),
    "upsampling": before(
        POINT, 'p = Resize <mode="nearest"> (x, , k)', constants={"k": np.array([1, 1, 2, 2], "float32")}
    ),
    "transpose": before(POINT, "p = Transpose <perm=[0, 3, 1, 2]> (x)", x=real(1, 5, 6, 16)),
    "reshape": before(SQUARE, "p = Reshape (x, s)", constants={"s": ints(1, 16, 6, 5)}, x=real(1, 16, 30)),
    "shuffle": before(
        POINT,
        "t = Reshape (x, s); u = Transpose <perm=[0, 2, 1, 3, 4]> (t); p = Reshape (u, q)",
        constants={"s": ints(1, 4, 4, 5, 6), "q": ints(1, 16, 5, 6)},
    ),
    "expand": before(POINT, "p = Expand (x, s)", constants={"s": ints(1, 16, 3, 2)}, x=real(1, 16, 1, 1)),
    "embedding": before(MATRIX, "p = Gather (t, x)", constants={"t": real(20, 16)}, x=ints(3, -1, 19, 0, -20)),
    "position": before(MATRIX, "p = Add (x, z)", x=ROWS, z=real(7, 16)),
    "scaled queries": before(MATRIX, "p = Div (x, k)", constants={"k": number(8)}, x=ROWS),
    "heads joined": before(
        MATRIX,
        "t = Transpose <perm=[0, 2, 1, 3]> (x); p = Reshape (t, s)",
        constants={"s": ints(2, 7, 16)},
        x=real(2, 4, 7, 4),
    ),
    "a prologue used twice": before(POINT, "s = Sigmoid (x); p = Mul (x, s)"),
    "integers before": before(MATRIX, "p = Cast <to=1> (x)", x=np.arange(32).reshape(2, 16)),
}


@pytest.mark.parametrize(("small", "blocked"), in_layouts(PROLOGUES))
def test_what_precedes_an_anchor_is_computed_where_it_is_read(bench: Bench, small: Small, blocked: bool) -> None:
    bench.check(small, fitting(small, blocked), SHORT)


WEIGHTS = {
    "w": real(8, 16, 1, 1, seed=1),
    "b": real(8, seed=2),
    "w2": real(16, 8, 3, 3, seed=3),
    "b2": real(16, seed=4),
    "d": real(8, 1, 3, 3, seed=5),
    "e": real(8, 16, 3, 3, seed=6),
}
HEADS = {"q": real(1, 2, 6, 8, seed=1), "k": real(1, 2, 7, 8, seed=2), "v": real(1, 2, 7, 8, seed=3)}


def several(text: str, outputs: str = "y", constants: Mapping[str, Array] | None = None, **inputs: Array) -> Small:
    """`text` over "x" and the weights above."""
    nodes = parsed(text)
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


CHAINS = {
    "two convolutions": several("c = Conv (x, w, b); r = Relu (c); y = Conv <pads=[1, 1, 1, 1]> (r, w2, b2)"),
    "bottleneck": several(
        "c = Conv (x, w, b); r = Relu (c); f = Conv <pads=[1, 1, 1, 1]> (r, w2, b2); a = Add (f, x); y = Relu (a)",
    ),
    "depthwise separable": several(
        "c = Conv (x, w, b); p = Clip (c, lo, hi); q = Conv <group=8, pads=[1, 1, 1, 1]> (p, d); "
        "r = Clip (q, lo, hi); y = Conv (r, w2, b2)",
        constants={"lo": number(0), "hi": number(6)},
    ),
    "convolution, pool": several("c = Conv (x, w, b); r = Relu (c); y = MaxPool <kernel_shape=[2, 2]> (r)"),
    "convolution, global pool, scale": several(
        "c = Conv (x, w, b); g = GlobalAveragePool (c); s = Sigmoid (g); y = Mul (c, s)",
    ),
    "squeeze and excite": several(
        "g = GlobalAveragePool (x); c = Conv (g, w, b); r = Relu (c); s = Conv (r, u, b2); "
        "t = Sigmoid (s); y = Mul (x, t)",
        constants={"u": real(16, 8, 1, 1)},
    ),
    "fire": several(
        "s = Conv (x, w, b); r = Relu (s); m = Conv (r, u, b2); n = Relu (m); "
        "o = Conv <pads=[1, 1, 1, 1]> (r, w2, b2); p = Relu (o); y = Concat <axis=1> (n, p)",
        constants={"u": real(16, 8, 1, 1)},
    ),
    "a point convolution and a depthwise one": several(
        "m = Conv (x, w, b); n = Conv <group=16, pads=[1, 1, 1, 1]> (x, u)", "m n", {"u": real(16, 1, 3, 3)}
    ),
    "weights that are shared, once transposed": several(
        "m = Gemm (x, w); n = Gemm <transB=1> (x, w); y = Add (m, n)", constants={"w": real(16, 16)}, x=real(3, 16)
    ),
    "weights that are shared by inputs of two layouts": several(
        "m = Conv (x, w, b); n = Conv (z, w, b); y = Add (m, n)", z=real(1, 16, 5, 6, seed=8)
    ),
    "siblings": several("m = Conv (x, w, b); n = Conv <pads=[1, 1, 1, 1]> (x, e, b); y = Add (m, n)"),
    "siblings with two results": several("m = Conv (x, w, b); n = Conv <pads=[1, 1, 1, 1]> (x, e, b)", outputs="m n"),
    "attention": several(
        "t = Transpose <perm=[0, 1, 3, 2]> (k); s = MatMul (q, t); z = Div (s, root); "
        "p = Softmax <axis=-1> (z); y = MatMul (p, v)",
        constants={"root": number(8**0.5)},
        **HEADS,
    ),
    "masked attention, heads joined": several(
        "t = Transpose <perm=[0, 1, 3, 2]> (k); s = MatMul (q, t); z = Add (s, mask); "
        "p = Softmax <axis=-1> (z); o = MatMul (p, v); u = Transpose <perm=[0, 2, 1, 3]> (o); "
        "y = Reshape (u, shape)",
        constants={"shape": ints(1, 6, 16)},
        mask=real(1, 1, 1, 7, low=-9),
        **HEADS,
    ),
    "layer normalisation in parts": several(
        "m = ReduceMean <axes=[-1]> (x); d = Sub (x, m); s = Pow (d, two); "
        "v = ReduceMean <axes=[-1]> (s); e = Add (v, eps); r = Sqrt (e); n = Div (d, r); "
        "o = Mul (n, g); y = Add (o, h)",
        constants={"two": number(2), "eps": number(1e-5), "g": real(16), "h": real(16, seed=2)},
        x=ROWS,
    ),
    "add, normalise, project": several(
        "a = Add (x, z); n = LayerNormalization <axis=-1> (a, g, h); o = MatMul (n, m); y = Add (o, f)",
        constants={"g": real(16), "h": real(16, seed=2), "m": MATRIX["w"], "f": real(24)},
        x=ROWS,
        z=ROWS,
    ),
    "perceptron": several(
        "c = Gemm <transB=1> (x, a, f); r = Relu (c); o = Gemm <transB=1> (r, g, h); y = Softmax <axis=-1> (o)",
        constants={"a": real(12, 16), "f": real(12), "g": real(10, 12), "h": real(10)},
        x=real(3, 16),
    ),
    "softmax of a product's columns": several(
        "c = MatMul (x, m); t = ReduceMax <axes=[-1]> (c); s = Sub (c, t); e = Exp (s); "
        "u = ReduceSum (e, a); y = Div (e, u)",
        constants={"m": MATRIX["w"], "a": ints(-1)},
        x=ROWS,
    ),
    "instance normalisation in parts": several(
        "c = Conv (x, w, b); m = ReduceMean <axes=[2, 3]> (c); d = Sub (c, m); s = Mul (d, d); "
        "v = ReduceMean <axes=[2, 3]> (s); e = Add (v, eps); r = Sqrt (e); y = Div (d, r)",
        constants={"eps": number(1e-5)},
    ),
    "a result and what follows": several("c = Conv (x, w, b); r = Relu (c); n = Neg (r)", outputs="c n r"),
    "a result before and after a view": several(
        "c = Conv (x, w, b); t = Reshape (c, s); u = Exp (t)",
        outputs="c t u",
        constants={"s": ints(8, 30)},
    ),
    "results of two shapes": several(
        "r = Relu (x); g = GlobalAveragePool (r); t = Transpose <perm=[1, 0, 2, 3]> (r)", outputs="r g t"
    ),
    "a normalised sum and the sum": several(
        "s = Add (x, z); n = LayerNormalization <axis=-1> (s, g, h)",
        outputs="s n",
        constants={"g": real(16), "h": real(16, seed=2)},
        x=ROWS,
        z=ROWS,
    ),
    "split in three, each used": several(
        "c = MatMul (x, m); q, k, v = Split <axis=-1> (c, s); l = Relu (k); o = Mul (q, v)",
        outputs="l o k",
        constants={"m": MATRIX["w"], "s": ints(8, 8, 8)},
        x=ROWS,
    ),
    "concat read and returned": several(
        "c = Conv (x, w, b); d = Concat <axis=1> (c, x); r = Relu (d); p = MaxPool <kernel_shape=[2, 2]> (d)",
        outputs="d r p",
    ),
    "concat of concats": several(
        "c = Conv (x, w, b); d = Relu (c); e = Concat <axis=1> (c, d); f = Exp (x); y = Concat <axis=1> (e, f)",
    ),
    "a value in two concats": several(
        "c = Conv (x, w, b); p = Concat <axis=1> (c, x); q = Concat <axis=1> (x, c)",
        outputs="p q",
    ),
    "right side computed by an anchor": several(
        "k = MatMul (x, m); t = Transpose <perm=[0, 2, 1]> (k); y = MatMul (k, t)",
        constants={"m": MATRIX["w"]},
        x=ROWS,
    ),
    "normalised behind the concat of convolutions": several(
        "c = Conv (x, w, b); n = Conv <pads=[1, 1, 1, 1]> (x, e, b); d = Concat <axis=1> (n, c); "
        "q = BatchNormalization (d, g, h, m, v); r = Relu (q); y = Conv (r, k)",
        constants={name: real(16, seed=seed, low=0.5) for seed, name in enumerate("ghmv")} | {"k": real(8, 16, 1, 1)},
    ),
    "a concat of a concat's channels in part": several(
        "c = Conv (x, w, b); n = Conv <pads=[1, 1, 1, 1]> (x, e, b); d = Concat <axis=1> (n, c); t = Mul (d, n2); "
        "y = Concat <axis=1> (t, c)",
        constants={"n2": real(16, 1, 1)},
    ),
    "a nest's value needed by an earlier epilogue": several(
        "c = Conv (x, w, b); n = Conv <pads=[1, 1, 1, 1]> (x, e, b); p = Mul (c, n); y = Add (p, c)",
    ),
    "reduction of a reshaped product": several(
        "c = MatMul (x, m); t = Reshape (c, s); y = ReduceSum <keepdims=0> (t, a)",
        constants={"m": MATRIX["w"], "s": ints(2, 7, 4, 6), "a": ints(2)},
        x=ROWS,
    ),
}


@pytest.mark.parametrize(("small", "blocked"), in_layouts(CHAINS))
def test_several_anchors_and_results_share_one_kernel(bench: Bench, small: Small, blocked: bool) -> None:
    bench.check(small, fitting(small, blocked), SHORT)


NESTS = {
    "convolution and relu": (EPILOGUES["residual"], ["Conv"]),
    "a prologue": (PROLOGUES["squeeze and excite"], ["Conv"]),
    "heads": (EPILOGUES["heads"], ["Conv"]),
    "two convolutions": (CHAINS["two convolutions"], ["Conv", "Conv"]),
    "slices of a concat": (CHAINS["fire"], ["Conv", "Conv", "Conv"]),
    "attention": (CHAINS["masked attention, heads joined"], ["MatMul", "Softmax", "MatMul"]),
    "a copied slice": (EPILOGUES["concat with an input"], ["Conv", ""]),
    "more behind a concat": (EPILOGUES["concat, then more"], ["Conv", ""]),
    "more behind a concat that others read": (EPILOGUES["concat, then more, and read by others"], ["Conv", "", ""]),
    "a gather after": (EPILOGUES["gathered"], ["Conv", ""]),
    "normalisation in parts": (CHAINS["layer normalisation in parts"], ["ReduceMean", "ReduceMean", ""]),
    "results of two shapes": (CHAINS["results of two shapes"], ["GlobalAveragePool", "", ""]),
}


@pytest.mark.parametrize("name", NESTS)
def test_a_group_has_as_few_loop_nests_as_its_anchors_allow(bench: Bench, name: str) -> None:
    small, anchors = NESTS[name]
    workload = bench.bind(small).workload
    nests = nests_of(workload)
    assert [nest.anchor.op_type if nest.anchor else "" for nest in nests] == anchors
    stored = {value for nest in nests for value in nest.stores}
    assert set(workload.of_kind("output")) <= stored


def test_weights_shared_by_two_layouts_are_packed_for_each(bench: Bench) -> None:
    small = CHAINS["weights that are shared by inputs of two layouts"]
    for layouts in ({"x": "c4"}, {"x": "c4", "z": "c8"}, {"z": "c8", "y": "c4"}):
        bench.check(small, layouts, SHORT)
