"""Small networks, made at random from the blocks that real ones are made of: each seed is another network.

Widths, sizes and orders are drawn; the blocks (residual, separable, squeeze and excite, branches, attention, ...) are
those of published architectures. `experiments/catalogue.py` names them.
"""

from __future__ import annotations

import random

import numpy as np
from onnx import ModelProto

from experiments.architectures.draft import Draft, int64


class _Blocks:
    """Blocks over a feature map [1, channels, size, size]; each leaves `x`, `channels` and `size` up to date."""

    def __init__(self, name: str, seed: int) -> None:
        self.draft, self.random = Draft(name, seed), random.Random(seed)
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def activation(self, x: str) -> str:
        draft, name = self.draft, self.name("act")
        kind = self.random.choice(["Relu", "Relu", "Clip", "HardSwish", "silu", "LeakyRelu", "mish"])
        if kind == "Clip":
            return draft.node("Clip", name, [x, draft.scalar(f"{name}.lo", 0), draft.scalar(f"{name}.hi", 6)])
        if kind == "silu":
            return draft.node("Mul", name, [x, draft.node("Sigmoid", f"{name}.s", [x])])
        if kind == "mish":
            soft = draft.node("Tanh", f"{name}.t", [draft.node("Softplus", f"{name}.p", [x])])
            return draft.node("Mul", name, [x, soft])
        return draft.node(kind, name, [x])

    def conv(
        self, x: str, into: int, kernel: int = 1, *, groups: int = 1, out: int, stride: int = 1, act: bool = True
    ) -> str:
        name = self.name("conv")
        y = self.draft.convolution(name, x, (out, into // groups, kernel, kernel), stride, groups)
        y = self.draft.normalization(f"{name}.bn", y, out)
        return self.activation(y) if act else y

    def residual(self, x: str, c: int) -> str:
        y = self.conv(x, c, 3, out=c)
        y = self.conv(y, c, 3, out=c, act=False)
        return self.activation(self.draft.node("Add", self.name("add"), [x, y]))

    def bottleneck(self, x: str, c: int) -> str:
        y = self.conv(self.conv(x, c, out=c // 2), c // 2, 3, out=c // 2)
        y = self.conv(y, c // 2, out=c, act=False)
        return self.activation(self.draft.node("Add", self.name("add"), [y, x]))

    def separable(self, x: str, c: int) -> str:
        wide = c * self.random.choice([2, 3])
        y = self.conv(x, c, out=wide)
        y = self.conv(y, wide, self.random.choice([3, 5]), groups=wide, out=wide)
        if self.random.random() < 0.5:
            y = self.squeeze(y, wide)
        y = self.conv(y, wide, out=c, act=False)
        return self.draft.node("Add", self.name("add"), [x, y])

    def squeeze(self, x: str, c: int) -> str:
        draft, name = self.draft, self.name("se")
        y = draft.node("GlobalAveragePool", f"{name}.pool", [x])
        y = draft.node("Relu", f"{name}.relu", [draft.convolution(f"{name}.down", y, (c // 4, c, 1, 1), bias=0.0)])
        y = draft.convolution(f"{name}.up", y, (c, c // 4, 1, 1), bias=0.0)
        return draft.node("Mul", f"{name}.mul", [x, draft.node("Sigmoid", f"{name}.gate", [y])])

    def branches(self, x: str, c: int) -> str:
        draft, name = self.draft, self.name("cat")
        half = c // 2
        parts = [self.conv(x, c, out=half), self.conv(self.conv(x, c, out=half // 2), half // 2, 3, out=half)]
        if self.random.random() < 0.5:
            pool = draft.node("MaxPool", f"{name}.pool", [x], kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
            parts[0] = self.conv(pool, c, out=half)
        return draft.node("Concat", name, parts, axis=1)

    def rescaled(self, x: str, c: int) -> str:
        draft, name = self.draft, self.name("up")
        down = draft.node("AveragePool", f"{name}.down", [x], kernel_shape=[2, 2], strides=[2, 2])
        y = self.conv(down, c, 3, out=c)
        scales = draft.constant(f"{name}.scales", np.array([1, 1, 2, 2], np.float32))
        y = draft.node(
            "Resize",
            name,
            [y, "", scales],
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        return self.activation(draft.node("Add", f"{name}.add", [x, y]))


def cnn(name: str, seed: int) -> ModelProto:
    """A convolutional network: three or four blocks over feature maps, then a classifier."""
    blocks = _Blocks(name, seed)
    choose = blocks.random.choice
    size, channels = choose([28, 56, 64]), choose([16, 24, 32, 48, 64])
    x = blocks.conv("image", 3, 3, out=channels, stride=2)
    kinds = [blocks.residual, blocks.bottleneck, blocks.separable, blocks.branches, blocks.rescaled, blocks.separable]
    blocks.random.shuffle(kinds)
    for kind in kinds[:3]:
        x = kind(x, channels)
    if blocks.random.random() < 0.7:
        wider = channels * 2
        x = blocks.conv(x, channels, 3, out=wider, stride=2)
        channels = wider
        x = kinds[3](x, channels)
    x = blocks.draft.flat_mean(x)
    y = blocks.draft.classifier(x, channels, 100)
    return blocks.draft.model({"image": (1, 3, size * 2, size * 2)}, y if y == "y" else "y", (1, 100))


def attention(name: str, seed: int) -> ModelProto:
    """Two layers of a transformer."""
    draft, choose = Draft(name, seed), random.Random(seed).choice
    length, heads, each = choose([32, 64, 128]), choose([2, 4, 8]), choose([32, 64])
    width, wide, written_out = heads * each, heads * each * choose([2, 4]), choose([False, True])
    x = "x"
    for layer in range(2):
        at = f"l{layer}"
        y = _layer_norm(draft, f"{at}.norm1", x, width, written_out)
        parts = [
            _split(draft, f"{at}.{part}", _dense(draft, f"{at}.{part}", y, width, width), (length, heads, each))
            for part in "qkv"
        ]
        keys = draft.node("Transpose", f"{at}.kt", [parts[1]], perm=[0, 1, 3, 2])
        scores = draft.node("MatMul", f"{at}.scores", [parts[0], keys])
        scores = draft.node("Div", f"{at}.scale", [scores, draft.scalar(f"{at}.root", each**0.5)])
        if layer == 0:
            mask = draft.constant(f"{at}.mask", np.triu(np.full((length, length), -1e4, np.float32), 1)[None, None])
            scores = draft.node("Add", f"{at}.masked", [scores, mask])
        weights = draft.node("Softmax", f"{at}.softmax", [scores], axis=-1)
        y = draft.node("MatMul", f"{at}.mix", [weights, parts[2]])
        y = draft.node("Transpose", f"{at}.join", [y], perm=[0, 2, 1, 3])
        y = draft.node("Reshape", f"{at}.flat", [y, draft.constant(f"{at}.shape", int64([1, length, width]))])
        x = draft.node("Add", f"{at}.res1", [x, _dense(draft, f"{at}.out", y, width, width)])
        y = _layer_norm(draft, f"{at}.norm2", x, width, written_out)
        y = _gelu(draft, f"{at}.gelu", _dense(draft, f"{at}.up", y, width, wide), choose(["erf", "tanh", "gate"]))
        x = draft.node("Add", f"{at}.res2", [x, _dense(draft, f"{at}.down", y, wide, width)])
    x = _layer_norm(draft, "norm", x, width, written_out)
    return draft.model({"x": (1, length, width)}, "y", (1, length, width))


def _dense(draft: Draft, name: str, x: str, into: int, out: int) -> str:
    weight = draft.constant(f"{name}.weight", draft.normal((into, out), into**-0.5))
    return draft.node(
        "Add",
        f"{name}.bias",
        [draft.node("MatMul", name, [x, weight]), draft.constant(f"{name}.b", draft.normal((out,), 0.1))],
    )


def _split(draft: Draft, name: str, x: str, sizes: tuple[int, int, int]) -> str:
    y = draft.node("Reshape", f"{name}.heads", [x, draft.constant(f"{name}.sizes", int64([1, *sizes]))])
    return draft.node("Transpose", f"{name}.turn", [y], perm=[0, 2, 1, 3])


def _layer_norm(draft: Draft, name: str, x: str, width: int, written_out: bool) -> str:
    scale = draft.constant(f"{name}.g", np.ones(width, np.float32) + draft.normal((width,), 0.1))
    shift = draft.constant(f"{name}.s", draft.normal((width,), 0.1))
    if not written_out:
        return draft.node("LayerNormalization", name, [x, scale, shift], axis=-1, epsilon=1e-5)
    axes = draft.constant(f"{name}.axes", int64([-1]))
    centred = draft.node("Sub", f"{name}.c", [x, draft.node("ReduceMean", f"{name}.mean", [x, axes], keepdims=1)])
    square = draft.node("Mul", f"{name}.sq", [centred, centred])
    variance = draft.node("ReduceMean", f"{name}.var", [square, axes], keepdims=1)
    root = draft.node(
        "Sqrt", f"{name}.std", [draft.node("Add", f"{name}.eps", [variance, draft.scalar(f"{name}.e", 1e-5)])]
    )
    y = draft.node("Mul", f"{name}.scaled", [draft.node("Div", f"{name}.unit", [centred, root]), scale])
    return draft.node("Add", f"{name}.shifted", [y, shift])


def _gelu(draft: Draft, name: str, x: str, kind: str) -> str:
    if kind == "gate":
        return draft.node("Mul", name, [x, draft.node("Sigmoid", f"{name}.s", [x])])
    if kind == "erf":
        inner = draft.node(
            "Erf", f"{name}.erf", [draft.node("Div", f"{name}.d", [x, draft.scalar(f"{name}.r2", 2**0.5)])]
        )
    else:
        cube = draft.node("Mul", f"{name}.x3", [draft.node("Mul", f"{name}.x2", [x, x]), x])
        sum_ = draft.node(
            "Add", f"{name}.sum", [x, draft.node("Mul", f"{name}.k", [cube, draft.scalar(f"{name}.kc", 0.044715)])]
        )
        inner = draft.node(
            "Tanh", f"{name}.tanh", [draft.node("Mul", f"{name}.w", [sum_, draft.scalar(f"{name}.wc", 0.7978846)])]
        )
    one = draft.node("Add", f"{name}.one", [inner, draft.scalar(f"{name}.1", 1.0)])
    return draft.node("Mul", name, [draft.node("Mul", f"{name}.m", [x, one]), draft.scalar(f"{name}.half", 0.5)])


def pointwise(name: str, seed: int) -> ModelProto:
    """Chains, broadcasts of costly results, reductions, moves: where fusing may lose."""
    draft, choose = Draft(name, seed), random.Random(seed + 100).choice
    rows, columns = choose([128, 256, 512]), choose([256, 512, 1024])
    x, narrow = "x", "n"
    for stage in range(3):
        at = f"s{stage}"
        for step, kind in enumerate(
            [choose(["Exp", "Tanh", "Sigmoid", "Sqrt"]), "Neg", choose(["Exp", "Tanh", "Erf"])][: choose([1, 2, 3])]
        ):
            source = draft.node("Abs", f"{at}.abs{step}", [narrow]) if kind == "Sqrt" else narrow
            narrow = draft.node(kind, f"{at}.costly{step}", [source])
        x = draft.node(choose(["Add", "Mul"]), f"{at}.broad", [x, narrow])
        x = draft.node(choose(["Relu", "Tanh", "Sigmoid"]), f"{at}.act", [x])
        move = choose(["turn", "pool", "split", "softmax"])
        if move == "turn":
            y = draft.node("Transpose", f"{at}.t", [x], perm=[1, 0])
            y = draft.node("Mul", f"{at}.tm", [y, draft.constant(f"{at}.tc", draft.normal((columns, 1), 1.0))])
            x = draft.node("Add", f"{at}.back", [x, draft.node("Transpose", f"{at}.u", [y], perm=[1, 0])])
        elif move == "pool":
            axes = draft.constant(f"{at}.axes", int64([1]))
            mean = draft.node("ReduceMean", f"{at}.mean", [x, axes], keepdims=1)
            x = draft.node("Sub", f"{at}.centre", [x, mean])
        elif move == "split":
            half = columns // 2
            cuts = [
                draft.constant(f"{at}.{n}", int64([v])) for n, v in (("a", 0), ("b", half), ("c", columns), ("d", 1))
            ]
            left = draft.node("Slice", f"{at}.left", [x, cuts[0], cuts[1], cuts[3]])
            right = draft.node("Slice", f"{at}.right", [x, cuts[1], cuts[2], cuts[3]])
            swapped = draft.node("Concat", f"{at}.swap", [right, draft.node("Relu", f"{at}.half", [left])], axis=1)
            x = draft.node("Add", f"{at}.mixed", [x, swapped])
        else:
            x = draft.node("Softmax", f"{at}.soft", [x], axis=-1)
    return draft.model({"x": (rows, columns), "n": (rows, 1)}, "y", (rows, columns))
