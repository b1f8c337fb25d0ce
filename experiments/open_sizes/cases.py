"""The networks, which of their sizes are open and from where to where they go, and the sizes that are measured."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.loading.given.trace import Point


@dataclass(frozen=True)
class Case:
    """One network. `maker`: the function of `exports.py` that writes it, called with the path and `arguments`.

    `sizes`: the ranges, as `--sizes` has them.
    """

    maker: str
    sizes: str
    arguments: Mapping[str, object] = field(default_factory=dict)


def _encoder(name: str) -> Case:
    return Case("encoder", "batch=1:4,tokens=1:256", {"name": name})


STEP = "gpt2_step"
CASES: Mapping[str, Case] = {
    "bert_base": _encoder("bert_base"),
    "distilbert": _encoder("distilbert"),
    "mobilebert": _encoder("mobilebert"),
    "gpt2_prompt": Case("prompt", "tokens=1:256"),
    STEP: Case("step", "past=0:1023"),
    "t5_encoder": Case("t5_encoder", "tokens=1:256"),
    "vit_base": Case("vision_transformer", "batch=1:8"),
    "resnet50": Case("classifier", "batch=1:8", {"name": "resnet50"}),
    "unet": Case("segmenter", "height=64:512:16,width=64:512:16"),
}
"""By name."""


def title(point: Point) -> str:
    """Sizes as tables show them: "2x128"."""
    return "x".join(map(str, point))


def ends(sizes: Sequence[OpenSize]) -> tuple[Point, Point]:
    """The smallest and the largest sizes."""
    return tuple(size.low for size in sizes), tuple(size.high for size in sizes)


def drawn(sizes: Sequence[OpenSize], count: int, seed: int) -> list[Point]:
    """So many sizes between the ends, none twice, fewer where the ranges hold no more.

    The logarithm of each is distributed evenly over its range, those of several independently: short texts happen
    more often than long ones, and of each doubling as many are drawn.
    """
    generator, known, found = random.Random(seed), set(ends(sizes)), list[Point]()
    most = math.prod((size.high - size.low) // size.step + 1 for size in sizes) - len(known)
    while len(found) < min(count, most):
        point = tuple(_drawn(size, generator) for size in sizes)
        if point not in known:
            known.add(point)
            found.append(point)
    return found


def _drawn(size: OpenSize, generator: random.Random) -> int:
    """One size, as if a range from 0 on began at 1."""
    shift = int(size.low == 0)
    low, high = math.log(size.low + shift), math.log(size.high + shift + size.step)
    value = math.exp(generator.uniform(low, high)) - shift
    return min(size.high, max(size.low, int(value / size.step) * size.step))


def spread(points: Sequence[Point], count: int) -> list[Point]:
    """So many of the points: the smallest, the largest, and those between them in even steps."""
    ordered = sorted(points, key=lambda point: (math.prod(one + 1 for one in point), point))
    last, steps = len(ordered) - 1, max(1, count - 1)
    return [ordered[place] for place in sorted({round(number * last / steps) for number in range(count)})]
