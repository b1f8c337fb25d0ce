"""Whole searches on a synthetic device: what is measured, what is reused, which plan comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.cli.screens.live import line
from autofuse.errors import DatabaseError, DeviceError, PlanError, WrongResultError
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.measurement import Failure
from autofuse.search.progress import Progress, TuneResult
from tests.search.whole_spaces import all_plans, composed, kinds, rows, schedule_counts

Tune = Callable[..., TuneResult]
BROKEN = Failure("build_error", "LLVM said no")


@pytest.mark.long
def test_a_search_that_ends_has_tried_every_candidate_once(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path, space: Path
) -> None:
    result = run(two_layers)
    limits = schedule_counts(two_layers, space)
    assert result.state == "finished"
    assert result.measured == len(device.measured) == len(set(device.measured))
    assert len(rows(tmp_path / "profile.db", "measurements")) == result.measured
    candidates = rows(tmp_path / "profile.db", "candidates")
    assert {(row["workload_key"], row["schedule"]) for row in candidates} == set(device.measured)
    tries = Counter(key for key, _ in device.measured)
    chosen = {group["workload_key"]: group for group in rows(tmp_path / "profile.db", "groups")}
    for key, group in chosen.items():
        times = {row["schedule"]: row["median_us"] for row in candidates if row["workload_key"] == key}
        assert group["us"] == pytest.approx(min(times.values()))
        assert tries[key] == limits[key], "all schedules of the space"


@pytest.mark.parametrize("world", range(4))
def test_the_plan_with_the_smallest_composed_time_comes_out(
    world: int, run: Tune, device: Any, two_layers: Path, space: Path
) -> None:
    """Times that fusion changes at random, up and down: against every plan there is."""

    def cost(workload: Workload) -> float:
        return sum(10.0 + 30.0 * device.chance(world, kind) for kind in kinds(workload)) * (
            0.4 + 1.2 * device.chance(world, workload.key)
        )

    device.cost = lambda workload, _schedule: cost(workload)
    result = run(two_layers)
    every = all_plans(two_layers, space)
    times = {key: composed(two_layers, plan, cost, device.launch_us) for key, plan in every.items()}
    assert len(times) >= 9
    fixed = [time.composed_us for time in result.plans.values() if time.composed_us is not None]
    assert result.plans[result.chosen].composed_us == pytest.approx(min([*times.values(), *fixed]))


def test_a_pair_that_loses_by_fusing_stays_apart(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path, space: Path
) -> None:
    """The default fuses the first Add and Relu into the product; here any kernel with a Relu and a product is slow."""

    def cost(workload: Workload, _schedule: object) -> float:
        return 500.0 if {"MatMul", "Softmax"} <= set(kinds(workload)) else 10.0

    device.cost = cost
    result = run(two_layers)
    groups = [set(row["operators"]) for row in rows(tmp_path / "profile.db", "groups")]
    assert not any({"softmax", "second"} <= group for group in groups)
    assert result.plans[result.chosen].composed_us < 100.0


def test_tuning_again_on_a_filled_database_measures_nothing(run: Tune, device: Any, two_layers: Path) -> None:
    first = run(two_layers)
    count = len(device.measured)
    again = run(two_layers)
    assert len(device.measured) == count
    assert (again.measured, again.hits) == (0, first.measured)
    assert (again.plan_key, again.chosen) == (first.plan_key, first.chosen)
    assert again.plans[again.chosen].composed_us == first.plans[first.chosen].composed_us


def test_another_seed_finds_the_filled_database_complete_too(run: Tune, device: Any, two_layers: Path) -> None:
    first = run(two_layers)
    again = run(two_layers, seed=7)
    assert again.measured == 0
    assert again.plan_key == first.plan_key


@pytest.mark.long
def test_a_second_network_starts_with_the_first_ones_groups(
    run: Tune, device: Any, two_layers: Path, one_layer: Path
) -> None:
    run(two_layers)
    before = set(device.measured)
    second = run(one_layer)
    assert second.hits > 0
    assert before.isdisjoint(device.measured[len(before) :])
    assert second.measured == len(device.measured) - len(before)


@pytest.mark.long
def test_other_threads_are_another_setting(run: Tune, device: Any, two_layers: Path) -> None:
    first = run(two_layers)
    second = run(two_layers, threads=2)
    ours, theirs = device.measured[: first.measured], device.measured[first.measured :]
    assert (second.hits, second.measured) == (0, len(theirs))
    assert set(ours) & set(theirs), "what was measured with one thread is measured again with two"


def test_an_interrupted_search_goes_on_where_it_was(run: Tune, device: Any, two_layers: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(two_layers, stop=lambda: len(device.measured) >= 9)
    (stopped,) = rows(tmp_path / "profile.db", "runs")
    assert stopped["state"] == "interrupted"
    recorded = {(row["workload_key"], row["schedule"]) for row in rows(tmp_path / "profile.db", "candidates")}
    assert len(recorded) == 9
    assert recorded == set(device.measured)

    resumed = run(two_layers)
    assert resumed.run_id == stopped["run_id"]
    assert resumed.hits == 9
    assert len(device.measured) == len(set(device.measured)) == 9 + resumed.measured
    (ended,) = rows(tmp_path / "profile.db", "runs")
    assert ended["state"] == "finished"


def test_trials_bound_what_is_measured(run: Tune, device: Any, two_layers: Path) -> None:
    assert run(two_layers, trials=11).measured == 11
    assert len(device.measured) == 11
    assert run(two_layers, trials=5).measured == 5
    assert len(set(device.measured)) == 16


def test_a_budget_too_small_for_one_plan_still_ends_with_a_plan(run: Tune, device: Any, two_layers: Path) -> None:
    result = run(two_layers, trials=1)
    assert result.chosen == "default"
    assert result.measured == len({key for key, _ in device.measured})


@pytest.mark.parametrize("budget_s", [30.0, 200.0, 900.0])
def test_a_budget_of_seconds_is_kept(
    budget_s: float, run: Tune, device: Any, two_layers: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each candidate takes three seconds of a clock that nothing else moves; some time stays for the finalists."""
    wide = tmp_path / "wide.toml"
    wide.write_text("schema = 1\n")
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=lambda: now[0])
    monkeypatch.setattr("autofuse.search.budget.budget.time", clock)

    def pass_time() -> None:
        now[0] += 3.0

    device.on_measure = pass_time
    result = run(two_layers, budget_s=budget_s, space=str(wide))
    assert now[0] <= budget_s
    assert result.measured >= 3
    if budget_s < 500:
        assert now[0] >= 0.4 * budget_s, "a budget is there to be used"


