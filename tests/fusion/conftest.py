"""Graphs for planning, built by hand: weights are zeros, since no plan depends on a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor


class Builder:
    """Adds operators in topological order; every method returns the name of the result."""

    def __init__(self, name: str = "test") -> None:
        self.name = name
        self.inputs: list[str] = []
        self.operators: list[Operator] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray] = {}

    def input(self, name: str, *shape: int, dtype: str = "float32") -> str:
        self.tensors[name] = Tensor(name, shape, dtype)
        self.inputs.append(name)
        return name

    def constant(self, *shape: int, dtype: str = "float32", value: float = 0) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.full(shape, value, dtype=dtype)
        self.tensors[name] = Tensor(name, shape, dtype)
        return name

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.tensors[tensor].shape

    def op(
        self,
        op_type: str,
        name: str,
        inputs: tuple[str, ...],
        shape: tuple[int, ...] | None = None,
        dtype: str = "float32",
        **attributes: AttributeValue,
    ) -> str:
        """An operator with one result, by default of its first input's shape."""
        return self.many(
            op_type, name, inputs, (self.shape(inputs[0]) if shape is None else shape,), dtype, attributes
        )[0]

    def many(
        self,
        op_type: str,
        name: str,
        inputs: tuple[str, ...],
        shapes: tuple[tuple[int, ...], ...],
        dtype: str = "float32",
        attributes: Mapping[str, AttributeValue] | None = None,
    ) -> tuple[str, ...]:
        """An operator with several results."""
        outputs = tuple(f"{name}.{index}" for index in range(len(shapes)))
        for output, shape in zip(outputs, shapes, strict=True):
            self.tensors[output] = Tensor(output, shape, dtype)
        self.operators.append(Operator(name, op_type, inputs, outputs, dict(attributes or {})))
        return outputs

    def conv(self, name: str, x: str, channels: int, kernel: int = 3, stride: int = 1, group: int = 1) -> str:
        batch, depth, height, width = self.shape(x)
        weight = self.constant(channels, depth // group, kernel, kernel)
        pad = kernel // 2
        return self.op(
            "Conv",
            name,
            (x, weight),
            (batch, channels, -(-height // stride), -(-width // stride)),
            kernel_shape=(kernel, kernel),
            strides=(stride, stride),
            pads=(pad, pad, pad, pad),
            group=group,
        )

    def norm(self, name: str, x: str) -> str:
        channels = self.shape(x)[1]
        statistics = tuple(self.constant(channels, value=1) for _ in range(4))
        return self.op("BatchNormalization", name, (x, *statistics), epsilon=1e-5)

    def dense(self, name: str, x: str, size: int) -> str:
        """MatMul and the Add of its bias."""
        shape = (*self.shape(x)[:-1], size)
        product = self.op("MatMul", f"{name}_matmul", (x, self.constant(self.shape(x)[-1], size)), shape)
        return self.op("Add", f"{name}_bias", (product, self.constant(size)))

    def reshape(self, name: str, x: str, *shape: int) -> str:
        target = f"c{len(self.constants)}"
        self.constants[target] = np.array(shape, dtype=np.int64)
        self.tensors[target] = Tensor(target, (len(shape),), "int64")
        return self.op("Reshape", name, (x, target), shape)

    def transpose(self, name: str, x: str, *perm: int) -> str:
        shape = self.shape(x)
        return self.op("Transpose", name, (x,), tuple(shape[axis] for axis in perm), perm=perm)

    def layernorm(self, name: str, x: str) -> str:
        size = self.shape(x)[-1]
        return self.op("LayerNormalization", name, (x, self.constant(size), self.constant(size)), axis=-1)

    def build(self, *outputs: str) -> Graph:
        return Graph(
            self.name, tuple(self.inputs), outputs, tuple(self.operators), self.tensors, self.constants, opset=18
        )


def conv_bn_relu() -> Graph:
    b = Builder("conv_bn_relu")
    x = b.input("x", 1, 16, 32, 32)
    return b.build(b.op("Relu", "relu", (b.norm("bn", b.conv("conv", x, 16)),)))


def residual() -> Graph:
    """Two ResNet blocks, the first with a convolution in its shortcut, and the head."""
    b = Builder("residual")
    x = b.input("x", 1, 64, 28, 28)
    for block, (channels, stride) in enumerate(((128, 2), (128, 1))):
        y = b.op("Relu", f"relu{block}a", (b.norm(f"bn{block}a", b.conv(f"conv{block}a", x, channels // 2, 1)),))
        y = b.op(
            "Relu", f"relu{block}b", (b.norm(f"bn{block}b", b.conv(f"conv{block}b", y, channels // 2, 3, stride)),)
        )
        y = b.norm(f"bn{block}c", b.conv(f"conv{block}c", y, channels, 1))
        if not block:
            x = b.norm("bn_short", b.conv("conv_short", x, channels, 1, stride))
        x = b.op("Relu", f"relu{block}c", (b.op("Add", f"add{block}", (y, x)),))
    pooled = b.op("GlobalAveragePool", "pool", (x,), (1, 128, 1, 1))
    flat = b.op("Flatten", "flatten", (pooled,), (1, 128), axis=1)
    return b.build(b.op("Gemm", "gemm", (flat, b.constant(10, 128), b.constant(10)), (1, 10), transB=1))


def squeeze_excite() -> Graph:
    """An inverted residual block of EfficientNet: SiLU written out, squeeze-and-excite, residual."""
    b = Builder("squeeze_excite")
    x = b.input("x", 1, 16, 28, 28)

    def silu(name: str, tensor: str) -> str:
        return b.op("Mul", f"{name}_mul", (tensor, b.op("Sigmoid", f"{name}_sigmoid", (tensor,))))

    y = silu("expand", b.norm("expand_bn", b.conv("expand", x, 64, 1)))
    y = silu("depthwise", b.norm("depthwise_bn", b.conv("depthwise", y, 64, 3, group=64)))
    s = b.op("GlobalAveragePool", "squeeze", (y,), (1, 64, 1, 1))
    s = silu("reduce", b.conv("reduce", s, 4, 1))
    s = b.op("Sigmoid", "gate", (b.conv("restore", s, 64, 1),))
    y = b.op("Mul", "scale", (y, s))
    return b.build(b.op("Add", "add", (b.norm("project_bn", b.conv("project", y, 16, 1)), x)))


def transformer() -> Graph:
    """Two equal BERT layers: heads split and joined, masked softmax, GELU written out, residuals."""
    b = Builder("transformer")
    x = b.input("x", 1, 128, 64)
    mask = b.input("mask", 1, 1, 1, 128)
    for layer in range(2):
        heads = {}
        for part, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
            split = b.reshape(f"{part}{layer}_split", b.dense(f"{part}{layer}", x, 64), 1, 128, 4, 16)
            heads[part] = b.transpose(f"{part}{layer}_heads", split, *perm)
        scores = b.op("MatMul", f"scores{layer}", (heads["q"], heads["k"]), (1, 4, 128, 128))
        scores = b.op("Div", f"scale{layer}", (scores, b.constant(value=4)))
        weights = b.op("Softmax", f"softmax{layer}", (b.op("Add", f"mask{layer}", (scores, mask)),), axis=-1)
        mixed = b.op("MatMul", f"mix{layer}", (weights, heads["v"]), (1, 4, 128, 16))
        mixed = b.reshape(f"join{layer}", b.transpose(f"unsplit{layer}", mixed, 0, 2, 1, 3), 1, 128, 64)
        x = b.layernorm(f"ln{layer}a", b.op("Add", f"residual{layer}a", (b.dense(f"out{layer}", mixed, 64), x)))
        h = b.dense(f"up{layer}", x, 256)
        e = b.op("Erf", f"erf{layer}", (b.op("Div", f"div{layer}", (h, b.constant(value=1.4))),))
        e = b.op("Mul", f"gelu{layer}", (h, b.op("Add", f"one{layer}", (e, b.constant(value=1)))))
        h = b.op("Mul", f"half{layer}", (e, b.constant(value=0.5)))
        x = b.layernorm(f"ln{layer}b", b.op("Add", f"residual{layer}b", (b.dense(f"down{layer}", h, 64), x)))
    return b.build(x)


def split_heads() -> Graph:
    """GPT-2's way to its heads: one Gemm, Split, three reshapes and transposes."""
    b = Builder("split_heads")
    x = b.layernorm("ln", b.input("x", 32, 64))
    qkv = b.op("Gemm", "gemm", (x, b.constant(64, 192), b.constant(192)), (32, 192))
    parts = b.many(
        "Split", "split", (qkv, b.constant(3, dtype="int64", value=64)), ((32, 64),) * 3, attributes={"axis": 1}
    )
    heads = []
    for name, part in zip("qkv", parts, strict=True):
        heads.append(b.transpose(f"{name}_heads", b.reshape(f"{name}_split", part, 32, 4, 16), 1, 0, 2))
    return b.build(*heads)


def fire() -> Graph:
    """A fire module of SqueezeNet: one convolution feeds two, Concat joins them, a pool follows."""
    b = Builder("fire")
    x = b.op("Relu", "squeeze_relu", (b.conv("squeeze", b.input("x", 1, 64, 28, 28), 16, 1),))
    left = b.op("Relu", "left_relu", (b.conv("left", x, 64, 1),))
    right = b.op("Relu", "right_relu", (b.conv("right", x, 64, 3),))
    joined = b.op("Concat", "concat", (left, right), (1, 128, 28, 28), axis=1)
    return b.build(b.op("MaxPool", "pool", (joined,), (1, 128, 14, 14), kernel_shape=(3, 3), strides=(2, 2)))


def over_fusion() -> Graph:
    """An expensive chain on a column feeds a broadcast Add: fusing all of it computes the chain for every element."""
    b = Builder("over_fusion")
    x = b.input("x", 4096, 1)
    for step in range(3):
        x = b.op("Exp", f"exp{step}", (x,))
    wide = b.op("Relu", "relu", (b.input("y", 4096, 4096),))
    return b.build(b.op("Tanh", "tanh", (b.op("Add", "add", (wide, x)),)))


def decomposed_layernorm() -> Graph:
    """LayerNormalization in nine operators after a matrix product."""
    b = Builder("decomposed_layernorm")
    x = b.dense("dense", b.input("x", 128, 64), 64)
    axes = b.constant(1, dtype="int64", value=-1)
    centred = b.op("Sub", "sub", (x, b.op("ReduceMean", "mean", (x, axes), (128, 1), keepdims=1)))
    square = b.op("Pow", "pow", (centred, b.constant(value=2)))
    variance = b.op("ReduceMean", "variance", (square, axes), (128, 1), keepdims=1)
    root = b.op("Sqrt", "sqrt", (b.op("Add", "epsilon", (variance, b.constant(value=1e-5))),))
    scaled = b.op("Mul", "gamma", (b.op("Div", "div", (centred, root)), b.constant(64)))
    return b.build(b.op("Add", "beta", (scaled, b.constant(64))))


ZOO: dict[str, Callable[[], Graph]] = {
    make.__name__: make
    for make in (
        conv_bn_relu,
        residual,
        squeeze_excite,
        transformer,
        split_heads,
        fire,
        over_fusion,
        decomposed_layernorm,
    )
}


@pytest.fixture(scope="session")
def builder() -> type[Builder]:
    """The graph builder's class."""
    return Builder


@pytest.fixture(params=sorted(ZOO))
def network(request: pytest.FixtureRequest) -> Graph:
    """Each small network in turn."""
    return ZOO[request.param]()


@pytest.fixture(scope="session")
def zoo() -> Mapping[str, Callable[[], Graph]]:
    """Makers of the small networks by name."""
    return ZOO
