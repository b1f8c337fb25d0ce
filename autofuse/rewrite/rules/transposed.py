"""Transposed convolutions written as plain ones, whose channels are the places between two elements of the input.

Between two elements lie as many results as the stride says, each a sum of its own taps. A convolution that computes all
of them as channels fills vectors where the model's own channels are few (the last layer of a decoder of sound: one).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from autofuse.graph.model import Operator
from autofuse.rewrite.declare import rule
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Array, Work

FEW = 4
"""Channels that fill no vector."""
MOST_WASTE = 1.5
"""Taps of all places over those of the model: a window holds zeros where not all places read the same elements."""


@dataclass(frozen=True)
class _Phases:
    """One dimension: `size` elements make `outputs` results by `taps`, with a `stride`; `begin` results are cut off."""

    size: int
    outputs: int
    taps: int
    stride: int
    begin: int

    @property
    def first(self) -> int:
        """Where the window of a result's element begins, counted from that element."""
        return -((self.taps - 1 - self.begin) // self.stride)

    @property
    def window(self) -> int:
        """Elements that the window of all places holds."""
        return (self.stride - 1 + self.begin) // self.stride - self.first + 1

    @property
    def end(self) -> int:
        """Padding behind the last element."""
        return self.outputs // self.stride + self.window - 1 - self.size + self.first

    @property
    def fits(self) -> bool:
        """Whether whole windows with no less than no padding make all results."""
        return self.outputs % self.stride == 0 and self.first <= 0 <= self.end

    def tap(self, place: int, at: int) -> int | None:
        """The tap by which element `at` of a window counts for a place; None where it does not."""
        tap = place + self.begin - self.stride * (at + self.first)
        return tap if 0 <= tap < self.taps else None


def _integers(operator: Operator, name: str, default: Sequence[int]) -> Sequence[int]:
    value = operator.attributes.get(name) or tuple(default)
    assert isinstance(value, tuple)
    return [int(one) for one in value]


def _phases(work: Work, operator: Operator) -> list[_Phases] | None:
    """Its dimensions; None where it has groups, dilation, or a form that says its padding otherwise."""
    attributes = operator.attributes
    if attributes.get("group", 1) != 1 or "output_shape" in attributes:
        return None
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID", b"NOTSET", b"VALID"):
        return None
    x, w, y = (work.shape(name)[2:] for name in (*operator.inputs[:2], operator.outputs[0]))
    if any(one != 1 for one in _integers(operator, "dilations", [1] * len(x))):
        return None
    strides, begins = _integers(operator, "strides", [1] * len(x)), _integers(operator, "pads", [0] * 2 * len(x))
    return [_Phases(*each) for each in zip(x, y, w, strides, begins, strict=False)]


def _packed(weight: Array, phases: Sequence[_Phases]) -> Array:
    """Weights [C, M, *taps] as [M * places, C, *windows]: the places of a channel follow each other, row-major."""
    depth, channels = weight.shape[:2]
    strides, windows = [one.stride for one in phases], [one.window for one in phases]
    made = np.zeros((channels, *strides, depth, *windows), weight.dtype)
    for place in product(*map(range, strides)):
        for at in product(*map(range, windows)):
            found = [one.tap(p, a) for one, p, a in zip(phases, place, at, strict=True)]
            taps = [tap for tap in found if tap is not None]
            if len(taps) == len(found):
                into: tuple[int | slice, ...] = (slice(None), *place, slice(None), *at)
                source: tuple[int | slice, ...] = (slice(None), slice(None), *taps)
                made[into] = weight[source].T
    return made.reshape(-1, depth, *windows)


def _spread(maker: Maker, bias: str, places: int) -> str:
    """The bias of each channel for each of its places."""
    (channels,) = maker.shape(bias)
    return maker.weight(
        "spread", [bias, places], (channels * places,), maker.dtype(bias), lambda: np.repeat(maker.values(bias), places)
    )


@rule(Kind.WEIGHTS, ("ConvTranspose",), default=Default.ALWAYS, guard="up to 4 channels, whole strides of results")
def transposed_convolution_by_places(work: Work, operator: Operator, maker: Maker) -> bool:
    """ConvTranspose(A, w) -> Reshape(Transpose(Reshape(Conv(A, v)))), v of a channel for each place between elements"""
    x, weight, *biases = operator.inputs
    result = operator.outputs[0]
    named = [weight, *(name for name in biases if name)]
    if not work.is_float(result) or not all(map(work.is_constant, named)):
        return False
    shape, depth = work.shape(result), work.shape(weight)[0]
    phases = _phases(work, operator)
    if phases is None or shape[1] > FEW or not all(one.fits for one in phases):
        return False
    places, windows = prod(one.stride for one in phases), [one.window for one in phases]
    if places == 1 or places * prod(windows) > MOST_WASTE * prod(one.taps for one in phases):
        return False
    columns, rank = shape[1] * places, len(phases)
    inputs = [x, maker.weight(
        "places", [weight], (columns, depth, *windows), maker.dtype(weight),
        lambda: _packed(np.asarray(maker.values(weight)), phases),
    )]  # fmt: skip
    inputs += [_spread(maker, name, places) for name in named[1:]]
    pads = (*(-one.first for one in phases), *(one.end for one in phases))
    small, strides = [one.outputs // one.stride for one in phases], [one.stride for one in phases]
    given = {"kernel_shape": tuple(windows), "pads": pads, "strides": (1,) * rank, "dilations": (1,) * rank}
    made = maker.op("Conv", *inputs, shape=(shape[0], columns, *small), given={**given, "group": 1})
    apart = (shape[0], shape[1], *strides, *small)
    made = maker.op("Reshape", made, maker.integers("apart", apart), shape=apart)
    order = (0, 1, *(axis for one in range(rank) for axis in (2 + rank + one, 2 + one)))
    made = maker.op("Transpose", made, shape=[apart[axis] for axis in order], perm=order)
    maker.become(result, maker.op("Reshape", made, maker.integers("shape", shape), shape=shape))
    return True


TRANSPOSED: tuple[Rule, ...] = (transposed_convolution_by_places,)