@pytest.mark.long
def test_the_same_seed_asks_for_the_same_candidates(run: Tune, device: Any, two_layers: Path, tmp_path: Path) -> None:
    """Where its clock goes alike."""
    wide = tmp_path / "wide.toml"
    wide.write_text("schema = 1\n")
    asked = []
    for number, seed in enumerate((3, 3, 4)):
        device.measured.clear()
        result = run(two_layers, seed=seed, trials=60, space=str(wide), database=str(tmp_path / f"{number}.db"))
        asked.append((list(device.measured), result.plan_key))
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]


def test_a_tie_goes_to_the_simpler_plan(run: Tune, device: Any, two_layers: Path) -> None:
    """What is compiled where nothing was measured is the simplest; else the default, with its own schedules."""
    device.whole, device.noise = lambda name, _us: 100.0, 0.005
    result = run(two_layers)
    assert result.chosen == "untuned"
    assert result.decision is not None and (result.decision.verdict, result.decision.trusted) == ("no difference", True)


def test_a_plan_within_the_noise_does_not_beat_the_simpler_one(run: Tune, device: Any, two_layers: Path) -> None:
    times = {"untuned": 120.0, "default": 100.0}
    device.whole = lambda name, _us: times.get(name, 99.8)
    assert run(two_layers).chosen == "default"
    device.whole = lambda name, _us: times.get(name, 90.0)
    assert run(two_layers).chosen not in times


