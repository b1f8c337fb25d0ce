"""What compiles with open sizes share, of rows and of images: what is refused, and the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from autofuse.backend.compile.open_sizes.open_program import OpenGroup, OpenPart, OpenTile
from autofuse.backend.container.open_spec import part_text
from autofuse.compiler.context import Context, Policy
from autofuse.compiler.open_sizes.plans import RangedPlan
from autofuse.compiler.report import HIT, MEASURED_HERE, RULE, CompileReport, GroupReport, PlanReport
from autofuse.compiler.schedule_ladder import Found, Ladder
from autofuse.device.target import Target
from autofuse.errors import AutofuseError, StrictMissError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.model import Graph, Operator
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.schedule.weight_size import held_bytes, model_bytes
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import BoundWorkload, Workload, bind_workload
from autofuse.segments.choice import Choice
from autofuse.segments.report import part_reports, rest_reports
from autofuse.values.arguments import file_title

Group = TypeVar("Group")


def require_own(graph: Graph, operators: Iterable[Operator], refused: Callable[[Operator, str], AutofuseError]) -> None:
    """Raises what `refused` makes of the first of `operators` that no family of ours emits."""
    for operator in operators:
        workload = bind_workload(graph, [operator.name], {}).workload
        if not is_own(workload) and not is_free_reshape(workload):
            raise refused(operator, "only kernels of fixed sizes are made for it")


def require_schedules(policy: Policy, wanted: Sequence[BoundWorkload], found: Mapping[str, Found]) -> None:
    """StrictMissError where a tile has no schedule, or one of other versions or code that the policy does not take."""
    missing = [bound.workload.label for bound in wanted if bound.workload.key not in found]
    stale = [] if missing else [bound.workload.label for bound in wanted if found[bound.workload.key].tier != HIT]
    advice = f"run `autofuse tune` with the same --sizes, or compile {policy.without}"
    if missing:
        raise StrictMissError(
            f"{len(missing)} of {len(wanted)} tiles have no measured schedule, such as {missing[0]}: {advice}"
        )
    if stale and policy.require_complete:
        raise StrictMissError(
            f"{len(stale)} of {len(wanted)} tiles were measured with other versions or other code, such as {stale[0]}: "
            f"{advice}"
        )


def sharing(kernels: Iterable[Sequence[BoundWorkload]], target: Target) -> list[tuple[Workload, Workload]]:
    """The tiles that should pack their weights as the first one of their kernel does, each with that first one.

    All, where the weights of all kernels do not fit the second cache: a tile of few rows then waits for its weights,
    and reads panels of another width hardly slower. `kernels`: the tiles of each, the most rows first.
    """
    several = [[bound.workload for bound in tiles] for tiles in kernels]
    if sum(model_bytes(tiles[0]) for tiles in several) <= target.l2_bytes:
        return []
    return [(other, first) for first, *others in several for other in others if model_bytes(first)]


def with_shared_weights(
    ladder: Ladder, kernels: Iterable[Sequence[BoundWorkload]], found: Mapping[str, Found]
) -> dict[str, Found]:
    """`found`, in which the tiles of a kernel pack weights alike that should be stored once; see `sharing`."""
    return ladder.packed_like(sharing(kernels, ladder.target), found)


def emitted(group: Group, emit: Callable[[Group], Group], simplest: Callable[[Group], Group | None]) -> Group:
    """A group with the kernel that `emit` gives it: where its schedules fail, with the `simplest` ones.

    What `emit` raises, where these fail, too, or there are none.
    """
    try:
        return emit(group)
    except Exception:  # a schedule or TVM may raise anything
        simple = simplest(group)
        if simple is None:
            raise
        return emit(simple)


def simplest_tile(tile: OpenTile, ladder: Ladder) -> OpenTile:
    """A tile under the schedule of the least code."""
    return replace(tile, schedule=ladder.simplest(tile.bound.workload), tier=RULE, source="", us=None)


def tile_report(
    tile: OpenTile, operators: tuple[str, ...], where: str, found: Mapping[str, Found], plan: int = 0
) -> GroupReport:
    """What is said of a tile of a group; `where`: which tile it is, "" for a group that has one alone. `plan`: the
    number of its plan."""
    one = found.get(tile.bound.workload.key)
    taken = one if tile.tier != RULE else None
    return GroupReport(
        tile.bound.workload.label, operators, tile.tier, None if taken is None else taken.us,
        json.dumps(dict(tile.schedule), sort_keys=True), "; ".join(text for text in (where, tile.source) if text), plan,
        None if taken is None else taken.trusted,
    )  # fmt: skip


def reports_of_rows(part: OpenPart, found: Mapping[str, Found], plan: int = 0, where: str = "") -> list[GroupReport]:
    """What is said of the tiles of a program over rows; `where`: said before what each tile is. `plan`: the number of
    its plan."""
    return [
        _tile_of_rows(part, group, tile, found, plan, where, "" if place else group.cover_text)
        for group in part.groups
        for place, tile in enumerate(group.tiles)
    ]


def _tile_of_rows(
    part: OpenPart, group: OpenGroup, tile: OpenTile, found: Mapping[str, Found], plan: int, where: str, cover: str
) -> GroupReport:
    """The report of a tile; `cover`: which tiles its kernel takes for how many rows, said of the first one."""
    graph = part.opened.graph
    operators = tuple(dict.fromkeys(graph.producers[name].name for name in group.bound.outputs))
    rows = f"tile of {tile.rows} row{'s' * (tile.rows > 1)}" if tile.rows and group.in_tiles else ""
    return tile_report(tile, operators, "; ".join(text for text in (where, rows, cover) if text), found, plan)


@dataclass(frozen=True)
class ReportedPlan:
    """A plan of a library, what is said of its tiles, and the first tile of each of its kernels."""

    ranged: RangedPlan
    groups: Sequence[GroupReport]
    firsts: Sequence[OpenTile]


def with_parts(report: CompileReport, choice: Choice | None, sizes: Sequence[OpenSize]) -> CompileReport:
    """A report with what ONNX Runtime runs of the model, where that is a part; `sizes`: the model's open ones."""
    if choice is None:
        return report
    return replace(report, parts=part_reports(choice), rest=rest_reports(choice), **_ranges(sizes))


