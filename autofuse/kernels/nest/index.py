"""Data movement as index functions: where an element of the result is read from, one definition an operator.

`READ[op_type](reads, operator, workload, index, output, bind)` is the element of result number `output` at a
logical `index`, where `reads[k]` gives an element of input k. Every read is within bounds: what may lie outside is
read under `tirx.if_then_else`, which is lazy. (Not `tirx.Select` of a position that is cut to the bounds: TVM knows
the condition inside it, drops the cut, and reads outside.) A loop whose choice differs by lane has to stay scalar:
`Emitter.vector` sees to it. `FORWARD[op_type](operator, workload, index)` says, for operators that only rearrange,
where an element of the input goes. Positions are Python integers or int32 expressions; shapes, axes and pads come
from the workload's shapes and literals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from tvm import tirx

from autofuse.kernels.nest import rearrange, resize
from autofuse.kernels.nest.rearrange import Index
from autofuse.kernels.nest.scalar import ELEMENT_TYPES
from autofuse.kernels.tir.math import Bind, Expr
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Read = Callable[[Index], Expr]
ReadFunction = Callable[[Sequence[Read], WorkloadOperator, Workload, Index, int, Bind], Expr]
ForwardFunction = Callable[[WorkloadOperator, Workload, Index], Index]


@dataclass(frozen=True)
class _Move:
    """One element of one result of a data movement."""

    reads: Sequence[Read]
    operator: WorkloadOperator
    workload: Workload
    index: Index
    output: int
    bind: Bind

    @property
    def source(self) -> tuple[int, ...]:
        """Shape of the first input."""
        return _shape(self.workload, self.operator.inputs[0])

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the result."""
        return _shape(self.workload, self.operator.outputs[self.output])


def _shape(workload: Workload, value: int) -> tuple[int, ...]:
    return workload.values[value].shape


def _axis(operator: WorkloadOperator, rank: int, default: int = 0) -> int:
    axis = operator.attribute("axis", default)
    assert isinstance(axis, int)
    return axis % rank


def _integers(operator: WorkloadOperator, workload: Workload, place: int, name: str) -> tuple[int, ...] | None:
    """A list of integers that stands in input `place` or, in old opsets, in an attribute; None when in neither."""
    if place < len(operator.inputs) and operator.inputs[place] >= 0:
        return tuple(int(v) for v in workload.values[operator.inputs[place]].literal_array().reshape(-1))
    value: Any = operator.attribute(name)
    return None if value is None else tuple(value) if isinstance(value, tuple) else (int(value),)


def _replace(index: Index, axis: int, *positions: Expr) -> Index:
    return (*index[:axis], *positions, *index[axis + 1 :])


def _at_least(position: Expr, low: int) -> Expr:
    return max(position, low) if isinstance(position, int) else tirx.max(position, tirx.const(low, "int32"))


def _at_most(position: Expr, high: int) -> Expr:
    return min(position, high) if isinstance(position, int) else tirx.min(position, tirx.const(high, "int32"))


def _within(position: Expr, extent: int) -> Expr:
    return _at_most(_at_least(position, 0), extent - 1)


def _read_view(move: _Move) -> Expr:
    return move.reads[0](rearrange.regroup(move.index, move.result, move.source))


def _forward_view(operator: WorkloadOperator, workload: Workload, index: Index) -> Index:
    return rearrange.regroup(index, _shape(workload, operator.inputs[0]), _shape(workload, operator.outputs[0]))


def _permutation(operator: WorkloadOperator, rank: int) -> tuple[int, ...]:
    perm = operator.attribute("perm")
    return tuple(reversed(range(rank))) if perm is None else tuple(int(p) % rank for p in perm)  # type: ignore


def _read_transpose(move: _Move) -> Expr:
    source: list[Expr] = [0] * len(move.index)
    for position, axis in zip(move.index, _permutation(move.operator, len(move.index)), strict=True):
        source[axis] = position
    return move.reads[0](tuple(source))


def _read_expand(move: _Move) -> Expr:
    shape = move.source
    tail = move.index[len(move.index) - len(shape) :]
    return move.reads[0](tuple(0 if extent == 1 else position for position, extent in zip(tail, shape, strict=True)))


def _read_tile(move: _Move) -> Expr:
    shape, result = move.source, move.result
    rows = zip(move.index, shape, result, strict=True)
    return move.reads[0](tuple(position if extent == whole else position % extent for position, extent, whole in rows))


