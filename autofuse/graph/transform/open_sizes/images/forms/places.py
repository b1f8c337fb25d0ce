"""Norms over all places of an image, in steps that keep channels and places apart.

A norm of groups of channels is exported as one of [N, groups, everything else]: a Reshape that puts channels and places
into one axis, and another one back. Where height and width are open, nothing else knows such an axis. Here what stands
between the two has the form of the image, and what is reduced is reduced over the places first, and then over the
channels of a group. So are InstanceNormalization, GroupNormalization, and reductions over channels and places at once.
That is done to the static graph of each size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.mapping import names
from autofuse.graph.model import AttributeValue, Graph, Operator, Tensor
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, VIEWS
from autofuse.graph.transform.open_sizes.open_graph import constant_integers, with_used

Array = NDArray[np.generic]
_IN_TURN = frozenset(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"))
"""Reductions that may go over some axes, and then over others."""
OVER_ALL = names("ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare")
"""Reductions that have a kernel over all places."""
_NORMS = frozenset(("GroupNormalization", "InstanceNormalization"))
_LAST_AXIS = 13
"""The opset from which on a softmax goes along one axis."""
_MERGED = 3
"""Axes of a tensor whose channels, or places, are merged: [N, groups, everything else]."""


def with_places_apart(graph: Graph, over_places: Collection[str] = ()) -> Graph:
    """The same graph, with norms over places, what merges channels and places, and the operators `over_places`, by
    name, written out."""
    return _Apart(graph, over_places).graph()


def over_places(graphs: Sequence[Graph]) -> frozenset[str]:
    """The names of softmaxes over places, and of reductions over these that have several axes in front of them.

    Such a softmax goes along an axis that has other extents in the graphs of a model at several sizes, and is the only
    one behind the first that has. (Scores of an attention of places to places have two.) A reduction goes over all of
    these axes, and over the last ones.
    """
    first, *others = graphs
    found = set[str]()
    for operator in first.operators:
        twins = [graph.by_name.get(operator.name) for graph in others]
        if operator.domain or not all(one and one.outputs == operator.outputs for one in twins):
            continue
        axes = _along(first, operator)
        shapes = [graph.tensors[operator.inputs[0]].shape for graph in graphs] if axes else []
        differing = {place for place, seen in enumerate(zip(*shapes, strict=False)) if place and len(set(seen)) > 1}
        if differing and (differing == axes if operator.op_type == "Softmax" else differing <= axes):
            found.add(operator.name)
    return frozenset(found)


def _along(graph: Graph, operator: Operator) -> set[int]:
    """The axes of a softmax, or of a reduction that goes over the last axes behind channels in several; else none."""
    rank = len(graph.tensors[operator.inputs[0]].shape) if operator.inputs and operator.inputs[0] else 0
    if operator.op_type == "Softmax":
        axis = operator.attributes.get("axis", -1)
        return {axis % rank} if isinstance(axis, int) and graph.opset >= _LAST_AXIS else set()
    if operator.op_type not in OVER_ALL:
        return set()
    axes = {axis % rank for axis in constant_integers(graph, operator, 1) or ()} if len(operator.inputs) > 1 else set()
    return axes if axes and min(axes) > 2 and axes == set(range(min(axes), rank)) else set()


@dataclass(frozen=True)
class _Image:
    """What a merged tensor is as an image: its `shape`, whose channels are so many `groups`."""

    shape: tuple[int, ...]
    groups: int

    @property
    def places(self) -> tuple[int, ...]:
        """The axes of places."""
        return tuple(range(2, len(self.shape)))

    @property
    def merged(self) -> tuple[int, ...]:
        """The shape of the merged tensor."""
        return (self.shape[0], self.groups, prod(self.shape[1:]) // self.groups)

    def is_seen_as(self, shape: tuple[int, ...]) -> bool:
        """Whether a view of it keeps its channels apart from its places."""
        return shape[:2] == self.shape[:2] and prod(shape) == prod(self.shape) and len(shape) > 2


class _Apart:
    """Writes the graph, operator by operator."""

    def __init__(self, graph: Graph, over_places: Collection[str]) -> None:
        self.given, self.over_places = graph, over_places
        self.tensors, self.constants = dict(graph.tensors), dict(graph.constants)
        self.operators: list[Operator] = []
        self.forms: dict[str, str] = {}
        """Of each merged tensor, and of what is one no longer, the image in its place."""
        self.merged: dict[str, _Image] = {}
        self.wide: dict[tuple[str, _Image], str] = {}
        for operator in graph.operators:
            self.merged.update(self._region(operator))
        self.root = ""

    def graph(self) -> Graph:
        """The graph with all operators."""
        for operator in self.given.operators:
            self.root = operator.name
            self._add(operator)
        return with_used(self.given, self.operators, self.tensors, self.constants)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    # what is merged

    def _region(self, operator: Operator) -> dict[str, _Image]:
        """The merged tensors from a view on that merges axes of an image; none where something else reads them."""
        if operator.domain or operator.op_type not in VIEWS:
            return {}
        image = self._image(self.shape(operator.inputs[0]), self.shape(operator.outputs[0]))
        if image is None or operator.inputs[0] in self.given.constants:
            return {}
        found: dict[str, _Image] = {}
        wanted = [operator.outputs[0]]
        while wanted:
            name = wanted.pop()
            if name in self.given.returned:
                return {}
            found[name] = image
            for reader in self.given.consumers.get(name, ()):
                made = self._stays(reader, name, image)
                if made is None:
                    return {}
                wanted += [one for one in made if one not in found]
        readers = [reader for name in found for reader in self.given.consumers.get(name, ())]
        read = {name for reader in readers for name in reader.inputs if name and self.shape(name) == image.merged}
        return found if read <= found.keys() else {}

    def _image(self, before: tuple[int, ...], after: tuple[int, ...]) -> _Image | None:
        """The image that a view from one shape to another merges axes of."""
        if len(before) < _MERGED or len(after) != _MERGED or prod(before[2:]) < 2 or before == after:
            return None
        if before[0] != after[0] or before[1] % after[1]:
            return None
        found = _Image(before, after[1])
        return found if found.merged == after else None

    def _stays(self, reader: Operator, name: str, image: _Image) -> tuple[str, ...] | None:
        """The merged tensors that a reader of one makes; None where it is not known how to read an image instead."""
        made = reader.outputs[0]
        if reader.domain or any(reader.outputs[1:]):
            return None
        if reader.op_type in VIEWS:
            return () if image.is_seen_as(self.shape(made)) else None
        if reader.op_type == "InstanceNormalization":
            return (made,) if self._is_norm(reader) and reader.inputs[0] == name else None
        if reader.op_type in _IN_TURN:
            return () if self._reduced(reader) == {2} else None
        others = [self.shape(one) for one in reader.inputs if one and self.shape(one) != image.merged]
        fits = all(not shape or shape[-1] == 1 for shape in others)
        return (made,) if reader.op_type in ELEMENTWISE and fits and self.shape(made) == image.merged else None

    def _is_norm(self, operator: Operator) -> bool:
        """Whether a norm has constant parameters, and computes in float32."""
        data, *parameters = operator.inputs
        known = all(name in self.given.constants for name in parameters)
        return known and self.tensors[data].dtype == "float32" and len(self.shape(data)) >= _MERGED

    def _reduced(self, operator: Operator) -> set[int]:
        """The axes that a reduction goes over."""
        axes = constant_integers(self.given, operator, 1)
        return {axis % len(self.shape(operator.inputs[0])) for axis in axes or ()}

    # what is written instead

    def _add(self, operator: Operator) -> None:
        made = operator.outputs[0]
        inputs = tuple(self.forms.get(name, name) for name in operator.inputs)
        image = next((self.merged[name] for name in operator.inputs if name in self.merged), None)
        if image is not None:
            self._read_merged(operator, inputs, image)
        elif made in self.merged:
            self.forms[made] = inputs[0]
        elif operator.op_type in _NORMS and not operator.domain and self._is_norm(operator):
            groups = operator.attributes.get("num_groups", self.shape(operator.inputs[0])[1])
            assert isinstance(groups, int)
            self.normalised(operator, inputs[0], _Image(self.shape(operator.inputs[0]), groups), made)
        elif operator.name in self.over_places and self.tensors[made].dtype == "float32":
            (self._shares if operator.op_type == "Softmax" else self._reduces)(operator, inputs[0], made)
        elif operator.op_type in _IN_TURN and self._over_all(operator):
            shape = self.shape(made)
            self._in_turn(operator.op_type, inputs[0], _Image(self.shape(operator.inputs[0]), 1), shape, made)
        else:
            self.operators.append(replace(operator, inputs=inputs))

    def _over_all(self, operator: Operator) -> bool:
        """Whether a reduction of float32 goes over channels and places at once."""
        shape = self.shape(operator.inputs[0])
        wanted = set(range(1, len(shape)))
        float32 = self.tensors[operator.inputs[0]].dtype == "float32"
        return float32 and len(shape) > _MERGED and not operator.domain and self._reduced(operator) == wanted

    def _read_merged(self, operator: Operator, inputs: tuple[str, ...], image: _Image) -> None:
        """An operator that reads a merged tensor."""
        made = operator.outputs[0]
        if operator.op_type in VIEWS and self.shape(made) != image.shape:
            self._view(inputs[0], self.shape(made), "seen", made)
        elif operator.op_type in VIEWS:
            self.forms[made] = inputs[0]
            if made in self.given.returned:
                self.operators.append(Operator(operator.name, "Identity", inputs[:1], (made,)))
        elif operator.op_type == "InstanceNormalization":
            self.forms[made] = self.normalised(operator, inputs[0], image)
        elif operator.op_type in _IN_TURN:
            self._in_turn(operator.op_type, inputs[0], image, self.shape(made), made)
        else:
            pairs = zip(operator.inputs, inputs, strict=True)
            given = tuple(own if name in self.merged or not name else self._widened(own, image) for name, own in pairs)
            form = self.forms[made] = f"{made}@image"
            self.tensors[form] = replace(self.tensors[made], name=form, shape=image.shape)
            self.operators.append(replace(operator, inputs=given, outputs=(form,)))

    def _widened(self, name: str, image: _Image) -> str:
        """What a merged tensor is combined with, [.., groups, 1], as what an image is combined with."""
        shape = self.shape(name)
        if prod(shape) == 1:
            return name
        if (name, image) not in self.wide:
            self.wide[name, image] = self._spread(
                self._view(name, (*(1,) * (_MERGED - len(shape)), *shape), f"{name}@front"), image
            )
        return self.wide[name, image]

    def normalised(self, operator: Operator, data: str, image: _Image, made: str = "") -> str:
        """(data - mean) / Sqrt(variance + epsilon) * scale + bias, over the places and channels of each group."""
        epsilon = operator.attributes.get("epsilon", 1e-5)
        scale, bias = (self._parameter(name, image) for name in operator.inputs[1:3])
        mean = self._spread(self._mean(data, image, "mean"), image)
        centred = self.op("Sub", "centred", (data, mean), image.shape)
        squared = self.op("Mul", "squared", (centred, centred), image.shape)
        variance = self._mean(squared, image, "variance")
        least = self.constant("epsilon", np.asarray(epsilon, np.float32))
        small = self.shape(variance)
        deviation = self.op("Sqrt", "deviation", (self.op("Add", "positive", (variance, least), small),), small)
        factor = self._spread(self.op("Reciprocal", "factor", (deviation,), small), image)
        if not (scale == 1).all():
            wide = np.broadcast_shapes(self.shape(factor), scale.shape)
            factor = self.op("Mul", "scaled", (factor, self.constant("scale", scale)), wide)
        centred = self.op("Sub", "centred_again", (data, mean), image.shape)
        added = bool((bias != 0).any())
        result = self.op("Mul", "normalised", (centred, factor), image.shape, "" if added else made)
        if added:
            result = self.op("Add", "shifted", (result, self.constant("bias", bias)), image.shape, made)
        return result

    def _shares(self, operator: Operator, data: str, made: str) -> None:
        """A softmax over places: exponentials, and their sum."""
        shape, axis = self.shape(data), operator.attributes.get("axis", -1)
        assert isinstance(axis, int)
        axis %= len(shape)
        behind = prod(shape[axis + 1 :])
        whole = (*_two(shape[:axis]), shape[axis]) if behind == 1 else (prod(shape[:axis]), shape[axis], behind)
        along = 2 if behind == 1 else 1
        one = tuple(1 if place == along else extent for place, extent in enumerate(whole))
        given, axes = self._view(data, whole, "whole"), self.integers("places", (along,))
        largest = self.op("ReduceMax", "largest", (given, axes), one)
        below = self.op("Sub", "below", (given, largest), whole)
        powers = self.op("Exp", "powers", (below,), whole)
        total = self.op("ReduceSum", "total", (powers, axes), one)
        self._view(self.op("Div", "shares", (powers, total), whole), shape, "softmax", made)

    def _reduces(self, operator: Operator, data: str, made: str) -> None:
        """A reduction over places, with the axes in front of them as one of channels."""
        shape, reduced = self.shape(data), self._reduced(operator)
        front, behind = shape[: min(reduced)], shape[min(reduced) :]
        whole = (*_two(front), *behind)
        given, axes = self._view(data, whole, "whole"), self.integers("places", range(2, len(whole)))
        found = self.op(operator.op_type, "reduced", (given, axes), (*_two(front), *(1,) * len(behind)))
        self._view(found, self.shape(made), "result", made)

    def _parameter(self, name: str, image: _Image) -> Array:
        """One number a channel from one number a channel, or a group, as [1, C, 1, ...]."""
        values = np.asarray(self.given.constants[name], np.float32).reshape(-1)
        channels = image.shape[1]
        return np.repeat(values, channels // values.size).reshape(1, channels, *(1,) * len(image.places))

    def _mean(self, data: str, image: _Image, label: str) -> str:
        """The mean of each group, [N, groups, 1]; where a group is a channel, [N, C, 1, ...]."""
        number, channels = image.shape[:2]
        axes = (1,) * (len(image.places) if image.groups == channels else 1)
        self.root, root = f"{self.root}@{label}", self.root
        found = self._in_turn("ReduceMean", data, image, (number, image.groups, *axes))
        self.root = root
        return found

    def _in_turn(self, kind: str, data: str, image: _Image, shape: tuple[int, ...], made: str = "") -> str:
        """A reduction over places, then over the channels of each group; `shape`: that of the result."""
        number, channels = image.shape[:2]
        each = (number, channels, *(1,) * len(image.places))
        first = self.op(kind, "places", (data, self.integers("places", image.places)), each)
        if image.groups < channels:
            grouped = self._view(first, (number, image.groups, channels // image.groups), "grouped")
            first = self.op(kind, "group", (grouped, self.integers("channels", (2,))), (number, image.groups, 1))
        return self._view(first, shape, "reduced", made)

    def _spread(self, name: str, image: _Image) -> str:
        """One number a group, [.., groups, 1], as one a channel, [.., C, 1, ...]; of one group as one for all."""
        first, groups, *_ = self.shape(name)
        ones, channels = (1,) * len(image.places), image.shape[1]
        if 1 < groups < channels:
            wide = (first, groups, channels // groups)
            name = self.op("Expand", f"{name}@wide", (name, self.integers(f"{name}@wide", wide)), wide)
        return self._view(name, (first, channels if groups > 1 else 1, *ones), f"{name}@channels")

    def _view(self, name: str, shape: tuple[int, ...], label: str, made: str = "") -> str:
        """A tensor in another shape."""
        if shape == self.shape(name) and not made:
            return name
        return self.op("Reshape", label, (name, self.integers(label, shape)), shape, made)

    def op(
        self, kind: str, label: str, inputs: Sequence[str], shape: Sequence[int], made: str = "",
        **attributes: AttributeValue,
    ) -> str:  # fmt: skip
        """An operator of ours with one result, by default under a name of its own."""
        name = f"{self.root}@{label}"
        made = made or name
        self.tensors[made] = Tensor(made, tuple(shape), self.tensors[inputs[0]].dtype)
        self.operators.append(Operator(name, kind, tuple(inputs), (made,), attributes))
        return made

    def integers(self, label: str, values: Sequence[int]) -> str:
        """A constant vector of ours."""
        return self.constant(f"{label}.values", np.asarray(values, np.int64))

    def constant(self, label: str, array: Array) -> str:
        """A constant of ours."""
        name = f"{self.root}@{label}"
        self.constants[name] = array
        self.tensors[name] = Tensor(name, array.shape, str(array.dtype))
        return name


def _two(shape: Sequence[int]) -> tuple[int, int]:
    """The axes in front of the last one as two: images, and all else."""
    return (shape[0], prod(shape[1:])) if shape else (1, 1)
