"""Lowered plans and a schedule a workload to the library file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.assemble import (
    AssembledProgram,
    Assembly,
    BoundKernel,
    BuiltKernel,
    Made,
    assemble_all,
)
from autofuse.backend.compile.function import (
    NOTHING_KEPT,
    Kept,
    Translator,
    compile_kernels,
    compile_program,
    is_long,
    read_object,
    tvm_target,
)
from autofuse.backend.compile.objects import KeptSymbols, KernelObjects, Symbols
from autofuse.backend.compile.rest import Rest, with_rest
from autofuse.backend.container.container import write_container
from autofuse.backend.container.metadata import InputSpec, KernelRow, Metadata, Program, TensorSpec
from autofuse.backend.library.library import export, installed_versions, require_space
from autofuse.device.cpu_features import may_be_needed
from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.graph.inputs import index_ranges
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.stored_shapes import OpenImages, OpenRows
from autofuse.kernels.emission import Emission
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.link.architecture import architecture_of
from autofuse.values.scratch import scratch_folder

if TYPE_CHECKING:
    from autofuse.kernels.lowering.lower import Lowered
    from autofuse.kernels.workload.workload import BoundWorkload, Workload

Schedule = Mapping[str, int | str]
Progress = Callable[[str, int, int], None]
"""Called with a phase of building, and how many kernels of how many are done."""
Bounded = Callable[[Mapping[str, Any], Progress], tuple[dict[str, Any], dict[str, str]]]
"""Translates TIR functions within bounds, by symbol: their modules, and why there is none of the others."""
Write = Callable[[Mapping[str, Any], Assembly, Metadata, Path], None]
"""Writes a library of another form than the container's."""
GENERATING, TRANSLATING, WRITING = "generating kernels", "translating kernels to machine code", "writing the library"

_INDEXING = ("Gather", "GatherElements")


@dataclass(frozen=True, eq=False)
class Part:
    """One program to build: `schedules` and `tiers` by workload key; the tiers say where schedules came from.

    `sources`: what a tier leaves open, such as the workload of the nearest shape. `spare`: schedules to take instead
    of those that cannot be built.
    """

    lowered: Lowered
    schedules: Mapping[str, Schedule]
    plan_key: str = ""
    tiers: Mapping[str, str] = field(default_factory=dict)
    plan_tier: str = ""
    spare: Mapping[str, Schedule] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


def build_library(
    lowered: Lowered,
    schedules: Mapping[str, Schedule],
    target: Target,
    threads: int,
    output: Path,
    *,
    plan_key: str = "",
    tiers: Mapping[str, str] | None = None,
    objects: KernelObjects | None = None,
    kept: Kept = NOTHING_KEPT,
) -> None:
    """Write the library of one program; see `build_programs`."""
    part = Part(lowered, schedules, plan_key, tiers or {})
    build_programs([part], target, threads, output, objects=objects, kept=kept)


def build_programs(
    parts: Sequence[Part],
    target: Target,
    threads: int,
    output: Path,
    key: Path | None = None,
    progress: Progress | None = None,
    emission: Emission | None = None,
    jobs: int = 1,
    bounded: Bounded | None = None,
    objects: KernelObjects | None = None,
    rest: Rest | None = None,
    write: Write | None = None,
    kept: Kept = NOTHING_KEPT,
    ahead: Translator | None = None,
) -> frozenset[str]:
    """Build the kernels of each part, one a group, and write the library of all parts to `output`, signed with `key`.

    `emission`: kernels of this target that are emitted already, and those that will be. `jobs`: kernels that are
    translated at a time. `bounded`: translates those whose code is long; one that it gives up is built another way.
    `objects`: where kernels are that are translated already, and where others are kept; the library's symbols do not
    say then what its kernels compute. `rest`: what ONNX Runtime runs; then `parts` are the segments, of which there may
    be none. `write`: what writes the library instead, from the machine code of its kernels by symbol. `kept`: objects
    of kernels from earlier libraries. `ahead`: what translates, and may have begun.

    Keys of the workloads whose spare schedule was taken. InputError when a workload has no schedule or no kernel,
    DeviceError when the file cannot be linked or written.
    """
    symbols = Symbols() if objects is None else KeptSymbols(objects, kept)
    kernels, told = _Kernels(emission or Emission(target), symbols), progress or silent
    made, ready = _within_bounds(parts, kernels, told, bounded)
    assembly, of_rows = assembled_with(rest, made, kernels.symbols)
    programs = [
        describe_program(
            graph,
            assembled,
            [kernels.row(symbol, groups[position][0], part) for position, symbol in assembled.symbols],
            part.plan_key,
            part.plan_tier,
        )
        for part, (graph, groups), assembled in zip(parts, made, assembly.programs, strict=False)
    ]
    described = describe_library([*programs, *of_rows], assembly, target, threads)
    described = replace(described, origin=parts[0].lowered.graph.origin) if parts else described
    metadata, weights = with_rest(described, assembly.weights, rest)
    ready |= {symbol: read_object(path, symbol) for symbol, path in symbols.files.items()}
    write_assembled(assembly, metadata, target, output, key, told, jobs, write, kept, weights, ready, ahead)
    return frozenset(kernels.replaced)


