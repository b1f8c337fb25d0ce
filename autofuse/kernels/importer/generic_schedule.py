"""A schedule for any function: injective blocks inlined, every nest parallel outside and vectorized inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from autofuse.device.target import Target

PARALLEL_ABOVE = 16384
"""Iterations of a nest below which waking other threads costs more than they save."""

RECOMPUTE_LIMIT = {"move": float("inf"), "cheap": 2.0, "costly": 1.0}
"""How many times over an inlined block may be computed, by what it does for each element."""

CHUNKS_A_CORE = 4
"""Parallel chunks a core, where one long loop has to be cut."""

_REDUCTION = 2
"""`iter_type` of a commutative reduction axis in TVM."""


def schedule_function(function: Any, target: Target) -> Any:
    """`function` scheduled as far as each step allows; what no step can handle stays as it is, and correct.

    A schedule that TVM's lowering refuses is dropped for the next simpler one.
    """
    from tvm import s_tir

    function = function.with_attr("global_symbol", "main")
    if not _has_root(function):
        return function.without_attr("global_symbol")
    nests = (_fast_nest, _parallel_nest)
    for tried in (nests, nests[1:], ()):
        schedule = s_tir.Schedule(function)
        if tried:
            schedule = _inline_all(schedule)
        for name in _block_names(schedule) if tried else ():
            schedule = _first_that_works(schedule, tried, name, target)
        scheduled = schedule.mod["main"]
        if _lowers(scheduled, target):
            return scheduled.without_attr("global_symbol")
    return function.without_attr("global_symbol")


def _has_root(function: Any) -> bool:
    """Whether the body is a block "root" of loop nests: all that schedule primitives can work on."""
    return getattr(getattr(function.body, "block", None), "name_hint", "") == "root"


def _lowers(function: Any, target: Target) -> bool:
    """Whether TVM's lowering accepts the function (no machine code is made)."""
    import tvm
    from tvm.s_tir import pipeline

    described = tvm.target.Target({"kind": "llvm", "mcpu": target.mcpu}, host={"kind": "llvm", "mcpu": target.mcpu})
    lower = pipeline.default_s_tir_pipeline()[0]
    try:
        with described:
            lower(tvm.tirx.transform.BindTarget(described)(tvm.IRModule({"main": function})))
    except Exception:  # noqa: BLE001  # whatever the failure, it means "not like this": the caller tries a simpler one
        return False
    return True


def _first_that_works(schedule: Any, steps: tuple[Callable[..., None], ...], name: str, target: Target) -> Any:
    for step in steps:
        trial = _attempt(schedule, partial(step, name=name, target=target))
        if trial is not schedule:
            return trial
    return schedule


def _attempt(schedule: Any, step: Callable[[Any], None]) -> Any:
    """The schedule after `step`, or the very same schedule when TVM refuses the step half-way."""
    from tvm.error import InternalError
    from tvm.s_tir import ScheduleError

    trial = schedule.copy()
    try:
        step(trial)
    except (ScheduleError, InternalError, RuntimeError, ValueError, LookupError):
        return schedule
    return trial


def _inline(schedule: Any, name: str) -> None:
    schedule.compute_inline(_block(schedule, name))


def _inline_all(schedule: Any) -> Any:
    """Injective blocks move into their consumers, except where that would repeat arithmetic too often."""
    for name in _block_names(schedule):
        if _worth_inlining(schedule, name):
            schedule = _attempt(schedule, partial(_inline, name=name))
    return schedule


def _worth_inlining(schedule: Any, name: str) -> bool:
    block = _block(schedule, name)
    consumers = schedule.get_consumers(block)
    if schedule.get(block).init is not None or not consumers:
        return False
    own = _volume(schedule, schedule.get_loops(block))
    uses = sum(_volume(schedule, schedule.get_loops(consumer)) for consumer in consumers)
    return uses <= own * RECOMPUTE_LIMIT[_work(schedule.get(block))]


