"""The workloads that a workload falls into when it is cut."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from autofuse.fusion.edges import Edges
from autofuse.kernels.nest.nest import FORWARD
from autofuse.kernels.workload.as_graph import as_graph
from autofuse.kernels.workload.workload import PLAIN, Workload, bind_workload

MOST_PARTITIONS = 60
"""Subsets of one group that are looked at for further cuts; a larger group has been cut often enough by then."""


def without_layouts(workload: Workload) -> Workload:
    """The workload with every tensor in the plain layout: equal for all layouts that a group was measured in."""
    return replace(workload, values=tuple(replace(value, layout=PLAIN) for value in workload.values))


@dataclass(frozen=True)
class PartEdge:
    """An edge of a workload: `consumer` reads `tensor` of `producer` (indices of operators, name of the tensor in
    `as_graph`)."""

    producer: int
    consumer: int
    tensor: str


class Parts:
    """The parts of one workload when it is cut: a part is a set of its operators, by index.

    A tensor that a cut lays open has the layout that `assign_layouts` would most likely give it: blocked where the
    workload itself is and the tensor is a feature map.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.graph = as_graph(workload)
        self.all = frozenset(range(len(workload.operators)))
        self.edges = tuple(
            PartEdge(self.graph.position[producer.name], index, name)
            for index, consumer in enumerate(self.graph.operators)
            for name in dict.fromkeys(consumer.inputs)
            if name and (producer := self.graph.producers.get(name)) is not None
        )
        self._layouts = {f"v{index}": value.layout for index, value in enumerate(workload.values)}
        blocks = sorted({value.block for value in workload.values if value.block})
        for index in workload.of_kind("inner") if blocks else ():
            if self._blocked(index, blocks[-1]):
                self._layouts[f"v{index}"] = f"c{blocks[-1]}"

    @cached_property
    def planned(self) -> Edges:
        """The edges of the workload as planning sees them."""
        return Edges(self.graph)

    def _blocked(self, index: int, block: int) -> bool:
        value = self.workload.values[index]
        users = self.graph.consumers.get(f"v{index}", ())
        reshaped = bool(users) and all(user.op_type in FORWARD for user in users)
        return value.dtype == "float32" and len(value.shape) > 2 and value.shape[1] % block == 0 and not reshaped

    def part(self, operators: Collection[int], plain: bool = False) -> Workload:
        """The workload of some of the operators; `plain`: in no layout."""
        names = [f"n{index}" for index in operators]
        return bind_workload(self.graph, names, {} if plain else self._layouts).workload

    def splits(self, within: frozenset[int]) -> Iterator[tuple[frozenset[int], frozenset[int], PartEdge]]:
        """Two-way splits of `within` along one edge: what the producer needs against the rest, and the rest against
        what needs the consumer; each once. Both halves can run one after the other."""
        seen: set[frozenset[int]] = set()
        for edge in self.edges:
            if edge.producer in within and edge.consumer in within:
                above = self._closure(edge.producer, within, up=True)
                below = self._closure(edge.consumer, within, up=False)
                for first in (above, within - below):
                    rest = within - first
                    if first and rest and first not in seen:
                        seen.add(first)
                        yield first, rest, edge

    def _closure(self, start: int, within: frozenset[int], up: bool) -> frozenset[int]:
        """`start` with everything inside that it depends on (`up`), or that depends on it."""
        found, waiting = {start}, [start]
        while waiting:
            here = waiting.pop()
            for edge in self.edges:
                other = edge.producer if up else edge.consumer
                if (edge.consumer if up else edge.producer) == here and other in within and other not in found:
                    found.add(other)
                    waiting.append(other)
        return frozenset(found)
