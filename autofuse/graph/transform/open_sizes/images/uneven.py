"""Extents of images whose sizes no stride divides: a convolution of stride 2 over 7 rows makes 4 of them.

Where a size may have any value, an extent behind strides is so many whole parts of the size and some more. Which, is
computed operator by operator, from the windows that slide over each, and compared at many points: at the ends of the
ranges, and at sizes in a row. Elsewhere (`grid_graph`) extents follow from two points alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import gcd, lcm

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.extents import Extent, Point, neighbours, product_extent
from autofuse.graph.transform.open_sizes.images.grid_graph import (
    GridGraph,
    grown_constants,
    joined_extents,
    joined_places,
    shown_axis,
)
from autofuse.graph.transform.open_sizes.images.sliding import SLIDING
from autofuse.graph.transform.open_sizes.open_graph import (
    TARGET_SHAPES,
    equal_arrays,
    reader_of,
    refused_at,
    with_names_of,
)

MOST_PARTS = 128
"""Of how many places one may be made by all strides together."""
IN_A_ROW = 8
"""Sizes in a row at which a graph is read: two extents that are the same at all of them, and at the ends, are one."""

Seen = tuple[int, ...]
"""An extent at each point."""


def samples_of(sizes: Sequence[OpenSize], graph: Graph) -> tuple[Point, ...]:
    """The points at which a graph is read whose strides do not divide its sizes; none where it has no strides.

    First one near the middle, then one for each size that is as many places further as all strides make one of. Some
    are in a row, and the last ones at the largest sizes: where a size is smallest, an axis may have one place, and the
    graph is another.
    """
    parts: dict[str, int] = {}
    for operator in graph.operators:
        own = max((parts.get(name, 1) for name in operator.inputs), default=1)
        strides = operator.attributes.get("strides", ()) if operator.op_type in SLIDING else ()
        own *= lcm(*(int(stride) for stride in strides)) if isinstance(strides, tuple) else 1
        parts.update(dict.fromkeys(operator.outputs, own))
    period = lcm(*parts.values()) if parts else 1
    if not 1 < period <= MOST_PARTS:
        return ()
    base = tuple((size.low + size.high) // 2 // size.step * size.step for size in sizes)
    further = (lcm(period, size.step) for size in sizes)
    twins = [(*base[:n], base[n] + more, *base[n + 1 :]) for n, more in enumerate(further)]
    row = [tuple(value + step * size.step for value, size in zip(base, sizes, strict=True)) for step in range(IN_A_ROW)]
    ends = product(*((value, size.high) for value, size in zip(base, sizes, strict=True)))
    return tuple(dict.fromkeys((base, *twins, *row, *ends)))


def uneven_graph(
    sizes: tuple[OpenSize, ...],
    graphs: Mapping[Point, Graph],
    largest: Graph | None = None,
    grown: Collection[str] = (),
) -> GridGraph:
    """The open graph behind the static graphs at the points of `samples_of`. `grown`: inputs that are constants which
    grow with a size.

    InputError that names what depends on a size in another way than `GridGraph` has it.
    """
    samples = tuple(graphs)
    first, symbol = graphs[samples[0]], " and ".join(size.name for size in sizes)
    named = {point: with_names_of(symbol, first, graph) for point, graph in graphs.items()}
    read = _Read(sizes, samples, named, grown)
    axes = read.axes()
    parts = grown_constants(symbol, first, [*named.values()], axes, largest)
    targets = read.targets(axes)
    return GridGraph(first, sizes, samples[0], axes, targets, parts, samples, joined_extents(first, axes))


@dataclass
class _Read:
    """The graphs of a model, whose operators and names are the same at all points."""

    sizes: tuple[OpenSize, ...]
    samples: tuple[Point, ...]
    graphs: Mapping[Point, Graph]
    grown: Collection[str] = ()
    known: dict[Seen, set[Extent]] = field(default_factory=dict)
    """The extents that were found, by what they are at each point."""

    @cached_property
    def graph(self) -> Graph:
        return self.graphs[self.samples[0]]

    def seen(self, name: str, axis: int) -> Seen:
        """An extent at each point."""
        return tuple(self.graphs[point].tensors[name].shape[axis] for point in self.samples)

    def axes(self) -> dict[str, dict[int, Extent]]:
        """The extents of all tensors, those that an operator reads before those that it makes. A constant has one of
        these."""
        graph, found = self.graph, dict[str, dict[int, Extent]]()
        joined = joined_places(graph)
        made = [name for operator in graph.operators for name in operator.outputs if name]
        given = [name for name in graph.inputs if name not in self.grown]
        for name in dict.fromkeys((*given, *made, *graph.constants, *self.grown)):
            ranks = {len(one.tensors[name].shape) for one in self.graphs.values()}
            if len(ranks) > 1:
                raise self.refused(name, f"the number of axes of {name!r} depends on it")
            for axis in range(*ranks):
                seen = self.seen(name, axis)
                if len(set(seen)) > 1 and (name, axis) not in joined:
                    found.setdefault(name, {})[axis] = self.extent(name, axis, seen, found)
        return found

    def extent(self, name: str, axis: int, seen: Seen, found: Mapping[str, Mapping[int, Extent]]) -> Extent:
        """What an axis is. InputError where it is none, or of several sizes."""
        shown, number = shown_axis(self.graph, name, axis), self.number(seen)
        if number is None:
            joined = product_extent(neighbours(found.values()), seen, self.samples)
            if joined is None:
                raise self.refused(name, f"{shown} has several of them")
            self.known.setdefault(seen, set()).add(joined)
            return joined
        for one in map(self.plainest, self.candidates(name, axis, seen, number, found)):
            if all(one.at(point) == extent for point, extent in zip(self.samples, seen, strict=True)):
                self.known.setdefault(seen, set()).add(one)
                return one
        raise self.refused(name, f"{shown} is no whole number of parts of it, and some more, at each size")

    def number(self, seen: Seen) -> int | None:
        """The one size that an extent follows; None where it follows several."""
        found = [n for n in range(len(self.sizes)) if seen[1 + n] != seen[0]]
        return found[0] if len(found) == 1 else None

    def slope(self, seen: Seen, number: int) -> Fraction:
        """How much an extent grows with a size."""
        return Fraction(seen[1 + number] - seen[0], self.samples[1 + number][number] - self.samples[0][number])

    def candidates(
        self, name: str, axis: int, seen: Seen, number: int, found: Mapping[str, Mapping[int, Extent]]
    ) -> Iterator[Extent]:
        """What an axis may be, by the operator that makes it: what is sure before what is only the same everywhere."""
        operator, slope = self.graph.producers.get(name), self.slope(seen, number)
        if slope.denominator == 1 and slope > 0:
            yield Extent(number, slope.numerator, 1, seen[0] - slope.numerator * self.samples[0][number])
        known = self.known.get(seen, set())
        if operator is None:
            yield from known if len(known) == 1 else ()  # of a constant, say
            return
        if operator.op_type in SLIDING and not operator.domain:
            before = found.get(operator.inputs[0], {}).get(axis)
            if before is not None and before.factor == 1:
                yield _behind(before, *self.window(operator, axis))
            return
        inputs = dict.fromkeys(one for read in operator.inputs for one in found.get(read, {}).values())
        for before in (one for one in inputs if one.size == number):
            times = slope / Fraction(before.factor, before.per)
            if times.denominator == 1 and times > 0:
                more = seen[0] - before.at(self.samples[0]) * times.numerator + before.more * times.numerator
                yield replace(before, factor=before.factor * times.numerator, more=more)
        if len(known) == 1:
            yield from known

    def plainest(self, extent: Extent) -> Extent:
        """An extent without what changes nothing since a size has steps: of multiples of 32, (size + 31) / 64 is
        size / 64, and twice size / 32 is size / 16. Two that are the same at each size are equal then."""
        if extent.times is not None:
            return extent
        unit = gcd(self.sizes[extent.size].step, extent.per)
        extent = replace(extent, shift=extent.shift // unit * unit)
        if unit < extent.per:
            return extent
        share = gcd(extent.factor, extent.per)
        return replace(extent, factor=extent.factor // share, per=extent.per // share)

    def window(self, operator: Operator, axis: int) -> tuple[int, int, int]:
        """Stride, padding, and places that a window reaches over along an axis."""
        weights = self.graph.tensors[operator.inputs[1]].shape[2:] if len(operator.inputs) > 1 else ()
        rank = len(self.graph.tensors[operator.inputs[0]].shape) - 2

        def values(name: str, default: tuple[int, ...]) -> tuple[int, ...]:
            given = operator.attributes.get(name, default)
            return tuple(int(item) for item in given) if isinstance(given, tuple) else default

        taps, place = values("kernel_shape", weights)[axis - 2], axis - 2
        strides, dilations = values("strides", (1,) * rank), values("dilations", (1,) * rank)
        pads = values("pads", (0,) * 2 * rank)
        reach = (taps - 1) * dilations[place] + 1
        more = strides[place] - 1 if operator.attributes.get("ceil_mode", 0) else 0
        return strides[place], pads[place] + pads[place + rank] + more, reach

    def targets(self, axes: Mapping[str, Mapping[int, Extent]]) -> dict[str, dict[int, Extent]]:
        """The elements of constants that are sizes of a result."""
        graph, found = self.graph, dict[str, dict[int, Extent]]()
        for name, array in graph.constants.items():
            others = [one.constants[name] for one in self.graphs.values()]
            if name in axes or all(equal_arrays(array, other) for other in others):
                continue
            readers = graph.consumers.get(name, ())
            places = [(op.op_type, place) for op in readers for place, read in enumerate(op.inputs) if read == name]
            known = all(place in TARGET_SHAPES.get(kind, ()) for kind, place in places)
            if not readers or name in graph.outputs or not known:
                raise self.refused(name, f"the value of {name!r} depends on it")
            flat = [other.reshape(-1).tolist() for other in others]
            for place in range(array.size):
                seen = tuple(int(values[place]) for values in flat)
                if len(set(seen)) > 1:
                    extents = self.known.get(seen, set())
                    if len(extents) != 1:
                        raise self.refused(name, f"the target shape {name!r} is no extent that is known")
                    found.setdefault(name, {})[place] = next(iter(extents))
        return found

    def refused(self, name: str, reason: str) -> InputError:
        symbol = " and ".join(size.name for size in self.sizes)
        return refused_at(symbol, reader_of(self.graph, name), reason)


def _behind(before: Extent, stride: int, padding: int, reach: int) -> Extent:
    """The extent of what a window makes of such an extent, of whole parts: whole parts of whole parts are whole parts.

    floor((floor((v + s) / p) + m + padding - reach) / stride) + 1 is
    floor((v + s + p * (m + padding - reach)) / (p * stride)) + 1.
    """
    per = before.per * stride
    more, shift = divmod(before.shift + before.per * (before.more + padding - reach), per)
    return Extent(before.size, 1, per, more + 1, shift)