def _ranges(sizes: Sequence[OpenSize]) -> dict[str, Any]:
    """Open sizes as a report has them."""
    steps = {size.name: size.step for size in sizes if size.step > 1}
    return {"sizes": {size.name: (size.low, size.high) for size in sizes}, "steps": steps}


def open_report(
    context: Context,
    model: Path,
    output: Path | None,
    plans: Sequence[ReportedPlan],
    shapes: Mapping[str, tuple[int, ...]],
    sizes: Sequence[OpenSize],
    seconds: float,
) -> CompileReport:
    """What is said of a library with open `sizes`; `shapes`: of its inputs at the largest sizes."""
    target, names = context.environment.target, [size.name for size in sizes]
    told: list[PlanReport] = []
    above: int | None = None
    for one in plans:
        found, part = one.ranged.found, part_text(names, above, one.ranged.most)
        told.append(
            PlanReport(dict(shapes), found.source, found.tier, found.plan.key, len(one.firsts), found.trusted, part)
        )
        above = one.ranged.most
    groups, firsts = ([item for one in plans for item in getattr(one, name)] for name in ("groups", "firsts"))
    return CompileReport(
        model=file_title(model),
        library="" if output is None else str(output),
        plan=told[0].plan,
        plan_tier=told[0].tier,
        plan_key=told[0].plan_key,
        threads=context.threads,
        device=context.environment.profile.name,
        kernels=told[0].kernels,
        hits=sum(group.tier in MEASURED_HERE for group in groups),
        size_bytes=0 if output is None else output.stat().st_size,
        elapsed_s=seconds,
        groups=tuple(groups),
        weights_bytes=sum(model_bytes(tile.bound.workload) for tile in firsts),
        held_weights_bytes=sum(held_bytes(tile.bound.workload, tile.schedule, target) for tile in firsts),
        plans=tuple(told),
        **_ranges(sizes),
    )
