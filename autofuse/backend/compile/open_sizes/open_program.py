"""The library of a program with an open size: one kernel a group, which takes any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.assemble import AssembledProgram, BoundKernel
from autofuse.backend.compile.function import NOTHING_KEPT, Kept
from autofuse.backend.compile.objects import Symbols
from autofuse.backend.compile.realise import (
    Progress,
    Write,
    assembled_with,
    describe_library,
    describe_program,
    silent,
    write_assembled,
)
from autofuse.backend.compile.rest import Rest, RowProgram, with_rest
from autofuse.backend.container.metadata import KernelRow, Program
from autofuse.backend.container.open_spec import AxisSpec, OpenSpec, SizeSpec
from autofuse.device.target import Target
from autofuse.errors import PlanError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph, Tensor
from autofuse.graph.transform.open_sizes.group_kinds import GroupKind
from autofuse.graph.transform.open_sizes.lengths import OpenLengths
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.graph.transform.open_sizes.repeats import Repeats
from autofuse.graph.transform.open_sizes.stored_shapes import OpenRows
from autofuse.kernels.build import Kernel
from autofuse.kernels.emission import Emission
from autofuse.kernels.open_sizes.attention.kernel import AttentionForm, attention_kernel
from autofuse.kernels.open_sizes.open_cache import append_kernel, shift_kernel
from autofuse.kernels.open_sizes.open_recurrence import recurrence_kernel
from autofuse.kernels.open_sizes.open_reduction import reduction_kernel
from autofuse.kernels.open_sizes.open_rows import RowCover, Tile, open_kernel, row_cover
from autofuse.kernels.open_sizes.open_sum import count_kernel, sum_kernel
from autofuse.kernels.open_sizes.open_turn import sequences_kernel, turn_kernel
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import BoundWorkload

Schedule = Mapping[str, int | str]


@dataclass(frozen=True)
class OpenTile:
    """A group at so many `rows`, its schedule, and where that came from; `us`: its time, where that was measured."""

    rows: int
    bound: BoundWorkload
    schedule: Schedule
    tier: str = ""
    source: str = ""
    us: float | None = None


@dataclass(frozen=True)
class OpenGroup(GroupKind):
    """A group, `bound` at the size of the open graph.

    `tiles`: the most rows first, the last with one; a single one of 0 rows where no tensor of the group has the open
    size; none for a group that is a view. An `attention`, a reduction over all rows (`reduces`), what `counts` them, a
    recurrence over them (`recurs`), an operator that `appends` rows to a cache, one that `turns` an input or an output,
    one of `sequences`, and a `shift` of rows have one of all rows, an operator with `picked` rows one of so many.
    `cover`: which of several tiles its kernel takes, as `group_cover` says, and `kernel`: as `group_kernel` emits it,
    once all tiles have a schedule; None for a view.
    """

    bound: BoundWorkload
    tiles: tuple[OpenTile, ...]
    kernel: Kernel | None = None
    cover: RowCover | None = None

    @property
    def cover_text(self) -> str:
        """Which tiles its kernel takes for how many rows; "" where it has no such choice."""
        return "" if self.cover is None else self.cover[0].text


@dataclass(frozen=True, eq=False)
class OpenPart:
    """The program to build: a lowered graph whose lengths, `sizes`, stay open, and its groups in an order in which they
    run.

    `caches`: outputs that are updated in place, each with the input that it extends. `repeats`: where a further size
    says how many sequences there are. `most`: the largest product of the open sizes that it is for; None: any.
    """

    opened: OpenLengths
    sizes: tuple[OpenSize, ...]
    groups: tuple[OpenGroup, ...]
    caches: Mapping[str, str] = field(default_factory=dict)
    plan_key: str = ""
    plan_tier: str = ""
    repeats: Repeats | None = None
    most: int | None = None

    @property
    def largest(self) -> Graph:
        """The graph where all lengths are largest, of one sequence."""
        return self.opened.at({number: size.high for number, size in enumerate(self.sizes)})


def build_open_library(
    parts: Sequence[OpenPart],
    target: Target,
    threads: int,
    output: Path,
    key: Path | None = None,
    progress: Progress | None = None,
    jobs: int = 1,
    write: Write | None = None,
    kept: Kept = NOTHING_KEPT,
    rest: Rest | None = None,
) -> None:
    """Write the library of `parts`, plans of one model, signed with `key`. Kernels and weights that are equal in
    several are there once. `jobs`, `write` and `kept`: see `build_programs`. `rest`: what ONNX Runtime runs behind it.

    DeviceError when the file cannot be linked or written.
    """
    graphs = [replace(part.opened.graph, outputs=_returned(part)) for part in parts]
    kernels: list[list[BoundKernel]] = [[(group.bound, group.kernel) for group in part.groups] for part in parts]
    given = [_rows_given(part, graph) for part, graph in zip(parts, graphs, strict=True)]
    assembly, of_rows = assembled_with(rest, [*zip(graphs, kernels, strict=True)], Symbols(), given)
    programs = [_described(*both) for both in zip(parts, assembly.programs, strict=False)]
    require_alike(programs)
    described = replace(describe_library([*programs, *of_rows], assembly, target, threads), origin=graphs[0].origin)
    metadata, weights = with_rest(described, assembly.weights, rest)
    write_assembled(assembly, metadata, target, output, key, progress or silent, jobs, write, kept, weights)
    kept.bound()


def row_program(part: OpenPart) -> RowProgram:
    """The program of a segment of rows."""
    graph = replace(part.opened.graph, outputs=_returned(part))
    kernels = [(group.bound, group.kernel) for group in part.groups]
    return RowProgram(graph, kernels, _rows_given(part, graph), partial(_described, part))


def require_alike(programs: Sequence[Program]) -> None:
    """PlanError for plans of one model that leave it with other inputs and outputs, so that none can stand in for
    another."""
    seen = {
        (program.opened, tuple((spec.name, spec.shape, spec.dtype) for spec in (*program.inputs, *program.outputs)))
        for program in programs
    }
    if len(seen) > 1:
        raise PlanError("the plans for parts of the range differ in the model's inputs and outputs: take one of them")


def _rows_given(part: OpenPart, graph: Graph) -> OpenRows:
    """What stays open in a program."""
    stored = {name: place for name in graph.tensors if (place := _place(part, name)) is not None}
    given = [where for where in _places(part, _given(part)) if where is not None and where.factor == 1]
    base = [min((one.more for one in given if one.size == number), default=0) for number in range(len(part.sizes))]
    return OpenRows(part.sizes, stored, part.opened.parts, part.caches, base, part.repeats)


def _described(part: OpenPart, assembled: AssembledProgram) -> Program:
    rows = [_row(symbol, part.groups[position]) for position, symbol in assembled.symbols]
    whole = part.largest
    wide = {given: replace(whole.tensors[name], name=given) for name, given in part.caches.items()}
    whole = replace(whole, tensors={**whole.tensors, **wide})
    tensors = {**whole.tensors, **several_at_most(part, whole)}
    largest = replace(whole, inputs=_given(part), outputs=_returned(part), tensors=tensors)
    program = describe_program(largest, assembled, rows, part.plan_key, part.plan_tier)
    return replace(program, opened=_spec(part), most=part.most)


def several_at_most(part: OpenPart, whole: Graph) -> dict[str, Tensor]:
    """Inputs and outputs of the model that each sequence has of its own, as they are with the most sequences."""
    found = {}
    for name, axis in (part.repeats.axes if part.repeats is not None else {}).items():
        shape, most = list(whole.tensors[name].shape), part.repeats.size.high if part.repeats is not None else 1
        shape[axis] *= most
        found[name] = replace(whole.tensors[name], shape=tuple(shape))
    return found


def group_kernel(
    opened: OpenLengths,
    group: OpenGroup,
    emission: Emission,
    threads: int = 1,
    caches: Mapping[str, str] | None = None,
    own: Collection[str] = (),
) -> Kernel | None:
    """The kernel of a group, for so many threads; None for a view. InputError when it cannot be emitted.

    `caches`: outputs that are updated in place, each with the input that it extends. `own`: tensors that each of
    several sequences has of its own.
    """
    bound, caches = group.bound, caches or {}
    if is_free_reshape(bound.workload):
        return None
    names = bound.arguments
    repeated = {index for index, name in names if name in own}
    if not group.tiles[0].rows and not repeated:
        return emission.kernel(bound.workload, group.tiles[0].schedule)
    rows = {index: where for index, name in names if (where := _stored(opened, name)) is not None}
    if group.appends:
        in_place = bound.outputs[0] in caches
        return append_kernel(group.tiles[0].bound.workload, rows, emission.target, threads, in_place, repeated)
    if group.counts:
        return _count_kernel(opened, group, rows, emission.target, repeated, caches)
    if group.turns:
        return turn_kernel(group.tiles[0].bound.workload, rows, emission.target, repeated)
    if group.sequences:
        return sequences_kernel(group.tiles[0].bound.workload, rows, emission.target, repeated)
    if group.shift is not None:
        return shift_kernel(group.tiles[0].bound.workload, group.shift, rows, emission.target, repeated)
    if group.attention is not None:
        wide = {index for index, name in names if name in caches}
        tails = {index: place.axis for index, name in names if name in opened.tails and (place := opened.place(name))}
        form = AttentionForm(rows=rows, repeated=repeated, wide=wide, tails=tails)
        kernel = attention_kernel(group.tiles[0].bound.workload, group.attention, form, emission.target, threads)
        return Kernel(kernel.function, _packing(opened, group, lambda constants: kernel.pack(constants[0])))
    if group.reduces:
        return reduction_kernel(group.tiles[0].bound.workload, rows, emission.target, repeated, threads)
    if group.recurs:
        (tile,) = group.tiles
        kernel = recurrence_kernel(tile.bound.workload, rows, emission.target, tile.schedule, repeated)
        return Kernel(kernel.function, _packing(opened, group, lambda constants: kernel.pack(constants[0])))
    if group.sums:
        return sum_kernel(group.tiles[0].bound.workload, rows, emission.target, repeated)
    tiles = _kernel_tiles(group)
    kernel = open_kernel(tiles, rows, emission.target, group.picked, threads, repeated, group.cover)
    return Kernel(kernel.function, _packing(opened, group, kernel.pack))


def _count_kernel(
    opened: OpenLengths, group: OpenGroup, rows: Mapping[int, OpenAxis], target: Target, repeated: Collection[int],
    caches: Mapping[str, str],
) -> Kernel:  # fmt: skip
    """The kernel that says how long an input is; one that is updated in place has room for the new rows."""
    (source,) = group.bound.inputs
    kept = next((output for output, given in caches.items() if given == source), "")
    longer = opened.place(kept) if kept else None
    return count_kernel(group.tiles[0].bound.workload, rows, target, repeated, longer.more if longer else 0)


def _kernel_tiles(group: OpenGroup) -> list[Tile]:
    """The tiles of a group as its kernel is made of them."""
    return [Tile(tile.rows, tile.bound.workload, tile.schedule, tile.us) for tile in group.tiles]


def group_cover(group: OpenGroup, target: Target, threads: int) -> RowCover | None:
    """Which tiles the kernel of a group takes for how many rows; None where it has no such choice."""
    if not group.in_tiles or group.picked is not None or len(group.tiles) < 2:
        return None
    return row_cover(_kernel_tiles(group), target, threads)


def _stored(opened: OpenLengths, name: str) -> OpenAxis | None:
    """The open axis of a tensor as a kernel is given it: what is part of a constant is given whole, but for rows."""
    return opened.axes.get(name) if name in opened.parts else opened.place(name)


def _packing(
    opened: OpenLengths, group: OpenGroup, pack: Callable[[Sequence[Any]], list[NDArray[np.generic]]]
) -> Callable[[Sequence[NDArray[np.generic]]], list[NDArray[np.generic]]]:
    """Packs the constants of a group, which each tile has as many rows of as it computes."""

    def packed(constants: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        given = list(zip(group.bound.constants, constants, strict=True))
        return pack([[_rows_of(opened, name, array, tile.rows) for name, array in given] for tile in group.tiles])

    return packed


def _rows_of(opened: OpenLengths, name: str, array: NDArray[np.generic], rows: int) -> NDArray[np.generic]:
    where = opened.axes.get(name)
    return array if where is None else np.take(array, range(where.factor * rows), where.axis)


def _row(symbol: str, group: OpenGroup) -> KernelRow:
    first, cover = group.tiles[0], group.cover_text
    workload = first.bound.workload
    if not cover and first.rows and group.in_tiles:
        cover = f"a tile of {first.rows} row{'s' * (first.rows > 1)}"
    source = "; ".join(text for text in (first.source, cover) if text)
    return KernelRow(symbol, workload.label, workload.key, dict(first.schedule), first.tier, source)


def _spec(part: OpenPart) -> OpenSpec:
    sizes = part.sizes if part.repeats is None else (part.repeats.size, *part.sizes)
    inputs, outputs = (tuple(_axes(part, name) for name in names) for names in (_given(part), _returned(part)))
    specs = tuple(SizeSpec(size.name, size.low, size.high) for size in sizes)
    return OpenSpec(specs, inputs, outputs, tuple(part.caches.items()))


def _axes(part: OpenPart, name: str) -> tuple[AxisSpec, ...]:
    """The axes of an input or output that follow an open size, of which the number of sequences is the first."""
    where, first = _place(part, name), int(part.repeats is not None)
    along = None if part.repeats is None else part.repeats.axes.get(name)
    inner = [] if where is None else [AxisSpec(where.axis, first + where.size, where.factor, 1, where.more)]
    if along is None:
        return tuple(inner)
    if where is not None and where.axis == along:
        return (replace(inner[0], times=0),)
    return (AxisSpec(along, 0, part.opened.graph.tensors[name].shape[along]), *inner)


def _given(part: OpenPart) -> tuple[str, ...]:
    """The inputs of the library."""
    return tuple(name for name in part.opened.graph.inputs if name not in part.opened.parts)


def _places(part: OpenPart, names: Sequence[str]) -> list[OpenAxis | None]:
    return [_place(part, name) for name in names]


def _place(part: OpenPart, name: str) -> OpenAxis | None:
    """The open axis of a tensor; an input that is updated in place has room for the new rows."""
    longer = {given: output for output, given in part.caches.items()}
    return part.opened.place(longer.get(name, name))


def _returned(part: OpenPart) -> tuple[str, ...]:
    """The outputs of the library."""
    return tuple(name for name in part.opened.graph.outputs if name not in part.caches)
