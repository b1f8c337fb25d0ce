"""A function of TVM's importer, which knows no bfloat16, between arguments that hold such as their 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.kernels.importer.chain import Call, chain
from autofuse.kernels.tir.bfloat16 import number_of, stored
from autofuse.kernels.workload.workload import Value, Workload


def over_halves(function: Any, workload: Workload) -> Any:
    """`function`, whose first arguments are the workload's inputs, and its last ones the outputs, all in float32, over
    those that the workload stores in 16 bits."""
    from tvm import tirx

    inputs, outputs = ([workload.values[i] for i in workload.of_kind(kind)] for kind in ("input", "output"))
    if not any(value.is_half for value in (*inputs, *outputs)):
        return function
    inner = [tirx.decl_buffer(one.shape, str(one.dtype), f"wide{n}") for n, one in enumerate(function.params)]
    outer = list(inner)
    first = len(inner) - len(outputs)
    before, after = list[Call](), list[Call]()
    for place, value in (*enumerate(inputs), *enumerate(outputs, first)):
        if not value.is_half:
            continue
        outer[place] = tirx.decl_buffer(value.shape, value.stored_dtype, f"half{place}")
        if place < first:
            before.append(Call(_converted(value, value.stored_dtype, number_of), (outer[place], inner[place])))
        else:
            after.append(Call(_converted(value, value.dtype, stored), (inner[place], outer[place])))
    return chain([*before, Call(function, tuple(inner)), *after], outer[:first], outer[first:])


def _converted(value: Value, dtype: str, rule: Callable[[Any], Any]) -> Any:
    """The function that applies a rule to each element."""
    from tvm import te

    source = te.placeholder(value.shape, dtype)

    def element(*index: Any) -> Any:
        return rule(source[index])

    return te.create_prim_func([source, te.compute(value.shape, element)])
