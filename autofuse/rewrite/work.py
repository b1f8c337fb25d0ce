"""A graph while it is being rewritten: readers and writers of every tensor kept up to date."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import Graph, Operator, Tensor, topological_order
from autofuse.graph.nodes import first_opset
from autofuse.graph.own.names import FLOAT16_CONTRACTIONS

Array = NDArray[Any]

_CHANGED_AFTER_18 = frozenset(("DFT", "GridSample", "GroupNormalization"))
"""Operators that mean something else in opset 20 or 21: a model that holds one stays at its opset."""

MOST_SIBLINGS = 256
"""Readers of a tensor that are compared with each other: ten thousand of one input would take hours."""


@dataclass(frozen=True)
class Change:
    """One rewrite, ready to be made.

    `added`: new operators in topological order; those that write an old tensor replace its producer.
    `alias`: old tensor -> tensor that takes its place. `removed`: operators that nothing needs afterwards.
    `made`: how to compute each new constant, when it is wanted.
    """

    removed: tuple[str, ...]
    added: tuple[Operator, ...]
    tensors: Mapping[str, Tensor]
    made: Mapping[str, Callable[[], Array]]
    alias: Mapping[str, str]


class Constants(Mapping[str, Array]):
    """The constants of a graph by name; those that a rewrite makes are computed when first read, and kept in
    `known`."""

    def __init__(
        self, names: Iterable[str], known: dict[str, Array], pending: Mapping[str, Callable[[], Array]]
    ) -> None:
        self._names = dict.fromkeys(names)
        self._known, self._pending = known, pending

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._known:
            made = self._pending[name]()
            made.setflags(write=False)
            self._known[name] = made
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass
class Work:
    """A graph while it is rewritten: operators by name; `order` sorts them as the model does. `pending`: how to
    compute new constants. `float16`: see `Graph`, of new operators, too."""

    graph: Graph
    operators: dict[str, Operator]
    tensors: dict[str, Tensor]
    constants: dict[str, Array]
    pending: dict[str, Callable[[], Array]] = field(default_factory=dict)
    producers: dict[str, Operator] = field(default_factory=dict)
    readers: dict[str, dict[str, None]] = field(default_factory=dict)
    order: dict[str, tuple[int, int]] = field(default_factory=dict)
    parted: set[str] = field(default_factory=set)
    float16: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, graph: Graph, made: dict[str, Array] | None = None) -> Work:
        """A working copy; the graph stays as it is. `made`: constants of earlier rewrites, which grows."""
        known = {} if made is None else made
        known.update(graph.constants)
        work = cls(graph, {}, dict(graph.tensors), known, float16=set(graph.float16))
        for operator in graph.operators:
            work._insert(operator, (graph.position[operator.name], 0))
        return work

    def _insert(self, operator: Operator, place: tuple[int, int]) -> None:
        self.operators[operator.name] = operator
        self.order[operator.name] = place
        for name in operator.outputs:
            if name:
                self.producers[name] = operator
        for name in operator.inputs:
            if name:
                self.readers.setdefault(name, {})[operator.name] = None

    def _delete(self, name: str) -> None:
        operator = self.operators.pop(name)
        for out in operator.outputs:
            if out and self.producers.get(out) is operator:
                del self.producers[out]
        for read in operator.inputs:
            if read:
                self.readers[read].pop(name, None)

    # what rules ask

    @cached_property
    def outputs(self) -> Collection[str]:
        """Tensors that the graph returns."""
        return frozenset(self.graph.outputs)

    def producer(self, tensor: str, *op_types: str) -> Operator | None:
        """Operator that writes `tensor`, if it is one of `op_types` (none given: any)."""
        found = self.producers.get(tensor)
        return found if found is not None and (not op_types or found.op_type in op_types) else None

    def users(self, tensor: str) -> tuple[Operator, ...]:
        """Operators that read `tensor`, in the model's order."""
        return tuple(self.operators[name] for name in sorted(self.readers.get(tensor, ()), key=self.order.__getitem__))

    def siblings(self, tensor: str) -> tuple[Operator, ...]:
        """`users` of a tensor, among which a rule looks for pairs; none where more than `MOST_SIBLINGS` read it."""
        return self.users(tensor) if len(self.readers.get(tensor, ())) <= MOST_SIBLINGS else ()

    def private(self, tensor: str) -> bool:
        """Whether exactly one operator reads `tensor`, and the graph does not return it."""
        return len(self.readers.get(tensor, ())) == 1 and tensor not in self.outputs

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self.tensors[tensor].shape

    def is_constant(self, tensor: str) -> bool:
        """Whether the value of a tensor is known."""
        return tensor in self.pending or tensor in self.graph.constants

    def array(self, tensor: str) -> Array | None:
        """Value of a constant; None for other tensors."""
        if tensor in self.pending and tensor not in self.constants:
            made = self.pending[tensor]()
            made.setflags(write=False)
            self.constants[tensor] = made
        return self.constants.get(tensor)

    def scalar(self, tensor: str) -> float | None:
        """The number in a constant whose elements are all equal (64 at most); None for other tensors."""
        if not self.is_constant(tensor) or not 1 <= self.tensors[tensor].elements <= 64:
            return None
        array = self.array(tensor)
        if array is None or array.dtype.kind not in "fiu":
            return None
        first = float(array.reshape(-1)[0])
        return first if np.all(array == array.reshape(-1)[0]) else None

    def integers(self, tensor: str) -> tuple[int, ...] | None:
        """Integers of a constant vector; None for other tensors."""
        array = self.array(tensor) if tensor else None
        return None if array is None or array.dtype.kind not in "iu" else tuple(int(item) for item in array.reshape(-1))

    def is_float(self, tensor: str) -> bool:
        """Whether a tensor holds real numbers."""
        return self.tensors[tensor].dtype.startswith("float")

    def allows(self, op_type: str) -> bool:
        """Whether an operator can be used although it came with a later opset than the graph's."""
        first = first_opset(op_type, self.graph.opset)
        if first is None:
            return False
        return first == self.graph.opset or not any(op.op_type in _CHANGED_AFTER_18 for op in self.graph.operators)

    # changing it

    def dead_after(self, replaced: Iterable[str], kept: Collection[str]) -> tuple[str, ...]:
        """Operators that nothing needs once the `replaced` tensors are written by others.

        `kept`: tensors that the new operators read.
        """
        rewritten = set(replaced)
        dead: dict[str, None] = {}
        waiting = [self.producers[name].name for name in rewritten if name in self.producers]
        while waiting:
            name = waiting.pop()
            operator = self.operators[name]
            needed = [out for out in operator.outputs if out and out not in rewritten]
            if name in dead or any(self._needed(out, dead, kept) for out in needed):
                continue
            dead[name] = None
            waiting += [self.producers[read].name for read in operator.inputs if read in self.producers]
        return tuple(sorted(dead, key=self.order.__getitem__))

    def _needed(self, tensor: str, dead: Mapping[str, None], kept: Collection[str]) -> bool:
        return (
            tensor in kept or tensor in self.outputs or any(name not in dead for name in self.readers.get(tensor, ()))
        )

    def make(self, change: Change, root: str) -> set[str]:
        """Carry out a rewrite at the operator `root`; names of operators that are new or read other tensors now."""
        place = self.order[root]
        gone = [one for one in map(self.operators.__getitem__, change.removed) if one.op_type in FLOAT16_CONTRACTIONS]
        if gone and all(one.outputs[0] in self.float16 for one in gone):
            self.float16 |= {name for operator in change.added for name in operator.outputs}
        for name in change.removed:
            self._delete(name)
        self.tensors.update(change.tensors)
        self.pending.update(change.made)
        touched = {operator.name for operator in change.added}
        for number, operator in enumerate(change.added):
            self._insert(operator, (place[0], place[1] + number))
        for old, new in change.alias.items():
            for reader in tuple(self.readers.get(old, ())):
                operator = self.operators[reader]
                where = self.order[reader]
                self._delete(reader)
                self._insert(replace(operator, inputs=tuple(new if n == old else n for n in operator.inputs)), where)
                touched.add(reader)
        return touched

    def freeze(self) -> Graph:
        """The graph as it is now, in topological order."""
        operators = tuple(self._sorted())
        used = dict.fromkeys(self.graph.inputs)
        used.update((name, None) for op in operators for name in (*op.inputs, *op.outputs) if name)
        return replace(
            self.graph,
            operators=operators,
            tensors={name: self.tensors[name] for name in used},
            constants=Constants(filter(self.is_constant, used), self.constants, self.pending),
            float16=frozenset(self.float16.intersection(used)),
        )

    def _sorted(self) -> Iterable[Operator]:
        before = {
            name: {self.producers[read].name for read in operator.inputs if read in self.producers}
            for name, operator in self.operators.items()
        }
        return (self.operators[name] for name in topological_order(before, rank=self.order.__getitem__))
