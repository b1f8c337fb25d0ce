"""Resizing of images whose sizes are open, by factors that may be others at each size: which of it has a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph

COORDINATES = frozenset(("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel"))
"""Ways from a place of the result to a place of what is resized."""
MODES = frozenset(("cubic", "linear", "nearest"))
ROUNDINGS = frozenset(("ceil", "floor", "round_prefer_ceil", "round_prefer_floor"))


@dataclass(frozen=True)
class Resizing:
    """What each place of a result is made of: the nearest place of the image, or the two (`linear`) or four (`cubic`)
    around it along each axis.

    `mode`, `coordinates`, `rounding`, `coefficient` (of cubic): see ONNX. `scales`: of axes whose factor is given; of
    others it is that of the extents.
    """

    mode: str
    coordinates: str
    rounding: str
    coefficient: float
    scales: Mapping[int, float] = field(default_factory=dict)


def resizing_of(opened: GridGraph, operator: Operator) -> Resizing | None:
    """What an operator resizes, and how; None for another one, and where there is no kernel for it."""
    if operator.op_type != "Resize" or operator.domain or len(operator.inputs) < 3:
        return None
    data, made, graph = operator.inputs[0], operator.outputs[0], opened.graph
    if data in opened.parts:
        return None
    shape, result = graph.tensors[data].shape, graph.tensors[made].shape
    outer = all(opened.axes.get(data, {}).get(axis) == opened.axes.get(made, {}).get(axis) for axis in (0, 1))
    if len(shape) not in (3, 4) or not outer or shape[:2] != result[:2] or graph.tensors[data].dtype != "float32":
        return None
    coordinates = _text(operator, "coordinate_transformation_mode", "half_pixel")
    mode, rounding = _text(operator, "mode", "nearest"), _text(operator, "nearest_mode", "round_prefer_floor")
    stretched = _text(operator, "keep_aspect_ratio_policy", "stretch") == "stretch"
    if mode not in MODES or operator.attributes.get("exclude_outside", 0):
        return None
    if coordinates not in COORDINATES or rounding not in ROUNDINGS:
        return None
    if operator.attributes.get("antialias", 0) or not stretched or any(map(opened.has, operator.inputs[1:])):
        return None
    scales: dict[int, float] = {}
    if operator.inputs[2]:
        given = graph.constants.get(operator.inputs[2])
        if given is None:
            return None
        attribute = operator.attributes.get("axes")
        axes = [int(axis) for axis in attribute] if isinstance(attribute, tuple) else range(len(shape))
        values = np.asarray(given, np.float32).reshape(-1).tolist()
        scales = {axis % len(shape): value for axis, value in zip(axes, values, strict=True) if value != 1}
    if any(axis < 2 for axis in scales) or not (scales or _sized(opened, operator)):
        return None
    coefficient = operator.attributes.get("cubic_coeff_a", -0.75)
    assert isinstance(coefficient, float)
    return Resizing(mode, coordinates, rounding, coefficient, scales)


def _sized(opened: GridGraph, operator: Operator) -> bool:
    """Whether the sizes of the result are known when compiling, but for the open ones."""
    return len(operator.inputs) > 3 and operator.inputs[3] in opened.graph.constants


def _text(operator: Operator, name: str, default: str) -> str:
    value = operator.attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)
