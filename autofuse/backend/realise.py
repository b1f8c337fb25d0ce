"""A lowered plan and a schedule a workload to the library file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autofuse.backend.architecture import architecture_of
from autofuse.backend.assemble import Assembly, BoundKernel, Kernel, assemble
from autofuse.backend.compile_kernel import compile_program, tvm_target
from autofuse.backend.library import export, installed_versions
from autofuse.backend.metadata import InputSpec, KernelRow, Metadata, TensorSpec
from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.graph.inputs import index_ranges
from autofuse.graph.model import Graph
from autofuse.kernels.view import is_view

if TYPE_CHECKING:
    from autofuse.kernels.lower import Lowered
    from autofuse.kernels.workload import BoundWorkload

Schedule = Mapping[str, int | str]

_INDEXING = ("Gather", "GatherElements")
_X86_FEATURES = ("avx", "sse4.", "fma", "f16c", "bmi")
_ARM_FEATURES = ("neon", "fullfp16", "dotprod", "sve", "i8mm", "bf16")


def build_library(
    lowered: Lowered,
    schedules: Mapping[str, Schedule],
    target: Target,
    threads: int,
    output: Path,
    *,
    plan_key: str = "",
    tiers: Mapping[str, str] | None = None,
) -> None:
    """Build the kernels of `lowered`, one a group, and write the library to `output`.

    `schedules`, `tiers`: by workload key; `tiers` says where each schedule came from. InputError when a
    workload has no schedule or no kernel, DeviceError when the file cannot be linked or written.
    """
    built: dict[str, Kernel] = {}
    groups: list[BoundKernel] = []
    for bound in lowered.groups:
        key = bound.workload.key
        if is_view(bound.workload):
            groups.append((bound, None))
            continue
        if key not in schedules:
            raise InputError(f"no schedule is given for {bound.workload.label} ({key[:12]})")
        if key not in built:
            built[key] = _kernel(bound, schedules[key], target)
        groups.append((bound, built[key]))
    assembly = assemble(lowered.graph, groups)
    rows = [_row(symbol, groups[position], schedules, tiers or {}) for position, symbol in assembly.symbols]
    metadata = describe(lowered.graph, assembly, rows, target, threads, plan_key)
    export(compile_program(assembly.module, target), assembly.weights, metadata, output)


def _kernel(bound: BoundWorkload, schedule: Schedule, target: Target) -> Kernel:
    from autofuse.kernels.build import build_kernel

    try:
        return build_kernel(bound.workload, schedule, target)
    except Exception as error:  # a schedule or TVM may raise anything; the group must be named
        text = str(error).strip().splitlines() or [""]
        raise InputError(
            f"no kernel of {bound.workload.label} could be built with {dict(schedule)}: "
            f"{type(error).__name__}: {text[-1][:300]}; `autofuse tune` measures others"
        ) from error


def describe(
    graph: Graph, assembly: Assembly, rows: list[KernelRow], target: Target, threads: int, plan_key: str = ""
) -> Metadata:
    """The description of an assembled graph as a library for `target` and `threads` threads."""
    ranges, tables = index_ranges(graph), _tables(graph)
    inputs = []
    for name in graph.inputs:
        tensor, known = graph.tensors[name], ranges.get(name)
        example = None if known is None or np.dtype(tensor.dtype).kind not in "iu" else (max(known.low, 0), known.high)
        inputs.append(InputSpec(name, tensor.shape, tensor.dtype, tables.get(name), example))
    return Metadata(
        versions=installed_versions(),
        architecture=architecture_of(target),
        target=asdict(target),
        cpu_features=required_features(target),
        threads=threads,
        plan_key=plan_key,
        inputs=tuple(inputs),
        outputs=tuple(TensorSpec(name, graph.tensors[name].shape, graph.tensors[name].dtype) for name in graph.outputs),
        weights=tuple(
            TensorSpec(f"weight{number}", tuple(array.shape), str(array.dtype))
            for number, array in enumerate(assembly.weights)
        ),
        copied=assembly.copied,
        kernel_rows=tuple(rows),
    )


def required_features(target: Target) -> tuple[str, ...]:
    """Features, in LLVM's spelling, that code for `target` may use and that a machine may lack."""
    from tvm.target import codegen

    wanted = _ARM_FEATURES if architecture_of(target) == "aarch64" else _X86_FEATURES
    features = map(str, codegen.llvm_get_cpu_features(tvm_target(target)))
    return tuple(sorted(name for name in features if name.startswith(wanted)))


def _tables(graph: Graph) -> dict[str, int]:
    """Rows of the smallest table that each graph input indexes directly."""
    found: dict[str, int] = {}
    for operator in graph.operators:
        if operator.op_type in _INDEXING and operator.inputs[1] in graph.inputs:
            axis = operator.attributes.get("axis", 0)
            assert isinstance(axis, int)
            rows = graph.tensors[operator.inputs[0]].shape[axis]
            found[operator.inputs[1]] = min(rows, found.get(operator.inputs[1], rows))
    return found


def _row(symbol: str, group: BoundKernel, schedules: Mapping[str, Schedule], tiers: Mapping[str, str]) -> KernelRow:
    workload = group[0].workload
    return KernelRow(symbol, workload.label, workload.key, dict(schedules[workload.key]), tiers.get(workload.key, ""))
