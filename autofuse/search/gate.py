"""The numerical gate: a model that Winograd's rounding carries too far gets smaller tiles, or none.

Each kernel is right within its own limit, but a deep network may magnify what is left (detectors do: the places of
their boxes depend on each other).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from autofuse.errors import WrongResultError
from autofuse.fusion.plan import LARGEST_TILE, WINOGRAD_TILES, FusionPlan
from autofuse.kernels.schedule.limits import winograd_tile
from autofuse.search.finals import Concluded
from autofuse.search.workbench import Workbench


def right_as_a_whole(
    bench: Workbench,
    plans: Mapping[str, FusionPlan],
    attempt: Callable[[Mapping[str, FusionPlan]], Concluded],
    tell: Callable[[str], None],
) -> Concluded:
    """What `attempt` makes of the plans; where none is right as a whole, with smaller tiles, at last without."""
    while True:
        limited = {name: replace(plan, winograd=bench.winograd) for name, plan in plans.items()}
        if bench.winograd != LARGEST_TILE:
            _prepare(bench, limited)
        try:
            return attempt(limited)
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
        bench.record_plan(plan, name)
        bench.measure_first(bench.missing(plan))