def assembled_with(
    rest: Rest | None, made: Made, symbols: Symbols, opened: Sequence[OpenRows | OpenImages] = ()
) -> tuple[Assembly, list[Program]]:
    """The program of each graph of `made`, and behind these those of the segments of rows of `rest`, with their
    descriptions. `opened`: see `assemble_all`."""
    further = () if rest is None else rest.rows
    first: Sequence[OpenRows | OpenImages | None] = opened or [None] * len(made)
    rows = [*first, *(one.given for one in further)] if opened or further else []
    assembly = assemble_all([*made, *((one.graph, one.kernels) for one in further)], symbols, rows)
    programs = assembly.programs[len(made) :]
    return assembly, [one.described(program) for one, program in zip(further, programs, strict=True)]


def write_assembled(
    assembly: Assembly,
    metadata: Metadata,
    target: Target,
    output: Path,
    key: Path | None,
    told: Progress,
    jobs: int = 1,
    write: Write | None = None,
    kept: Kept = NOTHING_KEPT,
    weights: Sequence[NDArray[np.generic]] | None = None,
    ready: Mapping[str, Any] | None = None,
    ahead: Translator | None = None,
) -> None:
    """Translate what is not `ready`, and write the library; see `build_programs`. `weights`: other than the assembly's.

    DeviceError when the file cannot be linked or written.
    """
    require_space(output)
    translate = compile_program if write is None else compile_kernels
    made_of = translate(assembly.module, target, dict(ready or {}), partial(told, TRANSLATING), jobs, kept, ahead)
    told(WRITING, 0, 1)
    if write is None:
        export(made_of, assembly.weights if weights is None else weights, metadata, output, key)
    else:
        write(made_of, assembly, metadata, output)
    told(WRITING, 1, 1)


def silent(_phase: str, _done: int, _total: int) -> None:
    """A `Progress` that shows nothing."""


def _made(parts: Sequence[Part], kernels: _Kernels, told: Progress) -> Made:
    """The kernel of each group of each part."""
    total = sum(len(part.lowered.groups) for part in parts)
    made: Made = []
    done = 0
    for part in parts:
        made.append((part.lowered.graph, []))
        for bound in part.lowered.groups:
            told(GENERATING, done, total)
            made[-1][1].append(kernels.bound(bound, part))
            done += 1
    return made


def _within_bounds(
    parts: Sequence[Part], kernels: _Kernels, told: Progress, bounded: Bounded | None
) -> tuple[Made, dict[str, Any]]:
    """The kernel of each group, and the machine code of those that are long, by symbol."""
    made, ready = _made(parts, kernels, told), dict[str, Any]()
    while bounded is not None and (long_ones := kernels.long_ones(made, ready)):
        found, given_up = bounded({symbol: one.function for symbol, one in long_ones.items()}, told)
        ready |= found
        for symbol, reason in given_up.items():
            kernels.give_way(symbol, long_ones[symbol], parts, reason)
        made = _made(parts, kernels, silent)
    return made, ready


@dataclass(frozen=True)
class _Long:
    """A function whose code is long. `workloads`: those whose kernel it is, by key."""

    function: Any
    workloads: dict[str, Workload] = field(default_factory=dict)


