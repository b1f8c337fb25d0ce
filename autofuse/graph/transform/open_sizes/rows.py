"""Which operators keep the rows of an open size apart: row i of a result is made of row i of what it reads, and nothing
of the other rows. A kernel may then compute any rows, in any order, a tile of them at a time.

Row i of a tensor is what belongs to place i of the open size: as many elements behind one another, from the first on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import prod

from autofuse.graph.mapping import QUANTISATION, names
from autofuse.graph.model import AttributeValue, Operator
from autofuse.graph.own.bfloat16 import is_of_bfloat16, is_round, plain
from autofuse.graph.own.names import BYTE_LOOKUP, DOMAIN
from autofuse.graph.own.recurrence import LENGTHS, RECURRENCES, STATES, is_batch_first
from autofuse.graph.own.weight_only import OP_TYPE
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, LONG, REDUCTIONS, VIEWS, appends, attentions
from autofuse.graph.transform.open_sizes.group_kinds import Picked
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, OpenGraph, constant_integers, refused, refused_grid
from autofuse.graph.transform.open_sizes.over_rows.recurrences import recurs
from autofuse.graph.transform.open_sizes.over_rows.shifts import shifts
from autofuse.graph.transform.open_sizes.over_rows.turns import turns
from autofuse.graph.transform.open_sizes.repeats import counts, is_over_all

_WINDOWS = names(
    """AveragePool BatchNormalization Conv ConvInteger ConvTranspose DepthToSpace GlobalAveragePool GlobalMaxPool
    GroupNormalization InstanceNormalization LRN LpPool MaxPool SpaceToDepth"""
)
"""Operators on maps [N, C, ...], each of which is computed by itself."""
_WHOLE = names("ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare")
"""Reductions that have a kernel over all rows."""


@dataclass(frozen=True)
class _Case:
    """An operator that reads or makes rows."""

    operator: Operator
    opened: OpenGraph

    def shape(self, place: int) -> tuple[int, ...]:
        return self.opened.graph.tensors[self.operator.inputs[place]].shape

    def rows(self, place: int) -> OpenAxis | None:
        """Where the open size is in an input."""
        inputs = self.operator.inputs
        return self.opened.axes.get(inputs[place]) if place < len(inputs) else None

    @property
    def made(self) -> OpenAxis | None:
        """Where the open size is in the first result."""
        return self.opened.axes.get(self.operator.outputs[0])

    @property
    def rank(self) -> int:
        """Axes of the first result."""
        return len(self.opened.graph.tensors[self.operator.outputs[0]].shape)

    def only_first(self) -> bool:
        """Whether the first input has rows, and no other."""
        return self.rows(0) is not None and not any(self.rows(n) for n in range(1, len(self.operator.inputs)))

    def integer(self, name: str, default: int) -> int:
        value: AttributeValue = self.operator.attributes.get(name, default)
        assert isinstance(value, int)
        return value

    def integers(self, place: int, name: str) -> tuple[int, ...] | None:
        """The values of a constant input, or of the attribute `name`; None where there are none."""
        if place < len(self.operator.inputs) and self.operator.inputs[place]:
            return constant_integers(self.opened.graph, self.operator, place)
        value = self.operator.attributes.get(name)
        return tuple(int(item) for item in value) if isinstance(value, tuple) else None


def check_rows(opened: OpenGraph, *, apart: bool = False) -> None:
    """InputError that names the first operator which mixes the rows of the open size, or may do so.

    An attention may: there is a kernel for all of it. So may a reduction over all rows, a running sum of them, a
    recurrence whose steps they are, an operator that reads nothing but a few of them, one that appends some to a cache,
    one that turns an input or an output, and two that shift them. `apart`: nothing may. Only an attention knows the end
    of a constant: all else is given a constant from its beginning on.
    """
    operators = opened.graph.operators
    attending = set() if apart else {name for found in attentions(opened) for name in found.operators}
    known = {one.name for one in operators if turns(opened, one) or (appends(opened, one) and not apart)}
    known |= set() if apart else {name for shift in shifts(opened) for name in shift.operators}
    _check_tails(opened, attending)
    for operator in operators:
        if operator.name not in attending | known:
            _check_operator(opened, operator, apart)
    for name in opened.graph.returned:
        maker = opened.graph.producers.get(name)
        if name in opened.grids and not (maker is not None and (appends(opened, maker) or turns(opened, maker))):
            raise refused_grid(opened, name)


def _check_operator(opened: OpenGraph, operator: Operator, apart: bool) -> None:
    touched = [name for name in (*operator.inputs, *operator.outputs) if opened.has(name)]
    whole = not apart and (is_over_rows(opened, operator) or recurs(opened, operator))
    if not touched or whole or is_over_all(opened, operator) or counts(operator):
        return
    if grids := [name for name in touched if name in opened.grids]:
        raise refused_grid(opened, grids[0])
    if not apart and picked_rows(opened, operator) is not None:
        return
    if any(name and name not in opened.axes for name in operator.outputs):
        raise refused(opened.symbol, operator, "its result has rows no longer: it mixes them")
    known = keeps_rows(opened, operator)
    if known is None:
        raise refused(opened.symbol, operator, "nothing is known of how it treats rows")
    if not known:
        raise refused(opened.symbol, operator, "it mixes rows")


def _check_tails(opened: OpenGraph, attending: Collection[str]) -> None:
    for operator in opened.graph.operators if opened.tails else ():
        tail = next((name for name in operator.inputs if name in opened.tails), "")
        if tail and operator.name not in attending:
            raise refused(opened.symbol, operator, f"its constant {tail!r} differs from row to row")


def keeps_rows(opened: OpenGraph, operator: Operator) -> bool | None:
    """Whether an operator that reads rows and makes some keeps them apart; None where nothing is known of it."""
    if is_of_bfloat16(operator):
        rule = _elementwise if is_round(operator) else _RULES.get(plain(operator).op_type)
    else:
        rule = _RULES.get(operator.op_type) if operator.domain in ("", DOMAIN) else None
    return None if rule is None else rule(_Case(operator, opened))


def picked_rows(opened: OpenGraph, operator: Operator) -> Picked | None:
    """The rows that an operator picks by their number, as a classifier picks its token; None where it does not."""
    if operator.op_type not in ("Gather", "Slice") or operator.domain or opened.has(operator.outputs[0]):
        return None
    case = _Case(operator, opened)
    rows, rank = case.rows(0), len(case.shape(0))
    if rows is None or not case.only_first() or rows.factor != 1:
        return None
    if operator.op_type == "Gather":
        numbers = case.integers(1, "indices")
        if numbers is None or case.integer("axis", 0) % rank != rows.axis or not numbers:
            return None
        if min(numbers) >= 0:
            return Picked(max(numbers) + 1)
        return Picked(-min(numbers), last=True) if max(numbers) < 0 else None
    starts, ends, steps = (case.integers(place, name) for place, name in ((1, "starts"), (2, "ends"), (4, "steps")))
    axes = case.integers(3, "axes") or tuple(range(len(starts or ())))
    along = tuple(axis % rank for axis in axes) == (rows.axis,) and steps in (None, (1,))
    if starts is None or ends is None or not along:
        return None
    factor, more = opened.targets.get(operator.inputs[1], {}).get(0, (0, starts[0]))
    if factor:
        return Picked(-more, last=True) if factor == 1 and more < 0 else None
    open_end = operator.inputs[2] in opened.targets
    return Picked(ends[0]) if not open_end and 0 <= more < ends[0] < LONG else None


def reduces_rows(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator reduces over all rows and over nothing else, as a mean over tokens does.

    There may be more of them than the open size, as a mask has for the keys of a cache and of the new token. A constant
    of which they are the first part does not say how many they are.
    """
    if is_over_all(opened, operator):
        return True
    if operator.op_type not in _WHOLE or operator.domain or opened.has(operator.outputs[0]):
        return False
    case, read = _Case(operator, opened), operator.inputs[0]
    rows, axes, shape = opened.place(read), case.integers(1, "axes"), case.shape(0)
    if rows is None or prod(shape[: rows.axis]) != 1 or not axes or any(map(opened.has, operator.inputs[1:])):
        return False
    if read in opened.parts:
        return False
    reduced = {axis % len(shape) for axis in axes}
    single = all(shape[axis] == 1 for axis in reduced - {rows.axis})
    dtype = opened.graph.tensors[read].dtype
    whole = operator.op_type in ("ReduceMax", "ReduceMin", "ReduceSum") and dtype in ("int32", "int64")
    return rows.axis in reduced and single and (dtype == "float32" or whole)


