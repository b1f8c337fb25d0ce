"""Models in which a fixed rule of fusion may lose, drawn at random: a seed makes a model, always the same one.

Costly elementwise chains, broadcasts of costly rows, wide concats, channel shuffles, reductions, and pools that read
each value several times. Values stay bounded, whatever the order of the steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from onnx import ModelProto

from experiments.architectures.small import SmallModel

COSTLY = ("Exp", "Tanh", "Sigmoid", "Erf", "Softplus", "HardSwish")
CHANNELS, SIZES = (16, 32, 64), (28, 56)
STEPS = (4, 9)
"""Fewest and most steps of a model."""


class Drawing:
    """A model that is drawn over a feature map [1, `channels`, `size`, `size`]; each step takes and leaves a map."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.model = SmallModel(f"drawn{seed}")
        self.model.random = np.random.default_rng(seed)
        self.channels, self.size = self.chance.choice(CHANNELS), self.chance.choice(SIZES)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the map."""
        return 1, self.channels, self.size, self.size

    def node(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """An operator; the name of its result."""
        return self.model.node(op_type, *inputs, **attributes)

    def integers(self, *values: int) -> str:
        """A parameter of an operator."""
        return self.model.constant(np.array(values, np.int64))

    def weights(self, *shape: int) -> str:
        """Random values around zero."""
        return self.model.constant(self.model.random.standard_normal(shape) * 0.5)

    def chain(self, x: str, longest: int = 4) -> str:
        """Costly functions one behind the other, of values that are halved before each."""
        for _ in range(self.chance.randint(1, longest)):
            x = self.node(self.chance.choice(COSTLY), self.node("Mul", x, self.model.constant(-0.5)))
        return x

    def draw(self) -> ModelProto:
        """The model."""
        maps = [self.model.input("x", *self.shape)]
        for _ in range(self.chance.randint(*STEPS)):
            step = self.chance.choice(KINDS)
            y = self.node("Tanh", step(self, maps[-1]))
            maps.append(self.node("Add", y, self.chance.choice(maps)) if self.chance.random() < 0.3 else y)
        return self.model.build(self.node("Relu", maps[-1]), *self.shape)


def costly(drawing: Drawing, x: str) -> str:
    """A chain of costly functions, with a bias for each channel."""
    return drawing.chain(drawing.node("Add", x, drawing.weights(1, drawing.channels, 1, 1)))


def broadcast(drawing: Drawing, x: str) -> str:
    """A costly chain of one row, added to every row."""
    row = drawing.node("ReduceMean", x, drawing.integers(2), keepdims=1)
    return drawing.node(drawing.chance.choice(("Add", "Mul")), x, drawing.chain(row))


def concat(drawing: Drawing, x: str) -> str:
    """Branches side by side, and the mean of them."""
    count = drawing.chance.randint(3, 8)
    parts = [drawing.chain(drawing.node("Add", x, drawing.weights(1, drawing.channels, 1, 1)), 2) for _ in range(count)]
    joined = drawing.node("Concat", *parts, axis=1)
    split = drawing.node("Reshape", joined, drawing.integers(count, *drawing.shape[1:]))
    return drawing.node("ReduceMean", split, drawing.integers(0), keepdims=1)


def shuffle(drawing: Drawing, x: str) -> str:
    """Channels of several groups in turn."""
    groups = drawing.chance.choice((2, 4, 8))
    parts = drawing.integers(1, groups, drawing.channels // groups, drawing.size, drawing.size)
    turned = drawing.node("Transpose", drawing.node("Reshape", x, parts), perm=[0, 2, 1, 3, 4])
    return drawing.node("Reshape", turned, drawing.integers(*drawing.shape))


def reduction(drawing: Drawing, x: str) -> str:
    """The map, weighed by what a chain makes of the mean of each channel."""
    mean = drawing.node("ReduceMean", drawing.chain(x, 2), drawing.integers(2, 3), keepdims=1)
    return drawing.node("Mul", x, drawing.chain(mean))


def softmax(drawing: Drawing, x: str) -> str:
    """A softmax over the channels or over the last axis."""
    return drawing.node("Softmax", x, axis=drawing.chance.choice((1, 3)))


def pool(drawing: Drawing, x: str) -> str:
    """A pool whose windows overlap, behind a costly chain."""
    kind = drawing.chance.choice(("MaxPool", "AveragePool"))
    return drawing.node(kind, drawing.chain(x), kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])


def pointwise(drawing: Drawing, x: str) -> str:
    """A convolution of single pixels: something with weights, between what has none."""
    return drawing.node("Conv", x, drawing.weights(drawing.channels, drawing.channels, 1, 1))


KINDS: tuple[Callable[[Drawing, str], str], ...] = (
    costly, broadcast, concat, shuffle, reduction, softmax, pool, pointwise,
)  # fmt: skip


def drawn(seed: int) -> ModelProto:
    """The model of a seed."""
    return Drawing(seed).draw()
