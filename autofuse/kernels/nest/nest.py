"""Cuts a workload into nests: each an anchor (or none) with the operators that live in its loops.

A nest's epilogue holds the operators computed where the anchor's result is still in registers; everything
that depends on no unfinished nest is *free*: an index function, evaluated wherever it is read (prologue). Where several
nests would evaluate the same functions, or one at several places, a nest of its own writes their result first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from autofuse.graph.cost import EXPENSIVE
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
FORWARD = RESHAPES | {"Transpose"}


@dataclass
class Nest:
    """`anchor` is None for a purely elementwise nest over `space` (a logical shape).

    `start`: the value that its loops compute first (-1: each stored value is read by itself).

    `epilogue`: (operator, position of the input that comes from this nest) in evaluation order.
    `stores`: value indices that this nest writes; a Concat, or what is computed behind one, is written in part.
    """

    anchor: WorkloadOperator | None
    space: tuple[int, ...]
    start: int
    epilogue: list[tuple[WorkloadOperator, int]] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Home:
    """Where a value is: in nest `nest` (-1: free), reached by the forward maps `path`; `depth`: last nest it needs."""

    nest: int
    depth: int
    path: tuple[int, ...] = ()


class _Cutter:
    def __init__(
        self, workload: Workload, anchors: frozenset[str], scalars: frozenset[str], closed: frozenset[str]
    ) -> None:
        self.workload = workload
        self.anchors = anchors
        self.closed = closed
        self.scalars = scalars
        self.nests: list[Nest] = []
        self.site: dict[int, _Home] = {}
        self.parts: dict[int, list[int]] = {}
        self.producer = {output: operator for operator in workload.operators for output in operator.outputs}
        self.readers: dict[int, list[WorkloadOperator]] = {}
        for operator in workload.operators:
            for source in dict.fromkeys(operator.inputs):
                self.readers.setdefault(source, []).append(operator)
        self.outputs = set(workload.of_kind("output"))
        for index, value in enumerate(workload.values):
            if value.kind in ("input", "constant", "literal"):
                self.site[index] = _Home(-1, -1)

    def shape(self, value: int) -> tuple[int, ...]:
        return self.workload.values[value].shape

    def run(self) -> list[Nest]:
        for number, operator in enumerate(self.workload.operators):
            if operator.op_type in self.anchors:
                self.anchor(operator)
            elif operator.op_type in self.scalars:
                self.scalar(operator)
            elif operator.op_type in FORWARD:
                self.forward(operator, number)
            else:
                self.movement(operator)
        for output in self.workload.of_kind("output"):
            if self.site[output].nest >= 0:
                self.save(output)
        self.elementwise()
        return [nest for nest in self.nests if nest.stores]

    def save(self, value: int) -> None:
        """Makes the nest that holds `value` write it, so that later nests can read it."""
        site = self.site[value]
        if site.nest >= 0:
            stores = self.nests[site.nest].stores
            if value not in stores:
                stores.append(value)
            self.site[value] = _Home(-1, site.nest)

    def anchor(self, operator: WorkloadOperator) -> None:
        for value in operator.inputs:
            if value >= 0:
                self.save(value)
        self.share(operator.inputs)
        first = next(value for value in operator.outputs if value >= 0)
        self.nests.append(Nest(operator, self.shape(first), first))
        for value in operator.outputs:
            if value >= 0:
                self.site[value] = _Home(len(self.nests) - 1, len(self.nests) - 1)
                if operator.op_type in self.closed:
                    self.save(value)

    def scalar(self, operator: WorkloadOperator) -> None:
        if self.behind_concat(operator):
            return
        present = [value for value in operator.inputs if value >= 0]
        held = [value for value in present if self.site[value].nest >= 0]
        output = operator.outputs[0]
        if held:
            home = max(self.site[value].nest for value in held)
            inside = [value for value in held if self.site[value].nest == home]
            for value in held:
                if value not in inside:
                    self.save(value)
            if self.joins(home, inside, [v for v in present if v not in inside], output):
                position = operator.inputs.index(inside[0])
                self.nests[home].epilogue.append((operator, position))
                self.site[output] = _Home(home, home, self.site[inside[0]].path)
                return
            for value in inside:
                self.save(value)
        self.free(operator)

    def joins(self, home: int, inside: list[int], outside: list[int], output: int) -> bool:
        """Whether an elementwise operator can be computed in the loops of nest `home`."""
        paths = {self.site[value].path for value in inside}
        same = all(prod(self.shape(value)) == prod(self.shape(output)) for value in inside)
        return len(paths) == 1 and same and all(self.site[value].depth < home for value in outside)

    def forward(self, operator: WorkloadOperator, number: int) -> None:
        site = self.site[operator.inputs[0]]
        if site.nest < 0:
            self.free(operator)
            return
        self.nests[site.nest].epilogue.append((operator, 0))
        self.site[operator.outputs[0]] = _Home(site.nest, site.nest, (*site.path, number))

    def movement(self, operator: WorkloadOperator) -> None:
        if operator.op_type == "Concat" and self.concat(operator):
            return
        for value in operator.inputs:
            if value >= 0:
                self.save(value)
        self.free(operator)

    def concat(self, operator: WorkloadOperator) -> bool:
        """Lets every input's nest write its slice of a Concat; False when an input stands there twice."""
        if len(set(operator.inputs)) < len(operator.inputs):
            return False
        output = operator.outputs[0]
        depth = -1
        homes = []
        for position, value in enumerate(operator.inputs):
            site = self.site[value]
            home = site.nest
            if home < 0:
                self.share((value,))
                self.nests.append(Nest(None, self.shape(value), value))
                home = len(self.nests) - 1
            self.nests[home].epilogue.append((operator, position))
            self.nests[home].stores.append(output)
            depth = max(depth, home)
            homes.append(home)
        self.site[output] = _Home(-1, depth)
        self.parts[output] = homes
        return True

    def behind_concat(self, operator: WorkloadOperator) -> bool:
        """Lets every nest that writes a slice of a Concat go on with the elementwise operator that alone reads that;
        False when not all that it reads besides is known before them."""
        whole = {value for value in operator.inputs if value in self.parts}
        if len(whole) != 1:
            return False
        value, output = whole.pop(), operator.outputs[0]
        homes = self.parts[value]
        alone = self.readers[value] == [operator] and value not in self.outputs
        others = [self.site[one] for one in operator.inputs if one >= 0 and one != value]
        known = all(site.nest < 0 and site.depth < min(homes) for site in others)
        if not alone or not known or len(set(homes)) < len(homes) or self.shape(value) != self.shape(output):
            return False
        for nest in (self.nests[home] for home in homes):
            nest.epilogue.append((operator, operator.inputs.index(value)))
            nest.stores[nest.stores.index(value)] = output
        self.site[output] = _Home(-1, max(homes))
        self.parts[output] = homes
        return True

    def share(self, values: Iterable[int]) -> None:
        """Writes what the next nest would evaluate for `values` at great cost, and others or other places as well."""
        costly: set[int] = set()
        wanted, within = set(values), self.evaluated(values)
        for operator in self.workload.operators:  # what is read comes first
            if operator not in within:
                continue
            value = operator.outputs[0]
            if operator.op_type in EXPENSIVE or costly.intersection(operator.inputs):
                if self.is_shared(value, value in wanted, within):
                    self.nests.append(Nest(None, self.shape(value), -1, [], [value]))
                    self.site[value] = _Home(-1, len(self.nests) - 1)
                else:
                    costly.add(value)

    def is_shared(self, value: int, last: bool, within: list[WorkloadOperator]) -> bool:
        """Whether a value is read outside of what is evaluated, besides its `last` reader, or at several places."""
        if self.workload.values[value].dtype != "float32":
            return False
        readers = self.readers.get(value, [])
        outside = sum(reader not in within for reader in readers) + (value in self.outputs)
        moved = any(reader in within and reader.op_type not in self.scalars for reader in readers)
        return outside > last or (moved and len(readers) > 1)

    def evaluated(self, values: Iterable[int]) -> list[WorkloadOperator]:
        """The operators that are evaluated wherever one of `values` is read."""
        found: list[WorkloadOperator] = []
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            operator = self.producer.get(value)
            home = self.site.get(value)
            written = any(value in nest.stores for nest in self.nests)
            if operator is not None and home is not None and home.nest < 0 and not written and operator not in found:
                found.append(operator)
                waiting += operator.inputs
        return found

    def free(self, operator: WorkloadOperator) -> None:
        depth = max((self.site[value].depth for value in operator.inputs if value >= 0), default=-1)
        for value in operator.outputs:
            if value >= 0:
                self.site[value] = _Home(-1, depth)

    def elementwise(self) -> None:
        """Nests for the outputs that no nest holds: one for each shape and readiness."""
        written = {value for nest in self.nests for value in nest.stores}
        groups: dict[tuple[tuple[int, ...], str, int], Nest] = {}
        for output in self.workload.of_kind("output"):
            if output in written:
                continue
            value = self.workload.values[output]
            key = (value.shape, value.layout, self.site[output].depth)
            if key not in groups:
                groups[key] = Nest(None, value.shape, -1)
                self.nests.append(groups[key])
            groups[key].stores.append(output)


def cut(
    workload: Workload, anchors: frozenset[str], scalars: frozenset[str], closed: frozenset[str] = frozenset()
) -> list[Nest]:
    """The nests of `workload`, in an order in which they can run. `closed`: anchors that have no epilogue."""
    return _Cutter(workload, anchors, scalars, closed).run()
