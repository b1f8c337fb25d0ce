"""An open size that stands behind other axes ([tokens, batch, width], as torch's attention has it) put in front of all.

Each tensor in which that many elements stand behind others gets a form with the size in front and all else behind it in
its order, and each operator that reads or makes such a tensor is written for these forms. That is done to the static
graph at a size; what is open in it is then found as in any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, VIEWS
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph, constant_integers, refused, refused_grid

Attributes = Mapping[str, AttributeValue]


def with_leading_size(opened: OpenGraph, size: int) -> Graph:
    """The static graph of `opened` at a size, with the open size in front of every tensor that has it.

    InputError that names an operator for which that is not known.
    """
    if opened.parts or opened.more:
        first = opened.graph.operators[0]
        raise refused(opened.symbol, first, "the model has constants or caches that grow with it")
    return _Leading(opened, size).graph()


@dataclass(frozen=True)
class _Place:
    """Where the size stands in a tensor: `axis` is `before` times it times `behind`, of which `before` lie outside."""

    axis: int
    before: int
    behind: int

    @property
    def kept(self) -> int:
        """What is left of the axis where the size is taken out of it."""
        return self.before * self.behind


class _Leading:
    """Writes the graph, operator by operator."""

    def __init__(self, opened: OpenGraph, size: int) -> None:
        self.opened, self.size, self.given = opened, size, opened.at(size)
        self.tensors, self.constants = dict(self.given.tensors), dict(self.given.constants)
        self.operators: list[Operator] = []
        self.places: dict[str, _Place] = {}
        self.fronts: dict[str, str] = {}
        for name in (*self.given.inputs, *self.given.constants):
            where = opened.place(name)
            if where is not None:
                self.places[name] = _Place(where.axis, 1, where.factor)
                if not self._leads(name):
                    raise refused_grid(opened, name)

    def graph(self) -> Graph:
        """The graph with all operators."""
        for operator in self.given.operators:
            self._add(operator)
        behind = [name for name in self.given.returned if name in self.places and not self._leads(name)]
        if behind:
            raise self._refused(self.given.producers[behind[0]], f"the output {behind[0]!r} has it behind other axes")
        used = {name for operator in self.operators for name in (*operator.inputs, *operator.outputs)}
        used.update(self.given.inputs, self.given.outputs)
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in used}
        constants = {name: array for name, array in self.constants.items() if name in used}
        return replace(self.given, operators=tuple(self.operators), tensors=tensors, constants=constants)

    def _add(self, operator: Operator) -> None:
        read = [name for name in operator.inputs if name in self.places]
        made = [name for name in operator.outputs if name]
        if all(map(self._leads, read)) and all(name in self.opened.axes or not self.opened.has(name) for name in made):
            for name in made:
                if (where := self.opened.axes.get(name)) is not None:
                    self.places[name] = _Place(where.axis, 1, where.factor)
            self.operators.append(operator)
            return
        rule = None if operator.domain else _RULES.get(operator.op_type)
        if rule is None or not read:
            raise self._refused(operator, "it is not known how to put the size in front of it")
        rule(self, operator)

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
        self, operator: Operator, inputs: Sequence[str], places: Sequence[_Place], attributes: Attributes | None = None
    ) -> None:
        """An operator on forms with the size in front, whose results have it at such `places` in the model."""
        outputs = [name for name in operator.outputs if name]
        given = []
        for name, place in zip(outputs, places, strict=True):
            factors = self.opened.factors(name)
            self.refuse(operator, factors[place.axis] == place.kept and sum(map(bool, factors)) == 1)
            self.places[name] = place
            shape = (self.size, *self.behind(name))
            made = name if shape == self.shape(name) else f"{name}@front"
            self.fronts[name] = made
            self.tensors[made] = replace(self.given.tensors[name], name=made, shape=shape)
            given.append(made)
        changed = operator.attributes if attributes is None else {**operator.attributes, **attributes}
        self.operators.append(replace(operator, inputs=tuple(inputs), outputs=tuple(given), attributes=changed))
        for name in outputs:
            if self._leads(name) and self.fronts[name] != name:
                target = self.constant(f"{name}.shape", np.array(self.shape(name), np.int64))
                self.operators.append(Operator(f"{name}.reshape", "Reshape", (self.fronts[name], target), (name,)))

    def view(self, operator: Operator, read: str, extents: Sequence[int], place: _Place) -> None:
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


def _view(leading: _Leading, operator: Operator) -> None:
    read, made = operator.inputs[0], operator.outputs[0]
    place, shape = leading.places[read], leading.shape(made)
    outside = prod(leading.shape(read)[: place.axis]) * place.before
    for axis, extent in enumerate(shape):
        lead = prod(shape[:axis])
        if outside % lead == 0 and extent % (outside // lead * leading.size) == 0:
            before = outside // lead
            found = _Place(axis, before, extent // (before * leading.size))
            break
    else:
        leading.refuse(operator, False)
        return
    kept = [found.kept] if found.kept > 1 else []
    leading.view(operator, leading.front(read), (*shape[: found.axis], *kept, *shape[found.axis + 1 :]), found)


def _transpose(leading: _Leading, operator: Operator) -> None:
    read, place = operator.inputs[0], leading.places[operator.inputs[0]]
    order = operator.attributes.get("perm", tuple(reversed(range(len(leading.shape(read))))))
    assert isinstance(order, tuple)
    numbers = [int(axis) for axis in order]
    found = replace(place, axis=numbers.index(place.axis))
    axes = leading.axes(read)
    turned = (0, *(1 + axes.index(axis) for axis in numbers if axis in axes))
    if turned == tuple(range(len(turned))):
        leading.view(operator, leading.front(read), leading.behind(read), found)
        return
    leading.make(operator, (leading.front(read),), [found], {"perm": turned})


def _elementwise(leading: _Leading, operator: Operator, least: int = 1) -> None:
    """Also of a product's leading axes. `least`: axes at the end that are not those of broadcasting, and one."""
    rank = len(leading.shape(operator.outputs[0]))
    read = [name for name in operator.inputs if name in leading.places]
    places = {replace(at, axis=at.axis - len(leading.shape(name))) for name in read for at in [leading.places[name]]}
    leading.refuse(operator, len(places) == 1)
    (place,) = places
    leading.refuse(operator, -place.axis >= least)
    inputs = []
    for name in operator.inputs:
        if not name or name in leading.places:
            inputs.append(leading.front(name, rank) if name else name)
            continue
        shape = leading.shape(name)
        at = len(shape) + place.axis
        leading.refuse(operator, at < 0 or shape[at] == 1)
        inputs.append(name if at < 0 or place.kept > 1 else _without(leading, name, at))
    leading.make(operator, inputs, [replace(place, axis=rank + place.axis)])


