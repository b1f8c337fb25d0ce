"""Operators that look around a place of an image: which places of their input a tile of their results sees.

Each becomes an operator of a fixed size on the window that its tile sees. What is beyond the borders is put into a copy
of the window, so that the operator on the window has no padding along the open axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from autofuse.graph.model import AttributeValue, Operator
from autofuse.graph.transform.open_sizes.attention import LONG
from autofuse.graph.transform.open_sizes.extents import Extent
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.images.sliding import integers_of, windows_of
from autofuse.graph.transform.open_sizes.open_graph import constant_integers

_ANYWHERE = frozenset(("Pad", "Slice"))
"""Operators that treat all axes alike; others have channels in the second one."""
EDGE, REFLECT = "edge", "reflect"
"""Borders that repeat the nearest place, and that go back from it."""


@dataclass(frozen=True)
class Slide:
    """Along one size: results from `start` on, a multiple of `divide`, see places from
    `start * multiply / divide + offset` on. `reach`: how many more places are seen than one for each step.
    """

    multiply: int = 1
    divide: int = 1
    offset: int = 0
    reach: int = 1

    def seen(self, results: int) -> int:
        """How many places so many results see."""
        if self.divide > 1:
            return results // self.divide - 1 + self.reach
        return (results - 1) * self.multiply + self.reach

    @property
    def is_still(self) -> bool:
        """Whether each result sees the place where it stands, and no other."""
        return self == Slide()


@dataclass(frozen=True)
class Look:
    """What a tile of an operator's results sees of its first input.

    `slides`: along each open size. `fill`: what is beyond the borders. `operator`: the same on the window, which
    reads `constants` of its own. `crop`: results that it makes in front of those of the tile, along each size, where
    it makes more. `cuts`: it leaves places out at the end, so that it has fewer results than places.
    """

    slides: Mapping[int, Slide]
    operator: Operator
    fill: float | str = 0.0
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    crop: Mapping[int, int] = field(default_factory=dict)
    cuts: bool = False

    @property
    def is_still(self) -> bool:
        """Whether each result sees only the place where it stands, of as many."""
        return not self.cuts and all(slide.is_still for slide in self.slides.values())


def look_of(opened: GridGraph, operator: Operator) -> Look | str:
    """What an operator sees around a place, or why that is not known; "" for one that does not look around."""
    rule = _RULES.get(operator.op_type) if not operator.domain else None
    if rule is None:
        return ""
    data, made = operator.inputs[0], operator.outputs[0]
    if data in opened.joined:
        return ""
    if data in opened.parts:  # whose borders are those of the longest
        return "it looks around the places of a constant that grows with the size"
    if len([name for name in operator.outputs if name]) != 1:
        return "it has several results"
    if any(opened.has(name) for name in operator.inputs[1:]):
        return "its weights or parameters have an open size"
    if {axis: one.size for axis, one in opened.axes.get(data, {}).items()} != {
        axis: one.size for axis, one in opened.axes.get(made, {}).items()
    }:
        return "its result has the size in another axis"
    if 1 in opened.axes[data] and operator.op_type not in _ANYWHERE:
        return "the size is its channels"
    inner = {name: {axis: one for axis, one in opened.axes[name].items() if axis} for name in (data, made)}
    look = rule(replace(opened, axes={**opened.axes, **inner}), operator)
    images = opened.axes[data].get(0)
    if isinstance(look, str) or images is None:
        return look
    return replace(look, slides={images.size: Slide(), **look.slides})


def _slid(opened: GridGraph, operator: Operator, fill: float) -> Look | str:
    """A convolution or a pooling."""
    windows = windows_of(opened, operator)
    if isinstance(windows, str):
        return windows
    open_axes = opened.axes[operator.inputs[0]]
    slides = {
        open_axes[axis].size: Slide(one.stride, 1, -one.begin, one.reach)
        for axis, one in windows.items()
        if axis in open_axes
    }
    pads = [
        0 if axis in open_axes else pad
        for pad, axis in zip(
            (*(w.begin for w in windows.values()), *(w.end for w in windows.values())), [*windows] * 2, strict=True
        )
    ]
    return Look(slides, _changed(operator, pads=tuple(pads)), fill)


def _changed(operator: Operator, **attributes: AttributeValue) -> Operator:
    kept = {name: value for name, value in operator.attributes.items() if name != "auto_pad"}
    return replace(operator, attributes={**kept, **attributes})


def _convolution(opened: GridGraph, operator: Operator) -> Look | str:
    return _slid(opened, operator, 0.0)


def _max_pool(opened: GridGraph, operator: Operator) -> Look | str:
    dtype = np.dtype(opened.graph.tensors[operator.inputs[0]].dtype)
    return _slid(opened, operator, float("-inf") if dtype.kind == "f" else float(np.iinfo(dtype).min))


def _average_pool(opened: GridGraph, operator: Operator) -> Look | str:
    windows = windows_of(opened, operator)
    if isinstance(windows, str):
        return windows
    if operator.attributes.get("ceil_mode", 0):
        return "windows that ceil_mode lets reach over the end count fewer elements there"
    open_axes = opened.axes[operator.inputs[0]]
    padded = any(windows[axis].begin or windows[axis].end for axis in open_axes)
    if padded and not operator.attributes.get("count_include_pad", 0):
        return "its windows count fewer elements at the borders (count_include_pad = 0)"
    return _slid(opened, operator, 0.0)


def _transposed(opened: GridGraph, operator: Operator) -> Look | str:
    """A transposed convolution: results from a multiple of the stride on see places one by one."""
    windows = windows_of(opened, operator)
    if isinstance(windows, str) or "output_shape" in operator.attributes:
        return windows if isinstance(windows, str) else "output_shape depends on the size"
    data, made, rank = operator.inputs[0], operator.outputs[0], len(windows)
    extra = list(integers_of(operator, "output_padding", (0,) * rank))
    begins, ends = [w.begin for w in windows.values()], [w.end for w in windows.values()]
    slides = {}
    for axis, extent in opened.axes[data].items():
        one, result = windows[axis], opened.axes[made][axis]
        first = -((one.reach - 1 - one.begin) // one.stride)
        if one.stride > 1 and (result.more or opened.unit(result) % one.stride):
            return f"its result is no multiple of the stride {one.stride} along {opened.sizes[result.size].name}"
        last = (one.stride - 1 + one.begin) // one.stride
        begins[axis - 2] = one.begin - first * one.stride
        # What the last tap adds behind the results of a tile is cut off.
        rest = (last - first) * one.stride + one.reach - begins[axis - 2] - one.stride
        ends[axis - 2], extra[axis - 2] = max(rest, 0), max(-rest, 0)
        if begins[axis - 2] < 0 or extra[axis - 2] >= max(one.stride, one.dilation):
            return "its windows leave places out"
        slides[extent.size] = Slide(1, one.stride, first, last - first + 1)
        if one.stride == 1:
            slides[extent.size] = Slide(1, 1, first, last - first + 1)
    return Look(slides, _changed(operator, pads=(*begins, *ends), output_padding=tuple(extra)))


def _scale(opened: GridGraph, operator: Operator, axis: int) -> Fraction:
    """How many results an input has along an open axis."""
    before, after = (opened.axes[name][axis] for name in (operator.inputs[0], operator.outputs[0]))
    if after.more * before.factor * after.per != before.more * after.factor * before.per:
        return Fraction(0)
    step = opened.sizes[after.size].step
    if (step % after.per or step % before.per) and (after.per, after.shift) != (before.per, before.shift):
        return Fraction(0)
    return Fraction(after.factor * before.per, after.per * before.factor)


def _resize(opened: GridGraph, operator: Operator) -> Look | str:
    """An image that is made larger or smaller by a whole number; at its borders the nearest places stand for others."""
    mode = _text(operator, "mode", "nearest")
    coordinates = _text(operator, "coordinate_transformation_mode", "half_pixel")
    old = operator.op_type == "Upsample" or opened.graph.opset < 11
    coordinates = "asymmetric" if old else coordinates
    if coordinates in ("align_corners", "tf_crop_and_resize"):
        return f"{coordinates} makes other steps at each size"
    if operator.attributes.get("exclude_outside", 0) or operator.attributes.get("antialias", 0):
        return "exclude_outside and antialias change what is at the borders"
    halo = {"nearest": 1, "linear": 1, "bilinear": 1, "cubic": 3}.get(mode)
    if halo is None:
        return f"mode = {mode} is not known"
    if mode == "nearest" and (old or _stays(operator, coordinates)):
        halo = 0
    slides, crop = {}, {}
    for axis, extent in opened.axes[operator.inputs[0]].items():
        scale = _scale(opened, operator, axis)
        up, down = scale.numerator, scale.denominator
        if not scale or min(up, down) != 1:
            return f"along {opened.sizes[extent.size].name} it makes no whole number of results of each place"
        around = 0 if scale == 1 else halo or (1 if down > 1 else 0)
        slides[extent.size] = (
            Slide(1, up, -around, 2 * around + 1) if up > 1 else Slide(down, 1, -around * down, (2 * around + 1) * down)
        )
        if around:
            crop[extent.size] = around * up
    return Look(slides, operator, EDGE, crop=crop)


def _stays(operator: Operator, coordinates: str) -> bool:
    """Whether the nearest place of each result is the one that it was made of, for any whole number of results."""
    rounding = _text(operator, "nearest_mode", "round_prefer_floor")
    if coordinates in ("asymmetric", "tf_half_pixel_for_nn"):
        return rounding == "floor"
    return rounding.startswith("round")


def _text(operator: Operator, name: str, default: str) -> str:
    value = operator.attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _depth_to_space(opened: GridGraph, operator: Operator) -> Look | str:
    block = operator.attributes["blocksize"]
    assert isinstance(block, int)
    if len(opened.axes[operator.inputs[0]]) < 1:
        return "it has no open size"
    return Look({one.size: Slide(1, block, 0, 1) for one in opened.axes[operator.inputs[0]].values()}, operator)


def _space_to_depth(opened: GridGraph, operator: Operator) -> Look | str:
    block = operator.attributes["blocksize"]
    assert isinstance(block, int)
    return Look({one.size: Slide(block, 1, 0, block) for one in opened.axes[operator.inputs[0]].values()}, operator)


def _pad(opened: GridGraph, operator: Operator) -> Look | str:
    """Borders of a constant, of the nearest places, or of the places on the way back."""
    mode, graph = _text(operator, "mode", "constant"), opened.graph
    if mode not in ("constant", EDGE, REFLECT):
        return f"mode = {mode} is not known"
    given = graph.constants.get(operator.inputs[1]) if len(operator.inputs) > 1 else None
    axes = graph.constants.get(operator.inputs[3]) if len(operator.inputs) > 3 and operator.inputs[3] else None
    if given is None or (axes is None and len(operator.inputs) > 3 and operator.inputs[3]):
        return "its pads are not known when compiling"
    rank = len(graph.tensors[operator.inputs[0]].shape)
    places = [int(axis) % rank for axis in (range(rank) if axes is None else np.asarray(axes).reshape(-1))]
    pads = np.array(given).reshape(-1)
    fill: float | str = mode
    if mode == "constant":
        value = graph.constants.get(operator.inputs[2]) if len(operator.inputs) > 2 and operator.inputs[2] else None
        if value is None and len(operator.inputs) > 2 and operator.inputs[2]:
            return "its value is not known when compiling"
        fill = 0.0 if value is None else float(np.asarray(value).reshape(-1)[0])
    slides = {one.size: Slide() for one in opened.axes[operator.inputs[0]].values()}
    for axis, extent in opened.axes[operator.inputs[0]].items():
        if axis not in places:
            continue
        before, after = (int(pads[places.index(axis) + place]) for place in (0, len(places)))
        least = extent.at(opened.low)
        if mode == REFLECT and max(before, after) >= least:
            return f"it reflects {max(before, after)} places, and there are {least} at the smallest size"
        slides[extent.size] = Slide(1, 1, -before, 1)
        pads[[places.index(axis), places.index(axis) + len(places)]] = 0
    name = f"{operator.inputs[1]}@tile"
    inputs = (operator.inputs[0], name, *operator.inputs[2:])
    return Look(slides, replace(operator, inputs=inputs), fill, {name: pads.reshape(np.shape(given))})


def _slice(opened: GridGraph, operator: Operator) -> Look | str:
    """Places from some number on, all of them or every second, say, where the last ones may be left out: what a causal
    convolution made too many."""
    graph, data, made = opened.graph, operator.inputs[0], operator.outputs[0]
    rank = len(graph.tensors[data].shape)
    starts, axes, steps = (constant_integers(graph, operator, place) for place in (1, 3, 4))
    if starts is None or (len(operator.inputs) > 3 and operator.inputs[3] and axes is None):
        return "where it begins is not known when compiling"
    places = [axis % rank for axis in axes or range(len(starts))]
    firsts, ends = np.array(starts, np.int64), np.full(len(starts), LONG, np.int64)
    given = constant_integers(graph, operator, 2)
    slides = {one.size: Slide() for one in opened.axes[data].values()}
    for number, axis in enumerate(places):
        before, after = opened.axes[data].get(axis), opened.axes[made].get(axis)
        if before is None:
            if given is None or operator.inputs[2] in opened.targets:
                return "where it ends is not known when compiling"
            ends[number] = given[number]
            continue
        start, step = starts[number], (steps or (1,) * len(starts))[number]
        if after is None or start < 0 or step < 1 or not _picks(opened, before, after, start, step):
            return f"along {opened.sizes[before.size].name} it picks places by another rule than from one on"
        slides[before.size] = Slide(step, 1, start, 1)
        firsts[number] = 0
    if operator.inputs[1] in opened.targets:
        return "where it begins depends on the size"
    names = tuple(f"{made}@{what}" for what in ("from", "to"))
    inputs = (data, *names, *operator.inputs[3:])
    constants = dict(zip(names, (firsts, ends), strict=True))
    cuts = opened.axes[data] != opened.axes[made]
    return Look(slides, replace(operator, inputs=inputs), constants=constants, cuts=cuts)


def _picks(opened: GridGraph, before: Extent, after: Extent, start: int, step: int) -> bool:
    """Whether all places that are picked are there at any size; neighbours are as many, and so many more or less."""
    if step == 1:
        return replace(after, more=before.more) == before
    points = (*opened.places(before), *opened.places(after))
    return all((after.at(point) - 1) * step + start < before.at(point) for point in points)


_RULES = {
    "AveragePool": _average_pool,
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "DepthToSpace": _depth_to_space,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Upsample": _resize,
}


def gathers_apart(opened: GridGraph, operator: Operator) -> bool:
    """Whether Gather picks along an axis that has no places, in front of those that have some or behind them."""
    data, indices = operator.inputs
    axes, tensors = opened.axes[data], opened.graph.tensors
    axis = operator.attributes.get("axis", 0)
    assert isinstance(axis, int)
    along, more = axis % len(tensors[data].shape), len(tensors[indices].shape) - 1
    moved = {place if place < along else place + more: extent for place, extent in axes.items()}
    return along not in axes and moved == opened.axes[operator.outputs[0]]
