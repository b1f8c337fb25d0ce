"""A graph with an open size: the static graph at one size, and where that size stands in its tensors.

The loader folds all arithmetic on shapes, so that nothing of it is left in a static graph. What depends on the size is
what differs between the graphs at two sizes: extents of tensors, elements of target shapes. Everything else must be the
same, and the graphs at further sizes must be what the first two say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.model import Graph, Operator, Tensor

ADVICE = "compile with --shape or --buckets instead"
TARGET_SHAPES = {"Reshape": (1,), "Expand": (1,), "Resize": (3,), "Tile": (1,), "Slice": (1, 2)}
"""Operators with inputs, by position, whose elements are sizes of their result, or places in it."""
MOVING = frozenset(
    ("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile")
) | {"Transpose", "Unsqueeze"}
"""Operators that may do nothing where the open size is 1, or be done by another of them."""
Array = NDArray[np.generic]


@dataclass(frozen=True)
class OpenAxis:
    """An axis of a tensor whose extent is `factor` times the open size, and `more`. `size`: the number of that size,
    where a graph has several."""

    axis: int
    factor: int = 1
    more: int = 0
    size: int = 0


@dataclass(frozen=True, eq=False)
class OpenGraph:
    """`graph`: as it is where the open size `symbol` is `size`.

    `axes`: of each tensor of rows, the axis where the open size is; all axes before it have the extent 1, so that
    the `size` rows of the tensor lie one behind the other. A constant among them has equal rows. `grids`: of each other
    tensor that has the open size, how many times it each axis is, 0 where it has nothing of it; `more`: how much longer
    each axis of these is, where one is, as the keys of a cache and of the new token. `targets`: of each
    constant with target sizes, place of an element -> how many times the open size it is, and how much more. `parts`:
    constants that are the first part of a longer one, and that one, as it is at the largest size: positions, masks.
    `tails`: those of them that are the last part, as what causality says of a few queries behind a cache.
    """

    graph: Graph
    symbol: str
    size: int
    axes: Mapping[str, OpenAxis]
    targets: Mapping[str, Mapping[int, tuple[int, int]]]
    grids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    parts: Mapping[str, Array] = field(default_factory=dict)
    more: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tails: frozenset[str] = frozenset()

    def factors(self, name: str) -> tuple[int, ...]:
        """How many times the open size each axis of a tensor is; 0 where it has nothing of it."""
        rank, where = len(self.graph.tensors[name].shape), self.axes.get(name)
        if where is None:
            return self.grids.get(name, (0,) * rank)
        return tuple(where.factor if axis == where.axis else 0 for axis in range(rank))

    def beyond(self, name: str) -> tuple[int, ...]:
        """How much longer each axis of a tensor is than its factor times the open size."""
        return self.more.get(name, (0,) * len(self.graph.tensors[name].shape))

    def has(self, name: str) -> bool:
        """Whether a tensor has the open size."""
        return name in self.axes or name in self.grids

    def open_axes(self, name: str) -> list[int]:
        """The axes of a tensor that have the open size."""
        return [axis for axis, factor in enumerate(self.factors(name)) if factor]

    def place(self, name: str) -> OpenAxis | None:
        """The one axis of a tensor that has the open size; None where none has, or several."""
        found = [axis for axis, factor in enumerate(self.factors(name)) if factor]
        if len(found) != 1:
            return None
        return OpenAxis(found[0], self.factors(name)[found[0]], self.beyond(name)[found[0]])

    def at(self, size: int) -> Graph:
        """The static graph where the open size is `size`."""
        tensors = {name: self._tensor(tensor, size) for name, tensor in self.graph.tensors.items()}
        constants = dict(self.graph.constants)
        for name, array in self.parts.items():
            if name in constants:
                constants[name] = part_of(array, tensors[name].shape, name in self.tails)
        for name, places in self.targets.items():
            array = np.array(constants[name])
            array.reshape(-1)[list(places)] = [factor * size + more for factor, more in places.values()]
            constants[name] = array
        for name, where in self.axes.items():
            if name in constants and name not in self.parts:
                constants[name] = _repeated(constants[name], where, size)
        return replace(self.graph, tensors=tensors, constants=constants)

    def _tensor(self, tensor: Tensor, size: int) -> Tensor:
        if not self.has(tensor.name):
            return tensor
        axes = zip(tensor.shape, self.factors(tensor.name), self.beyond(tensor.name), strict=True)
        return replace(tensor, shape=tuple(factor * size + more if factor else extent for extent, factor, more in axes))


def _repeated(array: Array, where: OpenAxis, size: int) -> Array:
    """A constant of equal rows with as many of them."""
    row = np.take(array, range(where.factor), where.axis)
    return np.concatenate([row] * size, where.axis)


def open_graph(
    symbol: str, size: int, graph: Graph, other_size: int, other: Graph, largest: Graph | None = None
) -> OpenGraph:
    """The open graph behind two static graphs of one model, where `symbol` is `size` and `other_size` (larger than 1).

    `largest`: the graph at the largest size, where constants may be parts of longer ones. InputError that names what
    depends on the size in another way than `OpenGraph` has it.
    """
    other = with_names_of(symbol, graph, other)
    longest = {} if largest is None else with_names_of(symbol, graph, largest).constants
    found = OpenGraph(graph, symbol, size, axes := {}, targets := {}, grids := {}, parts := {}, longer := {})
    tails: set[str] = set()
    for name, tensor in graph.tensors.items():
        if tensor.shape != other.tensors[name].shape:
            factors, more = _factors(symbol, graph, tensor, size, other.tensors[name], other_size)
            where = None if any(more) else row_axis(tensor, factors)
            if where is None:
                grids[name] = factors
                if any(more):
                    longer[name] = more
            else:
                axes[name] = where
    for name, array in graph.constants.items():
        if not found.has(name):
            if not equal_arrays(array, other.constants[name]):
                targets[name] = _targets(symbol, graph, name, size, other.constants[name], other_size)
        elif name in grids or not np.array_equal(array, _repeated(array, axes[name], size)):
            both = array, other.constants[name]
            if not all(is_part(one, longest.get(name)) for one in both):
                if found.place(name) is None or not all(is_part(one, longest.get(name), last=True) for one in both):
                    raise refused_at(symbol, reader_of(graph, name), f"its constant {name!r} differs from row to row")
                tails.add(name)
            parts[name] = longest[name]
    return replace(found, tails=frozenset(tails))


def is_part(array: Array, whole: Array | None, last: bool = False) -> bool:
    """Whether a constant is the first part, or the `last` one, of a longer one along each axis."""
    return whole is not None and whole.ndim == array.ndim and equal_arrays(array, part_of(whole, array.shape, last))


def part_of(array: Array, shape: tuple[int, ...], last: bool = False) -> Array:
    """The first, or the `last`, part of a constant that has such a shape."""
    starts = (whole - extent if last else 0 for whole, extent in zip(array.shape, shape, strict=True))
    parts = (slice(start, start + extent) for start, extent in zip(starts, shape, strict=True))
    return np.ascontiguousarray(array[tuple(parts)])


def with_constants_given(graph: Graph, symbol: str, given: Collection[str]) -> Graph:
    """A graph with some of its constants as further inputs: nothing that depends on a size is folded, or packed.
    InputError where one of them is an output."""
    for name in given:
        if name in graph.returned:
            raise refused_at(symbol, f"the output {name!r}", "it is a constant that depends on the size")
    constants = {name: array for name, array in graph.constants.items() if name not in given}
    return replace(graph, inputs=(*graph.inputs, *given), constants=constants)


def with_used(
    graph: Graph, operators: Sequence[Operator], tensors: Mapping[str, Tensor], constants: Mapping[str, Array]
) -> Graph:
    """A graph with other operators, and of the tensors and constants, in their order, those that these have, or that
    are its inputs and outputs."""
    used = {name for operator in operators for name in (*operator.inputs, *operator.outputs)}
    used.update(graph.inputs, graph.outputs)
    return replace(
        graph,
        operators=tuple(operators),
        tensors={name: tensor for name, tensor in tensors.items() if name in used},
        constants={name: array for name, array in constants.items() if name in used},
    )


def is_alike(made: Graph, loaded: Graph) -> bool:
    """Whether what computes in a graph that was `made` for a size of 1 or 0, with its constants, is what the model was
    `loaded` as.

    At that size the loader leaves operators out that move nothing then, and may put others in another way.
    """
    return _named_alike(made, loaded) and _computing(made) == _computing(loaded)


def makes_nothing(made: Graph) -> bool:
    """Whether no output of a graph that was `made` for some sizes has an element: whatever it computes is right."""
    return all(0 in made.tensors[name].shape for name in made.outputs)


def _named_alike(made: Graph, loaded: Graph) -> bool:
    named = (*made.inputs, *made.outputs)
    return all(name in loaded.tensors and made.tensors[name] == loaded.tensors[name] for name in named)


def refused_small(symbol: str, size: int) -> InputError:
    """The error for a model that is another where the open size is 1 or 0."""
    least = size + 1
    return InputError(
        f"--sizes: where {symbol} is {size}, the model is another: let {symbol} start at {least}, such as --sizes "
        f"{symbol}={least}:16, or {ADVICE}"
    )


def check_size(symbol: str, at: str, made: Graph, loaded: Graph) -> None:
    """InputError unless a graph that was `made` for a size (larger than 1) is what the model was `loaded` as there;
    `at`: that size, as people read it."""
    loaded = with_names_of(symbol, made, loaded)
    for name, tensor in made.tensors.items():
        if tensor != loaded.tensors[name]:
            raise refused_at(symbol, reader_of(made, name), f"{name!r} has another shape where it is {at}")
    for name, array in made.constants.items():
        if not equal_arrays(array, loaded.constants[name]):
            raise refused_at(symbol, reader_of(made, name), f"its constant {name!r} is another where it is {at}")


def _computing(graph: Graph) -> list[tuple[str, object, tuple[bytes, ...]]]:
    """The operators that do more than to move values, with their attributes and constants."""
    return [
        (
            op.op_type,
            dict(op.attributes),
            tuple(graph.constants[n].tobytes() for n in op.inputs if n in graph.constants),
        )
        for op in graph.operators
        if op.op_type not in MOVING
    ]


def refused(symbol: str, operator: Operator, reason: str) -> InputError:
    """The error for an operator that cannot have an open size."""
    return refused_at(symbol, f"{operator.op_type} {operator.name!r}", reason)


def refused_at(symbol: str, where: str, reason: str) -> InputError:
    """The error for what cannot have an open size, and `where` it is."""
    return InputError(f"--sizes: {symbol} cannot stay open at {where}: {reason}; {ADVICE}")


def reader_of(graph: Graph, name: str) -> str:
    """The operator that makes or reads a tensor, for messages."""
    operator = graph.producers.get(name) or next(iter(graph.consumers.get(name, ())), None)
    return f"the input {name!r}" if operator is None else f"{operator.op_type} {operator.name!r}"


def with_names_of(symbol: str, graph: Graph, other: Graph) -> Graph:
    """`other` with the names of `graph`, which has the same operators: rewrites name what they make by its content."""
    if len(graph.operators) != len(other.operators):
        raise InputError(f"--sizes: the operators of the model depend on {symbol}: {ADVICE}")
    own: dict[str, str] = {}
    for one, twin in zip(graph.operators, other.operators, strict=True):
        same = one.op_type == twin.op_type and one.domain == twin.domain
        if not same or dict(one.attributes) != dict(twin.attributes) or not _named(own, one, twin):
            raise refused(symbol, one, "what it does depends on the size")
    for name in (*graph.inputs, *graph.outputs):
        own.setdefault(name, name)
    if len(set(own.values())) != len(own) or tuple(own.get(name) for name in other.outputs) != graph.outputs:
        raise InputError(f"--sizes: the operators of the model depend on {symbol}: {ADVICE}")
    tensors = {own[name]: replace(tensor, name=own[name]) for name, tensor in other.tensors.items() if name in own}
    constants = {own[name]: array for name, array in other.constants.items() if name in own}
    if graph.tensors.keys() != tensors.keys() or graph.constants.keys() != constants.keys():
        raise InputError(f"--sizes: the values that the model keeps depend on {symbol}: {ADVICE}")
    return replace(other, operators=graph.operators, outputs=graph.outputs, tensors=tensors, constants=constants)


def _named(own: dict[str, str], one: Operator, twin: Operator) -> bool:
    """Whether two operators read and make the same; `own`: names of the second graph -> names of the first."""
    pairs = (*zip(one.inputs, twin.inputs, strict=False), *zip(one.outputs, twin.outputs, strict=False))
    alike = len(one.inputs) == len(twin.inputs) and len(one.outputs) == len(twin.outputs)
    return alike and all(own.setdefault(there, here) == here for here, there in pairs)


def equal_arrays(one: Array, other: Array) -> bool:
    """Whether two constants are the same to the last bit (a NaN is itself)."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def _factors(
    symbol: str, graph: Graph, tensor: Tensor, size: int, twin: Tensor, twin_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many times the open size each axis of a tensor is, whose shape differs at two sizes, and how much more."""
    where, shown = reader_of(graph, tensor.name), "x".join(map(str, tensor.shape))
    if len(tensor.shape) != len(twin.shape):
        raise refused_at(symbol, where, f"the number of axes of {tensor.name!r} depends on it")
    factors, beyond = [], []
    for axis, (here, there) in enumerate(zip(tensor.shape, twin.shape, strict=True)):
        factor, rest = divmod(there - here, twin_size - size)
        more = here - factor * size if factor else 0
        fewer = more < 0 and not _is_cut(graph, tensor)
        if rest or factor < 0 or fewer:
            raise refused_at(symbol, where, f"axis {axis} of {tensor.name!r} ({shown}) is no multiple of it")
        factors.append(factor)
        beyond.append(more)
    return tuple(factors), tuple(beyond)


def constant_integers(graph: Graph, operator: Operator, place: int) -> tuple[int, ...] | None:
    """The values of a constant input; None where there are none."""
    name = operator.inputs[place] if place < len(operator.inputs) else ""
    array = graph.constants.get(name)
    return None if array is None else tuple(np.asarray(array).reshape(-1).tolist())


def _is_cut(graph: Graph, tensor: Tensor) -> bool:
    """Whether a Slice makes a tensor, which then may be shorter than the open size says."""
    maker = graph.producers.get(tensor.name)
    return maker is not None and maker.op_type == "Slice"


def row_axis(tensor: Tensor, factors: tuple[int, ...]) -> OpenAxis | None:
    """The one axis of a tensor of rows; None where the open size is in several, or not in the first one."""
    places = [axis for axis, factor in enumerate(factors) if factor]
    if len(places) != 1 or prod(tensor.shape[: places[0]]) != 1:
        return None
    return OpenAxis(places[0], factors[places[0]])


def refused_grid(opened: OpenGraph, name: str) -> InputError:
    """The error for a tensor whose open size is where only a kernel of its own could have it."""
    shown = "x".join(map(str, opened.graph.tensors[name].shape))
    several = sum(factor > 0 for factor in opened.grids[name]) > 1
    longer = [axis for axis, more in enumerate(opened.beyond(name)) if more]
    reason = f"it is not the leading axis of {name!r} ({shown})"
    if several:
        reason = f"{name!r} ({shown}) has it in more than one axis"
    elif longer:
        reason = f"axis {longer[0]} of {name!r} ({shown}) is no multiple of it"
    return refused_at(opened.symbol, reader_of(opened.graph, name), reason)


def _targets(
    symbol: str, graph: Graph, name: str, size: int, twin: Array, twin_size: int
) -> dict[int, tuple[int, int]]:
    """Which elements of a target shape depend on the open size: how many times it they are, and how much more."""
    array, where = graph.constants[name], reader_of(graph, name)
    readers = graph.consumers.get(name, ())
    places = [(op.op_type, place) for op in readers for place, read in enumerate(op.inputs) if read == name]
    known = all(place in TARGET_SHAPES.get(kind, ()) for kind, place in places)
    if not readers or name in graph.outputs or not known:
        raise refused_at(symbol, where, f"the value of {name!r} depends on it")
    found = {}
    for place, (here, there) in enumerate(zip(array.reshape(-1).tolist(), twin.reshape(-1).tolist(), strict=True)):
        if here == there:
            continue
        factor, rest = divmod(there - here, twin_size - size)
        if rest:
            raise refused_at(symbol, where, f"the target shape {name!r} is no multiple of it")
        found[place] = factor, here - factor * size
    return found
