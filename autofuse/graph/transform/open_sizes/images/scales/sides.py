"""Places along several sizes that are joined in one axis, and parted again: the means of rows and those of columns, as
coordinate attention has them. What reads each place by itself works on each part."""

from __future__ import annotations

from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.images.scales.parts import Part, Rows, Scales, Seen
from autofuse.graph.transform.open_sizes.open_graph import constant_integers

_PLAIN = {"pads": 0, "strides": 1}
"""Attributes of a convolution of single places."""


def joins_sizes(scales: Scales, operator: Operator) -> bool:
    """Whether an operator joins tensors along an axis in which each follows another size."""
    if operator.op_type != "Concat" or operator.domain:
        return False
    axis = operator.attributes["axis"]
    assert isinstance(axis, int)
    followed = [_changes(scales.shapes[name][axis]) for name in operator.inputs]
    return all(followed) and len(set(followed)) > 1


def _changes(extent: Seen) -> frozenset[int]:
    """The points at which an extent is another than at the first one."""
    return frozenset(number for number, value in enumerate(extent) if value != extent[0])


def of_single_places(scales: Scales, operator: Operator) -> bool:
    """A convolution of single places, or a normalisation by constants, of each part by itself."""
    data, *parameters = operator.inputs
    source, made = scales.form(data), operator.outputs[0]
    if not all(name in scales.given.constants for name in parameters if name):
        return False
    if not (source.is_plain(0) and source.is_plain(1)) or (operator.op_type == "Conv" and not _is_plain(operator)):
        return False
    parts = []
    for number, part in enumerate(source.parts):
        shape = scales.shapes[part.name]
        given, attributes = list(parameters), dict(operator.attributes)
        if operator.op_type == "Conv":
            rank = len(shape) - 2
            weights = scales.given.constants[parameters[0]]
            if weights[0, 0].size != 1:
                return False
            one = (*weights.shape[:2], *(1,) * rank)
            given[0] = scales.constant(
                f"weights{number}", weights.reshape(one), tuple((n,) * scales.points for n in one)
            )
            attributes = {"group": operator.attributes.get("group", 1), "kernel_shape": (1,) * rank}
        wide = (shape[0], scales.shapes[made][1], *shape[2:])
        inputs = (part.name, *given)
        name = scales.op(operator.op_type, f"map{number}", inputs, wide, scales.tensors[made].dtype, attributes)
        parts.append(Part(name, part.groups))
    scales.give(made, Rows(tuple(parts), source.axis))
    return True


def _is_plain(operator: Operator) -> bool:
    given = ((operator.attributes.get(name), value) for name, value in _PLAIN.items())
    plain = all(not isinstance(own, tuple) or set(own) <= {value} for own, value in given)
    return plain and str(operator.attributes.get("auto_pad", "NOTSET")) in ("NOTSET", "VALID")


def parts_again(scales: Scales, operator: Operator) -> bool:
    """A Slice that takes some of the joined parts, and each of them whole."""
    data, made = operator.inputs[0], operator.outputs[0]
    source = scales.form(data)
    starts, axes, steps = (constant_integers(scales.given, operator, place) for place in (1, 3, 4))
    if not source.several or starts is None or len(starts) != 1 or set(steps or (1,)) != {1}:
        return False
    if (axes or (0,))[0] % len(scales.shapes[data]) != source.axis:
        return False
    whole, wanted = scales.number(scales.shapes[data][source.axis]), scales.shapes[made][source.axis]
    start = starts[0] + whole if starts[0] < 0 else starts[0]
    extents = [scales.along(part, source.axis) for part in source.parts]
    for first in range(len(extents)):
        for last in range(first + 1, len(extents) + 1):
            before = sum(scales.number(one) for one in extents[:first])
            if before == start and scales.summed(extents[first:last]) == wanted:
                scales.give(made, Rows(source.parts[first:last], source.axis))
                return True
    return False
