"""Plans that are fast and plans that need little memory: the front between the two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.database.database import ProfilingDatabase, open_for_lookup
from autofuse.database.records import Setting
from autofuse.environment.environment import Environment
from autofuse.environment.place import Place
from autofuse.environment.plan_evidence import fitting, known_limits, known_pieces, lowered_plans, stored_plans
from autofuse.errors import InputError, PlanError
from autofuse.fusion.evidence import LAUNCH_US, Piece
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import NO_LIMITS, FusionPlan, ScheduleLimits
from autofuse.fusion.skeleton import settled
from autofuse.graph.key import graph_key
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.lowering.memory import peak_bytes
from autofuse.search.composition.composition import compose
from autofuse.values.outputs import Kind, all_or_none, check_output, output_folder, read_text, write_output

PRICES_US_PER_MB = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 1e4, 1e5)
"""What a megabyte written between kernels costs in the compositions that are tried, besides time."""


@dataclass(frozen=True)
class Point:
    """A plan that no other known plan beats in both time and memory.

    `us`: sum of its groups' measured times; `peak_bytes`: of the tensors between its kernels (see
    `autofuse.kernels.lowering.memory`); `file`: where its plan was written, if it was. `limits`: of its schedules.
    """

    plan: FusionPlan
    us: float
    peak_bytes: int
    kernels: int
    file: str = ""
    limits: ScheduleLimits = NO_LIMITS


def front(points: Iterable[Point]) -> list[Point]:
    """The points that no other one beats, the fastest first; of equal points the one with fewer kernels."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda one: (one.us, one.peak_bytes, one.kernels)):
        if not kept or point.peak_bytes < kept[-1].peak_bytes:
            kept.append(point)
    return kept


def plan_front(graph: Graph, place: Place, folder: Path | None = None) -> tuple[Point, ...]:
    """The front of everything that the database knows of `graph` here; InputError when it knows no plan.

    The plans are those that were searched, and compositions of all their groups under rising prices of memory: each
    point's time and memory are exact, that no better point exists is not proven. `folder`: where plan files go.
    """
    with open_for_lookup(place.database) as base:
        found = known_front(graph, base, place.environment(base, measuring=False))
        asked = base.location.text
    if not found:
        raise InputError(f"{asked} knows no plan of this model with a time for each group: run `autofuse tune` first")
    return tuple(_written(found, folder)) if folder is not None else tuple(found)


def known_front(graph: Graph, base: ProfilingDatabase, environment: Environment) -> list[Point]:
    """The front of what `base` knows of `graph` in these circumstances; see `plan_front`."""
    lowering = Lowering(graph, environment.target)
    known = lowered_plans(lowering, stored_plans(graph, base))
    limits = known_limits(base, environment.setting, graph_key(graph))
    plans = {plan.key: (plan, lowered) for plan, lowered in known}
    for rewrites in dict.fromkeys(plan.rewrites for plan, _ in known):
        variant, _ = settled(graph, FusionPlan((), rewrites=rewrites))
        alike = [(plan, lowered) for plan, lowered in known if plan.rewrites == rewrites]
        for bare in _composed(variant, known_pieces(graph, alike, base, environment.setting, limits)):
            plan = replace(bare, rewrites=rewrites)
            if plan.key not in plans:
                plans[plan.key] = plan, lowering.lower(plan)
    return front(_timed(plans.values(), base, environment.setting, limits))


def _composed(graph: Graph, pieces: Sequence[Piece]) -> list[FusionPlan]:
    """Best plans under each price of a byte that a group writes."""
    plans: list[FusionPlan] = []
    written = {piece.identity: _written_bytes(graph, piece) for piece in pieces if piece.span is not None}
    for price in PRICES_US_PER_MB:
        costs = {
            piece.identity: piece.span.us + price * written[piece.identity] / 1e6
            for piece in pieces
            if piece.span is not None
        }
        found = compose(graph, pieces, costs)
        if found is None:
            return plans
        try:
            check_plan(graph, found.plan)
        except PlanError:
            continue
        plans.append(found.plan)
    return plans


def _written_bytes(graph: Graph, piece: Piece) -> int:
    _, writes = graph.boundary(tuple(piece.covers))
    return sum(graph.tensors[name].size_bytes for name in writes)


def _timed(
    plans: Iterable[tuple[FusionPlan, Lowered]], base: ProfilingDatabase, setting: Setting, limits: ScheduleLimits
) -> list[Point]:
    """The plans all of whose kernels have a time within the limits."""
    pairs = list(plans)
    keys = {bound.workload.key for _, lowered in pairs for bound in lowered.kernels}
    known = base.lookup(setting, keys, fitting(limits))
    points = []
    for plan, lowered in pairs:
        kernels = [bound.workload.key for bound in lowered.kernels]
        if all(key in known for key in kernels):
            us = sum(known[key].median_us + LAUNCH_US for key in kernels)
            points.append(Point(plan, us, peak_bytes(lowered), len(kernels), limits=limits))
    return points


def _written(points: Sequence[Point], folder: Path) -> list[Point]:
    files = [folder / f"plan-{number}.json" for number in range(len(points))]
    for file in files:  # before the first is written: all of them, or none
        check_output(file, PLAN, option="--save")
    with all_or_none([folder], files):
        output_folder(folder, option="--save")
        for point, file in zip(points, files, strict=True):
            write_output(file, point.plan.to_json(point.limits), PLAN, option="--save")
    return [replace(point, file=str(file)) for point, file in zip(points, files, strict=True)]


def _is_plan(path: Path) -> bool:
    try:
        FusionPlan.from_json(read_text(path))
    except (ValueError, OSError):  # PlanError, and what is no text
        return False
    return True


PLAN = Kind("a plan of autofuse", _is_plan)