def _without(leading: _Leading, name: str, axis: int) -> str:
    """What has nothing of the size, without an axis of one place."""
    shape = leading.shape(name)
    shape = (*shape[:axis], *shape[axis + 1 :])
    if name in leading.constants:
        return leading.constant(f"{name}@without{axis}", np.reshape(leading.constants[name], shape))
    return leading.reshaped(name, shape, f"{name}@without{axis}")


def _matmul(leading: _Leading, operator: Operator) -> None:
    one, other = operator.inputs
    leading.refuse(operator, min(len(leading.shape(one)), len(leading.shape(other))) > 1)
    place = leading.places.get(one)
    if place is not None and place.axis == len(leading.shape(one)) - 2:
        leading.refuse(operator, other not in leading.places and len(leading.shape(other)) == 2)
        leading.make(operator, (leading.front(one), other), [place])
        return
    _elementwise(leading, operator, 3)


def _gemm(leading: _Leading, operator: Operator) -> None:
    read, place, made = operator.inputs[0], leading.places.get(operator.inputs[0]), operator.outputs[0]
    added = leading.shape(operator.inputs[2]) if len(operator.inputs) > 2 and operator.inputs[2] else ()
    others = any(name in leading.places for name in operator.inputs[1:])
    fits = place is not None and place.axis == 0 and not operator.attributes.get("transA", 0) and not others
    leading.refuse(operator, fits and (len(added) < 2 or added[0] == 1))
    assert place is not None
    rows, width = leading.size * place.kept, leading.shape(made)[1]
    flat = leading.front(read)
    if place.kept > 1:
        flat = leading.reshaped(flat, (rows, leading.shape(read)[1]), f"{read}@rows")
    product = f"{made}@rows"
    leading.tensors[product] = Tensor(product, (rows, width), leading.given.tensors[made].dtype)
    inputs = (flat, *operator.inputs[1:])
    leading.operators.append(replace(operator, name=f"{operator.name}@rows", inputs=inputs, outputs=(product,)))
    kept = (place.kept,) if place.kept > 1 else ()
    leading.view(operator, product, (*kept, width), place)


