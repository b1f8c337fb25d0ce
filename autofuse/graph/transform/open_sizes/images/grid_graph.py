"""A graph of images whose sizes stay open: the static graph at one point, and where the sizes stand in its tensors.

Unlike rows, which one kernel may compute by themselves, the places of an image see their neighbours, and each operator
may make an image of another resolution. So each axis of a tensor has an extent of its own: so many parts of a size, and
so much more or less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph, Operator
from autofuse.graph.own.joined_places import joins_places, merged_axes
from autofuse.graph.transform.open_sizes.extents import (
    Extent,
    Joined,
    Point,
    Runs,
    neighbours,
    product_extent,
)
from autofuse.graph.transform.open_sizes.open_graph import (
    TARGET_SHAPES,
    Array,
    OpenAxis,
    OpenGraph,
    equal_arrays,
    is_part,
    part_of,
    reader_of,
    refused_at,
    with_constants_given,
    with_names_of,
)


@dataclass(frozen=True, eq=False)
class GridGraph:
    """`graph`: as it is where the open `sizes` are `point`.

    `axes`: of each tensor that has an open size, its axes that have one. `targets`: of each constant with target sizes,
    place of an element -> what it is. `parts`: constants that are the first part of a longer one, and that one, as it
    is at the largest sizes: positions, masks. `samples`: where extents are not so many parts of a size at each multiple
    of its step, the points at which the graph was read instead of `points`. `joined`: of results of `JoinPlaces`, the
    axis in which places are joined.
    """

    graph: Graph
    sizes: tuple[OpenSize, ...]
    point: Point
    axes: Mapping[str, Mapping[int, Extent]]
    targets: Mapping[str, Mapping[int, Extent]]
    parts: Mapping[str, Array] = field(default_factory=dict)
    samples: tuple[Point, ...] = ()
    joined: Mapping[str, Mapping[int, Joined]] = field(default_factory=dict)

    @property
    def symbol(self) -> str:
        """The names of the sizes, for messages."""
        return " and ".join(size.name for size in self.sizes)

    @property
    def low(self) -> Point:
        """The smallest sizes."""
        return tuple(size.low for size in self.sizes)

    @property
    def high(self) -> Point:
        """The largest sizes."""
        return tuple(size.high for size in self.sizes)

    def has(self, name: str) -> bool:
        """Whether a tensor has an open size."""
        return name in self.axes or name in self.joined

    def touches(self, operator: Operator) -> bool:
        """Whether an operator reads or makes a tensor with an open size."""
        return any(map(self.has, (*operator.inputs, *operator.outputs)))

    def grid(self, name: str) -> dict[int, Extent]:
        """The extent of a tensor along each open size that it has."""
        return {extent.size: extent for extent in self.axes.get(name, {}).values()}

    def unit(self, extent: Extent) -> int:
        """What an extent is a multiple of at all sizes, but for its `more`."""
        if extent.times is not None:
            return 1 if any(part.more for part in extent.parts) else prod(map(self.unit, extent.parts))
        step = self.sizes[extent.size].step
        return extent.factor if step % extent.per else step // extent.per * extent.factor

    def places(self, extent: Extent) -> list[Point]:
        """Points at which all that may happen to an extent happens: the ends of all ranges, and as many sizes in a row
        as it parts."""
        if extent.times is not None:
            return list(dict.fromkeys(point for part in extent.parts for point in self.places(part)))
        size = self.sizes[extent.size]
        last = min(size.low + extent.per, size.high + 1)
        near = ((*self.low[: extent.size], value, *self.low[extent.size + 1 :]) for value in range(size.low, last))
        return [self.low, self.high, *(() if size.step % extent.per == 0 else near)]

    def beyond(self, seen: Extent, made: Extent, stride: int) -> tuple[int, ...]:
        """Places beyond a stride for each result of windows, all that there are at some size."""
        points = (*self.places(seen), *self.places(made))
        return tuple(sorted({seen.at(point) - made.at(point) * stride for point in points}))

    def is_square(self, name: str) -> bool:
        """Whether a tensor has an open size in several axes, as scores have: each token sees the others."""
        sizes = [extent.size for extent in self.axes.get(name, {}).values()]
        return len(set(sizes)) < len(sizes)

    def shape(self, name: str, point: Point) -> tuple[int, ...]:
        """The shape of a tensor at a point."""
        axes: dict[int, Extent | Joined] = {**self.axes.get(name, {}), **self.joined.get(name, {})}
        whole = self.graph.tensors[name].shape
        return tuple(axes[axis].at(point) if axis in axes else extent for axis, extent in enumerate(whole))

    def at(self, point: Point) -> Graph:
        """The static graph at a point."""
        tensors = {name: replace(tensor, shape=self.shape(name, point)) for name, tensor in self.graph.tensors.items()}
        constants = dict(self.graph.constants)
        for name in self.parts.keys() & constants.keys():
            constants[name] = part_of(self.parts[name], tensors[name].shape)
        for name, places in self.targets.items():
            constants[name] = retargeted(constants[name], {place: one.at(point) for place, one in places.items()})
        return replace(self.graph, tensors=tensors, constants=constants)

    def along(self, size: int) -> OpenGraph:
        """The graph as if size number `size` alone were open: what keeps its places apart is known of rows."""
        known = {Extent(size, 1): 1}
        axes = {
            name: OpenAxis(axis, known.setdefault(extent, len(known) + 1))
            for name, own in self.axes.items()
            for axis, extent in own.items()
            if extent.size == size
        }
        return OpenGraph(self.graph, self.sizes[size].name, self.point[size], axes, {})

    def refused(self, operator: Operator, reason: str) -> InputError:
        """The error for an operator that cannot have open sizes."""
        return refused_at(self.symbol, f"{operator.op_type} {operator.name!r}", reason)


def retargeted(array: np.ndarray, values: Mapping[int, int]) -> np.ndarray:
    """A constant with other elements at some places."""
    made = np.array(array)
    made.reshape(-1)[list(values)] = list(values.values())
    return made


def points(sizes: Sequence[OpenSize]) -> tuple[Point, tuple[Point, ...], tuple[Point, ...]]:
    """Points at which a model is read: one, one more for each size, and those that are compared.

    The first ones are near the middle of the range, and in steps of a prime number: hardly the size of something else.
    """
    used: list[int] = []
    pairs = []
    for size in sizes:
        first = _prime(max(2, (size.low + size.high) // 2 // size.step), used)
        second = _prime(first + 1, used)
        pairs.append((first * size.step, second * size.step))
    base = tuple(first for first, _ in pairs)
    twins = tuple((*base[:n], second, *base[n + 1 :]) for n, (_, second) in enumerate(pairs))
    ends = [{size.low, size.high} for size in sizes]
    near = tuple(min(size.low + size.step, size.high) for size in sizes)
    more = dict.fromkeys((*product(*(sorted(end) for end in ends)), near))
    return base, twins, tuple(point for point in more if point not in (base, *twins))


def _prime(least: int, used: list[int]) -> int:
    """The first prime number from `least` on that is not used yet."""
    found = least
    while found in used or any(found % divisor == 0 for divisor in range(2, int(found**0.5) + 1)):
        found += 1
    used.append(found)
    return found


def grid_graph(
    sizes: tuple[OpenSize, ...], point: Point, graph: Graph, twins: Mapping[Point, Graph], largest: Graph | None = None
) -> GridGraph:
    """The open graph behind the static graphs of one model at `point`, and at a twin of it for each size.

    `largest`: that at sizes as large as any of these, and of the range, where constants may be parts of longer ones.
    InputError that names what depends on a size in another way than `GridGraph` has it.
    """
    axes: dict[str, dict[int, Extent]] = {}
    targets: dict[str, dict[int, Extent]] = {}
    found = GridGraph(graph, sizes, point, axes, targets)
    read = (point, *twins)
    others = [with_names_of(sizes[number].name, graph, twin) for number, twin in enumerate(twins.values())]
    merged: list[tuple[str, int, tuple[int, ...]]] = []
    joined = joined_places(graph)
    for tensor in graph.tensors.values():
        shapes = [tensor.shape, *(other.tensors[tensor.name].shape for other in others)]
        for number, shape in enumerate(shapes[1:]):
            if len(shape) != len(tensor.shape):
                where = reader_of(graph, tensor.name)
                raise refused_at(sizes[number].name, where, f"the number of axes of {tensor.name!r} depends on it")
        for axis, seen in enumerate(zip(*shapes, strict=True)):
            numbers = [number for number, further in enumerate(seen[1:]) if further != seen[0]]
            if (tensor.name, axis) in joined:
                continue
            if len(numbers) == 1:
                _enter(found, axes, (tensor.name, axis), numbers[0], seen, read)
            elif numbers:
                merged.append((tensor.name, axis, seen))
    _enter_merged(found, axes, merged, read)
    runs = neighbours(axes.values())
    for name, array in graph.constants.items():
        twin_arrays = [other.constants[name] for other in others]
        if name not in axes and not all(equal_arrays(array, twin) for twin in twin_arrays):
            targets[name] = _targets(found, name, twin_arrays, read, runs)
    parts = grown_constants(found.symbol, graph, others, axes, largest)
    return replace(found, parts=parts, joined=joined_extents(graph, axes))


def joined_places(graph: Graph) -> set[tuple[str, int]]:
    """The tensors in which the places of maps are joined, and the axis of each where they are."""
    joins = [operator for operator in graph.operators if joins_places(operator)]
    return {(one.outputs[0], merged_axes(one, 0).start) for one in joins}


def joined_extents(graph: Graph, axes: Mapping[str, Mapping[int, Extent]]) -> dict[str, dict[int, Joined]]:
    """The extents of axes in which places are joined, by what is joined there."""
    found = {}
    for operator in graph.operators:
        if not joins_places(operator):
            continue
        terms = []
        for name in operator.inputs:
            own, shape = axes.get(name, {}), graph.tensors[name].shape
            merged = merged_axes(operator, len(shape))
            extents = tuple(own[axis] for axis in merged if axis in own)
            terms.append((prod(shape[axis] for axis in merged if axis not in own), extents))
        if any(extents for _, extents in terms):
            found[operator.outputs[0]] = {merged_axes(operator, 0).start: Joined(tuple(terms))}
    return found


def shown_axis(graph: Graph, name: str, axis: int) -> str:
    """An axis of a tensor, for messages."""
    return f"axis {axis} of {name!r} ({'x'.join(map(str, graph.tensors[name].shape))})"


def grown_constants(
    symbol: str, graph: Graph, others: Sequence[Graph], axes: Mapping[str, object], largest: Graph | None
) -> dict[str, Array]:
    """The constants that have an open size, each as it is at the largest sizes. InputError for one that is no first
    part of that at each of the `others`."""
    whole = {} if largest is None else with_names_of(symbol, graph, largest).constants
    found = {}
    for name in axes.keys() & graph.constants.keys():
        if not all(is_part(one.constants[name], whole.get(name)) for one in (graph, *others)):
            raise refused_at(symbol, reader_of(graph, name), f"its constant {name!r} grows with it")
        found[name] = whole[name]
    return found


def with_grown_given(opened: GridGraph) -> GridGraph:
    """The open graph with its `parts`, as they are at the largest sizes, as further inputs: nothing that depends on a
    size is folded, or packed.

    InputError where one of them is an output.
    """
    parts = {name: part_of(array, opened.shape(name, opened.high)) for name, array in opened.parts.items()}
    return replace(opened, graph=with_constants_given(opened.graph, opened.symbol, parts), parts=parts)


def _enter(
    found: GridGraph,
    axes: dict[str, dict[int, Extent]],
    place: tuple[str, int],
    number: int,
    seen: Sequence[int],
    read: Sequence[Point],
) -> None:
    """Enters the extent of an axis that follows size `number`, as it was `seen` at the points that were `read`.
    InputError where it is none."""
    name, axis = place
    size, slope = found.sizes[number], _slope(number, seen, read)
    if slope <= 0 or size.step % slope.denominator:
        shown = shown_axis(found.graph, name, axis)
        reason = f"{shown} is no multiple of a part of it" + _step_advice(size, slope)
        raise refused_at(size.name, reader_of(found.graph, name), reason)
    axes.setdefault(name, {})[axis] = _extent(number, seen[0], slope, found.point[number])


def _enter_merged(
    found: GridGraph,
    axes: dict[str, dict[int, Extent]],
    merged: Sequence[tuple[str, int, tuple[int, ...]]],
    read: Sequence[Point],
) -> None:
    """Enters the extents of axes, by tensor and as they were seen, that follow several sizes: those of two or three
    that stand beside one another somewhere, and then those of such products. InputError where one is none."""
    left = list(merged)
    while left:
        runs = neighbours(axes.values())
        extents = [(one, product_extent(runs, one[2], read)) for one in left]
        for (name, axis, _), extent in extents:
            if extent is not None:
                axes.setdefault(name, {})[axis] = extent
        remaining = [one for one, extent in extents if extent is None]
        if len(remaining) == len(left):
            name, axis, _ = left[0]
            shown, where = shown_axis(found.graph, name, axis), reader_of(found.graph, name)
            raise refused_at(found.symbol, where, f"{shown} has several of them, as rows of places in an output may")
        left = remaining


def _slope(number: int, seen: Sequence[int], read: Sequence[Point]) -> Fraction:
    """How much an extent grows with a size."""
    return Fraction(seen[1 + number] - seen[0], read[1 + number][number] - read[0][number])


def _step_advice(size: OpenSize, slope: Fraction) -> str:
    if slope <= 0 or slope.denominator > size.high:
        return ""
    step = int(np.lcm(size.step, slope.denominator))
    return f"; let {size.name} take multiples only, such as {size.name}={step}:{-(-size.high // step) * step}:{step}"


def _extent(number: int, here: int, slope: Fraction, value: int) -> Extent:
    more = here - value // slope.denominator * slope.numerator
    return Extent(number, slope.numerator, slope.denominator, more)


def _targets(
    found: GridGraph, name: str, twins: Sequence[Array], read: Sequence[Point], runs: Runs
) -> dict[int, Extent]:
    """The elements of a constant that depend on a size; `runs`: see `neighbours`. InputError where they are no sizes
    of a result."""
    graph = found.graph
    array, where = graph.constants[name], reader_of(graph, name)
    readers = graph.consumers.get(name, ())
    places = [(op.op_type, place) for op in readers for place, one in enumerate(op.inputs) if one == name]
    known = all(place in TARGET_SHAPES.get(kind, ()) for kind, place in places)
    if not readers or name in graph.outputs or not known or any(array.shape != twin.shape for twin in twins):
        raise refused_at(found.symbol, where, f"the value of {name!r} depends on it")
    own: dict[int, Extent] = {}
    for place, seen in enumerate(zip(*(one.reshape(-1).tolist() for one in (array, *twins)), strict=True)):
        numbers = [number for number, further in enumerate(seen[1:]) if further != seen[0]]
        if len(numbers) > 1:
            extent = product_extent(runs, seen, read)
            if extent is None:
                raise refused_at(found.symbol, where, f"the target shape {name!r} is no product of known extents")
            own[place] = extent
        elif numbers:
            size, slope = found.sizes[numbers[0]], _slope(numbers[0], seen, read)
            if slope <= 0 or size.step % slope.denominator:
                raise refused_at(size.name, where, f"the target shape {name!r} is no multiple of a part of it")
            own[place] = _extent(numbers[0], seen[0], slope, found.point[numbers[0]])
    return own
