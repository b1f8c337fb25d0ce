"""The library of a program of images whose sizes are open: one kernel a group, which takes images of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autofuse.backend.compile.assemble import AssembledProgram, BoundKernel
from autofuse.backend.compile.function import NOTHING_KEPT, Kept
from autofuse.backend.compile.objects import Symbols
from autofuse.backend.compile.open_sizes.open_program import OpenTile, require_alike
from autofuse.backend.compile.realise import (
    Progress,
    Write,
    assembled_with,
    describe_library,
    describe_program,
    silent,
    write_assembled,
)
from autofuse.backend.compile.rest import Rest, with_rest
from autofuse.backend.container.metadata import KernelRow, Program
from autofuse.backend.container.open_spec import OpenSpec, SizeSpec
from autofuse.backend.container.stored_axes import image_axes
from autofuse.device.target import Target
from autofuse.graph.own.joined_places import merged_axes
from autofuse.graph.transform.open_sizes.attention import Attention
from autofuse.graph.transform.open_sizes.extents import Extent
from autofuse.graph.transform.open_sizes.images.grid_attention import (
    extents_of,
    lies_in_rows,
    line_axis,
    of_one_image,
    of_one_line,
    size_of_images,
)
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.images.grid_rules import GridGroup
from autofuse.graph.transform.open_sizes.images.over_places.resizing import resizing_of
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.graph.transform.open_sizes.stored_shapes import OpenImages
from autofuse.kernels.build import Kernel
from autofuse.kernels.emission import Emission
from autofuse.kernels.open_sizes.attention.kernel import AttentionForm, attention_kernel
from autofuse.kernels.open_sizes.images.grid_join import grid_join_kernel
from autofuse.kernels.open_sizes.images.grid_resize import grid_resize_kernel
from autofuse.kernels.open_sizes.images.open_grid import GridForm, GridTile, Lengths, grid_kernel
from autofuse.kernels.open_sizes.images.over_places.grid_product import grid_product_kernel
from autofuse.kernels.open_sizes.images.over_places.grid_reduction import grid_reduction_kernel
from autofuse.kernels.open_sizes.images.whole_grid import whole_kernel
from autofuse.kernels.open_sizes.open_recurrence import recurrence_kernel
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import BoundWorkload


@dataclass(frozen=True)
class BuiltGroup:
    """A group, `bound` at the point of the open graph, and its `tiles` by their lengths.

    `form`: what its kernel is; None for one that has no open size, which has one tile, and for a view, which has none.
    `kernel`: as `built_kernel` emits it, once all tiles have a schedule; None for a view.
    """

    group: GridGroup
    bound: BoundWorkload
    tiles: Mapping[Lengths, OpenTile] = field(default_factory=dict)
    form: GridForm | None = None
    kernel: Kernel | None = None


@dataclass(frozen=True, eq=False)
class GridPart:
    """The program to build: a lowered graph whose sizes are open, and its groups in an order in which they run.
    `most`: the largest product of the open sizes that it is for; None: any."""

    opened: GridGraph
    groups: tuple[BuiltGroup, ...]
    plan_key: str = ""
    plan_tier: str = ""
    most: int | None = None


def build_grid_library(
    parts: Sequence[GridPart],
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
    """Write the library of `parts`, plans of one model, signed with `key`. `jobs`, `write` and `kept`: see
    `build_programs`. `rest`: what ONNX Runtime runs behind it.

    DeviceError when the file cannot be linked or written.
    """
    kernels: list[list[BoundKernel]] = [[(group.bound, group.kernel) for group in part.groups] for part in parts]
    graphs = [part.opened.graph for part in parts]
    given = [
        OpenImages(part.opened.sizes, part.opened.axes, part.opened.parts, joined=part.opened.joined) for part in parts
    ]
    assembly, of_rows = assembled_with(rest, [*zip(graphs, kernels, strict=True)], Symbols(), given)
    programs = [_described(*both) for both in zip(parts, assembly.programs, strict=False)]
    require_alike(programs)
    described = replace(describe_library([*programs, *of_rows], assembly, target, threads), origin=graphs[0].origin)
    metadata, weights = with_rest(described, assembly.weights, rest)
    write_assembled(assembly, metadata, target, output, key, progress or silent, jobs, write, kept, weights)
    kept.bound()


def _described(part: GridPart, assembled: AssembledProgram) -> Program:
    rows = [_row(symbol, part.groups[position]) for position, symbol in assembled.symbols]
    whole = part.opened.at(part.opened.high)
    whole = replace(whole, inputs=_given(part.opened))
    program = describe_program(whole, assembled, rows, part.plan_key, part.plan_tier)
    return replace(program, opened=_spec(part.opened), most=part.most)


def built_kernel(opened: GridGraph, group: BuiltGroup, emission: Emission, threads: int = 1) -> Kernel | None:
    """The kernel of a group, for so many threads; None for a view. InputError when it cannot be emitted."""
    if is_free_reshape(group.bound.workload):
        return None
    if group.group.reduces:
        assert group.form is not None
        multiplies = group.bound.workload.operators[-1].op_type == "MatMul"
        make_one = grid_product_kernel if multiplies else grid_reduction_kernel
        return make_one(group.bound.workload, group.form, emission.target)
    if group.group.attention is not None:
        bound = group.tiles[()].bound
        rows = _rows(opened, bound, group.group.attention)
        each = _each(opened, bound, group.group.attention)
        form = AttentionForm(rows=rows, repeated=each, along=each)
        return attention_kernel(bound.workload, group.group.attention, form, emission.target)
    if group.group.recurs:
        (tile,) = group.tiles.values()
        rows, own = _rows(opened, tile.bound), _each(opened, tile.bound)
        return recurrence_kernel(tile.bound.workload, rows, emission.target, tile.schedule, own, own)
    if group.group.resizes:
        assert group.form is not None
        resizing = resizing_of(opened, opened.graph.by_name[group.group.operators[0]])
        assert resizing is not None
        widths = [opened.shape(name, opened.high)[-1] for name in (group.bound.inputs[0], group.bound.outputs[0])]
        return grid_resize_kernel(resizing, group.form, widths, emission.target)
    if group.group.joins:
        assert group.form is not None
        (name,) = group.group.operators
        return grid_join_kernel(merged_axes(opened.graph.by_name[name], 0).start, group.form, emission.target)
    if group.form is None:
        (tile,) = group.tiles.values()
        return emission.kernel(group.bound.workload, tile.schedule)
    tiles = {lengths: GridTile(tile.bound.workload, tile.schedule) for lengths, tile in group.tiles.items()}
    make = whole_kernel if group.form.bounds else grid_kernel
    return make(group.form, tiles, emission.target, threads)


def _rows(opened: GridGraph, bound: BoundWorkload, attention: Attention | None = None) -> dict[int, OpenAxis]:
    """The open axis of what one kernel of all places reads and makes of an image, by index; in an attention with the
    number of its extent."""
    alone, numbers = of_one_image(opened), dict[Extent, int]()
    if attention is not None:
        softmax = alone.graph.by_name[attention.softmax]
        alone = of_one_line(alone, softmax)
        numbers = extents_of(alone, softmax)
    found = {}
    for index, name in bound.arguments:
        if alone.has(name) and not (name in alone.parts and not lies_in_rows(alone, name)):
            axis, extent = next(iter(alone.axes[name].items()))
            found[index] = OpenAxis(axis, size=numbers.get(extent, 0))
    return found


def _each(opened: GridGraph, bound: BoundWorkload, attention: Attention | None = None) -> dict[int, int]:
    """What of it each image has of its own, by index, and the axis that counts these; in an attention along one side,
    each line of one."""
    number = size_of_images(opened)
    if number is None and attention is not None:
        softmax = opened.graph.by_name[attention.softmax]
        lines = {index: line_axis(opened, softmax, name) for index, name in bound.arguments}
        return {index: axis for index, axis in lines.items() if axis is not None}
    return {index: 0 for index, name in bound.arguments if number is not None and number in opened.grid(name)}


def _row(symbol: str, group: BuiltGroup) -> KernelRow:
    first = next(iter(group.tiles.values()))
    source = first.source
    if group.form is not None and group.group.in_tiles:
        shown = ", ".join("x".join(map(str, lengths)) for lengths in group.tiles)
        shared = group.form.text or f"tiles of {shown} places"
        source = f"{source}; " * bool(source) + shared
    workload = first.bound.workload
    return KernelRow(symbol, workload.label, workload.key, dict(first.schedule), first.tier, source)


def _given(opened: GridGraph) -> tuple[str, ...]:
    """The inputs of the library."""
    return tuple(name for name in opened.graph.inputs if name not in opened.parts)


def _spec(opened: GridGraph) -> OpenSpec:
    sizes = tuple(SizeSpec(size.name, size.low, size.high, size.step) for size in opened.sizes)
    inputs, outputs = (
        tuple(image_axes(opened.axes.get(name, {}), opened.joined.get(name, {})) for name in names)
        for names in (_given(opened), opened.graph.outputs)
    )
    return OpenSpec(sizes, inputs, outputs)
