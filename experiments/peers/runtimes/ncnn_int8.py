"""ncnn's files in int8: what its tools `ncnn2table` and `ncnn2int8`, which its package for Python lacks, would write.

Weights have a scale for each channel (of depthwise convolutions: each group), inputs one for each layer, all by the
largest number; 3x3 convolutions of stride 1 have weights of six bits, as ncnn's table gives them, since its Winograd
sums in 16 bits. A convolution that only convolutions in int8 read writes bytes itself (ncnn: "requantize").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from experiments.peers.runtimes.job import Array, UnsupportedError

PARAMETERS, WEIGHTS = "model.ncnn.param", "model.ncnn.bin"
CONVOLUTION, DEPTHWISE, PRODUCT = "Convolution", "ConvolutionDepthWise", "InnerProduct"
QUANTISED = (CONVOLUTION, DEPTHWISE, PRODUCT)
OF_CHANNELS, OF_GROUPS, REQUANTISED = 2, 1, 100
"""ncnn's `int8_scale_term`: of convolutions and products, of depthwise ones; added where the result is bytes."""
IN_FLOAT32, IN_BYTES = 0, 0x000D4B38
"""What stands before an array of weights: its type."""
LEVELS, FEW_LEVELS = 127, 31
LEAST = 1e-12


@dataclass
class Layer:
    """A line of a .param file. `numbers`: its parameters by their numbers, as they are written."""

    kind: str
    name: str
    bottoms: list[str]
    tops: list[str]
    numbers: dict[int, str]

    @classmethod
    def read(cls, line: str) -> Layer:
        """See above."""
        kind, name, inputs, outputs, *rest = line.split()
        cut = int(inputs)
        blobs, numbers = rest[: cut + int(outputs)], dict(part.split("=", 1) for part in rest[cut + int(outputs) :])
        return cls(kind, name, blobs[:cut], blobs[cut:], {int(key): value for key, value in numbers.items()})

    def __str__(self) -> str:
        head = f"{self.kind} {self.name} {len(self.bottoms)} {len(self.tops)}"
        return " ".join([head, *self.bottoms, *self.tops, *(f"{key}={value}" for key, value in self.numbers.items())])

    def number(self, key: int, default: int = 0) -> int:
        """One of its parameters."""
        return int(self.numbers.get(key, default))

    @property
    def columns(self) -> int:
        """Results: channels of a convolution, columns of a product."""
        return self.number(0)

    def arrays(self) -> Iterator[tuple[int, bool]]:
        """The arrays of its weights in their order: how many numbers each has, whether its type stands before it."""
        if self.kind in (CONVOLUTION, DEPTHWISE, "Deconvolution", "DeconvolutionDepthWise"):
            yield self.number(6), True
            yield self.columns * self.number(5), False
        elif self.kind == PRODUCT:
            yield self.number(2), True
            yield self.columns * self.number(1), False
        elif self.kind == "MemoryData":
            yield prod(max(self.number(key), 1) for key in (0, 1, 11, 2)), False
        elif self.kind == "BatchNorm":
            yield from [(self.columns, False)] * 4

    @property
    def is_winograd(self) -> bool:
        """Whether ncnn may take Winograd's algorithm."""
        sides = [self.number(1), self.number(11, self.number(1))]
        steps = [self.number(key, self.number(low, 1)) for low, key in ((2, 12), (3, 13))] + [self.number(3, 1)]
        return self.kind == CONVOLUTION and sides == [3, 3] and set(steps) == {1}


