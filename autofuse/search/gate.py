"""The numerical gate: a model that Winograd's rounding carries too far gets smaller tiles, or none.

Each kernel is right within its own limit, but a deep network may magnify what is left (detectors do: the places of
their boxes depend on each other).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from autofuse.errors import WrongResultError
from autofuse.fusion.plan import WINOGRAD_TILES, FusionPlan
from autofuse.graph.key import graph_key
from autofuse.kernels.tile_limit import winograd_tile
from autofuse.measure.libraries import Model
from autofuse.search.finals import conclude
from autofuse.search.progress import PlanTime
from autofuse.search.workbench import Workbench

Concluded = tuple[dict[str, PlanTime], tuple[str, FusionPlan]]


def conclude_right(
    bench: Workbench,
    plans: Mapping[str, FusionPlan],
    model: Model,
    folder: Path,
    seconds: float,
    tell: Callable[[str], None],
) -> Concluded:
    """`finals.conclude`; where no plan is right as a whole, again with the next smaller tiles, then without."""
    while True:
        limited = {name: replace(plan, winograd=bench.winograd) for name, plan in plans.items()}
        if bench.winograd != WINOGRAD_TILES[0]:
            _prepare(bench, limited)
        try:
            return conclude(bench, limited, model, folder, seconds, tell)
        except WrongResultError:
            schedules = [schedule for plan in plans.values() for schedule in bench.schedules(plan).values()]
            taken = max(map(winograd_tile, schedules), default=0)
            if not taken:
                raise
            bench.limit_tiles(max(tile for tile in WINOGRAD_TILES if tile < taken))
            tell("no plan is right as a whole: once more with smaller tiles of Winograd's algorithm")


def _prepare(bench: Workbench, plans: Mapping[str, FusionPlan]) -> None:
    """A time for every workload of plans that may not have the schedules which were measured for them."""
    for name, plan in plans.items():
        bench.database.record_plan(graph_key(bench.graph), plan.key, plan.to_json(), name)
        bench.measure_first(bench.missing(plan))