class _Kernels:
    """The kernels of a library, whatever group or program takes them."""

    def __init__(self, emission: Emission, symbols: Symbols) -> None:
        self.emission, self.symbols = emission, symbols
        self.replaced: set[str] = set()
        self._unbounded: set[str] = set()

    def long_ones(self, made: Made, ready: Mapping[str, object]) -> dict[str, _Long]:
        """Functions of long code that are not `ready`, by symbol."""
        found: dict[str, _Long] = {}
        for _, groups in made:
            for bound, kernel in groups:
                if kernel is None or not is_long(kernel.function):
                    continue
                symbol = self.symbols.of(kernel.function, bound.workload.label)
                if symbol not in ready and symbol not in self._unbounded:
                    found.setdefault(symbol, _Long(kernel.function)).workloads[bound.workload.key] = bound.workload
        return found

    def give_way(self, symbol: str, long_one: _Long, parts: Sequence[Part], reason: str) -> None:
        """Take the spare schedules of a function that cannot be translated; one that was measured here has none.

        InputError when it is the spare one's.
        """
        for key, workload in long_one.workloads.items():
            if key in self.replaced:
                raise InputError(
                    f"no kernel of {workload.label} could be built: {reason}; "
                    "compile with a plan of smaller groups, such as --plan none"
                )
            if any(key in part.spare for part in parts):
                self.replaced.add(key)
            else:
                self._unbounded.add(symbol)

    def bound(self, bound: BoundWorkload, part: Part) -> BoundKernel:
        workload = bound.workload
        if is_free_reshape(workload):
            return bound, None
        if workload.key not in part.schedules:
            raise InputError(f"no schedule is given for {workload.label} ({workload.key[:12]})")
        if workload.key not in self.replaced:
            try:
                return bound, _kernel(bound, part.schedules[workload.key], self.emission)
            except InputError:
                if workload.key not in part.spare:
                    raise
                self.replaced.add(workload.key)
        return bound, _kernel(bound, part.spare[workload.key], self.emission)

    def row(self, symbol: str, bound: BoundWorkload, part: Part) -> KernelRow:
        workload = bound.workload
        spare = workload.key in self.replaced
        schedule = part.spare[workload.key] if spare else part.schedules[workload.key]
        tier, source = ("rule", "") if spare else (part.tiers.get(workload.key, ""), part.sources.get(workload.key, ""))
        return KernelRow(symbol, workload.label, workload.key, dict(schedule), tier, source)


def _kernel(bound: BoundWorkload, schedule: Schedule, emission: Emission) -> BuiltKernel:
    try:
        return emission.kernel(bound.workload, schedule)
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
    program = describe_program(graph, assembly.programs[0], rows, plan_key)
    return describe_library([program], assembly, target, threads)


def describe_program(
    graph: Graph, assembled: AssembledProgram, rows: Sequence[KernelRow], plan_key: str, plan_tier: str = ""
) -> Program:
    """The description of one assembled graph."""
    ranges, tables = index_ranges(graph), _tables(graph)
    inputs = []
    for name in graph.inputs:
        tensor, known = graph.tensors[name], ranges.get(name)
        example = None if known is None or np.dtype(tensor.dtype).kind not in "iu" else (max(known.low, 0), known.high)
        example = None if example is None or example[0] > example[1] else example
        inputs.append(InputSpec(name, tensor.shape, graph.dtype_for_callers(name), tables.get(name), example))
    outputs = tuple(TensorSpec(n, graph.tensors[n].shape, graph.dtype_for_callers(n)) for n in graph.outputs)
    return Program(
        entry=assembled.entry,
        plan_key=plan_key,
        inputs=tuple(inputs),
        outputs=outputs,
        weights=assembled.weights,
        copied=assembled.copied,
        kernel_rows=tuple(rows),
        plan_tier=plan_tier,
        parallel=assembled.parallel,
    )


def describe_library(programs: Sequence[Program], assembly: Assembly, target: Target, threads: int) -> Metadata:
    """The description of a library of `programs`."""
    return Metadata(
        versions=installed_versions(),
        architecture=architecture_of(target),
        target=asdict(target),
        cpu_features=required_features(target),
        threads=threads,
        weights=tuple(
            TensorSpec(f"weight{number}", tuple(array.shape), str(array.dtype))
            for number, array in enumerate(assembly.weights)
        ),
        programs=tuple(programs),
    )


def write_rest(rest: Rest, target: Target, threads: int, output: Path, key: Path | None = None) -> None:
    """Write the library of a model that ONNX Runtime runs alone: no code, any CPU of the target's architecture."""
    empty = Metadata(installed_versions(), architecture_of(target), asdict(target), (), threads, (), ())
    metadata, weights = with_rest(empty, [], rest)
    with scratch_folder() as folder:
        image = folder / "image.so"
        image.touch()
        write_container(output, image, weights, metadata, key)


def required_features(target: Target) -> tuple[str, ...]:
    """Features, in LLVM's spelling, that code for `target` may use and that a machine may lack."""
    from tvm.target import codegen

    arm = architecture_of(target) == "aarch64"
    features = map(str, codegen.llvm_get_cpu_features(tvm_target(target)))
    return tuple(sorted(name for name in features if may_be_needed(name, arm)))


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