def test_what_is_slower_as_a_whole_loses_whatever_its_groups_promise(run: Tune, device: Any, two_layers: Path) -> None:
    device.whole = lambda name, us: 50.0 if name == "none" else 100.0 + us
    result = run(two_layers)
    assert result.chosen == "none"
    assert result.plans["default"].composed_us < result.plans["none"].composed_us


@pytest.mark.parametrize("world", range(4))
def test_nothing_slower_than_tvms_partition_is_returned(world: int, run: Tune, device: Any, convolution: Path) -> None:
    device.whole = lambda name, us: us * (0.5 + device.chance(world, name))
    result = run(convolution)
    measured = {name: time.median_us for name, time in result.plans.items() if time.median_us is not None}
    assert {"tvm-partition", "none"} <= set(measured)
    assert measured[result.chosen] <= min(measured.values()) * 1.02


def test_a_failed_candidate_is_recorded_and_never_chosen(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    """Half of the schedules fail; they would be the fastest by far. The synthetic build refuses to use one."""
    plain = device.cost
    failures = ("build_error", "wrong", "run_error", "timeout", "out_of_memory")

    def cost(workload: Workload, schedule: Any) -> float | Failure:
        draw = device.chance("fails", workload.key, sorted(schedule.items()))
        if len(schedule) > 1 and draw < 0.5:
            return Failure(failures[int(draw * 10) % 5], "refused")
        return plain(workload, schedule)

    device.cost = cost
    result = run(two_layers)
    assert result.failed > 0
    failed = rows(tmp_path / "profile.db", "failures")
    assert len(failed) == result.failed
    assert {row["failure"] for row in failed} == {"refused"}
    lost = {(row["workload_key"], row["schedule"]) for row in failed}
    groups = rows(tmp_path / "profile.db", "groups")
    assert groups
    assert lost.isdisjoint((row["workload_key"], row["schedule"]) for row in groups)


def test_a_group_that_cannot_be_built_is_left_out_of_the_plan(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    """No kernel with a product and its Add can be built: the job goes on and ends with plans that have none."""

    def cost(workload: Workload, _schedule: object) -> float | Failure:
        return BROKEN if {"MatMul", "Add"} <= set(kinds(workload)) else 10.0

    device.cost = cost
    result = run(two_layers)
    assert result.state == "finished"
    assert "default" not in result.plans
    assert result.failed >= 2
    groups = [set(row["operators"]) for row in rows(tmp_path / "profile.db", "groups")]
    assert not any({"first", "first_bias"} <= group or {"second", "second_bias"} <= group for group in groups)
    per_workload = Counter(row["workload_key"] for row in rows(tmp_path / "profile.db", "failures"))
    assert max(per_workload.values()) <= 8, "a workload that never builds is given up"
    assert run(two_layers).measured == 0, "and not tried again"


def test_a_job_whose_every_group_fails_ends_at_once_and_says_why(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    device.cost = lambda _workload, _schedule: BROKEN
    with pytest.raises(PlanError, match="no group of the model could be built and checked: .*LLVM said no") as caught:
        run(two_layers)
    assert caught.value.exit_code == 6
    (ended,) = rows(tmp_path / "profile.db", "runs")
    assert ended["state"] == "failed"
    assert len(rows(tmp_path / "profile.db", "failures")) == len(device.measured) <= 3 * 8


def test_an_operator_that_fails_in_every_plan_ends_the_job_with_its_name(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    device.cost = lambda workload, _schedule: BROKEN if {"Softmax", "Exp"} & set(kinds(workload)) else 10.0
    with pytest.raises(PlanError, match="no plan has a time for all its groups; .*Softmax.*LLVM said no"):
        run(two_layers)
    assert [row for row in rows(tmp_path / "profile.db", "candidates") if row["state"] == "ok"]


def test_a_spent_budget_ends_a_job_that_has_no_plan(run: Tune, device: Any, two_layers: Path, tmp_path: Path) -> None:
    device.cost = lambda workload, _schedule: BROKEN if {"Softmax", "Exp"} & set(kinds(workload)) else 10.0
    tried = []
    for number, trials in enumerate((1, None)):
        device.measured.clear()
        with pytest.raises(PlanError, match="no plan has a time"):
            run(two_layers, trials=trials, database=str(tmp_path / f"{number}.db"))
        tried.append(len(device.measured))
    assert tried[0] < tried[1], "plans beyond the fixed ones are tried only while the budget lasts"


@pytest.mark.long
def test_no_worker_at_all_is_a_lost_device_and_no_verdict_on_candidates(
    run: Tune, device: Any, two_layers: Path
) -> None:
    plain = device.cost
    device.cost = lambda _workload, _schedule: Failure("device_lost", "no worker process starts: no memory")
    with pytest.raises(DeviceError, match=r"no worker process starts.*autofuse doctor") as caught:
        run(two_layers)
    assert caught.value.exit_code == 75
    tried = len(device.measured)
    assert tried <= 8
    device.cost = plain
    assert run(two_layers).failed == 0


def test_a_library_that_is_wrong_as_a_whole_is_never_chosen(run: Tune, device: Any, two_layers: Path) -> None:
    device.whole = lambda name, us: us if name == "none" else "output 0: 5 of 64 elements differ"
    result = run(two_layers)
    assert result.chosen == "none"
    assert "5 of 64" in result.plans["default"].problem


def test_a_plan_that_is_wrong_on_further_inputs_only_is_not_chosen(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    device.drift = lambda name: 0.0 if name == "none" else 0.01
    result = run(two_layers)
    assert result.chosen == "none"
    assert "on further inputs" in result.plans["default"].problem


def test_when_every_library_is_wrong_the_job_fails_with_its_code(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    device.whole = lambda _name, _us: "output 0: 5 of 64 elements differ"
    with pytest.raises(WrongResultError, match="no plan is right as a whole: .*5 of 64") as caught:
        run(two_layers)
    assert caught.value.exit_code == 4
    (ended,) = rows(tmp_path / "profile.db", "runs")
    assert ended["state"] == "failed"
    assert {row["state"] for row in rows(tmp_path / "profile.db", "plan_measurements")} == {"wrong"}


def test_a_database_that_fails_ends_the_job_and_the_next_one_goes_on(
    run: Tune, device: Any, two_layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autofuse.database.database import ProfilingDatabase

    real, count = ProfilingDatabase.record_candidate, [0]

    def record(self: ProfilingDatabase, *arguments: Any) -> int:
        count[0] += 1
        if count[0] == 6:
            raise DatabaseError("the disk is full")
        return real(self, *arguments)

    monkeypatch.setattr(ProfilingDatabase, "record_candidate", record)
    with pytest.raises(DatabaseError, match="the disk is full"):
        run(two_layers)
    assert run(two_layers).hits == 5


def test_progress_counts_up_and_ends_with_all(run: Tune, device: Any, two_layers: Path) -> None:
    states: list[Progress] = []
    result = run(two_layers, trials=14, progress=states.append)
    done = [state.done for state in states]
    assert done == sorted(done)
    assert (states[-1].done, states[-1].total, states[-1].ok) == (14, 14, result.measured)
    assert {"baselines", "confirming"} <= {state.phase for state in states}
    assert all(state.best_us is None or state.best_us > 0 for state in states)


def test_a_network_that_needs_no_kernel_is_tuned_and_shown(
    run: Tune, device: Any, onnx_builder: Any, tmp_path: Path
) -> None:
    b = onnx_builder()
    model = b.save(tmp_path / "view.onnx", {"x": [2, 3, 4]}, [b.op("Flatten", "flatten", "x")])
    device.whole = lambda _name, us: us + 5.0
    lines: list[str] = []
    result = run(model, progress=lambda state: lines.append(line(state, state.elapsed_s)))
    assert (result.measured, result.kernels, result.chosen) == (0, 0, "default")
    assert lines
