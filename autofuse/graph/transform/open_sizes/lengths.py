"""A graph whose rows are counted by one open length, or by two: tokens, and those of a context that they attend to.

Each length is read as if it were the only one that is open, so that all that is known of rows holds for each. No tensor
has both but inside of an attention, whose queries one of them counts, and whose keys the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.attention import Attention, attentions
from autofuse.graph.transform.open_sizes.open_graph import (
    Array,
    OpenAxis,
    OpenGraph,
    part_of,
    reader_of,
    refused_at,
    with_constants_given,
)
from autofuse.graph.transform.open_sizes.rows import check_rows


@dataclass(frozen=True, eq=False)
class OpenLengths:
    """`views`: a graph as if each of its open lengths were the only one, in their order. All have the same `graph`."""

    views: tuple[OpenGraph, ...]

    @property
    def graph(self) -> Graph:
        """The graph where each length is that of its view."""
        return self.views[0].graph

    @property
    def symbol(self) -> str:
        """The names of the lengths, for messages."""
        return " and ".join(view.symbol for view in self.views)

    @cached_property
    def parts(self) -> Mapping[str, Array]:
        """Constants that are the first part of a longer one; see `OpenGraph`."""
        return {name: array for view in self.views for name, array in view.parts.items()}

    @cached_property
    def tails(self) -> frozenset[str]:
        """Those that are the last part of a longer one."""
        return frozenset[str]().union(*(view.tails for view in self.views))

    @cached_property
    def axes(self) -> Mapping[str, OpenAxis]:
        """Of each tensor of rows the open axis, with the number of its length."""
        return {
            name: replace(where, size=number)
            for number, view in enumerate(self.views)
            for name, where in view.axes.items()
            if self.number(name) == number
        }

    def has(self, name: str) -> bool:
        """Whether a tensor has an open length."""
        return any(view.has(name) for view in self.views)

    def number(self, name: str) -> int | None:
        """The number of the one open length that a tensor has; None where it has none, or two."""
        found = [number for number, view in enumerate(self.views) if view.has(name)]
        return found[0] if len(found) == 1 else None

    def place(self, name: str) -> OpenAxis | None:
        """The one axis of a tensor that has an open length; None where none has, or several."""
        number = self.number(name)
        where = None if number is None else self.views[number].place(name)
        return None if where is None or number is None else replace(where, size=number)

    def open_axes(self, name: str) -> list[int]:
        """The axes of a tensor that have an open length."""
        return sorted({axis for view in self.views for axis in view.open_axes(name)})

    def view_of(self, names: Sequence[str]) -> OpenGraph:
        """The graph as if the length that some tensors have were the only one."""
        return next((view for view in self.views if any(map(view.has, names))), self.views[0])

    def at(self, sizes: Mapping[int, int]) -> Graph:
        """The static graph where lengths, by number, have such values; the others are those of their views."""
        graph = self.graph
        for number, size in sizes.items():
            graph = replace(self.views[number], graph=graph).at(size)
        return graph

    def with_graph(self, graph: Graph) -> OpenLengths:
        """The same of another graph, which has the same tensors and more."""
        return OpenLengths(tuple(replace(view, graph=graph) for view in self.views))


def check_lengths(opened: OpenLengths) -> None:
    """InputError that names the first operator which mixes the rows of an open length, or may do so."""
    for view in opened.views:
        check_rows(view)
    graph = opened.graph
    inside = {name for attention in joint_attentions(opened) for name in attention.operators}
    for name, tensor in graph.tensors.items():
        if not all(view.has(name) for view in opened.views) or len(opened.views) == 1 or name in opened.parts:
            continue
        maker = graph.producers.get(name)
        if maker is None or maker.name not in inside or name in graph.returned:
            shown = "x".join(map(str, tensor.shape))
            reason = f"{name!r} ({shown}) has both of them, and belongs to no attention"
            raise refused_at(opened.symbol, reader_of(graph, name), reason)


def joint_attentions(opened: OpenLengths) -> tuple[Attention, ...]:
    """Every attention of a graph, with the numbers of the lengths that count its queries and its keys. InputError that
    names the operator by which a softmax over tokens is none."""
    found: dict[str, Attention] = {}
    for number, view in enumerate(opened.views):
        for one in attentions(view):
            numbered = replace(one, queries=_of(one.queries, number), keys=_of(one.keys, number))
            other = found.get(one.softmax)
            found[one.softmax] = numbered if other is None else _joined(opened, other, numbered)
    return tuple(found.values())


def _of(where: OpenAxis | None, number: int) -> OpenAxis | None:
    return None if where is None else replace(where, size=number)


def _joined(opened: OpenLengths, one: Attention, other: Attention) -> Attention:
    """An attention whose queries one length counts, and whose keys the other: what both views know of it."""
    queries, keys = (one, other) if one.keys is None else (other, one)
    if queries.queries is None or queries.keys is not None or keys.keys is None or keys.queries is not None:
        operator = opened.graph.by_name[one.softmax]
        raise refused_at(opened.symbol, f"Softmax {operator.name!r}", "its queries, or its keys, have both of them")
    both = {*queries.operators, *keys.operators}
    ordered = tuple(sorted(both, key=opened.graph.position.__getitem__))
    return replace(queries, operators=ordered, keys=keys.keys)


def with_lengths_given(opened: OpenLengths, highs: Sequence[int]) -> OpenLengths:
    """The open graph with its `parts` as further inputs: nothing that depends on a size is folded, or packed.

    `highs`: the largest lengths, which they have from now on. InputError where one of them is an output.
    """
    given = with_constants_given(opened.graph, opened.symbol, opened.parts)
    shapes = opened.at(dict(enumerate(highs))).tensors
    parts = {name: part_of(array, shapes[name].shape, name in opened.tails) for name, array in opened.parts.items()}
    return OpenLengths(
        tuple(replace(view, graph=given, parts={name: parts[name] for name in view.parts}) for view in opened.views)
    )


def with_own_operators(opened: OpenLengths) -> OpenLengths:
    """The open graph with a copy, for each further attention that has it, of what two share: a mask, say."""
    users: dict[str, list[int]] = {}
    for number, attention in enumerate(joint_attentions(opened)):
        for name in attention.operators:
            users.setdefault(name, []).append(number)
    if all(len(numbers) == 1 for numbers in users.values()):
        return opened
    graph, tensors, copies = opened.graph, dict(opened.graph.tensors), dict[str, str]()
    operators: list[Operator] = []
    for operator in graph.operators:
        first, *others = users.get(operator.name, [-1])
        operators.append(_renamed(operator, graph, users, first))
        for number in others:
            twin = _renamed(operator, graph, users, number)
            outputs = tuple(_own(name, number) for name in operator.outputs)
            for name, own in zip(operator.outputs, outputs, strict=True):
                tensors[own], copies[own] = replace(tensors[name], name=own), name
            operators.append(replace(twin, name=_own(operator.name, number), outputs=outputs))
    changed = replace(graph, operators=tuple(operators), tensors=tensors)
    return OpenLengths(tuple(_with_copies(view, changed, copies) for view in opened.views))


def _with_copies(view: OpenGraph, graph: Graph, copies: Mapping[str, str]) -> OpenGraph:
    """A view of a graph in which some tensors, by name, are copies of others."""
    axes, grids, more = dict(view.axes), dict(view.grids), dict(view.more)
    places: tuple[dict[str, Any], ...] = (axes, grids, more)
    for known in places:
        known.update({own: known[name] for own, name in copies.items() if name in known})
    return replace(view, graph=graph, axes=axes, grids=grids, more=more)


def _renamed(operator: Operator, graph: Graph, users: dict[str, list[int]], number: int) -> Operator:
    """An operator of attention `number`, which reads the copies that are its own."""
    inputs = []
    for name in operator.inputs:
        maker = graph.producers.get(name)
        among = users.get(maker.name, []) if maker is not None else []
        inputs.append(_own(name, number) if number in among[1:] else name)
    return replace(operator, inputs=tuple(inputs))


def _own(name: str, number: int) -> str:
    return f"{name}@attention{number}" if name else ""
