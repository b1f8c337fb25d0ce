"""Inputs and outputs that have their sequences behind other axes, as the states [layers, batch, width] of a recurrence:
an operator of ours between one of them and a tensor in which each sequence lies in one piece.

In the graph of one sequence it moves nothing: its kernel, which knows how many there are, does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeVar

from autofuse.graph.model import Graph, Operator
from autofuse.graph.own.names import DOMAIN
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph
from autofuse.graph.transform.open_sizes.repeats import Repeats

T = TypeVar("T")
Views = tuple[OpenGraph, ...]
IN_FRONT, BEHIND = "SequencesInFront", "SequencesBehind"
"""The operators of an input, and of an output; `axis`: along which they stand in it."""


def is_of_sequences(operator: Operator) -> bool:
    """Whether an operator puts the sequences of an input in front of all axes, or those of an output behind others."""
    return operator.domain == DOMAIN and operator.op_type in (IN_FRONT, BEHIND)


def with_sequences_in_front(views: Views, repeats: Repeats) -> tuple[Views, Repeats, tuple[str, ...]]:
    """The views of one graph with such operators where inputs and outputs need them, the sequences of that, and the
    names of the operators."""
    graph = views[0].graph
    behind = {name: axis for name, axis in repeats.axes.items() if _is_behind(views, name, axis)}
    if not behind:
        return views, repeats, ()
    names = {name: f"{name}@sequences" for name in behind}
    given = [
        Operator(f"{own}.front", IN_FRONT, (name,), (own,), {"axis": behind[name]}, DOMAIN)
        for name, own in names.items()
        if name in graph.inputs
    ]
    returned = [
        Operator(f"{own}.behind", BEHIND, (own,), (name,), {"axis": behind[name]}, DOMAIN)
        for name, own in names.items()
        if name in graph.outputs and name not in graph.inputs
    ]
    renamed = [_renamed(operator, names) for operator in graph.operators]
    tensors = {**graph.tensors, **{own: replace(graph.tensors[name], name=own) for name, own in names.items()}}
    found = replace(graph, operators=(*given, *renamed, *returned), tensors=tensors)
    own = frozenset((*repeats.own, *names.values()))
    turning = tuple(one.name for one in (*given, *returned))
    return tuple(_view(view, found, names) for view in views), replace(repeats, own=own), turning


def _is_behind(views: Sequence[OpenGraph], name: str, axis: int) -> bool:
    """Whether other axes than of one place stand before that of the sequences, at some size."""
    before = views[0].graph.tensors[name].shape[:axis]
    return prod(before) != 1 or any(place < axis for view in views for place in view.open_axes(name))


def _renamed(operator: Operator, names: Mapping[str, str]) -> Operator:
    inputs, outputs = (tuple(names.get(name, name) for name in one) for one in (operator.inputs, operator.outputs))
    return replace(operator, inputs=inputs, outputs=outputs)


def _view(view: OpenGraph, graph: Graph, names: Mapping[str, str]) -> OpenGraph:
    axes, grids, more = _both(view.axes, names), _both(view.grids, names), _both(view.more, names)
    return replace(view, graph=graph, axes=axes, grids=grids, more=more)


def _both(known: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """What is known of tensors, said of those of other `names`, too."""
    return {**known, **{own: known[name] for name, own in names.items() if name in known}}
