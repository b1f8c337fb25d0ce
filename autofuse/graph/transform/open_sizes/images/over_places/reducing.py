"""Reductions over all places of images whose sizes are open, or over those along one side."""

from __future__ import annotations

from autofuse.graph.mapping import names
from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.images.forms.places import OVER_ALL
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.open_graph import constant_integers

_REDUCING = OVER_ALL | names("GlobalAveragePool GlobalMaxPool")
"""Reductions that have a kernel over all places."""


def reduces_places(opened: GridGraph, operator: Operator) -> bool:
    """Whether an operator reduces each image to one place, or to those along one side, and nothing else."""
    if operator.op_type == "MatMul":
        return sums_places(opened, operator)
    data = operator.inputs[0] if operator.inputs else ""
    if operator.op_type not in _REDUCING or operator.domain or data not in opened.axes:
        return False
    if opened.graph.tensors[data].dtype != "float32" or data in opened.parts:
        return False
    rank = len(opened.graph.tensors[data].shape)
    axes = _axes(opened, operator, rank)
    return _reduces_all(opened, operator, axes, rank) or _reduces_side(opened, operator, axes)


def varies_along_fixed(opened: GridGraph, operator: Operator, name: str) -> bool:
    """Whether a tensor of fixed extents may have other elements along a fixed one of the axes that a reduction goes
    over, whose places are counted through all of these: a factor for each frequency of a spectrogram, say."""
    shape, fixed = opened.graph.tensors[operator.inputs[0]].shape, opened.graph.tensors[name].shape
    behind = {len(shape) - number: extent for number, extent in enumerate(reversed(fixed), 1)}
    return not opened.has(name) and any(behind.get(axis, 1) != 1 for axis in _axes(opened, operator, len(shape)))


def _reduces_all(opened: GridGraph, operator: Operator, axes: set[int], rank: int) -> bool:
    """Whether a reduction goes over all places, behind channels or in front of them."""
    before, made = opened.axes[operator.inputs[0]], opened.axes.get(operator.outputs[0], {})
    if made.keys() - {0} or made.get(0) != before.get(0):
        return False
    if not before.keys() - {0} <= axes or before.keys() <= {0}:
        return False
    return rank > 2 and axes in (set(range(2, rank)), set(range(1, rank - 1)))


def _reduces_side(opened: GridGraph, operator: Operator, axes: set[int]) -> bool:
    """Whether a reduction goes over the places along one side, and leaves all else where it stands."""
    before, made = opened.axes[operator.inputs[0]], opened.axes.get(operator.outputs[0], {})
    if len(axes) != 1 or 0 in axes or not axes <= before.keys():
        return False
    (axis,) = axes
    kept = operator.attributes.get("keepdims", 1)
    left = {place - (place > axis and not kept): one for place, one in before.items() if place != axis}
    return made == left


def _axes(opened: GridGraph, operator: Operator, rank: int) -> set[int]:
    """The axes that a reduction goes over."""
    if operator.op_type.startswith("Global"):
        return set(range(2, rank))
    given: object = operator.attributes.get("axes")
    if len(operator.inputs) > 1 and operator.inputs[1]:
        given = constant_integers(opened.graph, operator, 1)
    return {int(axis) % rank for axis in given} if isinstance(given, tuple) else set()


def sums_places(opened: GridGraph, operator: Operator) -> bool:
    """Whether a product is a sum over all places, which stand in one axis; images may be counted by the first."""
    tensors = opened.graph.tensors
    if operator.domain or not all(name in opened.axes for name in operator.inputs):
        return False
    images = opened.axes.get(operator.outputs[0], {})
    fits = images.keys() <= {0} and len(tensors[operator.outputs[0]].shape) > 2 * len(images)
    left, right = (tensors[name] for name in operator.inputs)
    if not fits or left.dtype != "float32" or min(len(left.shape), len(right.shape)) < 2:
        return False
    seen, other = (dict(opened.axes[one.name]) for one in (left, right))
    if images and not all(axes.pop(0, None) == images[0] for axes in (seen, other)):
        return False
    stand = seen.keys() == {len(left.shape) - 1} and other.keys() == {len(right.shape) - 2}
    return stand and set(seen.values()) == set(other.values())
