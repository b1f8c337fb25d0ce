"""Time against memory: peaks of known plans, and a front without beaten points."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.backend.compile.host_cpu import device_named
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.fusion.planner.baselines import none_plan
from autofuse.fusion.planner.planner import Planner
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.lowering.memory import peak_bytes
from autofuse.search.composition.pareto import Point, front, plan_front
from autofuse.search.plans.plan_search import PlanSearch

FULL = 8 * 16 * 4


def wide() -> Graph:
    """Three branches from one tensor, added up: unfused, three results are alive at once."""
    shape = (8, 16)
    wires = {"a": "x", "b": "x", "c": "x", "ab": "a b", "abc": "ab c", "flat": "abc shape", "y": "flat"}
    types = {"ab": "Add", "abc": "Add", "flat": "Reshape", "y": "Exp"}
    sizes = {"flat": (128,), "y": (128,), "shape": (1,)}
    names = ("x", "shape", *wires)
    tensors = {n: Tensor(n, sizes.get(n, shape), "int64" if n == "shape" else "float32") for n in names}
    operators = tuple(Operator(n, types.get(n, "Relu"), tuple(r.split()), (n,)) for n, r in wires.items())
    return Graph("wide", ("x",), ("y",), operators, tensors, {"shape": np.array([128])}, 18)


@pytest.mark.parametrize(
    ("groups", "tensors"),
    [
        ("a|b|c|ab|abc|flat|y", 4),  # a, b, c, and the sum of two; the view of the sum costs nothing
        ("a b c ab abc|flat|y", 2),
        ("a b c ab abc flat y", 1),
        ("a|b ab|c abc|flat|y", 2),
    ],
)
def test_the_peak_is_what_is_alive_at_once(groups: str, tensors: int) -> None:
    graph = wide()
    plan = FusionPlan(tuple(Group(tuple(group.split())) for group in groups.split("|")))
    lowered = Lowering(graph, device_named("local").target()).lower(plan)
    assert peak_bytes(lowered) == tensors * FULL


def test_a_front_holds_no_beaten_point() -> None:
    plan = FusionPlan(())
    points = [Point(plan, us, size, 1) for us, size in ((3.0, 50), (1.0, 100), (2.0, 100), (2.5, 60), (4.0, 60))]
    assert [(point.us, point.peak_bytes) for point in front(points)] == [(1.0, 100), (2.5, 60), (3.0, 50)]
    assert front([]) == []


@pytest.mark.long
def test_the_front_of_a_tuned_model_has_the_fastest_plan_and_its_files_are_plans(
    run: Callable[..., Any], device: Any, two_layers: Path, tmp_path: Path
) -> None:
    """Here fused kernels are slow, so that the fastest plan is not the smallest."""
    device.cost = lambda workload, _schedule: 10.0 * len(workload.operators) ** 1.5
    result = run(two_layers)
    graph = load(two_layers, {})
    points = plan_front(graph, Place(str(tmp_path / "profile.db"), threads=1), tmp_path / "plans")
    assert len(points) > 1
    assert points[0].us == pytest.approx(result.composition.composed_us)
    times, sizes = [point.us for point in points], [point.peak_bytes for point in points]
    assert times == sorted(times) and sizes == sorted(sizes, reverse=True)
    lowering = Lowering(graph, device_named("local").target())
    for point in points:
        plan = FusionPlan.from_json(Path(point.file).read_text(encoding="utf-8"))
        assert peak_bytes(lowering.lower(plan)) == point.peak_bytes
    assert sizes[-1] <= peak_bytes(lowering.lower(none_plan(graph)))
    assert json.loads(Path(points[0].file).read_text(encoding="utf-8"))["groups"]


def test_memory_is_a_second_objective_when_asked_for(run: Callable[..., Any], device: Any, two_layers: Path) -> None:
    device.cost = lambda workload, _schedule: 10.0 * len(workload.operators) ** 1.5
    assert run(two_layers).front == ()
    found = run(two_layers, pareto=True).front
    assert len(found) > 1, "the fastest plan is not the smallest"
    assert found == tuple(sorted(found, key=lambda point: point.us))
    sizes = [point.peak_bytes for point in found]
    assert sizes == sorted(set(sizes), reverse=True)


def test_the_sampler_hears_of_both_objectives(two_layers: Path) -> None:
    search = PlanSearch(Planner(load(two_layers, {})), 0, second=lambda plan: len(plan.groups))
    for _ in range(12):
        asked = search.ask()
        if asked is None:
            break
        _, answers, plan = asked
        search.tell(answers, plan, 100.0 / len(plan.groups))
    told = [trial.values for trial in search.study.trials if trial.values]
    assert len(search.study.directions) == 2
    assert len({kernels for _, kernels in told}) > 1
    assert all(us == 100.0 / kernels for us, kernels in told)


def test_a_model_that_was_never_tuned_has_no_front(two_layers: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run `autofuse tune` first"):
        plan_front(load(two_layers, {}), Place(str(tmp_path / "no.db"), threads=1))
