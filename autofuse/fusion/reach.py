"""The operators that reach one another in a graph, as bit sets, while finished groups are contracted to one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from autofuse.graph.model import Graph

_FEW_BITS = 32
"""Bits that are taken one by one; each costs a pass over the whole number."""


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    if mask.bit_count() > _FEW_BITS:
        octets = np.frombuffer(mask.to_bytes(mask.bit_length() // 8 + 1, "little"), np.uint8)
        yield from np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
        return
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


class Reach:
    """The reach of every operator, its ancestors and descendants; bit `i` stands for the operator at position `i`.

    After `contract`, the members of a group reach whatever any of them reaches, so that `between` sees
    cycles through several groups too: convex groups alone may still wait for one another.
    """

    def __init__(self, graph: Graph) -> None:
        position = graph.position
        self.position = position
        self.ancestors = [0] * len(position)
        for operator in graph.operators:
            here = position[operator.name]
            for producer in graph.predecessors(operator):
                index = position[producer.name]
                self.ancestors[here] |= self.ancestors[index] | 1 << index
        self.descendants = [0] * len(position)
        for operator in reversed(graph.operators):
            here = position[operator.name]
            for producer in graph.predecessors(operator):
                index = position[producer.name]
                self.descendants[index] |= self.descendants[here] | 1 << here

    def mask(self, operators: Iterable[str]) -> int:
        """Bit set of some operator names."""
        found = 0
        for name in operators:
            found |= 1 << self.position[name]
        return found

    def between(self, mask: int) -> int:
        """Operators outside `mask` that depend on a member and that a member depends on: 0 when convex."""
        above = below = 0
        for index in bits(mask):
            above |= self.ancestors[index]
            below |= self.descendants[index]
        return above & below & ~mask

    def contract(self, mask: int) -> None:
        """Make one node of a convex group.

        Only operators that reach some members and not others learn anything new.
        """
        members = tuple(bits(mask))
        above = below = 0
        above_all = below_all = -1
        for index in members:
            above |= self.ancestors[index]
            below |= self.descendants[index]
            above_all &= self.ancestors[index]
            below_all &= self.descendants[index]
        above &= ~mask
        below &= ~mask
        for index in bits(above & ~above_all):
            self.descendants[index] |= below | mask
        for index in bits(below & ~below_all):
            self.ancestors[index] |= above | mask
        for index in members:
            self.ancestors[index] = above
            self.descendants[index] = below
