"""Rows beside their neighbours: a Slice cuts rows off one end, and a Pad puts as many at the other.

Between the two there are fewer rows than the open size says; behind them row i is another row of what they read, or one
of the padding's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph, constant_integers


@dataclass(frozen=True)
class Shift:
    """Operators `cut` and `pad`: rows are cut off in front of the rows of `cut.inputs[0]` and behind them (`first`,
    `last`), and as many of `value` put there (`before`, `behind`)."""

    cut: Operator
    pad: Operator
    first: int
    last: int
    before: int
    behind: int
    value: float

    @property
    def operators(self) -> tuple[str, str]:
        """Their names."""
        return self.cut.name, self.pad.name


def shifts(opened: OpenGraph) -> tuple[Shift, ...]:
    """Every shift of rows in a graph."""
    found = (_shift(opened, operator) for operator in opened.graph.operators if operator.op_type == "Pad")
    return tuple(shift for shift in found if shift is not None)


def _shift(opened: OpenGraph, pad: Operator) -> Shift | None:
    graph = opened.graph
    cut = graph.producers.get(pad.inputs[0])
    if cut is None or cut.op_type != "Slice" or cut.domain or pad.domain:
        return None
    rows, middle = opened.axes.get(cut.inputs[0]), cut.outputs[0]
    if rows is None or rows.factor != 1 or opened.axes.get(pad.outputs[0]) != rows:
        return None
    if len(graph.consumers.get(middle, ())) != 1 or middle in graph.returned:
        return None
    first, added, value = _cut_in_front(opened, cut, rows.axis), _added(opened, pad, rows.axis), _value(opened, pad)
    taken = -opened.beyond(middle)[rows.axis]
    if first is None or added is None or value is None or not 0 <= first <= taken or sum(added) != taken:
        return None
    return Shift(cut, pad, first, taken - first, *added, value)


def _cut_in_front(opened: OpenGraph, cut: Operator, along: int) -> int | None:
    """How many rows a Slice leaves out at the beginning, of rows alone and one by one; None where it is no such."""
    starts, ends = (constant_integers(opened.graph, cut, place) for place in (1, 2))
    rank = len(opened.graph.tensors[cut.inputs[0]].shape)
    axes, steps = constant_integers(opened.graph, cut, 3), constant_integers(opened.graph, cut, 4)
    if starts is None or ends is None or axes is None or len(starts) != 1 or steps not in (None, (1,)):
        return None
    if tuple(axis % rank for axis in axes) != (along,) or starts[0] < 0 or cut.inputs[1] in opened.targets:
        return None
    return starts[0]


def _added(opened: OpenGraph, pad: Operator, along: int) -> tuple[int, int] | None:
    """How many rows a Pad puts in front and behind; None where it does not put constant rows there, or more."""
    rank, pads = len(opened.graph.tensors[pad.inputs[0]].shape), constant_integers(opened.graph, pad, 1)
    if pad.attributes.get("mode", "constant") != "constant" or pads is None or pad.inputs[1] in opened.targets:
        return None
    axes = constant_integers(opened.graph, pad, 3) or tuple(range(rank))
    given = {axis % rank: (pads[n], pads[n + len(axes)]) for n, axis in enumerate(axes)}
    before, behind = given.pop(along, (0, 0))
    if before < 0 or behind < 0 or any(map(any, given.values())):
        return None
    return before, behind


def _value(opened: OpenGraph, pad: Operator) -> float | None:
    """What a Pad of float32 puts; None where it is not known."""
    if opened.graph.tensors[pad.outputs[0]].dtype != "float32":
        return None
    if len(pad.inputs) < 3 or not pad.inputs[2]:
        return 0.0
    array = opened.graph.constants.get(pad.inputs[2])
    return None if array is None else float(np.asarray(array).reshape(-1)[0])
