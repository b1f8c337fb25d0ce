"""Everything that a search may find, counted and timed without it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from autofuse.backend.compile.host_cpu import device_named
from autofuse.database.database import open_database
from autofuse.environment.space import load_space
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Planner
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.workload.workload import Workload
from autofuse.search.schedules.schedule_search import WorkloadSearch


def kinds(workload: Workload) -> tuple[str, ...]:
    return tuple(operator.op_type for operator in workload.operators)


def rows(database: Path, view: str) -> list[dict[str, Any]]:
    with open_database(database, read_only=True) as opened:
        assert opened.problems() == []
        return opened.table(view).records()


def all_plans(model: Path, space: Path) -> dict[str, FusionPlan]:
    """Every plan that any answers make, by key."""
    planner = Planner(load(model, {}), load_space(str(space), "generic").fusion)
    names = [decision.name for decision in planner.decisions]
    answers = product(*(decision.choices for decision in planner.decisions))
    plans = [planner.plan(dict(zip(names, chosen, strict=True))) for chosen in answers]
    return {plan.key: plan for plan in plans}


def composed(model: Path, plan: FusionPlan, cost: Callable[[Workload], float], launch_us: float) -> float:
    """Time of a plan whose kernels take `cost`, whatever their schedules."""
    target = device_named("local").target()
    lowered = lower(load(model, {}), plan, target, [group.operators for group in plan.groups])
    return sum(cost(bound.workload) + launch_us for bound in lowered.kernels)


def schedule_counts(model: Path, space: Path) -> dict[str, int]:
    """Workload key -> schedules it has, of every workload of every plan."""
    target, graph = device_named("local").target(), load(model, {})
    knobs = load_space(str(space), target.isa).schedule
    counts = {}
    for plan in all_plans(model, space).values():
        lowered = lower(graph, plan, target, [group.operators for group in plan.groups])
        for bound in lowered.kernels:
            counts[bound.workload.key] = WorkloadSearch.create(bound, lowered.graph, target, knobs, 0).limit
    return counts
