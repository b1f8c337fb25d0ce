"""A plan of a model with open lengths in tiles of rows, and the program that these are under known schedules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from autofuse.backend.compile.open_sizes.open_program import (
    OpenGroup,
    OpenPart,
    OpenTile,
    group_cover,
    group_kernel,
)
from autofuse.compiler.context import Context
from autofuse.compiler.open_sizes.groups import Grouped, behind_products, open_groups
from autofuse.compiler.open_sizes.plans import OpenForm, RangedPlan
from autofuse.compiler.open_sizes.reading import OpenModel
from autofuse.compiler.open_sizes.tiles import (
    emitted,
    require_own,
    require_schedules,
    simplest_tile,
    with_shared_weights,
)
from autofuse.compiler.plan_ladder import FoundPlan, checked_plan
from autofuse.compiler.report import HIT, RULE, TILE
from autofuse.compiler.schedule_ladder import Found, Ladder
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.transform.open_sizes.caches import Caches, paired
from autofuse.graph.transform.open_sizes.lengths import OpenLengths, check_lengths, with_own_operators
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis, open_graph, refused, refused_grid
from autofuse.graph.transform.open_sizes.over_rows.sequences import with_sequences_in_front
from autofuse.graph.transform.open_sizes.repeats import Repeats, own_tensors
from autofuse.graph.transform.open_sizes.rows import is_over_rows
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.open_sizes.open_function import unless_empty
from autofuse.kernels.open_sizes.open_rows import are_joined, check_elements, tile_rows
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import HALF, PLAIN, BoundWorkload, bind_workload

Bound = tuple[Grouped, BoundWorkload, list[tuple[int, BoundWorkload]]]
"""A group, its workload at the size of the open graph, and that at each number of rows of a tile."""


def form_of_rows(context: Context, read: OpenModel) -> OpenForm:
    """What plans are looked up for."""
    opened, check = read.opened, partial(open_plan, context, read)
    return OpenForm(opened.graph, read.sha256, all_sizes(read.sizes, read.repeats), check, opened.open_axes)


def all_sizes(sizes: Sequence[OpenSize], repeats: Repeats | None) -> tuple[OpenSize, ...]:
    """The open sizes, that of the sequences before theirs."""
    return tuple(sizes) if repeats is None else (repeats.size, *sizes)


@dataclass(frozen=True, eq=False)
class OpenPlan:
    """A plan of a model with an open size: the graph that it leaves, and of each group its workload and its tiles."""

    opened: OpenLengths
    chosen: FoundPlan
    groups: tuple[Bound, ...]
    repeats: Repeats | None = None

    def of_call(self, group: Grouped, bound: BoundWorkload, sizes: Sequence[int], sequences: int) -> tuple[int, int]:
        """The rows that tiles of a group compute together in a call, and how often: for each sequence, where theirs are
        not joined. `sizes`: its lengths."""
        own = () if self.repeats is None else self.repeats.own
        size, rows = sizes[self.length(bound)], _rows_in(self.opened, bound)
        if not any(name in own for name in bound.inputs):
            return size, 1
        together = group.picked is None and joined(bound, rows, self.repeats)
        return (size * sequences, 1) if together else (size, sequences)

    def length(self, bound: BoundWorkload) -> int:
        """The number of the length whose rows a group of tiles computes."""
        return _length_of(_rows_in(self.opened, bound))

    @property
    def tiles(self) -> list[tuple[int, BoundWorkload]]:
        """Rows (0: all, of a kernel without an open size) and workload of every tile that has a schedule."""
        return [tile for group, _, tiles in self.groups if group.in_tiles for tile in tiles]

    @property
    def recurrences(self) -> list[BoundWorkload]:
        """The workloads of recurrences over all rows at the largest size, whose schedules are those of any number."""
        return [bound for group, _, tiles in self.groups if group.recurs for _, bound in tiles]

    @property
    def kernels(self) -> list[list[BoundWorkload]]:
        """The workloads of the tiles of each kernel that has such, the most rows first."""
        return [[bound for _, bound in tiles] for group, _, tiles in self.groups if group.in_tiles and tiles]


def open_plan(context: Context, read: OpenModel, chosen: FoundPlan) -> OpenPlan:
    """A plan in tiles. InputError for what cannot have an open size in the graph that it leaves."""
    checked, lowered = checked_plan(context, read.opened.graph, chosen)
    views = []
    for view, (twin_size, graph) in zip(read.opened.views, read.twins, strict=True):
        twin = Lowering(graph, context.environment.target, read.opened.graph).realised(checked.plan)
        found = open_graph(view.symbol, view.size, lowered.graph, twin_size, twin)
        views.append(replace(found, parts=view.parts, tails=view.tails))
    opened = with_own_operators(OpenLengths(tuple(views)))
    check_lengths(opened)
    repeats = read.repeats and replace(read.repeats, own=own_tensors(read.repeats, opened.graph))
    _check_kernels(opened, read.sizes, repeats)
    planned = [group.operators for group in checked.plan.groups]
    planned = behind_products(lowered.graph, planned, context.environment.target.l2_bytes)
    if repeats is not None:
        turned, repeats, turning = with_sequences_in_front(opened.views, repeats)
        opened = OpenLengths(turned)
        planned = [*planned, *((name,) for name in turning)]
    bounds = _bounds(opened, read, lowered, planned, repeats)
    return OpenPlan(opened, checked, tuple(bounds), repeats)


Tiled = tuple[OpenPart, dict[str, Found]]
"""A program in tiles, each with the best schedule that is known, and these by workload key."""


def tiled(context: Context, read: OpenModel, ranged: RangedPlan, caches: Caches, emission: Emission) -> Tiled:
    """The program of a plan, with the schedules that the ladder has for its tiles."""
    chosen = ranged.found
    planned = open_plan(context, read, chosen)
    caches = paired(planned.opened, caches)
    opened = planned.opened
    ladder = Ladder(context.database, context.environment, emission, chosen.limits, chosen.pinned)
    wanted = [bound for _, bound in planned.tiles]
    found = ladder.find(wanted, context.policy.measured_only)
    require_schedules(context.policy, wanted, found)
    found = with_shared_weights(ladder, planned.kernels, found) | ladder.find(planned.recurrences, False)
    emit = partial(group_kernel, opened, emission=emission, threads=context.threads, caches=caches)
    emit = partial(emit, own=planned.repeats.own if planned.repeats else ())
    empty = bool(read.emptied) or (planned.repeats is not None and not planned.repeats.size.low)

    def with_kernel(group: OpenGroup) -> OpenGroup:
        covered = replace(group, cover=group_cover(group, emission.target, context.threads))
        kernel = emit(covered)
        if kernel is not None and empty:
            kernel = unless_empty(kernel, len(group.bound.outputs))
        return replace(covered, kernel=kernel)

    scheduled = [_scheduled(group, bound, tiles, found) for group, bound, tiles in planned.groups]
    groups = [emitted(group, with_kernel, partial(_simplest, ladder=ladder)) for group in scheduled]
    key, tier = planned.chosen.plan.key, planned.chosen.tier
    return OpenPart(opened, read.sizes, tuple(groups), caches, key, tier, planned.repeats, ranged.most), found


def _check_kernels(opened: OpenLengths, sizes: Sequence[OpenSize], repeats: Repeats | None) -> None:
    """InputError for an operator with an open size that no family of ours emits, or a tensor that is too large."""
    own, most = (repeats.own, repeats.size.high) if repeats is not None else ((), 1)
    for name, tensor in opened.at(_highs(sizes)).tensors.items():
        if opened.has(name) or name in own:
            check_elements(tensor, most if name in own else 1)
    reached = {name for name in opened.graph.tensors if opened.has(name) or name in own}
    touching = [one for one in opened.graph.operators if not reached.isdisjoint((*one.inputs, *one.outputs))]
    in_families = [one for one in touching if not any(is_over_rows(view, one) for view in opened.views)]
    require_own(opened.graph, in_families, partial(refused, opened.symbol))


def _highs(sizes: Sequence[OpenSize]) -> dict[int, int]:
    """The largest lengths, by their numbers."""
    return {number: size.high for number, size in enumerate(sizes)}


def _rows_in(opened: OpenLengths, bound: BoundWorkload) -> dict[int, OpenAxis]:
    """The inputs and outputs of a group, by index, that are rows."""
    return {index: opened.axes[name] for index, name in bound.arguments if name in opened.axes}


def _length_of(rows: Mapping[int, OpenAxis]) -> int:
    """The number of the length whose rows a group of tiles computes."""
    return next((where.size for where in rows.values()), 0)


def _bounds(
    opened: OpenLengths, read: OpenModel, lowered: Lowered, planned: Sequence[tuple[str, ...]],
    repeats: Repeats | None,
) -> list[Bound]:  # fmt: skip
    """For each group its workload, and that at each number of rows of a tile; at 0 rows where it has no open size.

    That of an attention is at the largest sizes, where all that it reads has its place; so is that of a reduction over
    all rows.
    """
    sizes, groups = read.sizes, open_groups(opened, planned)
    largest = opened.at(_highs(sizes))
    at = cache(lambda length, count: opened.at({length: count}))
    layouts = _layouts(opened, groups, lowered)
    found: list[Bound] = []
    for group in groups:
        bound = bind_workload(opened.graph, group.operators, layouts)
        rows = _rows_in(opened, bound)
        length = _length_of(rows)
        size = sizes[length]
        _check_low(opened, read, group, rows)
        _check_rows_of(opened, group, bound)
        if is_free_reshape(bound.workload):
            counts: tuple[int, ...] = ()
        elif not group.in_tiles:
            counts = (size.high,)
        elif group.picked is not None:
            counts = (group.picked.rows,)
        else:
            most = size.high * (repeats.size.high if joined(bound, rows, repeats) and repeats else 1)
            counts = tile_rows(bound.workload, rows, opened.views[length].size, most) if rows else (0,)
        graphs = [(count, at(length, count) if count else opened.graph) for count in counts]
        graphs = graphs if group.in_tiles else [(count, largest) for count in counts]
        found.append(
            (group, bound, [(count, bind_workload(graph, group.operators, layouts)) for count, graph in graphs])
        )
    return found


def joined(bound: BoundWorkload, rows: Collection[int], repeats: Repeats | None) -> bool:
    """Whether the kernel of a group computes the rows of several sequences as those of one."""
    own = () if repeats is None else repeats.own
    return are_joined(rows, [index for index, name in bound.arguments if name in own])


def _layouts(opened: OpenLengths, groups: Sequence[Grouped], lowered: Lowered) -> dict[str, str]:
    """How tensors lie in memory: as the plan has them, but all plain between groups where a kernel of all rows at once
    reads or makes one that is not: it may know no other layout."""
    found: dict[str, str] = {}
    for bound in lowered.groups:
        for index, name in bound.arguments:
            found[name] = bound.workload.values[index].layout
    whole = [opened.graph.by_name[name] for group in groups if not group.in_tiles for name in group.operators]
    touched = {name for operator in whole for name in (*operator.inputs, *operator.outputs)}
    given = next(iter(sorted(touched & opened.graph.halves)), "")
    if given:
        operator = next(one for one in whole if given in (*one.inputs, *one.outputs))
        raise refused(opened.symbol, operator, f"its kernel of all rows at once does not know bfloat16 ({given!r})")
    halves = dict.fromkeys(opened.graph.halves, HALF)
    return halves if any(found.get(name, PLAIN) != PLAIN for name in touched) else found


def _check_rows_of(opened: OpenLengths, group: Grouped, bound: BoundWorkload) -> None:
    """InputError where a group of tiles has a tensor whose open size stands behind other axes: a tile cannot be cut out
    of it, and a kernel without tiles would be one of a single size."""
    arguments = [name for _, name in bound.arguments if opened.has(name)]
    view = is_free_reshape(bound.workload)
    for name in arguments if group.in_tiles and not view else ():
        if name not in opened.axes and name not in opened.parts:
            raise refused_grid(next(one for one in opened.views if one.has(name)), name)


def _check_low(opened: OpenLengths, read: OpenModel, group: Grouped, rows: Mapping[int, OpenAxis]) -> None:
    """InputError where a group cannot have as few rows as its lengths may have."""
    operator, least = opened.graph.by_name[group.operators[0]], group.picked.rows if group.picked is not None else 0
    keys = None if group.attention is None else group.attention.keys
    filled = {keys.size} if keys is not None and not keys.more else set[int]()
    filled |= set() if group.of_cache else {where.size for where in rows.values()}
    for number in sorted({where.size for where in rows.values()} | filled):
        size = read.sizes[number]
        if not size.low and number in filled - read.emptied:
            raise refused(size.name, operator, f"only a cache may be empty, so let {size.name} start at 1")
        if least > size.low:
            raise refused(size.name, operator, f"it picks from {least} of them, so let {size.name} start at {least}")


def _scheduled(
    group: Grouped, bound: BoundWorkload, tiles: Sequence[tuple[int, BoundWorkload]], found: Mapping[str, Found]
) -> OpenGroup:
    made = tuple(_tile(rows, tile, found) for rows, tile in tiles)
    return OpenGroup(
        bound, made, attention=group.attention, picked=group.picked, reduces=group.reduces, sums=group.sums,
        counts=group.counts, recurs=group.recurs, appends=group.appends, turns=group.turns, sequences=group.sequences,
        shift=group.shift,
    )  # fmt: skip


def _tile(rows: int, bound: BoundWorkload, found: Mapping[str, Found]) -> OpenTile:
    one = found.get(bound.workload.key)
    if one is None:
        return OpenTile(rows, bound, {}, RULE, "any number of rows")
    tier = TILE if one.tier == HIT and rows else one.tier
    return OpenTile(rows, bound, one.schedule, tier, one.source, one.us if tier == TILE else None)


def _simplest(group: OpenGroup, ladder: Ladder) -> OpenGroup | None:
    """A group under the simplest schedules; None for one that is not of tiles."""
    if not group.in_tiles:
        return None
    return replace(group, tiles=tuple(simplest_tile(tile, ladder) for tile in group.tiles))
