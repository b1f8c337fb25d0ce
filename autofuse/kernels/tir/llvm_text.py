"""Functions of LLVM's text beside a kernel, for what TVM has no types or no intrinsics for.

One of them every kernel for x86 has: results too small for a normal number are 0. A sum, a product or a quotient below
2^-126 is a denormal, which Intel's cores compute in microcode, a hundred times as long: a network whose gates close (a
sigmoid of -80 times an activation) took 1.4 times as long for it (EfficientNet-B0, Emerald Rapids).
`autofuse.kernels.tir.math` rounds such results to 0 anyway. Numbers that come in as denormals are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_HIDDEN = "autofuse_hidden"
_HIDING = f"""\
define linkonce_odr i32 @{_HIDDEN}(i32 %known) alwaysinline nounwind {{
  %unknown = call i32 asm "", "=r,0"(i32 %known)
  ret i32 %unknown
}}
"""
MANY_NAMES = 9
"""Names in the body of a loop from which on its count is hidden: two functions one after the other have 11 at most."""
CLAMPS = 3
"""Numbers that are bounded from below there, from which on it is: each function bounds what it is of."""
FLUSHES = 1
"""The version of what is done here: machine code of another one is not this one's."""
_FLUSH, _RESTORE = "autofuse_flush", "autofuse_restore"
_TEXT = f"""\
define linkonce_odr i32 @{_FLUSH}() alwaysinline nounwind {{
  %was = alloca i32, align 4
  %now = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %was)
  %before = load i32, ptr %was, align 4
  %flushing = or i32 %before, 32768
  store i32 %flushing, ptr %now, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %now)
  ret i32 %before
}}
define linkonce_odr void @{_RESTORE}(i32 %before) alwaysinline nounwind {{
  %was = alloca i32, align 4
  store i32 %before, ptr %was, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %was)
  ret void
}}
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
"""
"""Bit 15 of MXCSR: results below the normal numbers are 0 (Intel's Software Developer's Manual, volume 1, 10.2.3.3)."""


@contextmanager
def imported(text: str) -> Iterator[None]:
    """Code that may call functions of LLVM's text, which LLVM joins with the kernel."""
    import tvm.script.ir_builder.tirx as builder
    from tvm import tirx
    from tvm.ir import StringImm

    with builder.attr(tirx.IntImm("int32", 0), "pragma_import_llvm", StringImm(text)):
        yield


def flushing(function: Any) -> Any:
    """A TIR function for x86 that flushes results below 2^-126 to 0, and leaves the thread as it found it.

    Each task of a parallel loop does so on the thread that it runs on. A function that multiplies and divides no floats
    is left as it is.
    """
    from tvm import tirx
    from tvm.ir import StringImm
    from tvm_ffi import structural_map

    if not _computes(function.body):
        return function

    def shared(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        body = _flushed(loop.body)
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, loop.annotations, loop.step)

    body = structural_map(function.body, (tirx.For, shared))
    if _computes(function.body, outside=True):
        body = _flushed(body)
    return function.with_body(tirx.AttrStmt(tirx.IntImm("int32", 0), "pragma_import_llvm", StringImm(_TEXT), body))


def _flushed(body: Any) -> Any:
    from tvm import tirx

    before = tirx.Var("mxcsr", "int32")
    return tirx.SeqStmt(
        [
            tirx.Bind(before, tirx.call_extern("int32", _FLUSH)),
            body,
            tirx.Evaluate(tirx.call_extern("void", _RESTORE, before)),
        ]
    )


def _computes(body: Any, *, outside: bool = False) -> bool:
    """Whether statements multiply or divide floats, or call what may; `outside`: of parallel loops."""
    from tvm import tirx
    from tvm.ir import Call
    from tvm_ffi import VisitInterrupt, structural_map, structural_walk

    def small(value: Any) -> Any:
        return VisitInterrupt() if str(getattr(value.ty, "dtype", "")).startswith(("float", "bfloat")) else None

    if outside:
        idle = tirx.Evaluate(tirx.IntImm("int32", 0))
        parallel = (tirx.For, lambda loop: idle if loop.kind == tirx.ForKind.PARALLEL else loop)
        body = structural_map(body, parallel, order="pre")
    return structural_walk(body, ((tirx.Mul, tirx.Div, Call), small)) is not None


def hidden_counts(function: Any) -> Any:
    """A TIR function in which LLVM does not know the counts of innermost loops over long chains of functions.

    LLVM looks for checksums in loops of a known count, a multiple of 8 (`HashRecognize`, LLVM 21 and 22): it follows
    each number that is carried from step to step back along every path. A maximum of a chain of three functions
    took half a minute so, one of eight more than ten. The machine code of the steps is the same.
    """
    from tvm import tirx
    from tvm.ir import StringImm
    from tvm_ffi import structural_map

    def hidden(loop: Any) -> Any:
        if not _is_searched(loop):
            return loop
        count = tirx.Var("count", "int32")
        known = tirx.Bind(count, tirx.call_extern("int32", _HIDDEN, loop.extent))
        fields = loop.loop_var, loop.min, count, loop.kind, loop.body, None, loop.annotations, loop.step
        return tirx.SeqStmt([known, tirx.For(*fields)])

    body = structural_map(function.body, (tirx.For, hidden))
    if body.same_as(function.body):
        return function
    return function.with_body(tirx.AttrStmt(tirx.IntImm("int32", 0), "pragma_import_llvm", StringImm(_HIDING), body))


def _is_searched(loop: Any) -> bool:
    """Whether LLVM would look for a checksum in a loop for long."""
    from tvm import tirx
    from tvm_ffi import VisitInterrupt, structural_walk

    known = isinstance(loop.extent, tirx.IntImm) and loop.extent.value % 8 == 0
    if not known or loop.kind not in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED):
        return False
    names, clamps = list[Any](), list[Any]()

    def vectors(inner: Any) -> Any:
        return None if inner.kind == tirx.ForKind.VECTORIZED else VisitInterrupt()

    visitors = [(tirx.For, vectors), (tirx.Bind, names.append), (tirx.Max, clamps.append)]
    inner = structural_walk(loop.body, visitors)
    return inner is None and len(names) >= MANY_NAMES and len(clamps) >= CLAMPS
