"""Two open sizes: a graph that is open over one of them, computed for as many sequences as the other says.

The second is a size whose rows are kept apart, whatever the first one is: row i of a result is made of row i of what is
read, so that it is what the graph of one sequence makes of it. In memory the sequences of a tensor stand one behind the
other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from autofuse.errors import InputError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.mapping import names
from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.open_graph import ADVICE, OpenGraph, constant_integers

_EXTREMES = names("ReduceMax ReduceMin")
"""Reductions of all elements of all sequences that have a kernel."""


@dataclass(frozen=True)
class Repeats:
    """`size`: how many sequences there are. `axes`: of each input and output of the model of which every sequence has
    its own, the axis along which they stand. `own`: all such tensors of a graph."""

    size: OpenSize
    axes: Mapping[str, int]
    own: Collection[str] = field(default_factory=frozenset)


def own_tensors(repeats: Repeats, graph: Graph) -> frozenset[str]:
    """The tensors of which every sequence has its own: what is made of an input that it has of its own, but for what
    is one number for all of them.

    InputError where that is not so of the outputs.
    """
    own = {name for name in graph.inputs if name in repeats.axes}
    for operator in graph.operators:
        one = counts(operator) or reduces_all(graph, operator)
        if not own.isdisjoint(operator.inputs) and not one:
            own.update(name for name in operator.outputs if name)
    for name in graph.outputs:
        if (name in own) != (name in repeats.axes):
            reason = "is the same for all" if name in repeats.axes else "is one for all, and made of what each has"
            raise InputError(
                f"--sizes: {repeats.size.name} cannot stay open with another size: the output {name!r} {reason}; "
                f"fix {repeats.size.name}, or {ADVICE}"
            )
    return frozenset(own)


def counts(operator: Operator) -> bool:
    """Whether an operator says how long an input is along one axis: it reads nothing of what stands there. The loader
    leaves no other Shape."""
    return operator.op_type == "Shape" and not operator.domain


def reduces_all(graph: Graph, operator: Operator) -> bool:
    """Whether an operator makes the least or the largest of all elements that there are, in all rows and all sequences:
    what a scale is made of by which a model quantises as it runs."""
    if operator.op_type not in _EXTREMES or operator.domain:
        return False
    read = graph.tensors[operator.inputs[0]]
    given = operator.inputs[1] if len(operator.inputs) > 1 else ""
    axes = constant_integers(graph, operator, 1) if given else operator.attributes.get("axes")
    if given and axes is None:
        return False
    if not axes:
        return not operator.attributes.get("noop_with_empty_axes", 0) and read.dtype == "float32"
    assert isinstance(axes, tuple)
    rank = len(read.shape)
    return read.dtype == "float32" and {int(axis) % rank for axis in axes} == set(range(rank))


def is_over_all(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator makes one number of all elements of a tensor that has the open size once, or not at all: each
    sequence may have such a tensor of its own, as it has a token that is picked."""
    read, graph = operator.inputs[0], opened.graph
    one = not opened.has(operator.outputs[0]) and not any(map(opened.has, operator.inputs[1:]))
    place = opened.place(read) is not None or not opened.has(read)
    return one and place and read not in graph.constants and reduces_all(graph, operator)
