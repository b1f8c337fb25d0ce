"""One random network of images of which the height, the width, or both are open, and the batch in a few: compiled once,
and compared with ONNX Runtime at five sizes, at two threads.

What it may hold that no kernel takes at any size is refused with a reason; everything else must be right.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser

from experiments.random_graphs.check import Outcome, outcome_of
from experiments.random_graphs.open_sizes import compared

NAMES = {2: "height", 3: "width"}
"""The axes of an image, and what their sizes are called."""
FIXED = (1, 2, 5, 8, 12, 16, 17, 32, 40)
CHANNELS = (1, 3, 4, 8, 12, 16, 24, 32, 64)
MOST_IMAGES = 3
MOST_STEPS = 6
MOST_STRIDES = 8
"""The product of all strides along a side, at most."""
WINDOWS = ("conv", "conv", "pointwise", "depthwise", "grouped", "pool", "average")
BESIDE = (
    "unary", "own", "channel", "places", "places", "excite", "strip", "norm", "softmax", "join", "whole", "resized",
)  # fmt: skip
Array = NDArray[Any]
Point = dict[str, int]


class ImageModel:
    """A chain of operators over images `x`, with forks that join again."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, 11])
        draw = self.random
        self.opened: tuple[int, ...] = ((2,), (3,), (2, 3))[draw.integers(3)]
        self.sizes: dict[str, tuple[int, int]] = {}
        if draw.random() < 0.15:
            self.sizes["batch"] = 1, MOST_IMAGES
        low = {axis: int(draw.integers(16, 49)) for axis in self.opened}
        self.sizes |= {NAMES[axis]: (one, one + int(draw.integers(1, 60))) for axis, one in low.items()}
        self.channels = int(draw.choice(CHANNELS))
        self.extent = {axis: low.get(axis) or int(draw.choice(FIXED)) for axis in NAMES}
        """Of what there is now, at the smallest size."""
        self.strides = dict.fromkeys(NAMES, 1)
        self.first = ["batch" if "batch" in self.sizes else 1, self.channels, *(self._given(axis) for axis in NAMES)]
        self.lines: list[str] = []
        self.weights: dict[str, Array] = {}
        self.now = "x"
        getattr(self, f"_{draw.choice(WINDOWS)}")()
        for _ in range(int(draw.integers(1, MOST_STEPS))):
            getattr(self, f"_{draw.choice(WINDOWS if draw.random() < 0.5 else BESIDE)}")()
        if draw.random() < 0.3:
            self.add(f"{draw.choice(['GlobalAveragePool', 'GlobalMaxPool'])} (@)")

    def _given(self, axis: int) -> int | str:
        return NAMES[axis] if axis in self.opened else self.extent[axis]

    def model(self) -> onnx.ModelProto:
        """The model as ONNX."""
        body = "\n".join(self.lines)
        text = f"random (float[{', '.join(map(str, self.first))}] x) => (float[n, c, h, w] {self.now}) {{\n{body}\n}}"
        model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in self.weights.items())
        return model

    def points(self) -> list[Point]:
        """Five sizes: the smallest, the largest, and three between."""
        ends = [{name: size[end] for name, size in self.sizes.items()} for end in (0, 1)]
        drawn = [{name: int(self.random.integers(low, high + 1)) for name, (low, high) in self.sizes.items()}
                 for _ in range(3)]  # fmt: skip
        return [*ends, *drawn]

    def input_at(self, point: Point, seed: int) -> Array:
        """Images of such sizes."""
        shape = [point[one] if isinstance(one, str) else one for one in self.first]
        return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)

    def constant(self, array: Any) -> str:
        """A weight, or a parameter."""
        name = f"k{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def weight(self, *shape: int) -> str:
        """Random weights, so scaled that a product keeps the scale of what it reads."""
        scale = np.sqrt(np.prod(shape[1:])) if len(shape) == 4 else 1.0
        return self.constant((self.random.standard_normal(shape) / scale).astype(np.float32))

    def add(self, text: str) -> str:
        """An operator on what there is now (`@`); the name of its result."""
        self.lines.append(f"v{len(self.lines)} = {text.replace('@', self.now)}")
        self.now = f"v{len(self.lines) - 1}"
        return self.now

    def _window(self, dilated: bool = True) -> tuple[str, list[int]] | None:
        """Attributes of a window that fits, and its extents; None where the one drawn does not."""
        drawn = {axis: self._side(axis, dilated) for axis in NAMES}
        after = {axis: (self.extent[axis] + sum(pads) - (taps - 1) * apart - 1) // stride + 1
                 for axis, (taps, apart, stride, pads) in drawn.items()}  # fmt: skip
        if min(after.values()) < 1:
            return None
        taps, apart, strides, pads = zip(*drawn.values(), strict=True)
        self.extent = after
        self.strides = {axis: self.strides[axis] * drawn[axis][2] for axis in NAMES}
        around = [side[end] for end in (0, 1) for side in pads]
        text = f"kernel_shape = {[*taps]}, strides = {[*strides]}, pads = {around}"
        return text + (f", dilations = {[*apart]}" if dilated else ""), [*taps]

    def _side(self, axis: int, dilated: bool) -> tuple[int, int, int, tuple[int, int]]:
        """Taps of a window along one side, the distance between them, the stride, and what is beyond the borders."""
        draw = self.random
        taps, apart = int(draw.choice([1, 2, 3, 3, 5])), int(draw.choice([1, 1, 1, 2])) if dilated else 1
        around = [taps // 2] * 2 if draw.random() < 0.6 else draw.integers(0, taps, 2).tolist()
        stride = int(draw.choice([1, 1, 2, 3])) if self.strides[axis] < MOST_STRIDES // 2 else 1
        return taps, apart, stride, (around[0], around[1])

    def _conv(self, groups: int = 1, made: int = 0) -> None:
        window = self._window()
        if window is None:
            self._pointwise()
            return
        made = made or groups * int(self.random.choice((1, 2, 4, 6, 8, 16)))
        weights = self.weight(made, self.channels // groups, *window[1])
        self.add(f"Conv <{window[0]}, group = {groups}> (@, {weights}, {self.weight(made)})")
        self.channels = made

    def _pointwise(self) -> None:
        made = int(self.random.choice(CHANNELS))
        self.add(f"Conv (@, {self.weight(made, self.channels, 1, 1)})")
        self.channels = made

    def _depthwise(self) -> None:
        self._conv(self.channels, self.channels)

    def _grouped(self) -> None:
        self._conv(next((groups for groups in (4, 2) if self.channels % groups == 0), 1))

    def _pool(self) -> None:
        window = self._window(dilated=False)
        self.add(f"MaxPool <{window[0]}> (@)" if window else "Relu (@)")

    def _average(self) -> None:
        window = self._window(dilated=False)
        self.add(f"AveragePool <{window[0]}, count_include_pad = 1> (@)" if window else "Tanh (@)")

    def _unary(self) -> None:
        self.add(f"{self.random.choice(['Relu', 'Sigmoid', 'Tanh', 'Abs', 'HardSwish', 'LeakyRelu'])} (@)")

    def _own(self) -> None:
        before = self.now
        self._unary()
        self.add(f"{self.random.choice(['Mul', 'Add'])} (@, {before})")

    def _channel(self) -> None:
        self.add(f"{self.random.choice(['Add', 'Mul'])} (@, {self.weight(self.channels, 1, 1)})")

    def _places(self) -> None:
        """What each place of a fixed side has: a factor of each frequency of a spectrogram."""
        fixed = [axis for axis in NAMES if axis not in self.opened]
        if not fixed:
            self._channel()
            return
        channels = int(self.random.choice([1, self.channels]))
        shape = [1, channels, *(self.extent[axis] if axis in fixed else 1 for axis in NAMES)]
        behind = shape if channels > 1 or self.random.random() < 0.5 else shape[2:]
        factor = self.constant(self.random.standard_normal(behind).astype(np.float32))
        self.add(f"{self.random.choice(['Add', 'Mul'])} (@, {factor})")

    def _excite(self) -> None:
        """What is known of a whole map scales it."""
        before, channels = self.now, self.channels
        self.add(f"{self.random.choice(['GlobalAveragePool', 'GlobalMaxPool'])} (@)")
        self.add(f"Conv (@, {self.weight(channels, channels, 1, 1)})")
        self.add("Sigmoid (@)")
        self.add(f"Mul ({before}, @)")

    def _strip(self) -> None:
        """What is known of a row, or of a column, meets each of its places."""
        before, axis = self.now, int(self.random.choice([*NAMES]))
        self.add(f"{self.random.choice(['ReduceMean', 'ReduceMax'])} (@, {self.constant(np.array([axis]))})")
        self.add("Sigmoid (@)")
        self.add(f"Mul ({before}, @)")

    def _whole(self) -> None:
        before = self.now
        self.add(f"{self.random.choice(['ReduceMean', 'ReduceMax'])} (@, {self.constant(np.array([2, 3]))})")
        self.add(f"Sub ({before}, @)")

    def _norm(self) -> None:
        self.add(f"InstanceNormalization (@, {self.weight(self.channels)}, {self.weight(self.channels)})")

    def _softmax(self) -> None:
        self.add("Softmax <axis = 1> (@)")

    def _join(self) -> None:
        before = self.now
        self._unary()
        self.add(f"Concat <axis = 1> (@, {before})")
        self.channels *= 2

    def _resized(self) -> None:
        """Twice as large, where that stays small."""
        if self.channels > 16 or max(self.extent.values()) > 64:
            self._unary()
            return
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        self.add(f'Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> '
                 f"(@, , {scales})")  # fmt: skip
        self.extent = {axis: 2 * one for axis, one in self.extent.items()}


def check_images(seed: int, folder: Path) -> Outcome:
    """Generate, compile, and compare at five sizes; never raises but for an interrupt."""
    made = ImageModel(seed)
    return outcome_of(seed, made.model(), folder / f"images_{seed}.onnx", partial(_checked, made))


def _checked(made: ImageModel, seed: int, path: Path) -> Outcome:
    """What a model of images comes to; one that is refused says why."""
    facts, plan = Outcome(seed, "ok", len(made.lines)), str(made.random.choice(["best", "none"]))
    inputs = ((str(point), made.input_at(point, seed)) for point in made.points())
    return compared(facts, path, made.sizes, plan, inputs, may_refuse=True)