def _along(default: int) -> Callable[[_Leading, Operator], None]:
    """Of an operator along one axis, or from one on."""

    def rule(leading: _Leading, operator: Operator) -> None:
        read, place = operator.inputs[0], leading.places.get(operator.inputs[0])
        axis = leading.along(operator, default)
        single = operator.op_type == "LayerNormalization" or leading.given.opset >= 13
        others = any(name in leading.places for name in operator.inputs[1:])
        leading.refuse(operator, place is not None and single and not others)
        assert place is not None
        normalised = operator.op_type == "LayerNormalization"
        leading.refuse(operator, axis > place.axis if normalised else axis != place.axis)
        inputs = (leading.front(read), *operator.inputs[1:])
        places = [place for name in operator.outputs if name]
        leading.make(operator, inputs, places, {"axis": leading.axis(read, axis)})

    return rule


def _concat(leading: _Leading, operator: Operator) -> None:
    read, axis = operator.inputs[0], leading.along(operator)
    places = {leading.places.get(name) for name in operator.inputs}
    place = leading.places.get(read)
    leading.refuse(operator, place is not None and len(places) == 1 and axis != place.axis)
    assert place is not None
    inputs = [leading.front(name) for name in operator.inputs]
    leading.make(operator, inputs, [place], {"axis": leading.axis(read, axis)})


def _split(leading: _Leading, operator: Operator) -> None:
    read, place = operator.inputs[0], leading.places.get(operator.inputs[0])
    axis = leading.along(operator)
    leading.refuse(operator, place is not None and axis != place.axis and all(operator.outputs))
    assert place is not None
    inputs = (leading.front(read), *operator.inputs[1:])
    leading.make(operator, inputs, [place] * len(operator.outputs), {"axis": leading.axis(read, axis)})


def _slice(leading: _Leading, operator: Operator) -> None:
    read, place = operator.inputs[0], leading.places.get(operator.inputs[0])
    starts, ends = leading.integers(operator, 1), leading.integers(operator, 2)
    leading.refuse(operator, place is not None and starts is not None and ends is not None)
    assert place is not None and starts is not None
    rank, axes = len(leading.shape(read)), leading.integers(operator, 3) or tuple(range(len(starts)))
    axes = tuple(axis % rank for axis in axes)
    leading.refuse(operator, place.axis not in axes)
    numbers = np.array([leading.axis(read, axis) for axis in axes], np.int64)
    along = leading.constant(f"{operator.outputs[0]}@front.axes", numbers)
    inputs = (leading.front(read), *operator.inputs[1:3], along, *operator.inputs[4:])
    leading.make(operator, inputs, [place])


def _gather(leading: _Leading, operator: Operator) -> None:
    (read, indices), axis = operator.inputs, leading.along(operator)
    place = leading.places.get(read)
    leading.refuse(operator, place is not None and indices not in leading.places and axis != place.axis)
    assert place is not None
    moved = place.axis if place.axis < axis else place.axis - 1 + len(leading.shape(indices))
    leading.make(
        operator, (leading.front(read), indices), [replace(place, axis=moved)], {"axis": leading.axis(read, axis)}
    )


_RULES: dict[str, Callable[[_Leading, Operator], None]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LayerNormalization"), _along(-1)),
    "Concat": _concat,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
