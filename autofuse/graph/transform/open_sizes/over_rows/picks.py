"""Rows that are picked by a number which the model computes, and the places of the largest: written out in operators of
which is known how they treat rows.

A classifier behind a language model takes the last token that is no padding, a text encoder the one that ends the text.
What has that number is a sum over all rows in which every other row is 0, and where the largest stands is the least of
all places where it does. That is done to the static graph of each size.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import TensorProto

from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.open_sizes.attention import VIEWS
from autofuse.graph.transform.open_sizes.open_graph import with_used
from autofuse.graph.transform.open_sizes.over_rows.writer import Writer

_EXTREMES = frozenset(("ArgMax", "ArgMin"))
_SUMMED = frozenset(("float32", "int32", "int64"))
"""What a reduction over rows adds up."""
_BEYOND = np.iinfo(np.int32).max
"""Beyond all places."""


@dataclass(frozen=True)
class _Pick:
    """Of `data`, the places along `axis` whose numbers are in a tensor `numbers`: one for each place along the axes
    before it, or one for all of them. `left`: what picks them is known where the axis is not open."""

    data: str
    axis: int
    numbers: str
    left: bool = False


def picks_over_open(graphs: Sequence[Graph]) -> frozenset[str]:
    """The names of operators that pick along an axis of several extents in the graphs, of a model at several sizes."""
    first, *others = graphs
    found = set[str]()
    for operator in first.operators:
        twins = [graph.by_name.get(operator.name) for graph in others]
        if all(one is not None and one.inputs == operator.inputs for one in twins):
            extents = {_extent(graph, graph.by_name[operator.name]) for graph in graphs}
            if len(extents) > 1 and None not in extents:
                found.add(operator.name)
    return frozenset(found)


def with_picks_written_out(graph: Graph, opened: Collection[str] = ()) -> Graph:
    """The same graph without GatherND, and Gather of merged rows, that pick one place along an axis for each place of
    those before it, and without ArgMax and ArgMin of integers. `opened`: names of operators along an axis that is open,
    others too, of which none is left that is known."""
    writer = _Picks(graph)
    for operator in graph.operators:
        pick = _pick(graph, operator)
        if pick is not None and (operator.name in opened or not pick.left):
            writer.pick(operator, pick, operator.name in opened)
        elif operator.op_type in _EXTREMES and _is_written(graph, operator, opened):
            writer.extreme(operator)
        else:
            writer.operators.append(operator)
    if len(writer.operators) == len(graph.operators):
        return graph
    return with_used(graph, _read(graph, writer.operators), writer.tensors, writer.constants)


def _read(graph: Graph, operators: Sequence[Operator]) -> list[Operator]:
    """The operators whose results are read: what joined the indices of one that is written out is needed no longer."""
    used, kept = set(graph.outputs), list[Operator]()
    for operator in reversed(operators):
        if not used.isdisjoint(operator.outputs):
            used.update(operator.inputs)
            kept.insert(0, operator)
    return kept


def _extent(graph: Graph, operator: Operator) -> int | None:
    """The extent along which an operator picks; None where it does not."""
    if operator.op_type in _EXTREMES and not operator.domain:
        shape = graph.tensors[operator.inputs[0]].shape
        return shape[_along(operator, len(shape))]
    pick = _pick(graph, operator)
    return None if pick is None else graph.tensors[pick.data].shape[pick.axis]


def _along(operator: Operator, rank: int) -> int:
    axis = operator.attributes.get("axis", 0)
    assert isinstance(axis, int)
    return axis % rank


def _is_written(graph: Graph, operator: Operator, opened: Collection[str]) -> bool:
    dtype = graph.tensors[operator.inputs[0]].dtype
    return not operator.domain and (dtype in ("int32", "int64") or (dtype == "float32" and operator.name in opened))


def _pick(graph: Graph, operator: Operator) -> _Pick | None:
    """What an operator picks; None where it picks nothing, or in another way."""
    rule = _RULES.get(operator.op_type) if not operator.domain else None
    if rule is None or operator.inputs[1] in graph.constants or operator.inputs[0] in graph.constants:
        return None
    found = rule(graph, operator)
    known = found is not None and graph.tensors[found.data].dtype in _SUMMED and found.numbers not in graph.constants
    return found if known else None


def _of_rows(graph: Graph, operator: Operator) -> _Pick | None:
    """A Gather of one place, or of one for each sequence, whose rows are merged with those of the others: the number of
    a sequence's first row, and one more."""
    data, indices = operator.inputs
    shape = graph.tensors[data].shape
    if prod(graph.tensors[indices].shape) == 1:
        return _Pick(data, _along(operator, len(shape)), indices, left=True)
    view, added = graph.producers.get(data), graph.producers.get(indices)
    if view is None or view.op_type not in VIEWS or added is None or added.op_type != "Add" or _along(operator, 1):
        return None
    starts = next((graph.constants[name] for name in added.inputs if name in graph.constants), None)
    sequences = graph.tensors[view.inputs[0]].shape
    if starts is None or len(sequences) < 2 or starts.shape != sequences[:1] or sequences[2:] != shape[1:]:
        return None
    if not np.array_equal(starts, np.arange(sequences[0]) * sequences[1]):
        return None
    numbers = next((name for name in added.inputs if name not in graph.constants), "")
    return _Pick(view.inputs[0], 1, numbers) if numbers else None


