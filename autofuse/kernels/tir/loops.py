"""The loops of a TIR function: how many are vectors, whether threads share one and keep to memory of their own there,
whether they go over images of open sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from autofuse.errors import InputError

OF_IMAGES = "autofuse.of_images"
"""The attribute of functions over images whose extents and strides are known when they run."""
_QUOTIENT, _REMAINDER = "quotient", "remainder"
_NOTHING = frozenset[str]()
_INDICES = ("int32", "int64")
_CHANGES = frozenset({"changes"})
"""Of what changes within an iteration, or while others run."""
_ALL = frozenset({_QUOTIENT, _REMAINDER})
"""What an index tells of the number of an iteration: where it has both, another iteration has another index."""


def vector_loops(function: Any) -> int:
    """How many loops of a TIR function are vectors."""
    from tvm import tirx
    from tvm_ffi import structural_walk

    found: list[bool] = []
    structural_walk(function.body, (tirx.For, lambda loop: found.append(loop.kind == tirx.ForKind.VECTORIZED)))
    return sum(found)


def is_parallel(function: Any) -> bool:
    """Whether a TIR function shares its work among threads."""
    from tvm import tirx
    from tvm_ffi import VisitInterrupt, structural_walk

    def found(loop: Any) -> Any:
        return VisitInterrupt() if loop.kind == tirx.ForKind.PARALLEL else None

    return structural_walk(function.body, (tirx.For, found), order="pre") is not None


def check_threads(function: Any) -> None:
    """InputError where iterations of a parallel loop of a TIR function write to the same place of memory.

    Such a kernel is right with one thread, and with more of them by chance: working memory that is made outside of the
    loop is one array in memory, even where it is meant as registers. Found are writes to memory made outside of the
    loop, at an index that says nothing of the iteration, or no more than the quotient or the remainder of its number.
    """
    from tvm import tirx
    from tvm_ffi import structural_walk

    loops: list[Any] = []
    structural_walk(function.body, (tirx.For, loops.append), order="pre")
    for loop in loops:
        if loop.kind == tirx.ForKind.PARALLEL and not (isinstance(loop.extent, tirx.IntImm) and loop.extent.value == 1):
            found = _Iteration(loop).shared(loop.body)
            found = found and _Iteration(loop, found).shared(loop.body)
            if found:
                place = str(found[0]).strip().splitlines()[-1]  # declarations of what it names stand before it
                raise InputError(f"threads would write to the same place of memory: {place}")


class _Iteration:
    """One iteration of a parallel loop: the memory that is its `own`, and what each variable `tells` of its number.

    `divided`: variables of which a quotient or a remainder is taken somewhere. `written`: how many statements write to
    a buffer of all, as `shared` found before, for a second look that takes longer: where all iterations write one and
    the same number to it, it does no harm. Variables go by their hash, which is their address: comparing two of them
    makes an expression, and takes most of the time.
    """

    def __init__(self, loop: Any, written: Sequence[Any] = ()) -> None:
        from tvm import tirx
        from tvm.tirx.analysis import undefined_vars
        from tvm_ffi import structural_walk

        self.loop = loop
        self._undefined, self._constant = undefined_vars, tirx.IntImm
        self.own, self.divided = set[int](), set[int]()
        self.tells = {hash(loop.loop_var): _ALL}

        def part(division: Any) -> None:
            self.divided.update(hash(one) for one in undefined_vars(division.a))

        structural_walk(loop.body, ((tirx.FloorDiv, tirx.FloorMod), part))
        self.written = Counter(hash(store.buffer) for store in written)
        self.tells |= dict.fromkeys(self.written, _CHANGES)

    def shared(self, body: Any, known: frozenset[str] = _NOTHING) -> list[Any]:
        """Statements that write where other iterations may write, too. `known`: what their place tells of the
        iteration."""
        from tvm import tirx
        from tvm_ffi import WalkResult, structural_walk

        found: list[Any] = []

        def branch(branch: Any) -> Any:
            """What is done where a number equals another, only iterations of that number do."""
            if not isinstance(branch.condition, tirx.EQ):
                return None
            found.extend(self.shared(branch.then_case, known | self._told(branch.condition)))
            if branch.else_case is not None:
                found.extend(self.shared(branch.else_case, known))
            return WalkResult.SKIP

        def store(store: Any) -> None:
            buffer = store.buffer
            if hash(buffer) not in self.own:
                told = known.union(*map(self._told, (*store.indices, buffer.elem_offset)))
                one = self.written[hash(buffer)] == 1 and not self._told(store.value)
                if not told >= _ALL and not one:
                    found.append(store)
            elif self.written or buffer.dtype in _INDICES:  # which may be read from there
                self._know(buffer, store.value)

        def named(bind: Any) -> None:
            if self.written or bind.var.ty.dtype in _INDICES:
                self._know(bind.var, bind.value)

        visitors = [
            (tirx.AllocBuffer, lambda made: self.own.add(hash(made.buffer))),
            (tirx.DeclBuffer, self._view),
            (tirx.Bind, named),
            (tirx.For, self._loop),
            (tirx.IfThenElse, branch),
            (tirx.BufferStore, store),
        ]
        structural_walk(body, visitors, order="pre")
        return found

    def _view(self, view: Any) -> None:
        """Memory stays what it is where it is seen otherwise."""
        from tvm import tirx
        from tvm_ffi import structural_walk

        sources = list[int]()
        structural_walk(view.data, (tirx.Var, lambda one: sources.append(hash(one))))
        if not self.own.isdisjoint(sources):
            self.own.add(hash(view.buffer))
        if any(source in self.written for source in sources):
            self.tells[hash(view.buffer)] = _CHANGES

    def _loop(self, inner: Any) -> None:
        self._know(inner.loop_var, inner.min)
        if self.written:
            self.tells[hash(inner.loop_var)] = self.tells.get(hash(inner.loop_var), _NOTHING) | _CHANGES

    def _know(self, variable: Any, value: Any) -> None:
        if told := self._told(value):
            self.tells[hash(variable)] = self.tells.get(hash(variable), _NOTHING) | told

    def _told(self, value: Any) -> frozenset[str]:
        """What a number tells of the iteration."""
        if isinstance(value, self._constant):
            return _NOTHING
        found, tells = _NOTHING, self.tells
        for one in self._undefined(value):
            if hash(one) in tells:
                if hash(one) in self.divided:
                    return self._told_by_parts(value)
                found = found | tells[hash(one)]
        return found

    def _is_whole(self, division: Any) -> bool:
        """Whether a number of iterations is divided by as many as there are, or more: the remainder is the number."""
        from tvm import tirx
        from tvm_ffi import structural_equal

        if not (isinstance(division, tirx.FloorMod) and division.a.same_as(self.loop.loop_var)):
            return False
        if isinstance(division.b, tirx.IntImm) and isinstance(self.loop.extent, tirx.IntImm):
            return bool(self.loop.extent.value <= division.b.value)
        return bool(structural_equal(division.b, self.loop.extent, map_free_vars=False))

    def _told_by_parts(self, value: Any) -> frozenset[str]:
        from tvm import tirx
        from tvm_ffi import WalkResult, structural_walk

        found = set[str]()

        def part(division: Any) -> Any:
            told = self._told(division.a)
            if told >= _ALL and not self._is_whole(division):
                told = frozenset({_QUOTIENT if isinstance(division, tirx.FloorDiv) else _REMAINDER})
            found.update(told)
            return WalkResult.SKIP

        def variable(one: Any) -> None:
            found.update(self.tells.get(hash(one), _NOTHING))

        structural_walk(value, [((tirx.FloorDiv, tirx.FloorMod), part), (tirx.Var, variable)], order="pre")
        return frozenset(found)
