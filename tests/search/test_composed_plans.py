"""Exact composition inside a search: groups of several plans make a better one, and it is measured whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.fusion.plan import FusionPlan
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.measurement import Failure
from autofuse.search.progress import TuneResult

Tune = Callable[..., TuneResult]


@pytest.fixture
def only_fixed_plans(space: Path) -> Path:
    """A space without any decision on an edge: the search has only the fixed plans."""
    text = space.read_text(encoding="utf-8")
    path = space.with_name("fixed.toml")
    path.write_text(text + '\n[fusion]\ndecide = ["seed"]\n', encoding="utf-8")
    return path


def uneven(workload: Workload, _schedule: object) -> float:
    """The first layer gains by being one kernel; everything after it loses by sharing one."""
    kinds = [operator.op_type for operator in workload.operators]
    first = any(workload.values[index].shape[-1] == 16 for index in workload.of_kind("input"))
    if first and "MatMul" in kinds:
        return 20.0 if len(kinds) > 1 else 60.0
    return 10.0 if len(kinds) == 1 else 400.0


def apart(workload: Workload, schedule: object) -> float:
    """As `uneven`, and both layers in one kernel are slow: no fixed plan is the best one."""
    kinds = [operator.op_type for operator in workload.operators]
    return 400.0 if kinds.count("MatMul") > 1 else uneven(workload, schedule)


def test_the_best_of_two_plans_group_by_group_is_found_raced_and_reported(
    run: Tune, device: Any, two_layers: Path, only_fixed_plans: Path, tmp_path: Path
) -> None:
    device.cost = apart
    result = run(two_layers, space=str(only_fixed_plans))
    report = result.composition
    assert report is not None and report.sampled_us is not None and report.gap is not None
    assert report.composed_us < report.sampled_us
    assert report.gap == pytest.approx(report.sampled_us / report.composed_us - 1)
    assert report.bound_us == pytest.approx(report.composed_us)
    assert "composed" in device.raced or result.plans["search"].composed_us == pytest.approx(report.composed_us)
    assert result.plans[result.chosen].composed_us == pytest.approx(report.composed_us)
    with open_database(tmp_path / "profile.db", read_only=True) as base:
        assert base.problems() == []
        info = base.run(result.run_id)
        text = base.plan(result.plan_key)
    assert info is not None and info.summary is not None
    assert info.summary["composition"]["gap"] == pytest.approx(report.gap)  # type: ignore[index, call-overload]
    assert text is not None
    groups = [set(group.operators) for group in FusionPlan.from_json(text).groups]
    assert any({"first_matmul", "relu"} <= group or len(group) >= 2 for group in groups)
    assert {"softmax"} in groups


@pytest.mark.parametrize("world", range(3))
def test_no_sampled_plan_is_faster_than_the_composed_one(world: int, run: Tune, device: Any, two_layers: Path) -> None:
    device.cost = lambda workload, _schedule: 10.0 + 90.0 * device.chance(world, workload.key)
    report = run(two_layers).composition
    assert report is not None and report.gap is not None
    assert report.gap >= -1e-9
    assert report.bound_us <= report.composed_us * (1 + 1e-9)


def test_what_is_measured_again_at_the_end_counts_on_both_sides_of_the_gap(
    run: Tune, device: Any, two_layers: Path
) -> None:
    """In the noise of a search every kernel seems to take four times as long; the finale measures its winners again."""
    phases = [""]
    device.trusted = lambda _workload: phases[-1] == "confirming"
    device.cost = lambda workload, _schedule: uneven(workload, None) * (1.0 if phases[-1] == "confirming" else 4.0)
    result = run(two_layers, progress=lambda state: phases.append(state.phase))
    report = result.composition
    assert report is not None and report.sampled_us is not None and report.gap is not None
    best_us = min(time.composed_us for time in result.plans.values() if time.composed_us is not None)
    assert report.composed_us == pytest.approx(best_us)
    assert report.gap == pytest.approx(report.sampled_us / report.composed_us - 1)
    assert 0 <= report.gap < 0.5, "both sums know the new times"


def test_the_experiment_says_the_same_from_the_database(
    run: Tune, device: Any, two_layers: Path, only_fixed_plans: Path, tmp_path: Path
) -> None:
    from experiments.composition.run import markdown, rows_of

    device.cost = apart
    report = run(two_layers, space=str(only_fixed_plans)).composition
    assert report is not None
    whole, *regions = rows_of(two_layers, tmp_path / "profile.db")
    assert whole.exact_us == pytest.approx(report.composed_us)
    assert whole.gap > 0
    assert sum(row.exact_us * row.copies for row in regions) <= whole.exact_us + 1e-6
    assert all(row.exact_us <= row.region_us + 1e-9 <= row.sampled_us + 2e-9 for row in regions)
    assert "| two_layers | **whole** |" in markdown([whole, *regions])


def test_a_group_without_any_kernel_is_refused_and_its_trial_planned_again(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    """No kernel with a Softmax and something else works: plans that put it into one are made again without it."""

    def cost(workload: Workload, _schedule: object) -> float | Failure:
        kinds = [operator.op_type for operator in workload.operators]
        return Failure("build_error", "no tile fits") if "Softmax" in kinds and len(kinds) > 1 else 10.0

    device.cost = cost
    run(two_layers)
    with open_database(tmp_path / "profile.db", read_only=True) as base:
        trials = base.table("trials")
    place = {column: index for index, column in enumerate(trials.columns)}
    assert [row for row in trials.rows if row[place["state"]] != "complete"] == []