def _of_places(graph: Graph, operator: Operator) -> _Pick | None:
    """The axis and the numbers of a GatherND whose indices along the axes before it are all that there are, in turn."""
    data, indices = operator.inputs
    shape, given = graph.tensors[data].shape, graph.tensors[indices].shape
    axis, batch = given[-1] - 1, operator.attributes.get("batch_dims", 0)
    if batch == 1 and len(given) == 2 and given == (shape[0], 1):
        return _Pick(data, 1, indices)
    join = graph.producers.get(indices)
    if batch or axis < 1 or join is None or join.op_type != "Concat" or len(join.inputs) != axis + 1:
        return None
    if given[:-1] != shape[:axis]:
        return None
    for before, name in enumerate(join.inputs[:-1]):
        known = graph.constants.get(name)
        places = np.arange(shape[before]).reshape(-1, *(1,) * (axis - before - 1))
        if known is None or not np.array_equal(known[..., 0], np.broadcast_to(places, shape[:axis])):
            return None
    return _Pick(data, axis, join.inputs[-1])


def _of_elements(graph: Graph, operator: Operator) -> _Pick | None:
    """The axis and the numbers of a GatherElements that picks one place for all that stands behind it."""
    data, indices = operator.inputs
    shape, spread = graph.tensors[data].shape, graph.producers.get(indices)
    axis = _along(operator, len(shape))
    if spread is None or spread.op_type != "Expand" or graph.tensors[indices].shape[:axis] != shape[:axis]:
        return None
    given = graph.tensors[spread.inputs[0]].shape
    given = (1,) * (len(shape) - len(given)) + given
    single = set(given[axis:]) == {1} and graph.tensors[indices].shape[axis:] == (1, *shape[axis + 1 :])
    fits = single and given[:axis] in (shape[:axis], (1,) * axis)
    return _Pick(data, axis, spread.inputs[0], left=True) if fits else None


_RULES: Mapping[str, Callable[[Graph, Operator], _Pick | None]] = {
    "Gather": _of_rows,
    "GatherElements": _of_elements,
    "GatherND": _of_places,
}


