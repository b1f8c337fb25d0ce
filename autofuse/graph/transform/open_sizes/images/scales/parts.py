"""Tensors in which the places of maps are merged into one axis, or those of several scales joined, as maps.

A detector makes rows of all places of a map (a Reshape), joins those of all scales (a Concat), and computes on from
there. Here each such tensor is in parts, one a map, whose places stay apart: `[N, 85, height, width]` and not
`[N, 85, places]`. What computes on reads the maps, and only outputs join them. That is done to the static graph of one
point; which axes follow a size is read off what it is beside it, at several other points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor
from autofuse.graph.own.names import DOMAIN, JOIN_PLACES
from autofuse.graph.transform.open_sizes.open_graph import with_used

Array = NDArray[np.generic]
Seen = tuple[int, ...]
"""An extent at each point."""
Shape = tuple[Seen, ...]


class StuckError(Exception):
    """A tensor in parts that no operator puts together."""


@dataclass(frozen=True)
class Part:
    """A map, by its `name`, and for each axis of the tensor that it is a part of, how many axes of the map these are:
    `groups`."""

    name: str
    groups: tuple[int, ...]

    def start(self, axis: int) -> int:
        """The first axis of the map that belongs to an axis of the tensor."""
        return sum(self.groups[:axis])

    def axes(self, axis: int) -> range:
        """The axes of the map that belong to an axis of the tensor."""
        return range(self.start(axis), self.start(axis) + self.groups[axis])


@dataclass(frozen=True)
class Rows:
    """A tensor in `parts`, which stand one behind the other along an `axis`; of one part, where that is."""

    parts: tuple[Part, ...]
    axis: int = 0

    @property
    def several(self) -> bool:
        """Whether there are several parts."""
        return len(self.parts) > 1

    def is_plain(self, axis: int) -> bool:
        """Whether an axis is one of each map, and no part ends along it."""
        joined = self.several and axis == self.axis
        return not joined and all(part.groups[axis] == 1 for part in self.parts)


class Scales:
    """Writes the last of some `graphs`, which are one model at several points."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.given = graph = graphs[-1]
        self.tensors, self.constants = dict(graph.tensors), dict(graph.constants)
        self.shapes: dict[str, Shape] = {
            name: tuple(zip(*(one.tensors[name].shape for one in graphs), strict=True)) for name in graph.tensors
        }
        self.points = len(graphs)
        self.ones: Seen = (1,) * self.points
        self.rows: dict[str, Rows] = {}
        self.same: dict[str, str] = {}
        """Of a tensor that is merged no longer, the map in its place."""
        self.operators: list[Operator] = []
        self.parted = False
        """Whether any tensor was in parts."""
        self.root = ""

    # what tensors are

    def form(self, name: str) -> Rows:
        """A tensor in parts; one that is not merged is its only part."""
        name = self.same.get(name, name)
        return self.rows.get(name) or Rows((Part(name, (1,) * len(self.shapes[name])),))

    def is_merged(self, name: str) -> bool:
        """Whether a tensor is in parts."""
        return self.same.get(name, name) in self.rows

    def number(self, extent: Seen) -> int:
        """An extent at the point of the graph that is written."""
        return extent[-1]

    def constant_extent(self, extent: Seen) -> bool:
        """Whether an extent follows no size."""
        return len(set(extent)) == 1

    def along(self, part: Part, axis: int) -> Seen:
        """The extent of a part along an axis of the tensor."""
        return self.product([self.shapes[part.name][own] for own in part.axes(axis)])

    def product(self, extents: Sequence[Seen]) -> Seen:
        """Extents multiplied."""
        return tuple(prod(values) for values in zip(self.ones, *extents, strict=True))

    def summed(self, extents: Sequence[Seen]) -> Seen:
        """Extents one behind the other."""
        return tuple(map(sum, zip(*extents, strict=True)))

    def regrouped(self, atoms: Sequence[Seen], target: Sequence[Seen]) -> list[list[Seen]] | None:
        """The extents of a map, in their order, as groups whose products are those of a target; None where only a size
        would be parted. Neighbours that follow no size are one."""
        left = [atom for atom in atoms if atom != self.ones]
        groups: list[list[Seen]] = []
        for wanted in target:
            taken: list[Seen] = []
            while (whole := self.product(taken)) != wanted:
                if not left:
                    return None
                atom = left.pop(0)
                if not _divides(self.product([whole, atom]), wanted):
                    part = tuple(one // other for one, other in zip(wanted, whole, strict=True))
                    parts = _divides(whole, wanted) and self.constant_extent(part) and self.constant_extent(atom)
                    if not parts or part[0] < 2 or atom[0] % part[0]:
                        return None
                    left.insert(0, tuple(one // part[0] for one in atom))
                    atom = part
                if taken and self.constant_extent(atom) and self.constant_extent(taken[-1]):
                    taken[-1] = self.product([taken[-1], atom])
                else:
                    taken.append(atom)
            groups.append(taken or [self.ones])
        return None if left else groups

    def merges(self, view: Operator, groups: Sequence[Sequence[Seen]]) -> bool:
        """Whether a view of a map puts two axes that follow sizes into one, by the groups of these."""
        counts = [sum(not self.constant_extent(one) for one in group) for group in groups]
        return max(counts, default=0) > 1 and view.inputs[0] not in self.given.constants

    # what is written

    def op(
        self, kind: str, label: str, inputs: Sequence[str], shape: Shape, dtype: str,
        attributes: Mapping[str, AttributeValue] | None = None, made: str = "",
    ) -> str:  # fmt: skip
        """An operator of ours with one result, by default under a name of its own."""
        name = f"{self.root}@{label}"
        made = made or name
        self.tensor(made, shape, dtype)
        domain = DOMAIN if kind == JOIN_PLACES else ""
        self.operators.append(Operator(name, kind, tuple(inputs), (made,), attributes or {}, domain))
        return made

    def tensor(self, name: str, shape: Shape, dtype: str) -> None:
        """Enters a tensor."""
        self.shapes[name] = shape
        self.tensors[name] = Tensor(name, tuple(map(self.number, shape)), dtype)

    def integers(self, label: str, values: Sequence[int]) -> str:
        """A constant vector of ours."""
        return self.constant(f"{label}.values", np.asarray(values, np.int64), ((len(values),) * self.points,))

    def constant(self, label: str, array: Array, shape: Shape) -> str:
        """A constant of ours."""
        name = f"{self.root}@{label}"
        self.constants[name] = np.ascontiguousarray(array)
        self.tensor(name, shape, str(array.dtype))
        return name

    def view(self, name: str, shape: Shape, label: str, made: str = "") -> str:
        """A map in another shape."""
        if shape == self.shapes[name] and not made:
            return name
        numbers = tuple(map(self.number, shape))
        if name in self.constants and not made:
            return self.constant(label, self.constants[name].reshape(numbers), shape)
        inputs = (name, self.integers(label, numbers))
        return self.op("Reshape", label, inputs, shape, self.tensors[name].dtype, made=made)

    def give(self, made: str, rows: Rows) -> None:
        """Enters what a tensor is: in parts, or a map again."""
        (first, *others) = rows.parts
        if others or any(count > 1 for count in first.groups):
            self.rows[made], self.parted = rows, True
        elif made in self.given.returned:
            self.op("Identity", "whole", (first.name,), self.shapes[first.name], self.tensors[made].dtype, made=made)
        else:
            self.same[made] = first.name

    def put_together(self, name: str) -> str:
        """A tensor as it is in the model. StuckError where not one axis alone is merged."""
        name = self.same.get(name, name)
        rows = self.rows.pop(name, None)
        if rows is None:
            return name
        shape = self.shapes[name]
        merged = {axis for axis in range(len(shape)) if not rows.is_plain(axis)}
        if len(merged) != 1:
            raise StuckError(name)
        (axis,) = merged
        if not all(map(self.constant_extent, shape[axis + 1 :])):
            raise StuckError(name)
        wanted = (*(0,) * axis, -1, *map(self.number, shape[axis + 1 :]))
        inputs, dtype = [part.name for part in rows.parts], self.tensors[name].dtype
        return self.op(JOIN_PLACES, f"{name}.rows", inputs, shape, dtype, {"shape": wanted}, name)

    def finish(self) -> Graph:
        """The graph with all operators. StuckError as `put_together`."""
        for name in self.given.outputs:
            self.root = name
            self.put_together(name)
        return with_used(self.given, self.operators, self.tensors, self.constants)


def _divides(one: Seen, other: Seen) -> bool:
    return all(first and second % first == 0 for first, second in zip(one, other, strict=True))