def _slices(operator: WorkloadOperator, workload: Workload) -> list[tuple[int, int]]:
    """(start, step) of each axis; the ends are in the result's shape."""
    shape = _shape(workload, operator.inputs[0])
    starts = _integers(operator, workload, 1, "starts") or ()
    axes = _integers(operator, workload, 3, "axes") or tuple(range(len(starts)))
    steps = _integers(operator, workload, 4, "steps") or (1,) * len(starts)
    found = [(0, 1)] * len(shape)
    for start, axis, step in zip(starts, axes, steps, strict=True):
        found[axis % len(shape)] = (slice(start, None, step).indices(shape[axis % len(shape)])[0], step)
    return found


def _read_slice(move: _Move) -> Expr:
    rows = zip(move.index, _slices(move.operator, move.workload), strict=True)
    return move.reads[0](tuple(position * step + start for position, (start, step) in rows))


def _read_split(move: _Move) -> Expr:
    axis = _axis(move.operator, len(move.index))
    extent = move.source[axis]
    equal = (ceil(extent / len(move.operator.outputs)),) * len(move.operator.outputs)
    sizes = _integers(move.operator, move.workload, 1, "split") or equal
    return move.reads[0](_replace(move.index, axis, move.index[axis] + sum(sizes[: move.output])))


def _read_concat(move: _Move) -> Expr:
    axis = _axis(move.operator, len(move.index))
    sizes = [_shape(move.workload, value)[axis] for value in move.operator.inputs]

    def pick(place: int, position: Expr) -> Expr:
        here = _replace(move.index, axis, position)
        if place == len(sizes) - 1:
            return move.reads[place](here)
        inside = position < sizes[place]
        if isinstance(inside, bool):
            return move.reads[place](here) if inside else pick(place + 1, position - sizes[place])
        return tirx.if_then_else(inside, move.reads[place](here), pick(place + 1, position - sizes[place]))

    return pick(0, move.index[axis])


def looked_up(position: Expr, extent: int, bind: Bind) -> Expr:
    """A stored index as a position: negative ones count from the end; cut to the bounds, so that no read escapes."""
    if isinstance(position, tirx.IntImm):
        return int(position.value) % extent
    position = bind(tirx.Cast("int32", position))
    wrapped = tirx.Select(position < 0, position + extent, position)
    return bind(_within(wrapped, extent))


def _read_gather(move: _Move) -> Expr:
    shape = move.source
    axis = _axis(move.operator, len(shape))
    rank = len(_shape(move.workload, move.operator.inputs[1]))
    position = looked_up(move.reads[1](move.index[axis : axis + rank]), shape[axis], move.bind)
    return move.reads[0]((*move.index[:axis], position, *move.index[axis + rank :]))


def _read_gather_elements(move: _Move) -> Expr:
    shape = move.source
    axis = _axis(move.operator, len(shape))
    return move.reads[0](_replace(move.index, axis, looked_up(move.reads[1](move.index), shape[axis], move.bind)))


def _pads(operator: WorkloadOperator, workload: Workload) -> list[tuple[int, int]]:
    """(before, after) of each axis; negative ones crop."""
    rank = len(_shape(workload, operator.inputs[0]))
    pads = _integers(operator, workload, 1, "pads") or ()
    axes = _integers(operator, workload, 3, "axes") or tuple(range(rank))
    found = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        found[axis % rank] = (pads[place], pads[place + len(axes)])
    return found


def _read_pad(move: _Move) -> Expr:
    shape = move.source
    pads = _pads(move.operator, move.workload)
    source = tuple(position - before for position, (before, _) in zip(move.index, pads, strict=True))
    mode = _text(move.operator, "mode", "constant")
    if mode != "constant":
        rows = zip(source, shape, pads, strict=True)
        return move.reads[0](tuple(p if pad == (0, 0) else _fold(p, extent, mode) for p, extent, pad in rows))
    inside: Expr = True
    for position, extent, (before, after) in zip(source, shape, pads, strict=True):
        if before > 0:
            inside = _both(inside, position >= 0)
        if after > 0:
            inside = _both(inside, position < extent)
    value = _pad_value(move.reads, move.operator, move.workload)
    if isinstance(inside, bool):
        return move.reads[0](source) if inside else value
    return tirx.if_then_else(inside, move.reads[0](source), value)


def _both(a: Expr, b: Expr) -> Expr:
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return tirx.And(a, b)


def _fold(position: Expr, extent: int, mode: str) -> Expr:
    """A position beyond the ends, brought back as `mode` says."""
    if mode == "edge":
        return _within(position, extent)
    if mode == "wrap":
        return position % extent
    if extent == 1:
        return 0
    around = position % (2 * extent - 2)
    back = 2 * extent - 2 - around
    return min(around, back) if isinstance(around, int) else tirx.min(around, back)