class _Picks(Writer):
    """Writes picks, and where the largest stands, in other operators."""

    def pick(self, operator: Operator, pick: _Pick, opened: bool) -> None:
        """The sum over all places along an axis of what is picked, and 0 elsewhere."""
        self.root, shape, axis = operator.name, self.tensors[pick.data].shape, pick.axis
        ones = (1,) * (len(shape) - axis)
        lead = shape[:axis] if prod(self.tensors[pick.numbers].shape) > 1 else (1,) * axis
        numbers = self._integers_of(pick.numbers, (*lead, *ones))
        places, form = self._places(shape, axis), (*lead, *ones)
        zero = self.number("zero", 0)
        behind = self.op("Less", "is_behind", (numbers, zero), (form, "bool"))
        if opened:  # how many there are, of what each sequence has: a constant of all places may be longer
            seen = self.op("Where", "seen", (behind, places, zero), ((*lead, shape[axis], *ones[1:]), "int64"))
            last = self.op("ReduceMax", "last", (seen, self.integers("axis", (axis,))), (form, "int64"), keepdims=1)
            count = self.op("Add", "count", (last, self.number("one", 1)), (form, "int64"))
        else:
            count = self.number("count", shape[axis])
        beyond = self.op("Add", "from_the_end", (numbers, count), (form, "int64"))
        numbers = self.op("Where", "numbers", (behind, beyond, numbers), (form, "int64"))
        chosen = self.op("Equal", "chosen", (places, numbers), ((*lead, shape[axis], *ones[1:]), "bool"))
        dtype = self.tensors[pick.data].dtype
        nothing = self.constant("nothing", np.zeros((), dtype))
        kept = self.op("Where", "kept", (chosen, pick.data, nothing), (shape, dtype))
        made = operator.outputs[0]
        keep = int(len(self.tensors[made].shape) == len(shape))
        along = self.integers("along", (axis,))
        summed = (*shape[:axis], *(1,) * keep, *shape[axis + 1 :])
        if summed == self.tensors[made].shape:
            self.add(operator.name, "ReduceSum", (kept, along), made, keepdims=keep)
            return
        total = self.op("ReduceSum", "total", (kept, along), (summed, dtype), keepdims=keep)
        self.add(operator.name, "Reshape", (total, self.integers("shape", self.tensors[made].shape)), made)

    def extreme(self, operator: Operator) -> None:
        """The first place, or the last one, at which the largest, or the least, stands."""
        self.root, (data,), (made,) = operator.name, operator.inputs, operator.outputs
        shape, keep = self.tensors[data].shape, operator.attributes.get("keepdims", 1)
        axis = _along(operator, len(shape))
        last, dtype = bool(operator.attributes.get("select_last_index", 0)), self.tensors[data].dtype
        one = (*shape[:axis], 1, *shape[axis + 1 :])
        along = self.integers("axis", (axis,))
        kind = "ReduceMax" if operator.op_type == "ArgMax" else "ReduceMin"
        best = self.op(kind, "best", (data, along), (one, dtype), keepdims=1)
        there = self.op("Equal", "is_best", (data, best), (shape, "bool"))
        other = self.number("elsewhere", -1 if last else _BEYOND)
        places = self.op("Where", "places", (there, self._places(shape, axis), other), (shape, "int64"))
        self.add(operator.name, "ReduceMax" if last else "ReduceMin", (places, along), made, keepdims=keep)

    def _places(self, shape: tuple[int, ...], axis: int) -> str:
        """The numbers of all places along an axis."""
        ones = (1,) * (len(shape) - axis - 1)
        return self.constant("all", np.arange(shape[axis], dtype=np.int64).reshape(*(1,) * axis, -1, *ones))

    def _integers_of(self, name: str, shape: tuple[int, ...]) -> str:
        """A tensor of integers as int64, in another shape."""
        if self.tensors[name].dtype != "int64":
            attributes = {"to": int(TensorProto.INT64)}
            name = self.op("Cast", "numbers.int64", (name,), (self.tensors[name].shape, "int64"), **attributes)
        return self.op("Reshape", "numbers.view", (name, self.integers("numbers.shape", shape)), (shape, "int64"))
