"""Several TIR functions as one: their bodies in sequence, what they exchange in buffers of the new function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Call:
    """A function and the buffers that stand for its parameters, in order."""

    function: Any
    buffers: tuple[Any, ...]


def chain(calls: Sequence[Call], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """The function of `inputs` then `outputs` that runs `calls` in order.

    Every other buffer of the calls is allocated inside. Unlike FuseTIR this takes any body as it is,
    such as blocks that hide loops or call into TVM's runtime (scatter, sort).
    """
    from tvm import s_tir, tirx

    outside = [*inputs, *outputs]
    inner: list[Any] = []
    for buffer in (buffer for call in calls for buffer in call.buffers):
        if not any(buffer.same_as(known) for known in (*outside, *inner)):
            inner.append(buffer)
    body = tirx.SeqStmt([_bound(call, number) for number, call in enumerate(calls)])
    root = s_tir.SBlock([], [], [], "chain", body, alloc_buffers=inner)
    function = tirx.PrimFunc(outside, s_tir.SBlockRealize([], True, root))
    return function.with_attrs({"tirx.noalias": True, "s_tir": True})


def _bound(call: Call, number: int) -> Any:
    """The body of the call's function over the call's buffers, with definitions and block names of its own."""
    import tvm
    from tvm import s_tir, tirx
    from tvm_ffi import structural_map

    function = tvm.get_global_func("s_tir.RenewDefs")(call.function)
    replaced: dict[Any, Any] = {}
    for parameter, buffer in zip(function.params, call.buffers, strict=True):
        replaced[parameter] = buffer
        if isinstance(parameter.elem_offset, tvm.ir.Var):
            replaced[parameter.elem_offset] = tirx.IntImm(str(parameter.elem_offset.ty.dtype), 0)

    def rename(block: Any) -> Any:
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            f"{block.name_hint}_{number}",
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    return structural_map(
        function.body, [(tvm.ir.Var, lambda variable: replaced.get(variable, variable)), (s_tir.SBlock, rename)]
    )