def _work(block: Any) -> str:
    """ "move" (loads, padding, casts), "cheap" (arithmetic) or "costly" (a function such as exp) for each element."""
    from tvm import tirx
    from tvm.ir import Call
    from tvm_ffi import structural_walk

    if not isinstance(block.body, tirx.BufferStore):
        return "costly"
    if _moves(block.body.value):
        return "move"
    functions: list[str] = []

    def note(call: Any) -> None:
        functions.append(str(getattr(call.op, "name", "")))

    structural_walk(block.body.value, (Call, note))
    return "costly" if set(functions) - {"tirx.if_then_else"} else "cheap"


def _moves(value: Any) -> bool:
    from tvm import tirx
    from tvm.ir import TensorLoad

    if isinstance(value, TensorLoad | tirx.IntImm | tirx.FloatImm):
        return True
    if isinstance(value, tirx.Cast):
        return _moves(value.value)
    if getattr(getattr(value, "op", None), "name", "") == "tirx.if_then_else":
        return all(_moves(branch) for branch in value.args[1:])
    if isinstance(value, tirx.Select):
        return _moves(value.true_value) and _moves(value.false_value)
    return False


def _fast_nest(schedule: Any, name: str, target: Target) -> None:
    """Parallel and vectorized: over the innermost spatial loop, or lane by lane along a reduction."""
    block = _block(schedule, name)
    spatial, reduce = _loops(schedule, block)
    if not spatial and not reduce:
        return
    if reduce and (not spatial or _walks_rows(schedule, block, spatial, reduce[-1])):
        _row_reduction(schedule, block, spatial, reduce, target)
    elif reduce:
        _column_reduction(schedule, block, spatial, reduce, target)
    else:
        _map_nest(schedule, spatial, target)


def _parallel_nest(schedule: Any, name: str, target: Target) -> None:
    """Parallel only, whatever the target."""
    del target
    spatial, reduce = _loops(schedule, _block(schedule, name))
    if spatial and _volume(schedule, spatial + reduce) >= PARALLEL_ABOVE:
        schedule.reorder(*spatial, *reduce)
        schedule.parallel(_fused(schedule, spatial))