def quantise(folder: Path, inputs: Sequence[Any], into: Path) -> None:
    """Write the int8 form of the float32 files in `folder` to `into`, its ranges those of `inputs` (ncnn's arrays)."""
    head, count, *lines = (folder / PARAMETERS).read_text(encoding="utf-8").splitlines()
    layers = [Layer.read(line) for line in lines if line.strip()]
    chosen = {layer.name for layer in layers if layer.kind in QUANTISED}
    if not chosen:
        raise UnsupportedError("ncnn has no layer here that it computes in int8")
    scales = _scales(folder, {layer.bottoms[0] for layer in layers if layer.name in chosen}, inputs)
    requantised = _requantised(layers, scales)
    data, at, written = (folder / WEIGHTS).read_bytes(), 0, bytearray()
    for layer in layers:
        start, parts = at, list[Array]()
        for size, typed in layer.arrays():
            if typed and int.from_bytes(data[at : at + 4], "little") != IN_FLOAT32:
                raise UnsupportedError(f"the weights of {layer.name} are not float32")
            at += 4 * typed
            parts.append(np.frombuffer(data, "<f4", size, at))
            at += 4 * size
        if layer.name in chosen:
            written += _bytes_of(layer, parts, scales[layer.bottoms[0]], requantised.get(layer.name))
        else:
            written += data[start:at]
    if at != len(data):
        raise UnsupportedError("a layer has weights of a kind that is not known here")
    into.mkdir(parents=True, exist_ok=True)
    (into / PARAMETERS).write_text("\n".join([head, count, *map(str, layers)]) + "\n", encoding="utf-8")
    (into / WEIGHTS).write_bytes(bytes(written))


def _bytes_of(layer: Layer, parts: Sequence[Array], bottom: float, top: float | None) -> bytes:
    """A layer's weights as ncnn reads them in int8, with its scales; its line says so from now on."""
    rows = layer.number(7, 1) if layer.kind == DEPTHWISE else layer.columns
    weights = parts[0].reshape(rows, -1).astype(np.float64)
    levels = FEW_LEVELS if layer.is_winograd else LEVELS
    scales = levels / np.maximum(np.abs(weights).max(axis=1), LEAST)
    whole = np.clip(np.rint(weights * scales[:, None]), -levels, levels).astype(np.int8).tobytes()
    term = OF_GROUPS if layer.kind == DEPTHWISE else OF_CHANNELS
    layer.numbers[8] = str(term + (0 if top is None else REQUANTISED))
    numbers = [*scales, bottom, *([] if top is None else [top])]
    pieces = [IN_BYTES.to_bytes(4, "little"), whole, bytes(-len(whole) % 4), parts[1].tobytes()]
    return b"".join([*pieces, np.array(numbers, "<f4").tobytes()])


def _requantised(layers: Sequence[Layer], scales: Mapping[str, float]) -> dict[str, float]:
    """The scale of the bytes that a convolution writes, where nothing but convolutions in int8 reads its result."""
    readers: dict[str, list[Layer]] = {}
    for layer in layers:
        for blob in layer.bottoms:
            readers.setdefault(blob, []).append(layer)

    def reading(blob: str) -> Iterator[tuple[str, Layer]]:
        for layer in readers.get(blob, []):
            if layer.kind == "Split":
                for part in layer.tops:
                    yield from reading(part)
            else:
                yield blob, layer

    found = {}
    for layer in layers:
        after = list(reading(layer.tops[0])) if layer.kind in (CONVOLUTION, DEPTHWISE) else []
        if after and all(other.kind in (CONVOLUTION, DEPTHWISE) for _, other in after):
            found[layer.name] = scales[after[0][0]]
    return found


def _scales(folder: Path, blobs: set[str], inputs: Sequence[Any]) -> dict[str, float]:
    """Levels for each number of a blob, by the largest that the float32 net makes of `inputs`."""
    import ncnn

    net, found = ncnn.Net(), {}
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    if net.load_param(str(folder / PARAMETERS)) or net.load_model(str(folder / WEIGHTS)):
        raise UnsupportedError("ncnn cannot load what pnnx wrote")
    for blob in sorted(blobs):
        extractor = net.create_extractor()
        for index, held in enumerate(inputs):
            extractor.input(f"in{index}", held)
        code, made = extractor.extract(blob)
        if code:
            raise UnsupportedError(f"ncnn cannot compute {blob} (code {code})")
        found[blob] = LEVELS / max(float(np.abs(np.array(made)).max()), LEAST)
    return found
