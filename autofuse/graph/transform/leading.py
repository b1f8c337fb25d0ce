"""An open size that stands behind other axes ([tokens, batch, width], as torch's attention has it, or [batch, channels,
tokens]) put in front of all.

Each tensor in which that many elements stand behind others gets a form with the size in front and all else behind it in
its order, and each operator that reads or makes such a tensor is written for these forms. One for which that is not
known, as those between queries and values of an attention, reads tensors as the model has them. That is done to the
static graph at a size; what is open in it is then found as in any other, and so is whether rows are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy as np

from autofuse.graph.mapping import QUANTISATION
from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor
from autofuse.graph.own.recurrence import LENGTHS, RECURRENCES, STATES, is_batch_first
from autofuse.graph.transform.leading_forms import Leading, Place, Rule
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, REDUCTIONS, VIEWS
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph, refused

MOST_PARTS = 16
"""Groups of a convolution that become a product each."""


def with_leading_size(opened: OpenGraph, size: int) -> Graph:
    """The static graph of `opened` at a size, with the open size in front of tensors that have it.

    InputError that names an input, constant or output that has it behind other axes.
    """
    if opened.more:
        raise refused(opened.symbol, opened.graph.operators[0], "the model has caches that grow with it")
    return Leading(opened, size, _RULES).graph()


def _view(leading: Leading, operator: Operator) -> None:
    read, made = operator.inputs[0], operator.outputs[0]
    place, shape = leading.places[read], leading.shape(made)
    outside = prod(leading.shape(read)[: place.axis]) * place.before
    for axis, extent in enumerate(shape):
        lead = prod(shape[:axis])
        if outside % lead == 0 and extent % (outside // lead * leading.size) == 0:
            before = outside // lead
            found = Place(axis, before, extent // (before * leading.size))
            break
    else:
        leading.refuse(operator, False)
        return
    kept = [found.kept] if found.kept > 1 else []
    leading.view(operator, leading.front(read), (*shape[: found.axis], *kept, *shape[found.axis + 1 :]), found)


def _transpose(leading: Leading, operator: Operator) -> None:
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


def _elementwise(leading: Leading, operator: Operator, least: int = 1) -> None:
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


def _without(leading: Leading, name: str, axis: int) -> str:
    """What has nothing of the size, without an axis of one place."""
    shape = leading.shape(name)
    shape = (*shape[:axis], *shape[axis + 1 :])
    if name in leading.constants:
        return leading.constant(f"{name}@without{axis}", np.reshape(leading.constants[name], shape))
    return leading.reshaped(name, shape, f"{name}@without{axis}")


def _matmul(leading: Leading, operator: Operator) -> None:
    one, other, *zeros = operator.inputs
    leading.refuse(operator, min(len(leading.shape(one)), len(leading.shape(other))) > 1)
    leading.refuse(operator, all(prod(leading.shape(zero)) == 1 for zero in zeros if zero))
    place = leading.places.get(one)
    if place is not None and place.axis == len(leading.shape(one)) - 2:
        leading.refuse(operator, other not in leading.places and len(leading.shape(other)) == 2)
        leading.make(operator, (leading.front(one), other, *zeros), [place])
        return
    _elementwise(leading, operator, 3)


def _gemm(leading: Leading, operator: Operator) -> None:
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


def _convolution(leading: Leading, operator: Operator) -> None:
    """A convolution that sees one place at a time: a product of each group's channels with its weights."""
    read, weights, *bias = operator.inputs
    place, array = leading.places.get(read), leading.constants.get(weights)
    leading.refuse(operator, place is not None and array is not None and weights not in leading.places)
    assert place is not None and array is not None
    rank, (channels, per_group, *taps) = len(leading.shape(read)), array.shape
    groups = leading.shape(read)[1] // per_group
    plain = all(step == 1 for step in _ints(operator, "strides")) and not any(_ints(operator, "pads"))
    single = set(taps) == {1} and rank == 3 and place.axis == 2 and place.kept == 1 and groups <= MOST_PARTS
    leading.refuse(operator, single and plain and all(name in leading.constants for name in bias if name))
    made, data, number = operator.outputs[0], leading.front(read), leading.shape(read)[0]
    dtype, width = leading.given.tensors[made].dtype, channels // groups
    front = (leading.size, number)
    parts = [data] if groups == 1 else [f"{made}@in{group}" for group in range(groups)]
    if groups > 1:
        sizes = leading.constant(f"{made}@in.sizes", np.array([per_group] * groups, np.int64))
        for name in parts:
            leading.tensors[name] = Tensor(name, (*front, per_group), dtype)
        leading.operators.append(Operator(f"{made}@in", "Split", (data, sizes), tuple(parts), {"axis": 2}))
    results = []
    for group, part in enumerate(parts):
        own = slice(group * width, (group + 1) * width)
        factor = np.ascontiguousarray(array.reshape(channels, per_group)[own].T)
        given, name = leading.constant(f"{made}@weights{group}", factor), f"{made}@out{group}"
        leading.tensors[name] = Tensor(name, (*front, width), dtype)
        leading.operators.append(Operator(name, "MatMul", (part, given), (name,)))
        results.append(name)
    whole = results[0]
    if groups > 1:
        whole = f"{made}@out"
        leading.tensors[whole] = Tensor(whole, (*front, channels), dtype)
        leading.operators.append(Operator(whole, "Concat", tuple(results), (whole,), {"axis": 2}))
    added = np.zeros(channels, dtype) if not bias or not bias[0] else np.asarray(leading.constants[bias[0]])
    offsets = leading.constant(f"{made}@bias", added)
    leading.make(Operator(operator.name, "Add", operator.inputs, operator.outputs), (whole, offsets), [place])