def sums_rows(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator adds up all rows before each, as positions are counted in a mask of tokens."""
    if operator.op_type != "CumSum" or operator.domain:
        return False
    case = _Case(operator, opened)
    rows, axes = case.rows(0), case.integers(1, "axis")
    if not case.only_first() or rows is None or rows.more or axes is None or rows != case.made:
        return False
    dtype = opened.graph.tensors[operator.inputs[0]].dtype
    return axes[0] % case.rank == rows.axis and dtype in ("float32", "int32", "int64")


def is_over_rows(opened: OpenGraph, operator: Operator) -> bool:
    """Whether an operator goes over all rows, by a kernel of its own that no family has."""
    return reduces_rows(opened, operator) or sums_rows(opened, operator) or counts(operator)


def _elementwise(case: _Case) -> bool:
    return all(_alike(case, place) for place in range(len(case.operator.inputs)))


def _alike(case: _Case, place: int) -> bool:
    """Whether broadcasting gives each row of the result the same row of an input, or what has one row for all."""
    if not case.operator.inputs[place]:
        return True
    made, rows, shape = case.made, case.rows(place), case.shape(place)
    assert made is not None
    behind = case.rank - made.axis
    if rows is not None:
        return len(shape) - rows.axis == behind and rows.factor == made.factor
    return len(shape) < behind or shape[len(shape) - behind] == 1


def _window(case: _Case) -> bool:
    rows, made = case.rows(0), case.made
    return case.only_first() and rows == made and rows is not None and rows.axis == 0


def _levels(case: _Case) -> bool:
    """Of levels and their numbers: a scale and a zero point are for all rows."""
    return case.only_first() and case.rows(0) == case.made


def _resize(case: _Case) -> bool:
    return _window(case) and case.operator.attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize"


def _matmul(case: _Case) -> bool:
    if min(len(case.shape(0)), len(case.shape(1))) < 2 or case.made is None:
        return False
    behind = case.rank - case.made.axis  # 2: the rows of the product are those of the left factor
    if behind == 2:
        return case.only_first() and _alike(case, 0)
    zeros = any(case.rows(place) for place in range(2, len(case.operator.inputs)))
    return behind > 2 and _alike(case, 0) and _alike(case, 1) and not zeros


def _gemm(case: _Case) -> bool:
    if case.rows(0) != OpenAxis(0, case.made.factor if case.made else 0) or case.integer("transA", 0):
        return False
    return case.only_first() and (len(case.operator.inputs) < 3 or _alike(case, 2))


def _normalised(default: int) -> Callable[[_Case], bool]:
    """Of an operator along one axis."""

    def rule(case: _Case) -> bool:
        rows = case.rows(0)
        axis = case.integer("axis", default) % len(case.shape(0))
        return case.only_first() and rows is not None and rows == case.made and axis != rows.axis

    return rule


def _running(case: _Case) -> bool:
    rows, axes = case.rows(0), case.integers(1, "axis")
    if not case.only_first() or rows is None or axes is None:
        return False
    return rows == case.made and axes[0] % case.rank != rows.axis


def _layer_normalisation(case: _Case) -> bool:
    rows = case.rows(0)
    axis = case.integer("axis", -1) % len(case.shape(0))
    return case.only_first() and rows is not None and rows == case.made and axis > rows.axis


def _reduction(case: _Case) -> bool:
    rows, axes = case.rows(0), case.integers(1, "axes")
    if not case.only_first() or rows is None or axes is None:
        return False
    return rows.axis not in {axis % len(case.shape(0)) for axis in axes}


def _transpose(case: _Case) -> bool:
    rows, made, rank = case.rows(0), case.made, len(case.shape(0))
    order = case.operator.attributes.get("perm", tuple(reversed(range(rank))))
    return isinstance(order, tuple) and rows is not None and made is not None and order[made.axis] == rows.axis


def _concat(case: _Case) -> bool:
    made = case.made
    axis = case.integer("axis", 0) % case.rank
    alike = all(case.rows(place) == made for place in range(len(case.operator.inputs)))
    return made is not None and made.axis != axis and alike


def _split(case: _Case) -> bool:
    rows = case.rows(0)
    axis = case.integer("axis", 0) % len(case.shape(0))
    outputs = [case.opened.axes.get(name) for name in case.operator.outputs if name]
    return case.only_first() and rows is not None and axis != rows.axis and all(made == rows for made in outputs)


def _slice(case: _Case) -> bool:
    rows, starts, rank = case.rows(0), case.integers(1, "starts"), len(case.shape(0))
    if not case.only_first() or rows is None or rows != case.made or starts is None:
        return False
    axes = case.integers(3, "axes") or tuple(range(len(starts)))
    steps = case.integers(4, "steps") or (1,) * len(starts)
    cuts = zip(axes, starts, steps, strict=True)
    return all((start, step) == (0, 1) for axis, start, step in cuts if axis % rank == rows.axis)


def _pad(case: _Case) -> bool:
    rows, pads, rank = case.rows(0), case.integers(1, "pads"), len(case.shape(0))
    if not case.only_first() or rows is None or rows != case.made or pads is None:
        return False
    axes = [axis % rank for axis in case.integers(3, "axes") or range(rank)]
    given: Mapping[int, int] = {axis: abs(pads[n]) + abs(pads[n + len(axes)]) for n, axis in enumerate(axes)}
    return not given.get(rows.axis, 0)


def _gather(case: _Case) -> bool:
    data, indices, made = case.rows(0), case.rows(1), case.made
    axis = case.integer("axis", 0) % len(case.shape(0))
    if made is None or (data is None) == (indices is None):
        return False
    if data is not None:
        return axis > data.axis and made == data
    return indices is not None and made == OpenAxis(axis + indices.axis, indices.factor)


def _gather_elements(case: _Case) -> bool:
    data, made = case.rows(0), case.made
    axis = case.integer("axis", 0) % len(case.shape(0))
    return made is not None and data == case.rows(1) == made and axis != made.axis


def _recurrence(case: _Case) -> bool:
    """Of sequences that stand in front of their steps, or behind a single one, each with its own states."""
    operator, behind = case.operator, int(not is_batch_first(case.operator))
    own = {0: behind, LENGTHS: 0, **dict.fromkeys(STATES, behind)}
    made = [(2 * behind if not place else behind, name) for place, name in enumerate(operator.outputs) if name]
    given = [(place, case.rows(place)) for place, name in enumerate(operator.inputs) if name]
    alike = all(rows == (OpenAxis(own[place]) if place in own else None) for place, rows in given)
    return alike and all(case.opened.axes.get(name) == OpenAxis(axis) for axis, name in made)


def _expand(case: _Case) -> bool:
    return _alike(case, 0)


def _tile(case: _Case) -> bool:
    made, rows, repeats = case.made, case.rows(0), case.integers(1, "repeats")
    if made is None or repeats is None:
        return False
    if rows is None:  # each row has all of it
        return made.factor % case.shape(0)[made.axis] == 0
    return rows == made and repeats[made.axis] == 1


_RULES: dict[str, Callable[[_Case], bool]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(QUANTISATION, _levels),
    **dict.fromkeys(_WINDOWS, _window),
    **dict.fromkeys(VIEWS, lambda case: case.only_first() and case.made is not None),
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(RECURRENCES, _recurrence),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", OP_TYPE), _normalised(-1)),
    **dict.fromkeys(("ArgMax", "ArgMin"), _normalised(0)),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_normalisation),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys(("CumSum", "CumProd"), _running),
    "Concat": _concat,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    **dict.fromkeys(("MatMul", "MatMulInteger"), _matmul),
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Transpose": _transpose,
    BYTE_LOOKUP: lambda case: _alike(case, 0),
}