def _map_nest(schedule: Any, spatial: list[Any], target: Target) -> None:
    """No reduction: the innermost loop as vectors, the rest parallel; short rows are joined first."""
    wide = _volume(schedule, spatial) >= PARALLEL_ABOVE
    outer, inner = spatial[:-1], spatial[-1]
    while outer and _extent(schedule, inner) % target.lanes:
        inner = schedule.fuse(outer.pop(), inner)
    chunks, vector = schedule.split(inner, [None, _vector_width(_extent(schedule, inner), target)])
    schedule.vectorize(vector)
    if not wide:
        return
    if not outer or _volume(schedule, outer) < target.cores:
        count = _extent(schedule, chunks)
        chunks, _ = schedule.split(chunks, [None, _divisor(count, max(1, count // (CHUNKS_A_CORE * target.cores)))])
        outer.append(chunks)
    schedule.parallel(_fused(schedule, outer))


def _column_reduction(schedule: Any, block: Any, spatial: list[Any], reduce: list[Any], target: Target) -> None:
    """A reduction whose results lie side by side: a vector of results at a time."""
    wide = _volume(schedule, spatial + reduce) >= PARALLEL_ABOVE
    outer = spatial[:-1]
    chunks, vector = schedule.split(spatial[-1], [None, _vector_width(_extent(schedule, spatial[-1]), target)])
    outer.append(chunks)
    schedule.reorder(*outer, *reduce, vector)
    schedule.vectorize(vector)
    if wide:
        schedule.parallel(_fused(schedule, outer))
    schedule.decompose_reduction(block, reduce[0])


def _row_reduction(schedule: Any, block: Any, spatial: list[Any], reduce: list[Any], target: Target) -> None:
    """A reduction along contiguous data: one partial result a lane, joined at the end of each row."""
    wide = _volume(schedule, spatial + reduce) >= PARALLEL_ABOVE
    width = _divisor(_extent(schedule, reduce[-1]), target.lanes)
    if width < 2:  # rfactor of a loop that was split with a remainder loses the bound, and reads past the end
        _parallel_nest(schedule, str(schedule.get(block).name_hint), target)
        return
    schedule.reorder(*spatial, *reduce)
    row = _fused(schedule, spatial) if spatial else None
    _, lane = schedule.split(reduce[-1], [None, width])
    partial = schedule.rfactor(lane, len(schedule.get(block).writes[0].region))
    if row is not None:
        row = schedule.get_loops(block)[0]
        if wide:
            schedule.parallel(row)
        schedule.compute_at(partial, row, preserve_unit_loops=True)
    lanes, steps = _loops(schedule, partial)
    vector = next(loop for loop in reversed(lanes) if _extent(schedule, loop) == width)
    schedule.reorder(*steps, vector)
    schedule.vectorize(vector)
    schedule.decompose_reduction(partial, steps[0])


def _vector_width(extent: int, target: Target) -> int:
    """Elements of the vector loop cut from a loop of `extent`."""
    if extent <= target.lanes:
        return extent
    return _divisor(extent, target.lanes) if _divisor(extent, target.lanes) * 2 >= target.lanes else target.lanes


def _divisor(extent: int, limit: int) -> int:
    """The greatest divisor of `extent` that is not above `limit`."""
    return next(number for number in range(min(limit, extent), 0, -1) if extent % number == 0)


def _fused(schedule: Any, loops: list[Any]) -> Any:
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]


def _walks_rows(schedule: Any, block: Any, spatial: list[Any], step: Any) -> bool:
    """Whether the reduction loop `step` runs along the last axis of what it reads, and no spatial loop does."""
    from tvm.ir import Var
    from tvm_ffi import structural_walk

    read = schedule.get(block)
    values = schedule.get(schedule.get_loops(block)[-1]).body.iter_values
    axis_of = {}
    for axis, value in zip(read.iter_vars, values, strict=True):
        for loop in (step, *spatial[-1:]):
            if value.same_as(schedule.get(loop).loop_var):
                axis_of[axis.var] = loop
    found: set[bool] = set()
    for access in read.reads:
        walked: list[list[Any]] = []
        for part in access.region:
            seen: list[Any] = []
            structural_walk(part.min, (Var, lambda variable, seen=seen: seen.append(axis_of.get(variable))))
            walked.append([loop for loop in seen if loop is not None])
        if any(step in loops for loops in walked):
            found |= {loop is step for loop in walked[-1]}
    return found == {True}


def _loops(schedule: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """(spatial, reduction) loops around a block; ValueError where one loop serves both."""
    from tvm.ir import Var
    from tvm_ffi import structural_walk

    loops = schedule.get_loops(block)
    if not loops:
        return [], []
    realise = schedule.get(loops[-1]).body
    if not hasattr(realise, "iter_values"):
        raise ValueError("several statements in the innermost loop")
    kinds: dict[int, set[bool]] = {index: set() for index in range(len(loops))}
    for axis, value in zip(schedule.get(block).iter_vars, realise.iter_values, strict=True):
        reducing = int(axis.iter_type) == _REDUCTION

        def note(node: Any, reducing: bool = reducing) -> None:
            for index, loop in enumerate(loops):
                if node.same_as(schedule.get(loop).loop_var):
                    kinds[index].add(reducing)

        structural_walk(value, (Var, note))
    if any(len(kind) > 1 for kind in kinds.values()):
        raise ValueError("a loop is both spatial and reduction")
    reduce = [loop for index, loop in enumerate(loops) if kinds[index] == {True}]
    return [loop for index, loop in enumerate(loops) if kinds[index] != {True}], reduce


def _extent(schedule: Any, loop: Any) -> int:
    return int(schedule.get(loop).extent)


def _volume(schedule: Any, loops: list[Any]) -> int:
    return prod(_extent(schedule, loop) for loop in loops)


def _block(schedule: Any, name: str) -> Any:
    return schedule.get_sblock(name, "main")


def _block_names(schedule: Any) -> list[str]:
    """Names of the leaf blocks, in order."""
    root = schedule.get_sblock("root", "main")
    return [str(schedule.get(block).name_hint) for block in schedule.get_child_blocks(root)]