def _recurrence(leading: Leading, operator: Operator) -> None:
    """Sequences that are each computed by themselves, from states of their own."""
    inputs, of_sequences = [], {0: 1, LENGTHS: 0, **dict.fromkeys(STATES, 1)}
    leading.refuse(operator, not is_batch_first(operator) and operator.inputs[0] in leading.places)
    for number, name in enumerate(operator.inputs):
        place = leading.places.get(name)
        fits = place == (Place(of_sequences[number], 1, 1) if name and number in of_sequences else None)
        leading.refuse(operator, fits)
        inputs.append(name if place is None else leading.front(name))
    places = [Place(1 if number else 2, 1, 1) for number, name in enumerate(operator.outputs) if name]
    leading.make(operator, inputs, places, {**operator.attributes, "layout": 1})


def _ints(operator: Operator, name: str) -> tuple[int, ...]:
    value = operator.attributes.get(name, ())
    assert isinstance(value, tuple)
    return tuple(int(item) for item in value)


def _along(default: int) -> Rule:
    """Of an operator along one axis, or from one on."""

    def rule(leading: Leading, operator: Operator) -> None:
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


def _reduction(leading: Leading, operator: Operator) -> None:
    """Over the size alone, or over other axes."""
    read, made, place = operator.inputs[0], operator.outputs[0], leading.places.get(operator.inputs[0])
    axes = leading.integers(operator, 1)
    leading.refuse(operator, place is not None and bool(axes))
    assert place is not None and axes is not None
    shape = leading.shape(read)
    reduced = {axis % len(shape) for axis in axes}
    if place.axis not in reduced:
        along = np.array([leading.axis(read, axis) for axis in sorted(reduced)], np.int64)
        kept = int(len(leading.shape(made)) == len(shape))
        moved = place.axis if kept else place.axis - sum(axis < place.axis for axis in reduced)
        inputs = (leading.front(read), leading.constant(f"{made}@front.axes", along))
        leading.make(operator, inputs, [replace(place, axis=moved)])
        return
    single = place.kept == 1 and all(shape[axis] == 1 for axis in reduced - {place.axis})
    leading.refuse(operator, single)
    whole, target = f"{made}@all", leading.constant(f"{made}@all.shape", np.array(leading.shape(made), np.int64))
    leading.tensors[whole] = replace(leading.given.tensors[made], name=whole, shape=(1, *leading.behind(read)))
    inputs = (leading.front(read), leading.constant(f"{made}@all.axes", np.array([0], np.int64)))
    whole_of = {**operator.attributes, "keepdims": 1}
    leading.operators.append(Operator(f"{operator.name}@all", operator.op_type, inputs, (whole,), whole_of))
    leading.operators.append(Operator(operator.name, "Reshape", (whole, target), (made,)))


def _levels(leading: Leading, operator: Operator) -> None:
    """Of levels and their numbers, under a scale and a zero point for all, or for each place along another axis."""
    (read, *factors), place = operator.inputs, leading.places.get(operator.inputs[0])
    leading.refuse(operator, place is not None and not any(name in leading.places for name in factors))
    assert place is not None
    attributes: dict[str, AttributeValue] = {}
    if prod(leading.shape(factors[0])) > 1:
        axis = leading.along(operator, 1)
        leading.refuse(operator, axis != place.axis and len(leading.shape(factors[0])) == 1)
        attributes["axis"] = leading.axis(read, axis)
    leading.make(operator, (leading.front(read), *factors), [place], attributes)


def _concat(leading: Leading, operator: Operator) -> None:
    read, axis = operator.inputs[0], leading.along(operator)
    places = {leading.places.get(name) for name in operator.inputs}
    place = leading.places.get(read)
    leading.refuse(operator, place is not None and len(places) == 1 and axis != place.axis)
    assert place is not None
    inputs = [leading.front(name) for name in operator.inputs]
    leading.make(operator, inputs, [place], {"axis": leading.axis(read, axis)})


def _split(leading: Leading, operator: Operator) -> None:
    read, place = operator.inputs[0], leading.places.get(operator.inputs[0])
    axis = leading.along(operator)
    leading.refuse(operator, place is not None and axis != place.axis and all(operator.outputs))
    assert place is not None
    inputs = (leading.front(read), *operator.inputs[1:])
    leading.make(operator, inputs, [place] * len(operator.outputs), {"axis": leading.axis(read, axis)})


def _slice(leading: Leading, operator: Operator) -> None:
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


def _gather(leading: Leading, operator: Operator) -> None:
    (read, indices), axis = operator.inputs, leading.along(operator)
    place, picked = leading.places.get(read), leading.places.get(indices)
    if picked is not None:  # rows of a table
        leading.refuse(operator, place is None and axis == 0)
        leading.make(operator, (read, leading.front(indices)), [picked])
        return
    leading.refuse(operator, place is not None and axis != place.axis)
    assert place is not None
    moved = place.axis if place.axis < axis else place.axis - 1 + len(leading.shape(indices))
    leading.make(
        operator, (leading.front(read), indices), [replace(place, axis=moved)], {"axis": leading.axis(read, axis)}
    )


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LayerNormalization"), _along(-1)),
    "Concat": _concat,
    "Conv": _convolution,
    "Gather": _gather,
    "Gemm": _gemm,
    **dict.fromkeys(("MatMul", "MatMulInteger"), _matmul),
    **dict.fromkeys(QUANTISATION, _levels),
    **dict.fromkeys(RECURRENCES, _recurrence),
    **dict.fromkeys(REDUCTIONS, _reduction),
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
