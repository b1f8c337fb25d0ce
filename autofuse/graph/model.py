"""The graph that everything else reads: operators with their ONNX names, static shapes, constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from autofuse.values.names import BFLOAT16

AttributeValue = int | float | str | bytes | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """What a model's file says about the model, in ONNX Runtime's words; "" where it says nothing."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tensor:
    """A value of the graph: static `shape` (elements), numpy `dtype` name."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the dense tensor."""
        return self.elements * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Operator:
    """One ONNX node. `inputs` may hold "" for an absent optional input."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict, hash=False)
    domain: str = ""


Node = TypeVar("Node", bound=Hashable)


def topological_order(before: Mapping[Node, Iterable[Node]], rank: Callable[[Node], Any]) -> list[Node]:
    """The nodes, each after those `before` it; of those that can come next, the one of the lowest rank.

    `graphlib.CycleError` when there is no such order.
    """
    sorter = TopologicalSorter(before)
    sorter.prepare()
    ready: list[tuple[Any, Node]] = []
    order: list[Node] = []
    while sorter.is_active():
        for node in sorter.get_ready():
            heappush(ready, (rank(node), node))
        order.append(heappop(ready)[1])
        sorter.done(order[-1])
    return order


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph: operators in topological order over named tensors; constants hold their values.

    Every tensor that an operator reads or writes stands in `tensors`; a constant stands in
    `constants` too. Graph inputs and outputs keep the model's order and names. `halves`: those that are bfloat16 for
    whoever calls the model; in the graph they are float32, and hold nothing but bfloat16. `widened`: the model computes
    in bfloat16, for which ONNX Runtime has hardly a kernel. `float16`: results that the model computes in float16, and
    the graph in float32.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: tuple[Operator, ...]
    tensors: Mapping[str, Tensor]
    constants: Mapping[str, NDArray[np.generic]]
    opset: int
    origin: Origin = field(default_factory=Origin)
    halves: frozenset[str] = frozenset()
    widened: bool = False
    float16: frozenset[str] = frozenset()

    def dtype_for_callers(self, name: str) -> str:
        """Element type of an input or output for whoever calls the model."""
        return BFLOAT16 if name in self.halves else self.tensors[name].dtype

    @cached_property
    def by_name(self) -> Mapping[str, Operator]:
        """Operator of each name."""
        return {operator.name: operator for operator in self.operators}

    @cached_property
    def producers(self) -> Mapping[str, Operator]:
        """Operator that writes each tensor (absent for graph inputs and constants)."""
        return {out: operator for operator in self.operators for out in operator.outputs if out}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Operator, ...]]:
        """Operators that read each tensor, in topological order, each once."""
        found: dict[str, list[Operator]] = {name: [] for name in self.tensors}
        for operator in self.operators:
            for name in dict.fromkeys(operator.inputs):
                if name:
                    found.setdefault(name, []).append(operator)
        return {name: tuple(users) for name, users in found.items()}

    def activations(self, operator: Operator) -> tuple[str, ...]:
        """Inputs of `operator` that are neither absent nor constant."""
        return tuple(name for name in operator.inputs if name and name not in self.constants)

    def predecessors(self, operator: Operator) -> tuple[Operator, ...]:
        """Operators whose results `operator` reads, each once."""
        found = (self.producers.get(name) for name in operator.inputs if name)
        return tuple(dict.fromkeys(op for op in found if op is not None))

    def successors(self, operator: Operator) -> tuple[Operator, ...]:
        """Operators that read a result of `operator`, each once, in topological order."""
        users = {user.name for out in operator.outputs if out for user in self.consumers[out]}
        return tuple(self.by_name[name] for name in sorted(users, key=self.position.__getitem__))

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Topological index of each operator name."""
        return {operator.name: index for index, operator in enumerate(self.operators)}

    @cached_property
    def returned(self) -> frozenset[str]:
        """Names of the outputs."""
        return frozenset(self.outputs)

    def boundary(self, operators: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(tensors read from outside, tensors needed outside) of a set of operator names.

        Constants count as read from outside. Order: first use, first definition.
        """
        inside = set(operators)
        ordered = sorted(inside, key=self.position.__getitem__)
        made = {out for name in ordered for out in self.by_name[name].outputs if out}
        reads = dict.fromkeys(name for op in ordered for name in self.by_name[op].inputs if name and name not in made)
        wanted = self.returned
        writes = [
            out
            for op in ordered
            for out in self.by_name[op].outputs
            if out and (out in wanted or any(user.name not in inside for user in self.consumers.get(out, ())))
        ]
        return tuple(reads), tuple(writes)
