"""Whether iterations that different threads run write to the same place of a kernel's working memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm_ffi import WalkResult, structural_walk


def check_races(function: Any) -> None:
    """AssertionError where a parallel loop of a TIR function writes to memory that is made outside of it, at an index
    that is the same in all of its iterations.

    Registers made there are one array in memory: the kernel is right with one thread, and by chance with more.
    """
    made = [one.buffer for one in _inside(function.body, tirx.AllocBuffer)]
    for loop in _inside(function.body, tirx.For):
        alone = isinstance(loop.extent, tirx.IntImm) and loop.extent.value == 1
        if loop.kind != tirx.ForKind.PARALLEL or alone:
            continue
        own = [one.buffer for one in _inside(loop.body, tirx.AllocBuffer)]
        shared = [buffer for buffer in made if not _is_among(buffer, own)]
        if shared and _writes_alike(loop, shared):
            raise AssertionError(f"threads write to the same working memory: {loop}")


def _writes_alike(loop: Any, shared: Sequence[Any]) -> bool:
    """Whether a loop writes to one of these buffers where nothing depends on which iteration it is: neither the index,
    nor that just one of them comes there."""
    own, found = [loop.loop_var], list[Any]()

    def bound(statement: Any) -> None:
        if _reads(statement.value, own):
            own.append(statement.var)

    def alone(branch: Any) -> Any:
        return WalkResult.SKIP if isinstance(branch.condition, tirx.EQ) and _reads(branch.condition, own) else None

    def stored(store: Any) -> None:
        if _is_among(store.buffer, shared) and not any(_reads(index, own) for index in store.indices):
            found.append(store)

    visitors = [(tirx.Bind, bound), (tirx.IfThenElse, alone), (tirx.BufferStore, stored)]
    structural_walk(loop.body, visitors, order="pre")
    return bool(found)


def _reads(expression: Any, variables: Sequence[Any]) -> bool:
    return any(_is_among(variable, variables) for variable in _inside(expression, tirx.Var))


def _is_among(one: Any, others: Sequence[Any]) -> bool:
    return any(one.same_as(other) for other in others)


def _inside(root: Any, *kinds: Any) -> list[Any]:
    """All that is of these kinds, in the order of the code."""
    found: list[Any] = []
    structural_walk(root, (kinds, found.append), order="pre")
    return found
