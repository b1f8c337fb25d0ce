"""How operators work on tensors whose places are merged, or those of several scales joined: on each map by itself.

A rule writes what an operator does for each part, and returns whether it could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, VIEWS
from autofuse.graph.transform.open_sizes.images.scales.fitting import Pattern, fitted, lead_of, lengths, pattern_of
from autofuse.graph.transform.open_sizes.images.scales.parts import Part, Rows, Scales, Shape
from autofuse.graph.transform.open_sizes.images.scales.sides import joins_sizes, of_single_places, parts_again
from autofuse.graph.transform.open_sizes.open_graph import constant_integers

MATRIX = 2
"""Axes of one."""


def _view(scales: Scales, operator: Operator) -> bool:
    """A Reshape, of which only axes that follow no size are really parted or merged."""
    source, made = scales.form(operator.inputs[0]), operator.outputs[0]
    shape, target = scales.shapes[operator.inputs[0]], scales.shapes[made]
    place = 0
    if source.several:
        before = scales.product(shape[: source.axis])
        places = [n for n, extent in enumerate(target) if extent == shape[source.axis]]
        found = [n for n in places if scales.product(target[:n]) == before]
        if not found:
            return False
        place = found[0]
    parts = []
    for number, part in enumerate(source.parts):
        wanted = list(target)
        if source.several:
            wanted[place] = scales.along(part, source.axis)
        groups = scales.regrouped(scales.shapes[part.name], wanted)
        if groups is None:
            return False
        parts.append((part, groups, number))
    if not scales.is_merged(operator.inputs[0]) and not scales.merges(operator, parts[0][1]):
        return False
    views = [
        Part(scales.view(part.name, tuple(one for group in groups for one in group), f"map{number}"), lengths(groups))
        for part, groups, number in parts
    ]
    scales.give(made, Rows(tuple(views), place))
    return True


def _transpose(scales: Scales, operator: Operator) -> bool:
    source, made = scales.form(operator.inputs[0]), operator.outputs[0]
    order = operator.attributes.get("perm", tuple(reversed(range(len(scales.shapes[made])))))
    assert isinstance(order, tuple)
    axes = [int(axis) for axis in order]
    parts = []
    for number, part in enumerate(source.parts):
        inner = tuple(own for axis in axes for own in part.axes(axis))
        name, shape = part.name, scales.shapes[part.name]
        if inner != tuple(range(len(inner))):
            turned = tuple(shape[own] for own in inner)
            name = scales.op("Transpose", f"map{number}", (name,), turned, scales.tensors[made].dtype, {"perm": inner})
        parts.append(Part(name, tuple(part.groups[axis] for axis in axes)))
    scales.give(made, Rows(tuple(parts), axes.index(source.axis)))
    return True


def _elementwise(scales: Scales, operator: Operator) -> bool:
    """What is computed at each place; what is combined with it has the places, or one for all."""
    made = operator.outputs[0]
    target = scales.shapes[made]
    lead = lead_of(scales, operator)
    patterns = [pattern_of(scales, lead, number, target) for number in range(len(lead.parts))]
    axis = lead.axis + len(target) - len(lead.parts[0].groups)
    whole = Rows(tuple(Part("", lengths(pattern)) for pattern in patterns), axis)
    inputs = [fitted(scales, name, whole, patterns, target, place) for place, name in enumerate(operator.inputs)]
    if any(one is None for one in inputs):
        return False
    parts = []
    for number, pattern in enumerate(patterns):
        given = [one[number] for one in inputs if one is not None]
        shape, dtype = tuple(one for group in pattern for one in group), scales.tensors[made].dtype
        name = scales.op(operator.op_type, f"map{number}", given, shape, dtype, operator.attributes)
        parts.append(Part(name, lengths(pattern)))
    scales.give(made, Rows(tuple(parts), axis))
    return True


def _axis(operator: Operator, default: int, rank: int) -> int:
    axis = operator.attributes.get("axis", default)
    assert isinstance(axis, int)
    return axis % rank


def _softmax(scales: Scales, operator: Operator) -> bool:
    source, made = scales.form(operator.inputs[0]), operator.outputs[0]
    axis = _axis(operator, -1, len(scales.shapes[made]))
    if not source.is_plain(axis):
        return False
    parts = []
    for number, part in enumerate(source.parts):
        attributes = {**operator.attributes, "axis": part.start(axis)}
        shape, dtype = scales.shapes[part.name], scales.tensors[made].dtype
        name = scales.op(operator.op_type, f"map{number}", (part.name,), shape, dtype, attributes)
        parts.append(Part(name, part.groups))
    scales.give(made, Rows(tuple(parts), source.axis))
    return True


def _concat(scales: Scales, operator: Operator) -> bool:
    """Along an axis that is one of each map, maps are joined; along places, or beside them, the tensor gets parts."""
    made, merged = operator.outputs[0], [name for name in operator.inputs if scales.is_merged(name)]
    target = scales.shapes[made]
    axis = _axis(operator, 0, len(target))
    if not merged and not joins_sizes(scales, operator):
        return False
    if not merged or not all(scales.form(name).is_plain(axis) for name in merged):
        forms = [scales.form(name) for name in operator.inputs]
        if any(form.several and form.axis != axis for form in forms):
            return False
        scales.give(made, Rows(tuple(part for form in forms for part in form.parts), axis))
        return True
    lead = scales.form(merged[0])
    inputs, extents = [], []
    for place, name in enumerate(operator.inputs):
        extent = scales.shapes[name][axis]
        own: Shape = (*target[:axis], extent, *target[axis + 1 :])
        patterns = [pattern_of(scales, lead, number, own) for number in range(len(lead.parts))]
        for pattern in patterns:
            pattern[axis] = [extent]
        whole = Rows(tuple(Part("", lengths(pattern)) for pattern in patterns), lead.axis)
        given = fitted(scales, name, whole, patterns, own, place)
        if given is None or any(
            len(scales.shapes[one]) != sum(part.groups) for one, part in zip(given, whole.parts, strict=True)
        ):
            return False
        inputs.append(given)
        extents.append(patterns)
    return _joined(scales, operator, lead, axis, (inputs, extents))


def _joined(
    scales: Scales, operator: Operator, lead: Rows, axis: int, given: tuple[list[list[str]], list[list[Pattern]]]
) -> bool:
    """Maps joined along an axis that is one of each."""
    (made,), (inputs, patterns) = operator.outputs, given
    parts = []
    for number, part in enumerate(lead.parts):
        whole = [list(one) for one in patterns[0][number]]
        whole[axis] = [scales.shapes[made][axis]]
        names = [one[number] for one in inputs]
        for name, own in zip(names, patterns, strict=True):
            if scales.shapes[name] != tuple(one for group in own[number] for one in group):
                return False
        shape = tuple(one for group in whole for one in group)
        dtype = scales.tensors[made].dtype
        name = scales.op("Concat", f"map{number}", names, shape, dtype, {"axis": part.start(axis)})
        parts.append(Part(name, part.groups))
    scales.give(made, Rows(tuple(parts), lead.axis))
    return True


def _split(scales: Scales, operator: Operator) -> bool:
    source = scales.form(operator.inputs[0])
    axis = _axis(operator, 0, len(scales.shapes[operator.inputs[0]]))
    if source.several and axis == source.axis:
        return _scales_again(scales, operator, source)
    if not source.is_plain(axis):
        return False
    found: list[list[Part]] = [[] for _ in operator.outputs]
    for number, part in enumerate(source.parts):
        place, shape = part.start(axis), scales.shapes[part.name]
        names = []
        for output, made in enumerate(operator.outputs):
            name = f"{operator.name}@map{number}.{output}"
            scales.tensor(
                name, (*shape[:place], scales.shapes[made][axis], *shape[place + 1 :]), scales.tensors[made].dtype
            )
            names.append(name)
            found[output].append(Part(name, part.groups))
        inputs, attributes = (part.name, *operator.inputs[1:]), {**operator.attributes, "axis": place}
        scales.operators.append(Operator(f"{operator.name}@map{number}", "Split", inputs, tuple(names), attributes))
    for made, parts in zip(operator.outputs, found, strict=True):
        scales.give(made, Rows(tuple(parts), source.axis))
    return True


def _scales_again(scales: Scales, operator: Operator, source: Rows) -> bool:
    """A Split between scales."""
    left, found = list(source.parts), []
    for made in operator.outputs:
        wanted, taken = scales.shapes[made][source.axis], [left.pop(0)] if left else []
        while left and scales.summed([scales.along(part, source.axis) for part in taken]) != wanted:
            taken.append(left.pop(0))
        if not taken or scales.summed([scales.along(part, source.axis) for part in taken]) != wanted:
            return False
        found.append(Rows(tuple(taken), source.axis))
    for made, rows in zip(operator.outputs, found, strict=True):
        scales.give(made, rows)
    return not left


def _slice(scales: Scales, operator: Operator) -> bool:
    """A part of axes that are one of each map; merged ones stay whole."""
    if parts_again(scales, operator):
        return True
    source, made = scales.form(operator.inputs[0]), operator.outputs[0]
    shape, target = scales.shapes[operator.inputs[0]], scales.shapes[made]
    starts, ends, axes, steps = (constant_integers(scales.given, operator, place) for place in (1, 2, 3, 4))
    if starts is None or ends is None:
        return False
    axes = tuple(axis % len(shape) for axis in axes or range(len(starts)))
    steps = steps or (1,) * len(starts)
    if not all(
        source.is_plain(axis) or (shape[axis] == target[axis] and step == 1)
        for axis, step in zip(axes, steps, strict=True)
    ):
        return False
    kept = [number for number, axis in enumerate(axes) if source.is_plain(axis)]
    parts = []
    for number, part in enumerate(source.parts):
        values = [[one[n] for n in kept] for one in (starts, ends, [part.start(axis) for axis in axes], steps)]
        labels = ("starts", "ends", "axes", "steps")
        given = [scales.integers(f"{label}{number}", one) for label, one in zip(labels, values, strict=True)]
        inner = list(scales.shapes[part.name])
        for axis in (axes[n] for n in kept):
            inner[part.start(axis)] = target[axis]
        dtype = scales.tensors[made].dtype
        name = scales.op("Slice", f"map{number}", (part.name, *given), tuple(inner), dtype) if kept else part.name
        parts.append(Part(name, part.groups))
    scales.give(made, Rows(tuple(parts), source.axis))
    return True


def _without(groups: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(count for axis, count in enumerate(groups) if axis not in axes)


def _gather(scales: Scales, operator: Operator) -> bool:
    """Places of an axis that is one of each map, by constant numbers."""
    data, indices = operator.inputs
    source, made = scales.form(data), operator.outputs[0]
    axis, rank = _axis(operator, 0, len(scales.shapes[data])), len(scales.shapes[indices])
    if indices not in scales.given.constants or rank > 1 or scales.is_merged(indices) or not source.is_plain(axis):
        return False
    parts = []
    for number, part in enumerate(source.parts):
        place, shape = part.start(axis), scales.shapes[part.name]
        inner = (*shape[:place], *scales.shapes[indices], *shape[place + 1 :])
        dtype = scales.tensors[made].dtype
        name = scales.op("Gather", f"map{number}", (part.name, indices), inner, dtype, {"axis": place})
        parts.append(Part(name, part.groups if rank else _without(part.groups, [axis])))
    scales.give(made, Rows(tuple(parts), source.axis - (not rank and axis < source.axis)))
    return True


def _reduction(scales: Scales, operator: Operator) -> bool:
    """A reduction over axes that are one of each map."""
    source, made = scales.form(operator.inputs[0]), operator.outputs[0]
    rank, given = len(scales.shapes[operator.inputs[0]]), constant_integers(scales.given, operator, 1)
    axes = sorted({axis % rank for axis in given or ()})
    if not axes or not all(map(source.is_plain, axes)):
        return False
    kept = bool(operator.attributes.get("keepdims", 1))
    parts = []
    for number, part in enumerate(source.parts):
        places = [part.start(axis) for axis in axes]
        shape = scales.shapes[part.name]
        inner = [scales.ones if own in places else one for own, one in enumerate(shape) if kept or own not in places]
        inputs = (part.name, scales.integers(f"axes{number}", places))
        dtype = scales.tensors[made].dtype
        name = scales.op(operator.op_type, f"map{number}", inputs, tuple(inner), dtype, operator.attributes)
        parts.append(Part(name, part.groups if kept else _without(part.groups, axes)))
    before = 0 if kept else sum(axis < source.axis for axis in axes)
    scales.give(made, Rows(tuple(parts), source.axis - before))
    return True


def _product(scales: Scales, operator: Operator) -> bool:
    """A product of rows by constant weights, and what a Gemm adds to it."""
    data, weights, *bias = operator.inputs
    source, made = scales.form(data), operator.outputs[0]
    last, array = len(scales.shapes[data]) - 1, scales.given.constants.get(weights)
    if array is None or array.ndim != MATRIX or not source.is_plain(last):
        return False
    if any(operator.attributes.get(name, value) != value for name, value in _PLAIN_GEMM.items()):
        return False
    if any(scales.shapes[name] != (scales.shapes[made][-1],) for name in bias):
        return False
    if operator.attributes.get("transB", 0):
        shape = tuple(reversed(scales.shapes[weights]))
        weights = scales.constant("weights", array.T, shape)
    parts = []
    for number, part in enumerate(source.parts):
        shape, dtype = (*scales.shapes[part.name][:-1], scales.shapes[weights][1]), scales.tensors[made].dtype
        name = scales.op("MatMul", f"map{number}", (part.name, weights), shape, dtype)
        name = scales.op("Add", f"sum{number}", (name, *bias), shape, dtype) if bias else name
        parts.append(Part(name, part.groups))
    scales.give(made, Rows(tuple(parts), source.axis))
    return True


def _mean_of_bins(scales: Scales, operator: Operator) -> bool:
    """A convolution of single places to one channel, as the mean of a distribution is exported: a weighted sum."""
    data, weights, *bias = operator.inputs
    source, made = scales.form(data), operator.outputs[0]
    array = scales.given.constants.get(weights)
    if array is None or bias or array.shape[0] != 1 or array[0, 0].size != 1 or not source.is_plain(1):
        return False
    plain = all(set(_numbers(operator, name)) <= {value} for name, value in (("pads", 0), ("strides", 1)))
    if (
        not plain
        or operator.attributes.get("group", 1) != 1
        or str(operator.attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", "VALID")
    ):
        return False
    parts = []
    for number, part in enumerate(source.parts):
        shape, place, dtype = scales.shapes[part.name], part.start(1), scales.tensors[made].dtype
        if place != 1:
            return False
        wide = (scales.ones, shape[1], *(scales.ones,) * (len(shape) - 2))
        factors = scales.constant(f"weights{number}", array.reshape(tuple(map(scales.number, wide))), wide)
        product = scales.op("Mul", f"weighted{number}", (part.name, factors), shape, dtype)
        given = (product, scales.integers(f"axes{number}", [1]))
        summed = (shape[0], scales.ones, *shape[2:])
        parts.append(Part(scales.op("ReduceSum", f"map{number}", given, summed, dtype, {"keepdims": 1}), part.groups))
    scales.give(made, Rows(tuple(parts), source.axis))
    return True


def _numbers(operator: Operator, name: str) -> Iterator[int]:
    value = operator.attributes.get(name, ())
    return (int(one) for one in value) if isinstance(value, tuple) else iter(())


_PLAIN_GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0}
"""Attributes of a Gemm that is a product and a sum."""
RULES: Mapping[str, Callable[[Scales, Operator], bool]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"), _reduction),
    "Concat": _concat,
    "BatchNormalization": of_single_places,
    "Conv": lambda scales, operator: _mean_of_bins(scales, operator) or of_single_places(scales, operator),
    "Gather": _gather,
    **dict.fromkeys(("Gemm", "MatMul"), _product),
    "Slice": _slice,
    "Split": _split,
    "Transpose": _transpose,
}
