"""Sums of kernels are wrong of whole networks: races of those correct them, and the search goes by what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.workload.workload import Workload
from autofuse.search.progress import TuneResult
from autofuse.search.schedules.beyond_sums import BeyondSums, Summed, Whole, kind_of
from tests.search.conftest import LAUNCH_US
from tests.search.whole_spaces import all_plans, composed, kinds, rows

Tune = Callable[..., TuneResult]
KINDS = {"product": "contraction", "relu": "no contraction", "softmax": "no contraction", "both": "fused contraction"}
APART, FUSED = Summed({"product": 60.0, "relu": 40.0}, 0.6), Summed({"both": 100.0}, 0.3)


def test_a_kind_that_takes_less_inside_is_corrected_and_so_are_its_others() -> None:
    beyond = BeyondSums()
    beyond.learn(FUSED, [Whole(APART, 0.7, 0.005)], KINDS)
    assert beyond.factor("relu", KINDS["relu"]) < 0.9
    assert beyond.factor("softmax", KINDS["softmax"]) < 0.95, "it was in no race, and is of the kind"
    assert beyond.factor("relu", KINDS["relu"]) < beyond.factor("softmax", KINDS["softmax"])
    assert beyond.factor("other", "a kind in no race") == 1.0


def test_a_race_that_agrees_with_the_sums_changes_nothing() -> None:
    beyond = BeyondSums()
    beyond.learn(FUSED, [Whole(APART, APART.us / FUSED.us, 0.005)], KINDS)
    assert all(beyond.factor(key, kind) == pytest.approx(1.0) for key, kind in KINDS.items())


def test_a_noisy_race_teaches_less() -> None:
    sure, noisy = BeyondSums(), BeyondSums()
    sure.learn(FUSED, [Whole(APART, 0.7, 0.005)], KINDS)
    noisy.learn(FUSED, [Whole(APART, 0.7, 0.5)], KINDS)
    assert sure.factor("relu", KINDS["relu"]) < noisy.factor("relu", KINDS["relu"]) < 1.0


def test_what_was_learned_explains_the_race_and_is_bounded() -> None:
    beyond = BeyondSums()
    beyond.learn(FUSED, [Whole(APART, 0.8, 0.001)], KINDS)
    apart, fused = (
        sum(us * beyond.factor(key, KINDS[key]) for key, us in one.kernels.items()) + one.launches_us
        for one in (APART, FUSED)
    )
    assert apart / fused == pytest.approx(0.8, rel=0.02)
    beyond.learn(FUSED, [Whole(APART, 0.01, 0.001)], KINDS)
    assert all(0.3 <= beyond.factor(key, kind) <= 2.0 for key, kind in KINDS.items())


def inside(device: Any, world: int) -> Callable[[Workload], float]:
    """What a kernel takes inside the network, as a part of its time alone: by its kind, and a little by itself."""
    return lambda workload: (
        (0.5 + device.chance(world, kind_of(workload))) * (0.95 + 0.1 * device.chance(world, "inside", workload.key))
    )


def raced_by(device: Any, factor: Callable[[Workload], float]) -> Callable[..., dict[str, str]]:
    """Builds "libraries" whose kernels take what they take inside a network."""

    def build(model: Any, target: Any, threads: int, orders: Any, tell: Any, **_named: Any) -> dict[str, str]:
        graph = load(model.path, model.given)
        for order in orders:
            lowered = lower(graph, order.plan, target, [group.operators for group in order.plan.groups])
            total = sum(
                device.cost(one.workload, order.schedules[one.workload.key]) * factor(one.workload) + LAUNCH_US
                for one in lowered.kernels
            )
            order.output.write_text(json.dumps(total))
            device._graphs[order.output] = lowered.graph
        return {}

    return build


def regret(run: Tune, device: Any, model: Path, space: Path, world: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """By how much the chosen plan is slower as a whole than the best of all plans."""

    def cost(workload: Workload, _schedule: object = None) -> float:
        alone = sum(10.0 + 30.0 * device.chance(world, kind) for kind in kinds(workload))
        return float(alone * (0.7 + 0.6 * device.chance(world, workload.key)))

    device.cost = cost
    factor = inside(device, world)
    monkeypatch.setattr("autofuse.search.finals.finals.build_libraries", raced_by(device, factor))
    result = run(model)
    best = min(
        composed(model, plan, lambda workload: cost(workload) * factor(workload), LAUNCH_US)
        for plan in all_plans(model, space).values()
    )
    median_us = result.plans[result.chosen].median_us
    assert median_us is not None
    return median_us / best - 1.0


@pytest.mark.parametrize("world", [9, *(pytest.param(world, marks=pytest.mark.long) for world in (5, 15))])
def test_races_on_the_way_never_lead_the_search_astray(
    world: int, run: Tune, device: Any, two_layers: Path, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of each kind take half to one and a half times as long inside. In world 15 all finalists by sums are more
    than a tenth slower than the best plan."""
    found = regret(run, device, two_layers, space, world, monkeypatch)
    early = len(device.raced)
    monkeypatch.setattr("autofuse.search.phases.questions.EARLY_SHARE", -1.0)
    (tmp_path / "profile.db").unlink()
    without = regret(run, device, two_layers, space, world, monkeypatch)
    assert found <= without + 0.02, "the race is off by 1 %"
    assert len(device.raced) - early <= early
    if world == 15:
        assert without > 0.1 and found < 0.02


def test_a_search_says_what_its_races_took(run: Tune, device: Any, two_layers: Path, tmp_path: Path) -> None:
    def cost(workload: Workload, _schedule: object) -> float:
        return 500.0 if {"MatMul", "Softmax"} <= set(kinds(workload)) else 10.0

    device.cost = cost
    result = run(two_layers)
    assert any(one.kind == "whole networks" and one.asked for one in result.questions)
    (stored,) = rows(tmp_path / "profile.db", "runs")
    raced = stored["summary"]["whole_networks"]
    assert raced and all(one["whole"] == pytest.approx(one["by_sums"], rel=0.05) for one in raced), "so it is here"
    finalists = rows(tmp_path / "profile.db", "plan_measurements")
    assert {row["name"] for row in finalists} <= set(result.plans), "one time for each finalist"


def test_no_race_is_run_where_it_would_take_much_of_the_time_that_is_left(
    run: Tune, device: Any, two_layers: Path
) -> None:
    device.cost = lambda workload, _schedule: 500.0 if {"MatMul", "Softmax"} <= set(kinds(workload)) else 10.0
    assert not any(one.kind == "whole networks" for one in run(two_layers, budget_s=20.0).questions)
