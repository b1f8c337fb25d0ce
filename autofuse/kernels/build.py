"""Builds the kernel of a workload: cuts it into nests and emits each by its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm.script.ir_builder.tirx as builder
from numpy.typing import NDArray
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.kernels.families.protocol import Joined, Schedule, vector_lanes
from autofuse.kernels.families.registry import family_of, is_own, nests_of, units_of
from autofuse.kernels.importer.fallback import fallback_function
from autofuse.kernels.nest.evaluate import Pack, Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.tir.emit import Array, Emitter
from autofuse.kernels.tir.loops import check_threads
from autofuse.kernels.workload.workload import Value, Workload

FUNCTION_ATTRIBUTES = {"tirx.noalias": True, "tirx.is_scheduled": True}
"""What TVM is told of every function that our families emit."""


@dataclass(frozen=True)
class Kernel:
    """One TIR function: arguments are inputs (physical layout), packed constants, outputs.

    `pack`: the constants of the workload, in its order -> the packed constant arguments (any shape).
    """

    function: Any
    pack: Callable[[Sequence[NDArray[np.generic]]], list[NDArray[np.generic]]]


def build_kernel(workload: Workload, schedule: Schedule, target: Target) -> Kernel:
    """The kernel of `workload` under `schedule`; a knob that it lacks takes its first declared value.

    InputError when a block does not divide the channels of its tensor, or threads would write to the same place.
    """
    check_layouts(workload)
    if not is_own(workload):
        function, pack = fallback_function(workload, target)
        return Kernel(function, pack)
    return _Builder(workload, schedule, target).build()


def check_layouts(workload: Workload) -> None:
    """InputError when a block does not divide the channels of its tensor, or bfloat16 shall hold other than float32."""
    for value in workload.values:
        if value.is_half and value.dtype != "float32":
            raise InputError(f"layout {value.layout!r} does not fit a tensor of {value.dtype}")
        if value.block and (len(value.shape) < 2 or value.shape[1] % value.block):
            raise InputError(f"layout {value.layout!r} does not fit a tensor of shape {value.shape}")


class Constants:
    """The packed constants of a function: arguments that are met while its body is emitted.

    `packs`: what makes each of them.
    """

    def __init__(self) -> None:
        self.packs: list[Pack] = []
        self.parameters: list[Any] = []
        self._known: dict[str, Array] = {}

    def declare(self, name: str, pack: Pack, shape: tuple[int, ...], dtype: str) -> Array:
        """A packed constant, one-dimensional, by its name in the function."""
        if name not in self._known:
            buffer = tirx.decl_buffer((prod(shape),), dtype, name=name, data_alignment=64)
            self.packs.append(pack)
            self.parameters.append(buffer)
            self._known[name] = Array(buffer, shape, dtype)
        found = self._known[name]
        assert (found.shape, found.dtype) == (shape, dtype), f"two packings are called {name}"
        return found

    def packed(self, constants: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        """The arguments, from the constants of the workload."""
        return [np.ascontiguousarray(pack(constants)).reshape(-1) for pack in self.packs]


class _Builder:
    def __init__(self, workload: Workload, schedule: Schedule, target: Target) -> None:
        self.workload = workload
        self.schedule = schedule
        self.target = target
        self.constants = Constants()
        self.parameters: dict[str, list[Any]] = {"input": [], "output": []}

    def build(self) -> Kernel:
        with IRBuilder() as ib, builder.prim_func(s_tir=True):
            builder.func_name("main")
            builder.func_attr(FUNCTION_ATTRIBUTES)
            emit_body(self.workload, self.schedule, self.target, self._arguments(), self.constants.declare)
        inputs, outputs = self.parameters["input"], self.parameters["output"]
        return Kernel(complete(ib.get(), inputs, self.constants.parameters, outputs), self.constants.packed)

    def _arguments(self) -> dict[int, Array]:
        """Inputs and outputs, each seen through a flat view (all arguments first: the builder wants it so)."""
        buffers = {}
        for kind in ("input", "output"):
            for index in self.workload.of_kind(kind):
                value = self.workload.values[index]
                stored = builder.buffer(value.physical_shape, value.stored_dtype, align=64)
                buffer = builder.arg(f"{kind}{index}", stored)
                self.parameters[kind].append(buffer)
                buffers[index] = (buffer, value)
        arrays = {}
        for index, (buffer, value) in buffers.items():
            flat = builder.decl_buffer((prod(value.shape),), value.stored_dtype, data=buffer.data, align=64)
            arrays[index] = Array(flat, value.shape, value.dtype, value.block)
        return arrays


def emit_body(
    workload: Workload,
    schedule: Schedule,
    target: Target,
    arrays: dict[int, Array],
    declare: Callable[[str, Pack, tuple[int, ...], str], Array],
    alone: bool = False,
) -> None:
    """Emits all nests of a workload into the function that is being built.

    `arrays`: where its inputs and outputs lie. `declare`: gives the array of a packed constant, see `Constants`.
    `alone`: no loop of theirs is spread over the threads.
    """
    nests = nests_of(workload)
    emitter = Emitter(target, vector_lanes(workload, target), alone)
    scope = Scope(workload, emitter, arrays, declare)
    done = 0
    for unit in units_of(workload, nests, schedule):
        parts = unit.nests if isinstance(unit, Joined) else (unit,)
        _allocate(scope, parts[-1])
        family_of(workload, unit).emit(scope, unit, schedule)
        done += len(parts)
        later = {value for other in nests[done:] for value in other.stores}
        scope.ready |= set(parts[-1].stores) - later


def complete(function: Any, inputs: Sequence[Any], constants: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """The function with its constants, which were met while its body was emitted, between inputs and outputs.

    InputError where its threads would write to the same place of memory.
    """
    check_threads(function)
    return tirx.PrimFunc([*inputs, *constants, *outputs], function.body, function.ret_type, function.attrs)


def _allocate(scope: Scope, nest: Nest) -> None:
    """Memory for what a nest writes for later nests."""
    for value in nest.stores:
        if value not in scope.arrays:
            spec = scope.workload.values[value]
            block = _inner_block(scope.workload, spec)
            scratch = scope.emitter.scratch(prod(spec.shape), spec.dtype)
            scope.arrays[value] = Array(scratch, spec.shape, spec.dtype, block)


def _inner_block(workload: Workload, spec: Value) -> int:
    """Channel block of a tensor that never leaves the kernel: that of the workload's other feature maps."""
    blocks = {v.block for v in workload.values if v.block and len(v.shape) == len(spec.shape)}
    block = max(blocks, default=0)
    return block if block and len(spec.shape) > 2 and spec.shape[1] % block == 0 else 0
