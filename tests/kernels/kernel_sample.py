"""Kernels of every family and choice, for three kinds of vectors: what the golden digests name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper

from autofuse.device.target import Target
from autofuse.graph.own.rounding import rounded
from autofuse.kernels.build import build_kernel
from autofuse.kernels.tir.digest import code_key
from tests.kernels.conftest import Bench, Small, parsed, real

TARGETS = {
    "avx2": Target("znver3", 8, 16, 2, 32768, 524288),
    "avx512": Target("znver4", 16, 32, 2, 32768, 1 << 20),
    "neon": Target("cortex-a76", 4, 32, 4, 65536, 524288, mtriple="aarch64-linux-gnu", mattr=("+neon",)),
}
NEWEST_ARM = Target("neoverse-v2", 4, 32, 4, 65536, 2 << 20, mtriple="aarch64-linux-gnu", mattr=("+neon",))


@dataclass(frozen=True)
class Sample:
    """A group, the schedule that it is emitted under, and its tensors that lie in blocks of channels."""

    small: Small
    schedule: Mapping[str, int | str] = field(default_factory=dict)
    blocked: tuple[str, ...] = ()


def made(text: str, x: Any, opset: int = 17, **constants: Any) -> Small:
    inputs = x if isinstance(x, dict) else {"x": x}
    return Small(parsed(text), inputs, ["y"], {name: np.asarray(array) for name, array in constants.items()}, opset)


SCATTERED = made(
    """y = ScatterND <reduction="add"> (d, i, u)""",
    {"d": real(7, 40), "i": np.arange(9, dtype="int64")[:, None] % 7, "u": real(9, 40)}, opset=18,
)  # fmt: skip
IMAGE, WEIGHTS = real(1, 16, 14, 14), real(32, 16, 3, 3)
SQUARE = made("c = Conv <pads=[1, 1, 1, 1]> (x, w, b); y = Relu (c)", IMAGE, w=WEIGHTS, b=real(32))
DEEP = made("y = Conv <pads=[1, 1, 1, 1]> (x, w)", real(1, 64, 7, 7), w=real(32, 64, 3, 3))
POINT = made("c = Conv (x, w, b); y = Clip (c, low, six)", IMAGE, w=real(48, 16, 1, 1), b=real(48), low=np.float32(0),
             six=np.float32(6))  # fmt: skip
STRIDED = made("y = Conv <pads=[1, 1, 1, 1], strides=[2, 2]> (x, w)", real(1, 16, 15, 17), w=WEIGHTS)
GROUPED = made("y = Conv <pads=[1, 1, 1, 1], group=2> (x, w)", IMAGE, w=real(32, 8, 3, 3))
SMALL_GROUPS = made("y = Conv <pads=[1, 1, 1, 1], group=8> (x, w)", IMAGE, w=real(16, 2, 3, 3))
TRANSPOSED = made(
    "y = ConvTranspose <strides=[2, 2], pads=[1, 1, 1, 1]> (x, w)", real(1, 16, 7, 9), w=real(16, 32, 4, 4)
)
VOLUME = made("y = Conv <pads=[1, 1, 1, 1, 1, 1]> (x, w)", real(1, 16, 3, 5, 6), w=real(16, 16, 3, 3, 3))
PRODUCT = made("c = MatMul (x, w); d = Add (c, b); y = Tanh (d)", real(1, 40, 64), w=real(64, 96), b=real(96))
LONG = made("y = MatMul (x, w)", real(1, 40, 512), w=real(512, 96))
FEW = made("y = MatMul (x, w)", real(4, 256), w=real(256, 96))
TURNED = made("y = Gemm <transB=1> (x, w, b)", real(24, 64), w=real(80, 64), b=real(80))
NARROW = made("y = Gemm <transB=1> (x, w)", real(24, 64), w=real(2, 64))
BATCHED = made("y = MatMul (x, v)", {"x": real(3, 24, 16), "v": real(3, 16, 20)})
DEPTHWISE = made("d = Conv <pads=[1, 1, 1, 1], group=16> (x, w); y = Relu (d)", IMAGE, w=real(16, 1, 3, 3))
MAXIMUM = made("y = MaxPool <kernel_shape=[3, 3], strides=[2, 2]> (x)", IMAGE)
AVERAGE = made("y = AveragePool <kernel_shape=[2, 2], strides=[2, 2]> (x)", IMAGE)
GLOBAL = made("y = GlobalAveragePool (x)", IMAGE)
MEAN = made("y = ReduceMean <axes=[-1]> (x)", real(6, 10, 64))
SUM = made("y = ReduceMax <axes=[1]> (x)", real(6, 10, 64))
PLACES = made("y = ArgMax <axis=-1> (x)", real(6, 10, 64))
PLACES_OF_COLUMNS = made("y = ArgMin <axis=1> (x)", real(6, 10, 64))
SOFTMAX = made("y = Softmax <axis=-1> (x)", real(12, 40))
OVER_COLUMNS = made("y = Softmax <axis=1> (x)", real(3, 12, 40))
NORM = made("a = Add (x, x); y = LayerNormalization <axis=-1> (a, g, h)", real(10, 48), g=real(48), h=real(48))
MISH = made("s = Softplus (x); t = Tanh (s); y = Mul (x, t)", real(1, 32, 64, 70))
ERF = made("d = Div (x, r); e = Erf (d); o = Add (e, one); y = Mul (x, o)", real(64, 512), r=np.float32(1.5),
           one=np.float32(1))  # fmt: skip
TURN = made("t = Transpose <perm=[0, 2, 1, 3]> (x); y = Reshape (t, z)", real(2, 6, 8, 16), z=np.array([2, 8, 96]))
MATRIX = made("y = Transpose (x)", real(40, 50))
TO_CHANNELS_LAST = made("y = Transpose <perm=[0, 2, 3, 1]> (x)", real(1, 3, 8, 9))
JOIN = made("r = Relu (x); y = Concat <axis=1> (r, v)", {"x": real(1, 16, 9, 9), "v": real(1, 8, 9, 9)})
PART = made("s = Slice (x, from, to, axes); y = Sigmoid (s)", real(1, 16, 20, 20), **{"from": np.array([2, 3])},
            to=np.array([18, 19]), axes=np.array([2, 3]))  # fmt: skip
LARGER = made('y = Resize <mode="linear", coordinate_transformation_mode="half_pixel"> (x, , s)', real(1, 16, 8, 8),
              s=np.array([1, 1, 2, 2], "float32"))  # fmt: skip
LOOKED_UP = made("g = Gather <axis=0> (t, x); y = Add (g, g)", np.array([[3, 1, 2]]), t=real(10, 64))
ATTENTION = made("s = MatMul (q, k); p = Softmax <axis=-1> (s); y = MatMul (p, v)",
                 {"q": real(2, 24, 16), "k": real(2, 16, 40), "v": real(2, 40, 16)})  # fmt: skip
RESIDUAL = made(
    "e = Conv (x, u); r = Relu (e); d = Conv <group=48, pads=[1, 1, 1, 1]> (r, w); s = Relu (d); p = Conv (s, v); "
    "y = Add (p, x)", IMAGE, u=real(48, 16, 1, 1), w=real(48, 1, 3, 3), v=real(16, 48, 1, 1),
)  # fmt: skip
MEMORY = made("y = LSTM <hidden_size=40> (x, w, r, b)", real(6, 3, 8), w=real(1, 160, 8), r=real(1, 160, 40),
              b=real(1, 320))  # fmt: skip
GATED = made('y = GRU <hidden_size=40, direction="bidirectional"> (x, w, r)', real(6, 1, 8), w=real(2, 120, 8),
             r=real(2, 120, 40))  # fmt: skip
RESET = made('y = GRU <hidden_size=40, linear_before_reset=1, direction="reverse"> (x, w, r)', real(6, 1, 8),
             w=real(1, 120, 8), r=real(1, 120, 40))  # fmt: skip
SIMPLE = made("y = RNN <hidden_size=40> (x, w, r)", real(6, 4, 8), w=real(1, 40, 8), r=real(1, 40, 40))
LEVELS = np.random.default_rng(5)
BYTES = {"x": LEVELS.integers(0, 256, (24, 62), "uint8"), "w": LEVELS.integers(-127, 128, (62, 72), "int8")}
QUANTIZED = made(
    "s = MatMulInteger (x, w, z); r = DequantizeLinear <axis=-1> (s, a); y = QuantizeLinear (r, one, p)", BYTES["x"],
    w=BYTES["w"], z=np.uint8(7), a=np.abs(real(72)) / 100 + np.float32(0.001), one=np.float32(1), p=np.uint8(30),
)  # fmt: skip
QUANTIZED_MAP = made(
    "s = ConvInteger <pads=[1, 1, 1, 1]> (x, w, z); r = DequantizeLinear (s, a); y = QuantizeLinear (r, one, p)",
    LEVELS.integers(0, 256, (1, 16, 12, 12), "uint8"), w=LEVELS.integers(-127, 128, (32, 16, 3, 3), "int8"),
    z=np.uint8(7), a=np.abs(real(32)) / 100 + np.float32(0.001), one=np.float32(1), p=np.uint8(30),
)  # fmt: skip
DEPTHWISE_BYTES = made(
    "s = ConvInteger <pads=[1, 1, 1, 1], group=16> (x, w, z); r = DequantizeLinear (s, a); "
    "y = QuantizeLinear (r, one, p)",
    LEVELS.integers(0, 256, (1, 16, 12, 12), "uint8"), w=LEVELS.integers(-127, 128, (16, 1, 3, 3), "int8"),
    z=np.uint8(7), a=np.abs(real(16)) / 100 + np.float32(0.001), one=np.float32(1), p=np.uint8(30),
)  # fmt: skip
FEW_QUANTIZED = made("y = MatMulInteger (x, w, z)", BYTES["x"][:8], w=BYTES["w"], z=np.uint8(7))
NIBBLES = Small(
    [helper.make_node("MatMulNBits", ["x", "w", "s", "z"], ["y"], domain="com.microsoft", K=64, N=80, bits=4,
                      block_size=32)],
    {"x": real(12, 64)}, ["y"], {"w": LEVELS.integers(0, 256, (80, 2, 16), "uint8"), "s": np.abs(real(80, 2)),
                                 "z": LEVELS.integers(0, 256, (80, 1), "uint8")},
)  # fmt: skip
ROUGH_NIBBLES = Small(
    [helper.make_node("MatMulNBits", ["x", "w", "s", "z"], ["y"], domain="com.microsoft", K=64, N=80, bits=4,
                      block_size=32, accuracy_level=4)],
    NIBBLES.inputs, ["y"], NIBBLES.constants,
)  # fmt: skip
ROUNDED = "h = Cast <to=16> (x); r = Cast <to=1> (h); "
HALVES = made(ROUNDED + "c = MatMul (r, w); d = Add (c, b); y = Relu (d)", real(24, 62), w=rounded(real(62, 72)),
              b=real(72))  # fmt: skip
FEW_HALVES = made(ROUNDED + "y = MatMul (r, w)", real(8, 62), w=rounded(real(62, 72)))
HALF_MAP = made(ROUNDED + "c = Conv <pads=[1, 1, 1, 1]> (r, w, b); y = Relu (c)", IMAGE, w=rounded(WEIGHTS), b=real(32))
PHOTOGRAPH = made(
    "y = ConvInteger <pads=[3, 3, 3, 3], strides=[2, 2]> (x, w, z)", LEVELS.integers(0, 256, (1, 3, 20, 40), "uint8"),
    w=LEVELS.integers(-127, 128, (32, 3, 7, 7), "int8"), z=np.uint8(7),
)  # fmt: skip
HALF_PHOTOGRAPH = made(ROUNDED + "y = Conv <pads=[3, 3, 3, 3], strides=[2, 2]> (r, w)", real(1, 3, 20, 40),
                       w=rounded(real(32, 3, 7, 7)))  # fmt: skip
ROUNDING = made(ROUNDED + "y = Relu (r)", real(6, 40))
IMPORTED = made("y = CumSum (x, a)", real(6, 40), a=np.array(1, "int64"))

TILE = {"contraction.vectors": 2, "contraction.pixels": 4}
DIRECT = TILE | {"contraction.algorithm": "direct"}
MAPS = ("x", "y")

SAMPLES: Mapping[str, Sample] = {
    "convolution, plain": Sample(SQUARE, DIRECT),
    "convolution, blocks": Sample(SQUARE, DIRECT, MAPS),
    "convolution, by rows of pixels": Sample(
        SQUARE,
        DIRECT | {"contraction.order": "pixels", "contraction.panels_per_task": 0, "contraction.vectors": 1},
        MAPS,
    ),
    "convolution, copied rows": Sample(SQUARE, DIRECT | {"contraction.order": "copied"}, MAPS),
    "convolution, passes": Sample(DEEP, DIRECT | {"contraction.k_blocking": 2}, MAPS),
    "convolution, all rows and panels": Sample(
        SQUARE, DIRECT | {"contraction.rows_per_task": 0, "contraction.panels_per_task": 0}, MAPS
    ),
    "winograd 4x4, chunk": Sample(SQUARE, TILE | {"contraction.algorithm": "winograd4", "contraction.tiles": 4}, MAPS),
    "winograd 4x4, root": Sample(SQUARE, TILE | {"contraction.algorithm": "winograd4", "contraction.stage": "root"}),
    "winograd 2x2, chunk": Sample(SQUARE, TILE | {"contraction.algorithm": "winograd2", "contraction.tiles": 7}, MAPS),
    "pointwise, blocks": Sample(POINT, DIRECT, MAPS),
    "pointwise, split rows": Sample(POINT, DIRECT | {"contraction.pixel_rows": 4}, MAPS),
    "pointwise, lanes over pixels": Sample(POINT, TILE | {"contraction.algorithm": "pixel_lanes"}),
    "pointwise, lanes over pixels, direct": Sample(
        POINT, TILE | {"contraction.algorithm": "pixel_lanes", "contraction.operand": "direct"}
    ),
    "strided convolution": Sample(STRIDED, DIRECT, MAPS),
    "grouped convolution": Sample(GROUPED, DIRECT),
    "small groups": Sample(
        SMALL_GROUPS, {"contraction.vectors": 1, "contraction.pixels": 4, "contraction.algorithm": "group_lanes"}, MAPS
    ),
    "transposed convolution": Sample(TRANSPOSED, DIRECT, MAPS),
    "convolution of volumes": Sample(VOLUME, DIRECT, MAPS),
    "product": Sample(PRODUCT, DIRECT),
    "product, passes": Sample(LONG, DIRECT | {"contraction.k_blocking": 4}),
    "product, parts": Sample(FEW, DIRECT | {"contraction.split_k": 4}),
    "product of turned weights": Sample(TURNED, DIRECT),
    "product of two columns, dot": Sample(NARROW, TILE | {"contraction.algorithm": "dot"}),
    "batched product": Sample(BATCHED, DIRECT),
    "batched product, direct operand": Sample(BATCHED, DIRECT | {"contraction.operand": "direct"}),
    "depthwise, blocks": Sample(DEPTHWISE, {"windowed.pixels": 7}, MAPS),
    "depthwise, lanes over pixels": Sample(
        DEPTHWISE, {"windowed.algorithm": "pixel_lanes", "windowed.rows_per_task": 7}
    ),
    "maximum pool": Sample(MAXIMUM, {}, MAPS),
    "average pool": Sample(AVERAGE, {"windowed.pixels": 2}),
    "global average pool": Sample(GLOBAL),
    "mean of rows": Sample(MEAN),
    "maximum of columns": Sample(SUM),
    "place of the maximum of rows": Sample(PLACES),
    "place of the minimum of columns": Sample(PLACES_OF_COLUMNS),
    "softmax of rows": Sample(SOFTMAX, {"last_axis.rows": 2}),
    "softmax of columns": Sample(OVER_COLUMNS),
    "layer normalization": Sample(NORM, {"last_axis.rows": 4}),
    "elementwise, mish": Sample(MISH, {"elementwise.tasks": 8}, MAPS),
    "elementwise, gelu": Sample(ERF, {"elementwise.tasks": 2}),
    "transpose, reshape": Sample(TURN),
    "transpose of a matrix": Sample(MATRIX),
    "transpose to channels last": Sample(TO_CHANNELS_LAST),
    "concatenation": Sample(JOIN),
    "slice, sigmoid": Sample(PART),
    "resize": Sample(LARGER),
    "gather": Sample(LOOKED_UP),
    "attention, in turn": Sample(ATTENTION, DIRECT | {"chain.rows": 0}),
    "attention, by blocks": Sample(ATTENTION, DIRECT | {"chain.rows": 16}),
    "inverted residual, in turn": Sample(RESIDUAL, DIRECT | {"band.rows": 0}, MAPS),
    "inverted residual, by bands": Sample(RESIDUAL, DIRECT | {"band.rows": 4}, MAPS),
    "LSTM": Sample(MEMORY, {"recurrent.rows": 2, "recurrent.vectors": 1}),
    "LSTM, units split": Sample(MEMORY, {"recurrent.split": 2, "recurrent.vectors": 1}),
    "GRU, both ways": Sample(GATED, {"recurrent.vectors": 1}),
    "GRU, reset after the product": Sample(RESET, {"recurrent.vectors": 1, "recurrent.sweep": "forward"}),
    "RNN": Sample(SIMPLE, {"recurrent.vectors": 1, "recurrent.unroll": 4}),
    "TVM's importer": Sample(IMPORTED),
    "weights of 4 bits, streamed": Sample(
        NIBBLES, {"weight_only.vectors": 2, "weight_only.rows": 4, "weight_only.prefetch": 0}
    ),
    "weights of 4 bits, one row": Sample(NIBBLES, {"weight_only.vectors": 2, "weight_only.rows": 1}),
    "weights of 4 bits, unpacked": Sample(
        NIBBLES, {"weight_only.algorithm": "unpacked", "weight_only.vectors": 2, "weight_only.rows": 4}
    ),
    "weights of 4 bits, in bytes": Sample(
        ROUGH_NIBBLES, {"weight_only.algorithm": "bytes", "weight_only.vectors": 2, "weight_only.rows": 6}
    ),
    "integer product": Sample(QUANTIZED, {"integer.vectors": 2, "integer.pixels": 6}),
    "integer product, weights asked for": Sample(FEW_QUANTIZED, {"integer.vectors": 2, "integer.prefetch": 64}),
    "bfloat16 product, weights asked for": Sample(FEW_HALVES, {"bfloat16.vectors": 2, "bfloat16.prefetch": 64}),
    "integer convolution, by pairs": Sample(QUANTIZED_MAP, {"integer.algorithm": "pairs", "integer.vectors": 1}),
    "integer convolution, few channels": Sample(PHOTOGRAPH, {"integer.vectors": 2, "integer.pixels": 4}),
    "bfloat16 convolution, few channels": Sample(HALF_PHOTOGRAPH, {"bfloat16.vectors": 2, "bfloat16.pixels": 4}),
    "integer convolution, blocks": Sample(QUANTIZED_MAP, {"integer.vectors": 2, "integer.pixels": 4}, MAPS),
    "depthwise integers, blocks": Sample(DEPTHWISE_BYTES, {"integer_depthwise.pixels": 4}, MAPS),
    "depthwise integers, plain": Sample(
        DEPTHWISE_BYTES, {"integer_depthwise.pixels": 6, "integer_depthwise.rows_per_task": 4}
    ),
    "product of bfloat16": Sample(HALVES, {"bfloat16.vectors": 2, "bfloat16.pixels": 6}),
    "product of bfloat16, rows apart": Sample(
        HALVES, {"bfloat16.vectors": 2, "bfloat16.pixels": 6, "bfloat16.pixel_rows": 2}
    ),
    "product of bfloat16, widened": Sample(
        HALVES, {"bfloat16.algorithm": "widened", "bfloat16.vectors": 3, "bfloat16.pixels": 4}
    ),
    "convolution of bfloat16, blocks": Sample(HALF_MAP, {"bfloat16.vectors": 2, "bfloat16.pixels": 4}, MAPS),
    "convolution of bfloat16, rows a task": Sample(
        HALF_MAP, {"bfloat16.vectors": 2, "bfloat16.pixels": 4, "bfloat16.rows_per_task": 2}
    ),
    "rounding to bfloat16": Sample(ROUNDING),
    "sums of scattered rows": Sample(SCATTERED),
    "integer convolution, one by one": Sample(QUANTIZED_MAP, {"integer.algorithm": "single", "integer.pixels": 4}),
}


def digests(isa: str) -> Iterator[tuple[str, str]]:
    """(name, SHA-256 of the code) of every sample for one kind of vectors. Nothing is built."""
    target, bench = TARGETS[isa], Bench()
    for name, sample in SAMPLES.items():
        layouts = dict.fromkeys(sample.blocked, f"c{target.lanes}")
        workload = bench.bind(sample.small, layouts).workload
        yield name, code_key(build_kernel(workload, sample.schedule, target).function)
