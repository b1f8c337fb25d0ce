"""One compile of a model of images whose sizes are open: finds the tiles of its kernels, and schedules for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from pathlib import Path

from autofuse.backend.compile.objects import user_objects
from autofuse.backend.compile.open_sizes.grid_program import BuiltGroup, GridPart, build_grid_library, built_kernel
from autofuse.backend.compile.open_sizes.open_program import OpenTile
from autofuse.backend.compile.realise import Progress, silent
from autofuse.backend.library.threads import usable_threads
from autofuse.compiler.context import Context
from autofuse.compiler.formats import check_form, check_signed, read_files, with_files, writer
from autofuse.compiler.open_sizes.plans import OpenForm, RangedPlan, find_open_plans
from autofuse.compiler.open_sizes.reading import computes_alike
from autofuse.compiler.open_sizes.row_segments import RowSegments
from autofuse.compiler.open_sizes.tiles import (
    ReportedPlan,
    emitted,
    open_report,
    require_own,
    require_schedules,
    simplest_tile,
    tile_report,
    with_parts,
)
from autofuse.compiler.parts.open_head import OpenHead
from autofuse.compiler.parts.rest import rest_of
from autofuse.compiler.plan_ladder import FoundPlan, checked_plan
from autofuse.compiler.report import HIT, LOOKING_UP, RULE, TILE, CompileReport, GroupReport
from autofuse.compiler.schedule_ladder import Found, Ladder
from autofuse.errors import InputError
from autofuse.fusion.legality import ordered_groups
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.caches import Caches
from autofuse.graph.transform.open_sizes.extents import Extent, Point
from autofuse.graph.transform.open_sizes.images.grid_attention import of_one_line
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.images.grid_rules import GridGroup, GridOperators, grid_groups
from autofuse.graph.transform.open_sizes.images.grid_tiles import tile_graph
from autofuse.graph.transform.open_sizes.images.grid_windows import Look, Slide
from autofuse.graph.transform.open_sizes.images.reading import changed_grid, single_points
from autofuse.graph.transform.open_sizes.open_graph import ADVICE, part_of
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.layout import assign_layouts
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.open_sizes.images.grid_tiles import (
    Range,
    Split,
    all_tiles,
    row_split,
    tile_splits,
    timed_splits,
)
from autofuse.kernels.open_sizes.images.open_grid import JOINED, GridArgument, GridForm, Lengths, are_one_row
from autofuse.kernels.open_sizes.images.whole_grid import with_winograd
from autofuse.kernels.open_sizes.open_rows import check_elements
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import HALF, Value, bind_workload
from autofuse.opened.kinds import GridModel, read_images
from autofuse.opened.whole_images import ImagePlane, for_whole, is_whole, plane_of, sides_of, used
from autofuse.values.arguments import Given, LibraryFormat
from autofuse.values.signatures import private_key

ONE = Split((1,))
"""Images of a batch are computed one after the other."""


@dataclass(frozen=True, eq=False)
class GridPlan:
    """A plan of such a model: the graph that it leaves, and its groups, whose tiles have no schedules yet."""

    opened: GridGraph
    chosen: FoundPlan
    groups: tuple[BuiltGroup, ...]


def compile_grid(
    context: Context,
    model: Path,
    output: Path | None,
    given: Given,
    sizes: Sequence[OpenSize],
    plan: str | None,
    key: Path | None = None,
    progress: Progress | None = None,
    caches: Caches | None = None,
    form: LibraryFormat = "so",
    head: OpenHead | None = None,
) -> CompileReport:
    """Write the library of `model` with the sizes of its images open; see `autofuse.api.compile`. `head`: what our
    kernels run of it, where that is a part.

    InputError that names the operator which no kernel of ours computes at any size.
    """
    started, told = time.monotonic(), progress or silent
    check_signed(form, key is not None)
    if caches:
        raise InputError("--cache: images have no caches that grow")
    if output is not None:
        check_form(form, output, read_files(context, model, output, plan), context.environment.target)
    if key is not None:
        private_key(key)
    read = read_images(model if head is None else head.path, given, sizes, told)
    emission = Emission(context.environment.target)
    rows = RowSegments(context, emission)
    choice = None if head is None else rows.of_head(head, read.opened.graph)
    told(LOOKING_UP, 0, 1)
    chosen = find_open_plans(context, form_of_images(context, read), plan)
    scheduled = [_scheduled(context, read, one, emission) for one in chosen]
    write = writer(form, model, given, None)
    if output is not None:
        parts, target = [part for part, _ in scheduled], context.environment.target
        build_grid_library(
            parts, target, context.threads, output, key, progress, usable_threads(), write, user_objects(target),
            None if choice is None or head is None else rest_of(choice, None, rows.programs(choice), head.asked),
        )  # fmt: skip
    report = _report(context, model, output, [*zip(chosen, scheduled, strict=True)], time.monotonic() - started)
    report = with_parts(report, choice, sizes if head is None else head.asked)
    return with_files(rows.told(report, choice), form, output, write)


def write_grid(context: Context, read: GridModel, chosen: Sequence[RangedPlan], output: Path) -> None:
    """Write the library of a plan, or of one for each part of the range, in the format `so`."""
    target = context.environment.target
    emission = Emission(target)
    parts = [_scheduled(context, read, one, emission)[0] for one in chosen]
    build_grid_library(parts, target, context.threads, output, jobs=usable_threads(), kept=user_objects(target))


def form_of_images(context: Context, read: GridModel) -> OpenForm:
    """What plans are looked up for."""
    opened, check = read.opened, partial(grid_plan, context, read)
    return OpenForm(opened.graph, read.sha256, opened.sizes, check, lambda name: opened.axes.get(name, {}).keys())


def grid_plan(context: Context, read: GridModel, chosen: FoundPlan) -> GridPlan:
    """A plan in tiles. InputError for what cannot have open sizes in the graph that it leaves."""
    target = context.environment.target
    checked, lowered = checked_plan(context, read.opened.graph, chosen)

    def realised(point: Point) -> Graph:
        return Lowering(read.opened.at(point), target, read.opened.graph).realised(checked.plan)

    opened = replace(changed_grid(read.opened, lowered.graph, realised), parts=read.opened.parts)
    _check_single(read.opened, opened)
    if opened.graph.halves:
        reason = "images of open sizes have no inputs and outputs of bfloat16"
        raise opened.refused(opened.graph.operators[0], reason)
    known = GridOperators(opened)
    known.check()
    _check_kernels(known)
    groups = grid_groups(known, [group.operators for group in checked.plan.groups], partial(_ordered, opened.graph))
    order = [group.operators for group in groups]
    apart = [group.attention is not None or group.recurs or group.joins or group.view for group in groups]
    in_layouts = {number: not alone for number, alone in enumerate(apart)}
    layouts = _whole(assign_layouts(opened.graph, order, in_layouts, target))
    ladder = Ladder(context.database, context.environment, Emission(target), chosen.limits)
    return GridPlan(opened, checked, tuple(_built(known, group, layouts, ladder) for group in groups))


def _check_single(read: GridGraph, opened: GridGraph) -> None:
    """InputError where a graph that a plan makes is another where an axis has one place."""
    for point in single_points(read):
        parts = {name: part_of(whole, read.shape(name, point)) for name, whole in read.parts.items()}
        if not computes_alike(opened.at(point), read.at(point), parts):
            shown = ", ".join(f"{size.name} is {value}" for size, value in zip(read.sizes, point, strict=True))
            raise InputError(f"--sizes: where {shown}, the plan makes another model: {ADVICE}")


def _ordered(graph: Graph, groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return [group.operators for group in ordered_groups(graph, groups)]


def _whole(layouts: Mapping[str, str]) -> dict[str, str]:
    """Layouts of which none stores 16 bits for 32: tiles of images read and write all of them."""
    orders = {name: layout.removesuffix(HALF).removesuffix("-") for name, layout in layouts.items()}
    return {name: order for name, order in orders.items() if order}


def _check_kernels(known: GridOperators) -> None:
    """InputError for an operator with an open size that no family of ours emits, or a tensor that is too large."""
    opened = known.opened
    whole = opened.at(opened.high)
    for name in (*opened.axes, *opened.joined):
        check_elements(whole.tensors[name])
    apart = known.attending.keys() | {one.name for one in opened.graph.operators if known.joins(one)}
    touching = [one for one in opened.graph.operators if opened.touches(one) and one.name not in apart]
    require_own(opened.graph, touching, opened.refused)


def _built(known: GridOperators, group: GridGroup, layouts: Mapping[str, str], ladder: Ladder) -> BuiltGroup:
    """A group with its tiles. `ladder`: knows what the rules say of one."""
    opened = known.opened
    bound = bind_workload(opened.graph, group.operators, layouts)
    whole = OpenTile(0, bound, {}, RULE, "any size")
    if is_free_reshape(bound.workload):
        return BuiltGroup(group, bound)
    if group.static:
        return BuiltGroup(group, bound, {(): replace(whole, source="")})
    look = known.look(opened.graph.by_name[group.head]) if group.head else None
    looked = opened.graph.by_name[group.head].inputs[0] if look is not None else ""
    inputs, outputs = (
        tuple(
            _argument(opened, bound.workload.values[index], name, looked)
            for index, name in zip(bound.workload.of_kind(kind), names, strict=True)
        )
        for kind, names in (("input", bound.inputs), ("output", bound.outputs))
    )
    if group.attention is not None or group.recurs:
        alone = known.alone
        if group.attention is not None:
            alone = of_one_line(alone, alone.graph.by_name[group.attention.softmax])
        largest = bind_workload(alone.at(alone.high), group.operators, layouts)
        whole = replace(whole, bound=largest)
    if not group.in_tiles:
        return BuiltGroup(group, bound, {(): whole}, GridForm(inputs, outputs, (), ()))
    grid = opened.grid(bound.outputs[0])
    placed = sorted(opened.axes[bound.outputs[0]].items())
    order = tuple(one.size for _, one in placed)
    slides = {} if look is None else look.slides
    beyond = look is not None and _looks_beyond(opened, looked, bound.outputs[0], look)
    in_rows = len(placed) == 1 and not group.head  # places in front of all else are no images
    along = [one for axis, one in placed if axis or in_rows]
    ranges = [_range(opened, grid[one.size], slides.get(one.size, Slide())) for one in along]
    images = (ONE,) * (len(order) - len(ranges))
    fill = look.fill if look is not None and beyond else None
    form = GridForm(inputs, outputs, order, (), slides, fill)

    def in_tiles(splits: tuple[Split, ...], all_lengths: Iterable[Lengths], form: GridForm = form) -> BuiltGroup:
        tiles = {}
        for one in all_lengths:
            made = tile_graph(known, group, dict(zip(order, one, strict=True)))
            tiles[one] = OpenTile(1, bind_workload(made.graph, made.operators, layouts), {})
        return BuiltGroup(group, bound, tiles, replace(form, splits=splits))

    plane = plane_of(opened, group, bound, ranges, look, beyond)
    sampled = None if plane is None else _sampled(form, plane, images, in_tiles, ladder)
    if sampled is not None:
        return sampled
    if not group.head and opened.parts.keys().isdisjoint(bound.inputs) and are_one_row(form):
        splits = (*images, ONE, row_split(bound.workload, *ranges))
        return in_tiles(splits, all_tiles(splits), replace(form, flat=True))
    splits = images + (tile_splits(bound.workload, ranges, beyond) if ranges else ())
    return in_tiles(splits, all_tiles(splits))


def _sampled(
    form: GridForm,
    plane: ImagePlane,
    images: tuple[Split, ...],
    in_tiles: Callable[[tuple[Split, ...], Iterable[Lengths], GridForm], BuiltGroup],
    ladder: Ladder,
) -> BuiltGroup | None:
    """A group whose kernel goes over whole images, with samples of these for tiles; None where there is no such."""
    alike = all(len(border.beyond) == 1 for border in plane.borders)
    looking = tuple(
        replace(one, looked=name == plane.looked) for one, name in zip(form.inputs, plane.names, strict=True)
    )
    for winograd in (True, False):
        sides = sides_of(plane, winograd)
        uneven = any(side[0] % one.aligned for side, one in zip(sides, plane.ranges, strict=True))
        if uneven or (winograd and not alike):
            continue
        opened = [side for side, still in zip(sides, plane.fixed, strict=True) if not still]
        splits = (*images, *(Split(side, cut=True) for side in opened))
        sampling = replace(
            form, inputs=looking, splits=splits, bounds=plane.ranges, plane=plane.slides, borders=plane.borders,
            winograd=winograd,
        )  # fmt: skip
        found = in_tiles(splits, ((1,) * len(images) + one for one in zip(*opened, strict=True)), sampling)
        if is_whole([tile.bound.workload for tile in found.tiles.values()], sampling, ladder):
            return found
    return None


def _argument(opened: GridGraph, value: Value, name: str, looked: str) -> GridArgument:
    """What a kernel is given of a tensor; its head looks at one."""
    axes = {axis: one.size for axis, one in opened.axes.get(name, {}).items()}
    joined = dict.fromkeys(opened.joined.get(name, {}), JOINED)
    return GridArgument(value, axes | joined, name == looked, name in opened.parts)


def _range(opened: GridGraph, extent: Extent, slide: Slide) -> Range:
    low, high = extent.at(opened.low), extent.at(opened.high)
    return Range(low, high, gcd(opened.unit(extent), low), slide.divide)


def _looks_beyond(opened: GridGraph, looked: str, result: str, look: Look) -> bool:
    """Whether a tile may look beyond the borders, at the smallest or the largest sizes."""
    seen, made = opened.grid(looked), opened.grid(result)
    for size, slide in look.slides.items():
        for point in (*opened.places(made[size]), *opened.places(seen[size])):
            extent = made[size].at(point)
            if slide.offset < 0 or slide.seen(extent) + slide.offset > seen[size].at(point):
                return True
    return False


Scheduled = tuple[GridPart, dict[str, Found]]
"""A program in tiles, each with the best schedule that is known, and these by workload key."""


def _scheduled(context: Context, read: GridModel, ranged: RangedPlan, emission: Emission) -> Scheduled:
    planned = grid_plan(context, read, ranged.found)
    chosen = planned.chosen
    ladder = Ladder(context.database, context.environment, emission, chosen.limits, chosen.pinned)
    wanted = [tile.bound for group in planned.groups if group.group.in_tiles for tile in group.tiles.values()]
    found = ladder.find(wanted, context.policy.measured_only)
    found |= ladder.find([group.tiles[()].bound for group in planned.groups if group.group.recurs], False)
    scheduled = [_with_schedules(group, found, ladder) for group in planned.groups]
    require_schedules(context.policy, wanted, used(scheduled, found) if context.policy.measured_only else found)

    def with_kernel(group: BuiltGroup) -> BuiltGroup:
        return replace(group, kernel=built_kernel(planned.opened, group, emission, context.threads))

    groups = [emitted(group, with_kernel, partial(_simplest, ladder=ladder)) for group in scheduled]
    return GridPart(planned.opened, tuple(groups), chosen.plan.key, chosen.tier, ranged.most), found


def _with_schedules(group: BuiltGroup, found: Mapping[str, Found], ladder: Ladder) -> BuiltGroup:
    tiles = {}
    for lengths, tile in group.tiles.items():
        one = found.get(tile.bound.workload.key)
        if one is not None and group.form is not None and group.form.bounds:
            one = for_whole(tile.bound.workload, one, group.form.winograd, ladder)
        if one is not None:
            tier = TILE if one.tier == HIT and group.form is not None else one.tier
            us = one.us if tier == TILE else None
            tile = replace(tile, schedule=one.schedule, tier=tier, source=one.source, us=us)
        tiles[lengths] = tile
    times = {lengths: tile.us for lengths, tile in tiles.items() if tile.us is not None}
    if group.form is None or len(times) < len(tiles) or len(tiles) == 1 or group.form.bounds:
        return replace(group, tiles=tiles)
    return replace(group, tiles=tiles, form=replace(group.form, splits=timed_splits(group.form.splits, times)))


def _simplest(group: BuiltGroup, ladder: Ladder) -> BuiltGroup | None:
    """A group under the simplest schedules; None for one that has no tiles."""
    if group.form is None or not group.group.in_tiles:
        return None
    tiles = {lengths: simplest_tile(tile, ladder) for lengths, tile in group.tiles.items()}
    if group.form.winograd:
        tiles = {lengths: replace(tile, schedule=with_winograd(tile.schedule)) for lengths, tile in tiles.items()}
    return replace(group, tiles=tiles)


def _report(
    context: Context, model: Path, output: Path | None, plans: Sequence[tuple[RangedPlan, Scheduled]], seconds: float
) -> CompileReport:
    opened, reports = plans[0][1][0].opened, []
    for number, (ranged, (part, found)) in enumerate(plans):
        tiles = [(group, lengths, tile) for group in part.groups for lengths, tile in group.tiles.items()]
        groups = [_group(*one, found, number) for one in tiles]
        firsts = [next(iter(group.tiles.values())) for group in part.groups if group.tiles]
        reports.append(ReportedPlan(ranged, groups, firsts))
    graph = opened.at(opened.high)
    shapes = {name: graph.tensors[name].shape for name in graph.inputs if name not in opened.parts}
    return open_report(context, model, output, reports, shapes, opened.sizes, seconds)


def _group(
    group: BuiltGroup, lengths: tuple[int, ...], tile: OpenTile, found: Mapping[str, Found], plan: int
) -> GroupReport:
    kind = "sample" if group.form is not None and group.form.bounds else "tile"
    places = f"{kind} of {'x'.join(map(str, lengths))} places" if lengths else ""
    if group.form is not None and lengths == next(iter(group.tiles)):
        places = "; ".join(text for text in (places, group.form.text) if text)
    return tile_report(tile, group.group.operators, places, found, plan)
