"""The parts of a range that may have a plan of their own: small sizes that happen, middle ones, large ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, prod
from typing import TypeVar

from autofuse.backend.container.metadata import MOST_PLANS
from autofuse.graph.loading.given.trace import Point

Item = TypeVar("Item")


@dataclass(frozen=True)
class Section:
    """Sizes whose products lie side by side. `places`: theirs among those that happen; `middle`: the one that stands
    for them; `most`: the largest product that belongs to them, half-way to those of the next section; None: any."""

    places: tuple[int, ...]
    middle: Point
    most: int | None


def sections(happening: Mapping[Point, float]) -> tuple[Section, ...]:
    """As many sizes in each as may be, those of equal products together."""
    ordered = sorted(enumerate(happening), key=lambda one: (prod(one[1]), prod(size + 1 for size in one[1]), one[1]))
    products = [prod(point) for _, point in ordered]
    ends = []
    for number in range(1, MOST_PLANS):
        end = number * len(ordered) // MOST_PLANS
        while 0 < end < len(ordered) and products[end] == products[end - 1]:
            end += 1
        ends.append(end)
    cuts = sorted({0, *ends, len(ordered)})
    found = []
    for first, end in pairwise(cuts):
        own = ordered[first:end]
        most = isqrt(products[end - 1] * products[end]) if end < len(ordered) else None
        found.append(Section(tuple(place for place, _ in own), own[len(own) // 2][1], most))
    return tuple(found)


def joined(parts: Sequence[Section], items: Sequence[Item]) -> list[tuple[int | None, Item]]:
    """One item a section, equal ones side by side together: each with the largest product that it is for."""
    both = [*zip(parts, items, strict=True)]
    following = [*(item for _, item in both[1:]), None]
    return [(part.most, item) for (part, item), after in zip(both, following, strict=True) if item is not after]
