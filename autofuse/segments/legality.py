"""Cutting a graph into parts of two sides, so that the parts can run one after another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError
from typing import Protocol

from autofuse.graph.model import topological_order


class Item(Protocol):
    """What is cut: something that reads and writes named values."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Values that it needs."""

    @property
    def writes(self) -> tuple[str, ...]:
        """Values that it makes."""


@dataclass(frozen=True)
class Part:
    """Items (by place) that run as one; `own`: on our side."""

    own: bool
    members: tuple[int, ...]


def cut(items: Sequence[Item], own: Collection[int], carried: Collection[str]) -> tuple[Part, ...]:
    """All items in parts, each after those that it needs; as few changes of side on any way as can be.

    `items`: in topological order; `own`: places of those that may be on our side. `carried`: values that may pass
    between parts; the writer and all readers of any other value come to stand in one part of the other side.

    A part holds what changes of side as often before it as the others of it: all ways between parts lead forward, so
    every part is convex and no two depend on each other. The side that begins is the one that makes fewer parts.
    """
    knots = _Knots(items, own)
    for first, second, value in _edges(items):
        if value not in carried:
            knots.tie((first, second))
    order = knots.sorted_order()
    return min((_parts(knots, order, begins) for begins in (True, False)), key=len)


def _parts(knots: _Knots, order: Sequence[int], begins: bool) -> tuple[Part, ...]:
    """The parts where the first is of our side, or not: then theirs alternate."""
    level: dict[int, int] = {}
    for knot in order:
        first = int(knots.own(knot) != begins)
        changed = (level[one] + (knots.own(one) != knots.own(knot)) for one in knots.before(knot))
        level[knot] = max((first, *changed))
    parts: dict[int, list[int]] = {}
    for knot in order:
        parts.setdefault(level[knot], []).extend(knots.members[knot])
    found = []
    for number in sorted(parts):
        own = (number % 2 == 0) == begins
        found.append(Part(own, tuple(sorted(parts[number]))))
    return tuple(found)


def _edges(items: Sequence[Item]) -> Iterable[tuple[int, int, str]]:
    """(writer, reader, value) of every value that one item hands to another."""
    writer = {name: place for place, item in enumerate(items) for name in item.writes}
    for place, item in enumerate(items):
        for name in item.reads:
            if name in writer:
                yield writer[name], place, name


class _Knots:
    """Items tied together: what is tied to another, or stands on a way around that leads back, is on the other side."""

    def __init__(self, items: Sequence[Item], own: Collection[int]) -> None:
        self._own = set(own)
        self._knot = list(range(len(items)))
        self.members = {place: [place] for place in range(len(items))}
        self._before: list[set[int]] = [set() for _ in items]
        for first, second, _ in _edges(items):
            self._before[second].add(first)

    def own(self, knot: int) -> bool:
        """Whether it is on our side."""
        return knot in self._own

    def before(self, knot: int) -> set[int]:
        """The knots that it needs."""
        return {self._knot[one] for member in self.members[knot] for one in self._before[member]} - {knot}

    def tie(self, places: Iterable[int]) -> None:
        """Make one knot, of the other side, of the items at these places."""
        knots = sorted({self._knot[place] for place in places})
        self._own -= set(knots)
        for other in knots[1:]:
            for member in self.members[other]:
                self._knot[member] = knots[0]
            self.members[knots[0]] += self.members.pop(other)

    def sorted_order(self) -> list[int]:
        """The knots, each after those that it needs; those on a circle become one."""
        while True:
            try:
                return topological_order({knot: self.before(knot) for knot in self.members}, rank=int)
            except CycleError as error:
                self.tie(self.members[knot][0] for knot in error.args[1])
