"""Transformers that are not encoders of short texts: over many tokens, in windows, and in stages of shrinking maps.

Each is small, in the shapes that published ones have; exporters write them so, with LayerNormalization and GELU as
opset 18 has them.
"""

from __future__ import annotations

import math

from onnx import ModelProto

from experiments.architectures.draft import Draft, int64

Stage = tuple[int, int, int, int, int]
"""Channels, layers, heads, stride of the keys' reduction, expansion of the feed-forward network."""
PYRAMID: tuple[Stage, ...] = ((64, 2, 1, 8, 8), (128, 2, 2, 4, 8), (320, 2, 5, 2, 4), (512, 2, 8, 1, 4))
"""The stages of PVTv2-B1 (Wang et al., 2022, Table 1)."""
PATCH = 16
"""Pixels of a side of a patch of ViT-B/16."""


def hierarchical(size: int = 224, stages: tuple[Stage, ...] = PYRAMID, seed: int = 0) -> ModelProto:
    """PVTv2: patches that overlap, attention to keys of a reduced map, a depthwise convolution in each MLP."""
    net = _Net("hierarchical", seed)
    x, channels, side = "image", 3, size
    for number, (width, layers, heads, reduction, expansion) in enumerate(stages):
        kernel, stride = (7, 4) if number == 0 else (3, 2)
        y = net.convolution(f"patch{number}", x, (width, channels, kernel, kernel), stride, bias=0.0, gain=1.0)
        channels, side = width, (side - 1) // stride + 1
        y = net.norm(f"patch{number}.norm", net.tokens(f"patch{number}.tokens", y, channels, side), channels)
        for layer in range(layers):
            name = f"stage{number}.{layer}"
            read = net.norm(f"{name}.norm1", y, channels)
            keys = read if reduction == 1 else net.reduced(f"{name}.reduced", read, channels, side, reduction)
            near = (side // reduction) ** 2
            made = net.attention(f"{name}.attention", read, keys, channels, heads, (1, side * side, near))
            y = net.node("Add", f"{name}.add1", [y, made])
            hidden = net.linear(f"{name}.wide", net.norm(f"{name}.norm2", y, channels), channels, channels * expansion)
            hidden = net.depthwise(f"{name}.depthwise", hidden, channels * expansion, side)
            hidden = net.node("Gelu", f"{name}.gelu", [hidden])
            made = net.linear(f"{name}.narrow", hidden, channels * expansion, channels)
            y = net.node("Add", f"{name}.add2", [y, made])
        x = net.map(f"stage{number}.map", net.norm(f"stage{number}.norm", y, channels), channels, side)
    net.classifier(net.flat_mean(x), channels, 1000)
    return net.model({"image": [1, 3, size, size]}, "scores", [1, 1000], opset=20)


def windowed(
    size: int = 56, width: int = 96, heads: int = 3, window: int = 7, stages: int = 2, seed: int = 0
) -> ModelProto:
    """The first stages of Swin-T (Liu et al., 2021): attention in windows, every other time rolled by half of one."""
    net = _Net("windowed", seed)
    y = net.convolution("patch", "image", (width, 3, 4, 4), 4, pad=0, bias=0.0, gain=1.0)
    y, channels, side = net.norm("patch.norm", net.tokens("patch.tokens", y, width, size), width), width, size
    for stage in range(stages):
        if stage:
            y, channels, side, heads = (
                net.merged(f"merge{stage}", y, channels, side),
                channels * 2,
                side // 2,
                heads * 2,
            )
        for layer in range(2):
            name, shift = f"stage{stage}.{layer}", layer * (window // 2)
            read = net.norm(f"{name}.norm1", y, channels)
            made = net.in_windows(name, read, channels, heads, side, window, shift)
            y = net.feed_forward(name, net.node("Add", f"{name}.add1", [y, made]), channels)
    y = net.norm("norm", y, channels)
    net.classifier(net.squeezed("mean", net.node("ReduceMean", "pool", [y, net.axes("pool.axes", 1)])), channels, 1000)
    return net.model({"image": [1, 3, 4 * size, 4 * size]}, "scores", [1, 1000], opset=20)


def long_attention(tokens: int = 1500, width: int = 384, heads: int = 6, layers: int = 2, seed: int = 0) -> ModelProto:
    """The encoder of Whisper-tiny (Radford et al., 2022), two layers of it: attention over 1,500 frames."""
    net = _Net("long_attention", seed)
    y = "frames"
    for layer in range(layers):
        name = f"layer{layer}"
        read = net.norm(f"{name}.norm1", y, width)
        made = net.attention(f"{name}.attention", read, read, width, heads, (1, tokens, tokens))
        y = net.feed_forward(name, net.node("Add", f"{name}.add1", [y, made]), width)
    net.norm("norm", y, width)
    return net.model({"frames": [1, tokens, width]}, "states", [1, tokens, width], opset=20)


def vision(size: int = 224, width: int = 768, heads: int = 12, layers: int = 12, seed: int = 0) -> ModelProto:
    """ViT-B/16 (Dosovitskiy et al., 2021): patches and one class token among them, whose state is classified."""
    net, side = _Net("vit", seed), size // PATCH
    tokens = side * side + 1
    y = net.convolution("patch", "image", (width, 3, PATCH, PATCH), PATCH, pad=0, bias=0.0, gain=1.0)
    first = net.constant("class_token", net.normal((1, 1, width), 1.0))
    y = net.node("Concat", "tokens", [first, net.tokens("patch.tokens", y, width, side)], axis=1)
    y = net.node("Add", "placed", [y, net.constant("positions", net.normal((1, tokens, width), 0.2))])
    for layer in range(layers):
        name = f"layer{layer}"
        read = net.norm(f"{name}.norm1", y, width)
        made = net.attention(f"{name}.attention", read, read, width, heads, (1, tokens, tokens))
        y = net.feed_forward(name, net.node("Add", f"{name}.add1", [y, made]), width)
    state = net.squeezed("state", net.cut("state.cut", net.norm("norm", y, width), 0, 1, 1))
    net.classifier(state, width, 1000)
    return net.model({"image": [1, 3, size, size]}, "scores", [1, 1000], opset=20)


def mixer(patches: int = 64, width: int = 96, layers: int = 2, seed: int = 0) -> ModelProto:
    """MLP-Mixer (Tolstikhin et al., 2021): one network mixes the patches of each channel, another one the channels."""
    net = _Net("mixer", seed)
    y = "patches"
    for layer in range(layers):
        name = f"layer{layer}"
        turned = net.node("Transpose", f"{name}.turned", [net.norm(f"{name}.norm1", y, width)], perm=[0, 2, 1])
        hidden = net.node("Gelu", f"{name}.mixed.gelu", [net.linear(f"{name}.mix", turned, patches, 2 * patches)])
        mixed = net.linear(f"{name}.mixed", hidden, 2 * patches, patches)
        back = net.node("Transpose", f"{name}.back", [mixed], perm=[0, 2, 1])
        y = net.feed_forward(name, net.node("Add", f"{name}.add1", [y, back]), width)
    net.norm("norm", y, width)
    return net.model({"patches": [1, patches, width]}, "states", [1, patches, width], opset=20)


class _Net(Draft):
    """A draft with the parts of transformers over images; tokens are [batch, tokens, channels]."""

    def axes(self, name: str, *values: int) -> str:
        return self.constant(name, int64(values))

    def reshaped(self, name: str, x: str, *shape: int) -> str:
        return self.node("Reshape", name, [x, self.axes(f"{name}.shape", *shape)])

    def squeezed(self, name: str, x: str) -> str:
        return self.node("Squeeze", name, [x, self.axes(f"{name}.axes", 1)])

    def tokens(self, name: str, x: str, channels: int, side: int) -> str:
        flat = self.reshaped(f"{name}.flat", x, 1, channels, side * side)
        return self.node("Transpose", name, [flat], perm=[0, 2, 1])

    def map(self, name: str, x: str, channels: int, side: int) -> str:
        turned = self.node("Transpose", f"{name}.turned", [x], perm=[0, 2, 1])
        return self.reshaped(name, turned, 1, channels, side, side)

    def norm(self, name: str, x: str, channels: int) -> str:
        scale = self.constant(f"{name}.scale", self.normal((channels,), 0.1) + 1)
        shift = self.constant(f"{name}.bias", self.normal((channels,), 0.1))
        return self.node("LayerNormalization", name, [x, scale, shift], axis=-1, epsilon=1e-5)

    def linear(self, name: str, x: str, inputs: int, outputs: int, bias: bool = True) -> str:
        weight = self.constant(f"{name}.weight", self.normal((inputs, outputs), 1.0 / math.sqrt(inputs)))
        y = self.node("MatMul", f"{name}.matmul", [x, weight])
        if not bias:
            return y
        return self.node("Add", name, [y, self.constant(f"{name}.bias", self.normal((outputs,), 0.1))])

    def feed_forward(self, name: str, x: str, width: int) -> str:
        y = self.linear(f"{name}.wide", self.norm(f"{name}.norm2", x, width), width, 4 * width)
        y = self.linear(f"{name}.narrow", self.node("Gelu", f"{name}.gelu", [y]), 4 * width, width)
        return self.node("Add", f"{name}.add2", [x, y])

    def reduced(self, name: str, x: str, channels: int, side: int, stride: int) -> str:
        """Tokens of a map that a convolution makes smaller, normalised."""
        y = self.map(f"{name}.map", x, channels, side)
        y = self.convolution(f"{name}.conv", y, (channels, channels, stride, stride), stride, pad=0, bias=0.0, gain=1.0)
        return self.norm(f"{name}.norm", self.tokens(f"{name}.tokens", y, channels, side // stride), channels)

    def depthwise(self, name: str, x: str, channels: int, side: int) -> str:
        """Tokens as a map, a 3 x 3 depthwise convolution, and back."""
        y = self.map(f"{name}.map", x, channels, side)
        y = self.convolution(f"{name}.conv", y, (channels, 1, 3, 3), 1, channels, bias=0.0, gain=1.0)
        return self.tokens(f"{name}.tokens", y, channels, side)

    def attention(
        self, name: str, x: str, keys: str, width: int, heads: int, sizes: tuple[int, int, int], bias: str = ""
    ) -> str:
        """softmax(q k' / sqrt(d) + bias) v, and the output layer; `sizes`: batch, queries, keys."""
        batch, rows, read = sizes
        query = self.in_heads(f"{name}.query", self.linear(f"{name}.q", x, width, width), heads, rows, batch)
        key = self.in_heads(
            f"{name}.key", self.linear(f"{name}.k", keys, width, width), heads, read, batch, turned=True
        )
        value = self.in_heads(f"{name}.value", self.linear(f"{name}.v", keys, width, width), heads, read, batch)
        scores = self.node("MatMul", f"{name}.scores", [query, key])
        scale = self.scalar(f"{name}.scale", 1.0 / math.sqrt(width // heads))
        scores = self.node("Mul", f"{name}.scaled", [scores, scale])
        if bias:
            scores = self.node("Add", f"{name}.biased", [scores, bias])
        shares = self.node("Softmax", f"{name}.softmax", [scores], axis=-1)
        y = self.node(
            "Transpose", f"{name}.turned", [self.node("MatMul", f"{name}.context", [shares, value])], perm=[0, 2, 1, 3]
        )
        return self.linear(f"{name}.output", self.reshaped(f"{name}.joined", y, batch, rows, width), width, width)

    def in_heads(self, name: str, x: str, heads: int, rows: int, batch: int, turned: bool = False) -> str:
        """[batch, tokens, width] -> [batch, heads, tokens, width of a head], its last two turned if asked."""
        y = self.reshaped(f"{name}.split", x, batch, rows, heads, -1)
        return self.node("Transpose", name, [y], perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3])

    def in_windows(self, name: str, x: str, channels: int, heads: int, side: int, window: int, shift: int) -> str:
        """Attention among the tokens of each window of a map that is rolled by `shift` before and back after."""
        many, area = (side // window) ** 2, window * window
        y = self.reshaped(f"{name}.map", x, 1, side, side, channels)
        y = self.rolled(f"{name}.rolled", y, shift, side) if shift else y
        y = self.reshaped(f"{name}.cut", y, side // window, window, side // window, window, channels)
        y = self.node("Transpose", f"{name}.partition", [y], perm=[0, 2, 1, 3, 4])
        y = self.reshaped(f"{name}.windows", y, many, area, channels)
        table = self.constant(f"{name}.table", self.normal((1, heads, area, area), 0.1))
        y = self.attention(f"{name}.attention", y, y, channels, heads, (many, area, area), table)
        y = self.reshaped(f"{name}.uncut", y, side // window, side // window, window, window, channels)
        y = self.node("Transpose", f"{name}.joined", [y], perm=[0, 2, 1, 3, 4])
        y = self.reshaped(f"{name}.whole", y, 1, side, side, channels)
        y = self.rolled(f"{name}.unrolled", y, side - shift, side) if shift else y
        return self.reshaped(f"{name}.tokens", y, 1, side * side, channels)

    def rolled(self, name: str, x: str, shift: int, side: int) -> str:
        """A map rolled over its rows, then its columns, as exporters write it: two slices joined."""
        for axis in (1, 2):
            parts = [
                self.cut(f"{name}.{axis}.{start}", x, start, end, axis) for start, end in ((shift, side), (0, shift))
            ]
            x = self.node("Concat", f"{name}.{axis}", parts, axis=axis)
        return x

    def cut(self, name: str, x: str, start: int, end: int, axis: int) -> str:
        """A part of a tensor along one axis."""
        bounds = {"starts": start, "ends": end, "axes": axis}
        return self.node("Slice", name, [x, *(self.axes(f"{name}.{part}", one) for part, one in bounds.items())])

    def merged(self, name: str, x: str, channels: int, side: int) -> str:
        """Four neighbouring tokens become one of twice the channels."""
        y = self.reshaped(f"{name}.map", x, side // 2, 2, side // 2, 2, channels)
        y = self.node("Transpose", f"{name}.turned", [y], perm=[0, 2, 3, 1, 4])
        y = self.norm(
            f"{name}.norm", self.reshaped(f"{name}.joined", y, 1, side * side // 4, 4 * channels), 4 * channels
        )
        return self.linear(f"{name}.linear", y, 4 * channels, 2 * channels, bias=False)
