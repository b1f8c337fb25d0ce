"""The candidates that are timed and built: the rules' first guess for each kernel of a model's default plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autofuse.device.target import Target
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.kernels.workload.workload import BoundWorkload

Candidate = tuple[BoundWorkload, Mapping[str, int | str]]


def candidates_of(model: Path, target: Target) -> tuple[Graph, list[Candidate]]:
    """The realised graph, and one candidate for each of its distinct workloads."""
    graph = load(model, {})
    plan = default_plan(graph)
    lowered = lower(graph, plan, target, [group.operators for group in plan.groups])
    distinct = {bound.workload.key: bound for bound in lowered.kernels}
    return lowered.graph, [
        (bound, first_schedules(bound.workload, open_knobs(bound.workload, target, {}), target)[0])
        for bound in distinct.values()
    ]
