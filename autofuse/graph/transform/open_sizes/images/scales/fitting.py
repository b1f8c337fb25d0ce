"""What an operator reads beside a tensor in parts, in parts of the same form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.images.scales.parts import Rows, Scales, Seen, Shape

Pattern = list[list[Seen]]
"""The extents of a map by the axes of the tensor that it is a part of."""


def lengths(groups: Sequence[Sequence[Seen]]) -> tuple[int, ...]:
    return tuple(map(len, groups))


def lead_of(scales: Scales, operator: Operator) -> Rows:
    """The merged input that has most of the result."""
    merged = [name for name in operator.inputs if name and scales.is_merged(name)]
    return scales.form(max(merged, key=lambda name: (len(scales.shapes[name]), scales.product(scales.shapes[name]))))


def pattern_of(scales: Scales, lead: Rows, number: int, target: Shape) -> Pattern:
    part = lead.parts[number]
    shape, first = scales.shapes[part.name], len(target) - len(part.groups)
    found: Pattern = [[extent] for extent in target]
    for axis in range(len(part.groups)):
        own = [shape[place] for place in part.axes(axis)]
        if own != [scales.ones] or (lead.several and axis == lead.axis):
            found[first + axis] = own
    return found


def fitted(
    scales: Scales, name: str, whole: Rows, patterns: Sequence[Pattern], target: Shape, place: int
) -> list[str] | None:
    """An input of an operator as each part reads it; None where its places are other ones."""
    if not name or scales.product(scales.shapes[name]) == scales.ones:
        return [scales.same.get(name, name)] * len(patterns)
    if name in scales.given.constants and name not in scales.rows:
        return _constant(scales, name, whole, patterns, target, place)
    own = scales.form(name)
    first = len(target) - len(own.parts[0].groups)
    if own.several and (len(own.parts) != len(patterns) or own.axis + first != whole.axis):
        return None
    found = []
    for number, pattern in enumerate(patterns):
        part = own.parts[number if own.several else 0]
        shape, wanted = scales.shapes[part.name], []
        for axis in range(len(part.groups)):
            extents, there = [shape[at] for at in part.axes(axis)], pattern[first + axis]
            if extents != there and extents != [scales.ones]:
                return None
            if not own.several and whole.several and first + axis == whole.axis and extents != [scales.ones]:
                return None
            wanted += there if extents == there else [scales.ones] * len(there)
        found.append(scales.view(part.name, tuple(wanted), f"input{place}.{number}"))
    return found


def _constant(
    scales: Scales, name: str, whole: Rows, patterns: Sequence[Pattern], target: Shape, place: int
) -> list[str]:
    """A constant in parts. Along places where it is the same everywhere it has one."""
    array, shape = scales.constants[name], scales.shapes[name]
    first = len(target) - len(shape)
    ends = list(accumulate((scales.number(scales.product(pattern[whole.axis])) for pattern in patterns), initial=0))
    found = []
    for number, pattern in enumerate(patterns):
        part, wanted = array, []
        for axis, extent in enumerate(shape):
            there = pattern[first + axis]
            if whole.several and first + axis == whole.axis and extent != scales.ones:
                part = part.take(range(ends[number], ends[number + 1]), axis)
            wanted += there if extent != scales.ones else [scales.ones] * len(there)
        part = part.reshape(tuple(map(scales.number, wanted)))
        for axis, extent in enumerate(wanted):
            if not scales.constant_extent(extent) and np.array_equal(
                part, np.broadcast_to(part.take([0], axis), part.shape)
            ):
                part, wanted[axis] = part.take([0], axis), scales.ones
        found.append(scales.constant(f"input{place}.{number}", part, tuple(wanted)))
    return found