def _pad_value(reads: Sequence[Read], operator: WorkloadOperator, workload: Workload) -> Expr:
    if len(operator.inputs) > 2 and operator.inputs[2] >= 0:
        return reads[2]((0,) * len(_shape(workload, operator.inputs[2])))
    value = operator.attribute("value", 0.0)
    dtype = workload.values[operator.inputs[0]].dtype
    return tirx.const(bool(value) if dtype == "bool" else value, dtype)


def _text(operator: WorkloadOperator, name: str, default: str) -> str:
    value = operator.attribute(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _shuffle(operator: WorkloadOperator, workload: Workload) -> tuple[int, int, bool]:
    """(block, channels of the spatial side, whether channels are outermost)."""
    block = operator.attribute("blocksize")
    assert isinstance(block, int)
    spatial = operator.outputs[0] if operator.op_type == "DepthToSpace" else operator.inputs[0]
    return block, _shape(workload, spatial)[1], _text(operator, "mode", "DCR") == "CRD"


def _read_resize(move: _Move) -> Expr:
    samplers = resize.samplers(move.operator, move.workload)
    assert not isinstance(samplers, str), samplers  # `supported` refused it
    dtype = move.workload.values[move.operator.inputs[0]].dtype

    def interpolate(axis: int, found: Index) -> Expr:
        if axis == len(move.index):
            return move.reads[0](found)
        total: Expr | None = None
        for place, weight in samplers[axis].mixed(move.index[axis], dtype, move.bind):
            part = interpolate(axis + 1, (*found, place))
            part = part if weight is None else part * weight
            total = part if total is None else total + part
        return total

    return interpolate(0, ())


def _definition(rule: Callable[[_Move], Expr]) -> ReadFunction:
    def read(
        reads: Sequence[Read], operator: WorkloadOperator, workload: Workload, index: Index, output: int, bind: Bind
    ) -> Expr:
        return rule(_Move(reads, operator, workload, index, output, bind))

    return read


_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
_RULES: dict[str, Callable[[_Move], Expr]] = {
    **dict.fromkeys(_VIEWS, _read_view),
    "Transpose": _read_transpose,
    "Expand": _read_expand,
    "Tile": _read_tile,
    "Slice": _read_slice,
    "Split": _read_split,
    "Concat": _read_concat,
    "Gather": _read_gather,
    "GatherElements": _read_gather_elements,
    "Pad": _read_pad,
    "DepthToSpace": lambda move: move.reads[0](rearrange.to_depth(move.index, *_shuffle(move.operator, move.workload))),
    "SpaceToDepth": lambda move: move.reads[0](rearrange.to_space(move.index, *_shuffle(move.operator, move.workload))),
    "Resize": _read_resize,
    "Upsample": _read_resize,
}
READ: Mapping[str, ReadFunction] = {name: _definition(rule) for name, rule in _RULES.items()}
FORWARD: Mapping[str, ForwardFunction] = {
    **dict.fromkeys(_VIEWS, _forward_view),
    "Transpose": lambda operator, _, index: tuple(index[axis] for axis in _permutation(operator, len(index))),
    "DepthToSpace": lambda operator, workload, index: rearrange.to_space(index, *_shuffle(operator, workload)),
    "SpaceToDepth": lambda operator, workload, index: rearrange.to_depth(index, *_shuffle(operator, workload)),
}
# Inputs whose values shape the code.
_LITERALS = {"Slice": (1, 3, 4), "Split": (1,), "Pad": (1, 3)}


def supported(operator: WorkloadOperator, workload: Workload) -> str | None:
    """Why this application has no index function; None when it has one."""
    kind = operator.op_type
    if kind not in READ:
        return f"{kind}: no index function"
    if operator.domain not in ("", "ai.onnx"):
        return f"{kind}: unknown domain {operator.domain!r}"
    data = workload.values[operator.inputs[0]]
    if data.dtype not in ELEMENT_TYPES:
        return f"{kind}: element type {data.dtype} (known: {', '.join(sorted(ELEMENT_TYPES))})"
    moved = operator.inputs if kind == "Concat" else operator.inputs[:1]
    present = [workload.values[value] for value in (*moved, *operator.outputs) if value >= 0]
    if any(0 in value.shape for value in present):
        return f"{kind}: an empty tensor"
    for place in _LITERALS.get(kind, ()):
        if place < len(operator.inputs) and operator.inputs[place] >= 0:
            value = workload.values[operator.inputs[place]]
            if value.kind != "literal":
                return f"{kind}: input {place} is not known when compiling"
    if kind == "Pad" and _text(operator, "mode", "constant") not in ("constant", "edge", "reflect", "wrap"):
        return f"Pad: mode = {_text(operator, 'mode', 'constant')!r} (known: constant, edge, reflect, wrap)"
    if kind in ("Resize", "Upsample"):
        found = resize.samplers(operator, workload)
        return found if isinstance(found, str) else None
    return None
