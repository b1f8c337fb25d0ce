"""Forms of tensors that have an open size behind other axes, with the size in front of all, and the graph of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor
from autofuse.graph.own.recurrence import is_recurrence
from autofuse.graph.transform.open_sizes.open_graph import (
    OpenGraph,
    constant_integers,
    refused,
    refused_grid,
    with_used,
)
from autofuse.graph.transform.open_sizes.over_rows.turns import from_front, to_front

Attributes = Mapping[str, AttributeValue]
Rule = Callable[["Leading", Operator], None]
"""Writes an operator on the forms of its inputs. InputError where it cannot."""


@dataclass(frozen=True)
class Place:
    """Where the size stands in a tensor: `axis` is `before` times it times `behind`, of which `before` lie outside."""

    axis: int
    before: int
    behind: int

    @property
    def kept(self) -> int:
        """What is left of the axis where the size is taken out of it."""
        return self.before * self.behind


class Leading:
    """Writes the static graph of `opened` at a size, operator by operator, by the rule of each kind of them."""

    def __init__(self, opened: OpenGraph, size: int, rules: Mapping[str, Rule]) -> None:
        self.rules = rules
        self.opened, self.size, self.given = opened, size, opened.at(size)
        self.tensors, self.constants = dict(self.given.tensors), dict(self.given.constants)
        self.operators: list[Operator] = []
        self.places: dict[str, Place] = {}
        self.fronts: dict[str, str] = {}
        for name in (*self.given.inputs, *self.given.constants):
            where = opened.place(name)
            if where is not None:
                self.places[name] = Place(where.axis, 1, where.factor)
                if name in self.given.constants and not self._leads(name):
                    raise refused_grid(opened, name)

    def graph(self) -> Graph:
        """The graph with all operators."""
        for operator in self.given.operators:
            self._add(operator)
        for name in self.given.returned:
            if name in self.places and not self._leads(name):
                self._put_behind(name)
        return with_used(self.given, self._needed(), self.tensors, self.constants)

    def _needed(self) -> list[Operator]:
        """The operators whose results are read."""
        used = {*self.given.inputs, *self.given.outputs}
        needed: list[Operator] = []
        for operator in reversed(self.operators):
            if not used.isdisjoint(operator.outputs):
                used.update(operator.inputs, operator.outputs)
                needed.insert(0, operator)
        return needed

    def _add(self, operator: Operator) -> None:
        read = [name for name in operator.inputs if name in self.places]
        made = [name for name in operator.outputs if name]
        if all(map(self._leads, read)) and all(name in self.opened.axes or not self.opened.has(name) for name in made):
            for name in made:
                if (where := self.opened.axes.get(name)) is not None:
                    self.places[name] = Place(where.axis, 1, where.factor)
            self.operators.append(operator)
            return
        known = read and (not operator.domain or is_recurrence(operator))
        rule = self.rules.get(operator.op_type) if known else None
        try:
            if rule is not None:
                rule(self, operator)
                return
        except InputError:
            pass
        self._as_it_is(operator)

    def _as_it_is(self, operator: Operator) -> None:
        """An operator on the tensors of the model."""
        self.operators.append(replace(operator, inputs=tuple(map(self._behind_others, operator.inputs))))
        for name in operator.outputs:
            where = self.opened.place(name) if name else None
            if where is not None:
                self.places[name] = Place(where.axis, 1, where.factor)

    def _behind_others(self, name: str) -> str:
        """A tensor as the model has it, from its form with the size in front."""
        if name not in self.places or self._leads(name) or name not in self.fronts:
            return name
        place, shape, made = self.places[name], self.shape(name), f"{name}@behind"
        if made not in self.tensors:
            parts = (*shape[: place.axis], place.before, place.behind, *shape[place.axis + 1 :])
            split = self.reshaped(self.fronts[name], (self.size, *parts), f"{made}.split")
            order = [*range(1, place.axis + 2), 0, *range(place.axis + 2, len(parts) + 1)]
            turned = self.turned(split, order, f"{made}.turned")
            self.reshaped(turned, shape, made)
        return made

    def turned(self, name: str, order: Sequence[int], made: str) -> str:
        """A transposed tensor, under a name of its own."""
        if made not in self.tensors:
            shape = tuple(self.tensors[name].shape[axis] for axis in order)
            self.tensors[made] = Tensor(made, shape, self.tensors[name].dtype)
            self.operators.append(Operator(f"{made}.transpose", "Transpose", (name,), (made,), {"perm": tuple(order)}))
        return made

    def _put_behind(self, name: str) -> None:
        """Makes an output that has the size behind other axes of its form with the size in front."""
        place, rank, maker = self.places[name], len(self.shape(name)), self.given.producers.get(name)
        made = {result for operator in self.operators for result in operator.outputs}
        if maker is None or place.kept > 1 or name in made or name not in self.fronts:
            where = self.given.producers[name]
            raise self._refused(where, f"the output {name!r} has it behind other axes")
        back = {"perm": from_front(place.axis, rank)}
        self.operators.append(Operator(f"{name}@behind", "Transpose", (self.fronts[name],), (name,), back))

    def _turned_front(self, name: str) -> str:
        """The form of a tensor that was made as the model has it."""
        place, rank = self.places[name], len(self.shape(name))
        if place.kept == 1:
            return self.turned(name, to_front(place.axis, rank), f"{name}@front")
        parts = (*self.shape(name)[: place.axis], self.size, place.kept, *self.shape(name)[place.axis + 1 :])
        split = self.reshaped(name, parts, f"{name}@front.split")
        return self.turned(split, to_front(place.axis, rank + 1), f"{name}@front")

    def refuse(self, operator: Operator, fits: bool) -> None:
        """InputError unless an operator is one whose rule is known."""
        if not fits:
            raise self._refused(operator, "it mixes what the size counts, or puts it where nothing is known of it")

    def _refused(self, operator: Operator, reason: str) -> Exception:
        return refused(self.opened.symbol, operator, reason)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor as the model has it."""
        return self.given.tensors[name].shape

    def _leads(self, name: str) -> bool:
        """Whether nothing stands outside of the size in a tensor."""
        place = self.places[name]
        return prod(self.shape(name)[: place.axis]) * place.before == 1

    def axes(self, name: str) -> list[int]:
        """The axes of a tensor that are left behind the size, in their order."""
        place = self.places[name]
        return [axis for axis in range(len(self.shape(name))) if axis != place.axis or place.kept > 1]

    def behind(self, name: str) -> tuple[int, ...]:
        """Their extents."""
        place, shape = self.places[name], self.shape(name)
        return tuple(place.kept if axis == place.axis else shape[axis] for axis in self.axes(name))

    def front(self, name: str, rank: int = 0) -> str:
        """A tensor with the size in front; `rank`: axes of the model's that it is given more of in front of its own."""
        shape = (self.size, *self.behind(name))
        if name not in self.fronts and not self._leads(name):
            self.fronts[name] = self._turned_front(name)
        if name not in self.fronts:
            self.fronts[name] = name if shape == self.shape(name) else self.reshaped(name, shape, f"{name}@front")
        more = max(0, rank - len(self.shape(name)))
        if not more:
            return self.fronts[name]
        return self.reshaped(self.fronts[name], (self.size, *(1,) * more, *shape[1:]), f"{name}@{rank}")

    def reshaped(self, name: str, shape: Sequence[int], made: str) -> str:
        """A tensor in another shape, under a name of its own."""
        if made not in self.tensors:
            target = self.constant(f"{made}.shape", np.array(shape, np.int64))
            self.tensors[made] = Tensor(made, tuple(shape), self.tensors[name].dtype)
            self.operators.append(Operator(f"{made}.reshape", "Reshape", (name, target), (made,)))
        return made

    def constant(self, name: str, array: NDArray[np.generic]) -> str:
        """A constant of ours."""
        self.constants[name] = array
        self.tensors[name] = Tensor(name, array.shape, str(array.dtype))
        return name

    def make(
        self, operator: Operator, inputs: Sequence[str], places: Sequence[Place], attributes: Attributes | None = None
    ) -> None:
        """An operator on forms with the size in front, whose results have it at such `places` in the model."""
        outputs = [name for name in operator.outputs if name]
        given: dict[str, str] = {"": ""}
        for name, place in zip(outputs, places, strict=True):
            factors = self.opened.factors(name)
            self.refuse(operator, factors[place.axis] == place.kept and sum(map(bool, factors)) == 1)
            self.places[name] = place
            shape = (self.size, *self.behind(name))
            made = name if shape == self.shape(name) else f"{name}@front"
            self.fronts[name] = made
            self.tensors[made] = replace(self.given.tensors[name], name=made, shape=shape)
            given[name] = made
        changed = operator.attributes if attributes is None else {**operator.attributes, **attributes}
        made_of = tuple(given[name] for name in operator.outputs)
        self.operators.append(replace(operator, inputs=tuple(inputs), outputs=made_of, attributes=changed))
        for name in outputs:
            if self._leads(name) and self.fronts[name] != name:
                target = self.constant(f"{name}.shape", np.array(self.shape(name), np.int64))
                self.operators.append(Operator(f"{name}.reshape", "Reshape", (self.fronts[name], target), (name,)))

    def view(self, operator: Operator, read: str, extents: Sequence[int], place: Place) -> None:
        """An operator whose result is a tensor in another shape: with the size in front, `extents` behind it."""
        target = np.array((self.size, *extents), np.int64)
        constant = self.constant(f"{operator.outputs[0]}@front.target", target)
        view = Operator(operator.name, "Reshape", operator.inputs, operator.outputs)
        self.make(view, (read, constant), [place], {})

    def integers(self, operator: Operator, place: int) -> tuple[int, ...] | None:
        """The values of a constant input that are the same at all sizes; None where there are none."""
        name = operator.inputs[place] if place < len(operator.inputs) else ""
        if self.opened.has(name) or name in self.opened.targets:
            return None
        return constant_integers(self.given, operator, place)

    def along(self, operator: Operator, default: int = 0) -> int:
        """The number of the axis of the first input that an operator goes along."""
        axis = operator.attributes.get("axis", default)
        assert isinstance(axis, int)
        return axis % len(self.shape(operator.inputs[0]))

    def axis(self, name: str, axis: int) -> int:
        """The number of an axis, which is not the size's own, where that is in front."""
        return 1 + self.axes(name).index(axis)
