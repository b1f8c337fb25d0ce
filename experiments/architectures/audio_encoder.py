"""An audio encoder of wav2vec 2.0's kind (Baevski et al., 2020): strided 1-D convolutions, then a transformer.

As PyTorch's exporter writes it: GroupNorm becomes Reshape, InstanceNormalization, Reshape, Mul, Add; the position
convolution has an even number of taps, so a Slice cuts one result. Weights are random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from experiments.architectures.draft import HE, Draft, int64

OPSET = 17


@dataclass(frozen=True)
class Audio:
    """`hidden` must be a multiple of `heads` and of `groups`; `layers` (taps, stride) of the feature encoder."""

    samples: int = 32_000
    channels: int = 512
    hidden: int = 768
    heads: int = 12
    intermediate: int = 3072
    transformers: int = 4
    taps: int = 128
    groups: int = 16
    layers: tuple[tuple[int, int], ...] = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))

    @property
    def frames(self) -> int:
        """Vectors that the feature encoder makes of the samples."""
        size = self.samples
        for taps, stride in self.layers:
            size = (size - taps) // stride + 1
        return size


def build(audio: Audio | None = None, seed: int = 0) -> ModelProto:
    """The encoder of one clip: float32 samples -> hidden states."""
    audio = audio or Audio()
    draft = Draft("audio_encoder", seed)
    draft.scalar("sqrt2", math.sqrt(2.0))
    draft.scalar("one", 1.0)
    draft.scalar("half", 0.5)
    x = _features(draft, audio)
    x = draft.node("Transpose", "features.turned", [x], perm=[0, 2, 1])
    x = _norm(draft, "features.norm", x, audio.channels)
    x = _linear(draft, "features.projection", x, audio.channels, audio.hidden)
    x = draft.node("Add", "positions.added", [x, _positions(draft, x, audio)])
    x = _norm(draft, "encoder.norm", x, audio.hidden)
    draft.constant("split", int64([1, audio.frames, audio.heads, audio.hidden // audio.heads]))
    draft.constant("merge", int64([1, audio.frames, audio.hidden]))
    for layer in range(audio.transformers):
        x = _layer(draft, f"encoder.{layer}", x, audio)
    return draft.model({"samples": [1, audio.samples]}, "hidden_states", [1, audio.frames, audio.hidden], opset=OPSET)


def _features(draft: Draft, audio: Audio) -> str:
    """The strided convolutions; the first is normalised over time, a channel at a time."""
    x = draft.node("Unsqueeze", "samples.spread", ["samples", draft.constant("samples.axes", int64([1]))])
    inputs = 1
    for number, (taps, stride) in enumerate(audio.layers):
        name = f"features.{number}"
        weight = draft.normal((audio.channels, inputs, taps), HE / math.sqrt(inputs * taps))
        x = draft.node(
            "Conv", f"{name}.conv", [x, draft.constant(f"{name}.weight", weight)],
            kernel_shape=[taps], strides=[stride], pads=[0, 0], group=1, dilations=[1],
        )  # fmt: skip
        x = _group_norm(draft, f"{name}.norm", x, audio.channels) if number == 0 else x
        x = _gelu(draft, f"{name}.gelu", x)
        inputs = audio.channels
    return x


def _group_norm(draft: Draft, name: str, x: str, channels: int) -> str:
    """GroupNorm of as many groups as channels."""
    flat = draft.node("Reshape", f"{name}.flat", [x, draft.constant(f"{name}.flat.shape", int64([0, channels, -1]))])
    ones = draft.constant(f"{name}.ones", np.ones(channels, np.float32))
    zeros = draft.constant(f"{name}.zeros", np.zeros(channels, np.float32))
    y = draft.node("InstanceNormalization", f"{name}.instance", [flat, ones, zeros], epsilon=1e-5)
    y = draft.node("Reshape", f"{name}.back", [y, draft.node("Shape", f"{name}.shape", [x])])
    scale = draft.constant(f"{name}.scale", draft.normal((channels, 1), 0.1) + np.float32(1.0))
    bias = draft.constant(f"{name}.bias", draft.normal((channels, 1), 0.1))
    return draft.node("Add", f"{name}.shifted", [draft.node("Mul", f"{name}.scaled", [y, scale]), bias])


def _positions(draft: Draft, x: str, audio: Audio) -> str:
    """A grouped convolution over the frames; the last of its results goes, since its taps are even in number."""
    wide = audio.hidden // audio.groups
    weight = draft.normal((audio.hidden, wide, audio.taps), HE / math.sqrt(wide * audio.taps))
    bias = draft.constant("positions.bias", draft.normal((audio.hidden,), 0.1))
    y = draft.node("Transpose", "positions.turned", [x], perm=[0, 2, 1])
    y = draft.node(
        "Conv", "positions.conv", [y, draft.constant("positions.weight", weight), bias],
        kernel_shape=[audio.taps], strides=[1], pads=[audio.taps // 2] * 2, group=audio.groups, dilations=[1],
    )  # fmt: skip
    ends = {"starts": [0], "ends": [-1], "axes": [2], "steps": [1]}
    bounds = [draft.constant(f"positions.{label}", int64(values)) for label, values in ends.items()]
    y = _gelu(draft, "positions.gelu", draft.node("Slice", "positions.cut", [y, *bounds]))
    return draft.node("Transpose", "positions.back", [y], perm=[0, 2, 1])


def _layer(draft: Draft, name: str, x: str, audio: Audio) -> str:
    """Attention and feed-forward network, each added to its input and normalised."""
    y = _attention(draft, f"{name}.attention", x, audio)
    x = _norm(draft, f"{name}.norm1", draft.node("Add", f"{name}.add1", [x, y]), audio.hidden)
    y = _gelu(draft, f"{name}.gelu", _linear(draft, f"{name}.wide", x, audio.hidden, audio.intermediate))
    y = _linear(draft, f"{name}.narrow", y, audio.intermediate, audio.hidden)
    return _norm(draft, f"{name}.norm2", draft.node("Add", f"{name}.add2", [x, y]), audio.hidden)


def _attention(draft: Draft, name: str, x: str, audio: Audio) -> str:
    """softmax(q k') v, a head at a time, with the queries scaled before, and the output layer."""
    parts = {}
    for part in ("query", "key", "value"):
        y = _linear(draft, f"{name}.{part}", x, audio.hidden, audio.hidden)
        if part == "query":
            scale = draft.scalar(f"{name}.scale", 1.0 / math.sqrt(audio.hidden // audio.heads))
            y = draft.node("Mul", f"{name}.query.scaled", [y, scale])
        y = draft.node("Reshape", f"{name}.{part}.split", [y, "split"])
        parts[part] = draft.node("Transpose", f"{name}.{part}.heads", [y], perm=[0, 2, 1, 3])
    keys = draft.node("Transpose", f"{name}.key.turned", [parts["key"]], perm=[0, 1, 3, 2])
    scores = draft.node("MatMul", f"{name}.scores", [parts["query"], keys])
    scores = draft.node("Softmax", f"{name}.softmax", [scores], axis=-1)
    y = draft.node("MatMul", f"{name}.context", [scores, parts["value"]])
    y = draft.node("Transpose", f"{name}.context.turned", [y], perm=[0, 2, 1, 3])
    y = draft.node("Reshape", f"{name}.context.merged", [y, "merge"])
    return _linear(draft, f"{name}.output", y, audio.hidden, audio.hidden)


def _linear(draft: Draft, name: str, x: str, inputs: int, outputs: int) -> str:
    """MatMul and the addition of a bias."""
    weight = draft.constant(f"{name}.weight", draft.normal((inputs, outputs), 1.0 / math.sqrt(inputs)))
    bias = draft.constant(f"{name}.bias", draft.normal((outputs,), 0.1))
    return draft.node("Add", f"{name}.add", [bias, draft.node("MatMul", f"{name}.matmul", [x, weight])])


def _norm(draft: Draft, name: str, x: str, channels: int) -> str:
    """LayerNormalization over the last axis."""
    scale = draft.constant(f"{name}.scale", draft.normal((channels,), 0.1) + np.float32(1.0))
    bias = draft.constant(f"{name}.bias", draft.normal((channels,), 0.1))
    return draft.node("LayerNormalization", name, [x, scale, bias], axis=-1, epsilon=1e-5)


def _gelu(draft: Draft, name: str, x: str) -> str:
    """x * (1 + erf(x / sqrt(2))) * 0.5."""
    y = draft.node("Erf", f"{name}.erf", [draft.node("Div", f"{name}.div", [x, "sqrt2"])])
    y = draft.node("Mul", f"{name}.product", [x, draft.node("Add", f"{name}.add", [y, "one"])])
    return draft.node("Mul", name, [y, "half"])
