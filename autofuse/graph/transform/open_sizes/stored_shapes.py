"""What stays open in a program: its sizes, and the shapes of tensors by them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.transform.open_sizes.extents import Extent, Joined
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.graph.transform.open_sizes.repeats import Repeats

Array = NDArray[np.generic]


@dataclass(frozen=True)
class OpenRows:
    """The open lengths of a program, `sizes`, and where they stand in the tensors that have one.

    `parts`: inputs of the graph that are the first part of a constant, which is given whole, and that constant.
    `caches`: tensors that are made by writing into the first input of their group, which is as long as they are.
    `base`: of each length how much more than it is that a call reads from its inputs, where none has just that size.
    `repeats`: where there are several sequences; they stand in front of all axes of a tensor that each has of its own.
    """

    sizes: Sequence[OpenSize]
    axes: Mapping[str, OpenAxis]
    parts: Mapping[str, Array] = field(default_factory=dict)
    caches: Collection[str] = ()
    base: Sequence[int] = (0,)
    repeats: Repeats | None = None

    @property
    def bounds(self) -> dict[str, int]:
        """The symbols of the lengths, and the largest value of each; that of the sequences is the last one."""
        highs = (size.high + base for size, base in zip(self.sizes, self.base, strict=True))
        found = {f"rows{number or ''}": high for number, high in enumerate(highs)}
        return found if self.repeats is None else {**found, "sequences": self.repeats.size.high}

    def shape(self, name: str, shape: Sequence[int], symbols: Sequence[Any]) -> tuple[Any, ...]:
        """How a tensor is stored, whose shape is `shape` but for its open axis."""
        once = self._once(name, shape, symbols)
        return (symbols[-1], *once) if self.repeats is not None and name in self.repeats.own else once

    def outside(self, name: str, shape: Sequence[int], symbols: Sequence[Any]) -> tuple[Any, ...]:
        """The shape that an input or output has in the model."""
        once = self._once(name, shape, symbols)
        along = None if self.repeats is None or name not in self.repeats.own else self.repeats.axes[name]
        return tuple(symbols[-1] * extent if axis == along else extent for axis, extent in enumerate(once))

    def _once(self, name: str, shape: Sequence[int], symbols: Sequence[Any]) -> tuple[Any, ...]:
        """How a tensor of one sequence is stored."""
        where = self.axes.get(name)
        if where is None:
            return tuple(shape)
        more = where.more - self.base[where.size] * where.factor
        extent = symbols[where.size] * where.factor + more
        return tuple(extent if axis == where.axis else size for axis, size in enumerate(shape))


@dataclass(frozen=True)
class OpenImages:
    """The open sizes of a program of images, and the extents of tensors that have one, by axis; `joined`: of axes along
    which places of maps are joined."""

    sizes: Sequence[OpenSize]
    axes: Mapping[str, Mapping[int, Extent]]
    parts: Mapping[str, Array] = field(default_factory=dict)
    caches: Collection[str] = ()
    joined: Mapping[str, Mapping[int, Joined]] = field(default_factory=dict)

    @property
    def bounds(self) -> dict[str, int]:
        """See OpenRows."""
        return {f"size{number}": size.high for number, size in enumerate(self.sizes)}

    def shape(self, name: str, shape: Sequence[int], symbols: Sequence[Any]) -> tuple[Any, ...]:
        """See OpenRows."""
        made: list[Any] = list(shape)
        for axis, extent in self.axes.get(name, {}).items():
            first, *others = (_extent(part, symbols) for part in extent.parts)
            made[axis] = prod(others, start=first)
        for axis, whole in self.joined.get(name, {}).items():
            made[axis] = sum(rows * prod(_extent(one, symbols) for one in extents) for rows, extents in whole.terms)
        return tuple(made)

    def outside(self, name: str, shape: Sequence[int], symbols: Sequence[Any]) -> tuple[Any, ...]:
        """See OpenRows."""
        return self.shape(name, shape, symbols)


def _extent(extent: Extent, symbols: Sequence[Any]) -> Any:
    whole = symbols[extent.size] + extent.shift if extent.shift else symbols[extent.size]
    part = whole if extent.per == 1 else whole // extent.per
    return (part if extent.factor == 1 else part * extent.factor) + extent.more
