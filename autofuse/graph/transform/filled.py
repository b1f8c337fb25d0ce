"""Maps whose channels fill no block, widened by channels that hold nothing which anybody reads.

54 channels lie in rows of pixels, since no vector divides them: whoever computes vectors of channels gathers them from
as many rows. Between convolutions nobody sees how many channels there are, so that 54 may be 56: the convolution that
makes the map gets filters of zeros, those that read it get zeros for them, and what stands between works on each
channel by itself. Sums grow by products of zeros alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.fold_forward import pruned, unused

GROWTH = 1.2
"""So many times their channels maps may have at most: whoever reads them multiplies by the zeros, too."""
SMALLEST_BLOCK = 4
"""Channels that divide those of a map whose layout is in blocks, at least."""
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_BY_CHANNEL = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMean"})
_FINITE = frozenset(
    {"Abs", "Add", "BatchNormalization", "Celu", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Identity"}
    | {"LeakyRelu", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign"}
    | {"Sub", "Sum", "Swish", "Tanh"}
)
"""Elementwise operators that make finite numbers of zeros: a zero weight takes nothing else away."""


@dataclass
class _Maps:
    """Maps that have to have the same number of channels: sets of names, each known by one of them."""

    leader: dict[str, str] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    windowed: set[str] = field(default_factory=set)

    def find(self, name: str) -> str:
        """The name that stands for a map and all that are joined with it."""
        while self.leader.setdefault(name, name) != name:
            self.leader[name] = self.leader[self.leader[name]]
            name = self.leader[name]
        return name

    def join(self, names: Iterable[str]) -> None:
        """All of these have the same channels."""
        first, *others = [self.find(name) for name in names]
        for other in others:
            self.leader[self.find(other)] = self.find(first)


def filled(graph: Graph, step: int) -> Graph:
    """The graph with maps of a multiple of `step` channels wherever that pays and changes no bit of any result.

    Maps widen that lie in no block of 4, or in smaller ones than `step` with a window on each channel among them.
    Names of operators stay; widened maps and weights get new ones, as tensors that the model does not have.
    """
    maps = _maps(graph)
    fixed = {maps.find(name) for name in maps.fixed}
    windowed = {maps.find(name) for name in maps.windowed}
    wanted: dict[str, int] = {}
    for name in maps.leader:
        channels, leader = graph.tensors[name].shape[1], maps.find(name)
        width = -(-channels // step) * step
        pays = channels % SMALLEST_BLOCK or leader in windowed
        if leader not in fixed and channels < width <= channels * GROWTH and pays:
            wanted[name] = width
    return _Widening(graph, wanted).graph() if wanted else graph


def _maps(graph: Graph) -> _Maps:
    found = _Maps()
    for operator in graph.operators:
        names = [name for name in (*graph.activations(operator), *operator.outputs) if name]
        if not all(_is_map(graph.tensors[name]) for name in names):
            kept = names
        elif operator.op_type in _CONVOLUTIONS:
            kept = _convolved(graph, operator, found)
        else:
            kept = _worked_on(graph, operator, found)
        found.fixed.update(name for name in kept if _is_map(graph.tensors[name]))
    found.fixed.update(name for name in (*graph.inputs, *graph.outputs) if _is_map(graph.tensors[name]))
    for name in found.fixed:
        found.find(name)
    return found


def _is_map(tensor: Tensor) -> bool:
    return len(tensor.shape) > 2 and tensor.dtype == "float32"


def _convolved(graph: Graph, operator: Operator, found: _Maps) -> list[str]:
    """Joins what a convolution keeps apart by channel; the maps whose channels it does not let change."""
    x, result = operator.inputs[0], operator.outputs[0]
    groups, channels = operator.attributes.get("group", 1), graph.tensors[x].shape[1]
    weights = [graph.constants.get(name) for name in operator.inputs[1:] if name]
    known = x not in graph.constants and all(array is not None and array.dtype == np.float32 for array in weights)
    if known and groups == 1:
        found.join((x,))
        found.join((result,))
        return []
    if known and groups == channels == graph.tensors[result].shape[1]:
        found.join((x, result))
        found.windowed.add(x)
        return []
    return [*graph.activations(operator), result]


def _worked_on(graph: Graph, operator: Operator, found: _Maps) -> list[str]:
    """Joins the maps of an operator that works on each channel by itself; those of another one, to be left alone."""
    sources, result = graph.activations(operator), operator.outputs[0]
    maps = [*sources, *(name for name in operator.outputs if name)]
    if len(operator.outputs) > 1:  # the first one of which may be absent
        return maps
    shape = graph.tensors[result].shape
    alike = all(graph.tensors[name].shape[1] == shape[1] for name in maps)
    alike = alike and all(len(graph.tensors[name].shape) == len(shape) for name in maps)
    known = _keeps_channels(graph, operator) if operator.op_type in _BY_CHANNEL else operator.op_type in _FINITE
    if not (sources and alike and known and _fits(graph, operator)):
        return maps
    found.join(maps)
    if operator.op_type in ("MaxPool", "AveragePool"):
        found.windowed.add(result)
    return []


def _keeps_channels(graph: Graph, operator: Operator) -> bool:
    """Whether a pool or a reduction is one of pixels alone."""
    if not operator.op_type.startswith("Reduce"):
        return True
    axes = graph.constants.get(operator.inputs[1]) if len(operator.inputs) > 1 else None
    rank = len(graph.tensors[operator.inputs[0]].shape)
    return axes is not None and axes.size > 0 and all(int(axis) % rank > 1 for axis in axes.reshape(-1))


def _fits(graph: Graph, operator: Operator) -> bool:
    """Whether the numbers that an elementwise operator works with are finite (bounds of a Clip may be otherwise)."""
    if operator.op_type not in _FINITE or operator.op_type == "Clip":
        return True
    given = [graph.constants[name] for name in operator.inputs if name in graph.constants]
    return all(array.dtype == np.float32 and bool(np.isfinite(array).all()) for array in given)


class _Widening:
    """The graph in which the maps of `wanted` have so many channels."""

    def __init__(self, old: Graph, wanted: Mapping[str, int]) -> None:
        self.old, self.wanted = old, wanted
        self.tensors, self.constants = dict(old.tensors), dict(old.constants)
        self.made: dict[tuple[str, int, int, float], str] = {}

    def graph(self) -> Graph:
        """The widened graph."""
        wide = {name: unused(f"{name}/filled", self.tensors) for name in self.wanted}
        for name, fresh in wide.items():
            head, _, *rest = self.tensors[name].shape
            self.tensors[fresh] = replace(self.tensors[name], name=fresh, shape=(head, self.wanted[name], *rest))

        def renamed(operator: Operator) -> Operator:
            inputs, outputs = (
                [wide.get(name, name) for name in names] for names in (operator.inputs, operator.outputs)
            )
            return replace(operator, inputs=tuple(inputs), outputs=tuple(outputs))

        operators = tuple(renamed(self.operator(operator)) for operator in self.old.operators)
        return pruned(self.old, operators, self.tensors, self.constants)

    def operator(self, operator: Operator) -> Operator:
        """An operator with the weights of wider maps."""
        if operator.op_type in _CONVOLUTIONS:
            return self.convolution(operator)
        width = self.wanted.get(operator.outputs[0], 0)
        if not width or operator.op_type in _BY_CHANNEL or operator.op_type == "Clip":
            return operator
        if operator.op_type == "BatchNormalization":
            x, *statistics, variance = operator.inputs
            kept = [self.constant(name, 0, width) for name in statistics]
            return replace(operator, inputs=(x, *kept, self.constant(variance, 0, width, 1.0)))
        rank = len(self.old.tensors[operator.outputs[0]].shape)
        channels = self.old.tensors[operator.outputs[0]].shape[1]

        def given(name: str) -> str:
            shape = self.old.tensors[name].shape if name in self.old.constants else ()
            axis = 1 - (rank - len(shape))
            return self.constant(name, axis, width) if axis >= 0 and shape[axis] == channels else name

        return replace(operator, inputs=tuple(given(name) for name in operator.inputs))

    def convolution(self, operator: Operator) -> Operator:
        """A convolution that reads or makes wider maps, or both."""
        (x, weight, *bias), result = operator.inputs, operator.outputs[0]
        reads, makes = self.wanted.get(x, 0), self.wanted.get(result, 0)
        if not (reads or makes):
            return operator
        attributes = dict(operator.attributes)
        if operator.attributes.get("group", 1) != 1:
            attributes["group"] = makes
            weight = self.constant(weight, 0, makes)
        else:
            into, out = (1, 0) if operator.op_type == "Conv" else (0, 1)
            weight = self.constant(weight, into, reads)
            weight = self.constant(weight, out, makes)
        biases = [self.constant(name, 0, makes) if name else name for name in bias]
        return replace(operator, inputs=(x, weight, *biases), attributes=attributes)

    def constant(self, name: str, axis: int, width: int, value: float = 0.0) -> str:
        """The name of a constant with `width` elements along an axis (0: as it is), the further ones `value`."""
        if not width:
            return name
        key = name, axis, width, value
        if key not in self.made:
            array: NDArray[np.generic] = self.constants[name]
            more = [(0, 0)] * array.ndim
            more[axis] = (0, width - array.shape[axis])
            wide = np.pad(np.asarray(array), more, constant_values=value)
            wide.setflags(write=False)
            fresh = unused(f"{name}/filled", self.tensors)
            self.constants[fresh], self.tensors[fresh] = wide, Tensor(fresh, wide.shape, wide.dtype.name)
            self.made[key] = fresh
        return self.made[key]
