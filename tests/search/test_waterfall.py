"""The waterfall of a search: what each decision was worth, adding up to what whole networks took."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.environment.worth import Waterfall, waterfall_of
from autofuse.kernels.workload.workload import Workload
from autofuse.search.progress import TuneResult
from autofuse.search.standing.waterfall import FUSED, REWRITE, RULE, SCHEDULES, _ties


def found_by(result: TuneResult) -> Waterfall:
    assert result.waterfall is not None
    return result.waterfall


def total_us(found: Waterfall) -> float:
    return sum(step.us for step in found.steps) + found.remainder_us


def kept_summary(result: TuneResult) -> Any:
    with open_database(result.database, read_only=True) as base:
        run = base.run(number=result.run_id)
    assert run is not None and run.summary is not None
    return run.summary


def test_the_steps_add_up_to_what_whole_networks_took(run: Any, device: Any, two_layers: Path) -> None:
    device.whole = lambda name, us: us * (1.3 if name == "none" else 1.1)
    result = run(two_layers)
    found, chosen = found_by(result), result.plans[result.chosen]
    assert found.measured and found.start == "none" and found.end == result.chosen
    assert found.start_us - total_us(found) == pytest.approx(found.end_us)
    assert found.end_us == chosen.median_us
    assert found.ratio == pytest.approx(chosen.speedup)
    assert found.start_sum_us is not None
    assert found.start_sum_us - found.end_sum_us == pytest.approx(sum(step.us for step in found.steps))


@pytest.mark.long
def test_nothing_remains_where_networks_take_what_their_kernels_do(run: Any, device: Any, two_layers: Path) -> None:
    result = run(two_layers)
    found = found_by(result)
    assert found.remainder_us == pytest.approx(0.0, abs=0.02 * found.start_us), "this device has no caches"


def test_where_kernels_of_no_fusion_have_no_times_whole_networks_say_what_the_rule_is_worth(
    run: Any, device: Any, two_layers: Path
) -> None:
    result = run(two_layers, trials=1)
    found = found_by(result)
    assert found.start_sum_us is None and found.measured
    assert [step.kind for step in found.steps if "whole networks" in step.what] == [RULE]
    assert found.start_us - total_us(found) == pytest.approx(found.end_us)
    assert found.remainder_us == pytest.approx(0.0, abs=1e-6 * found.start_us), "the rule's plan was chosen"


def test_where_the_untuned_plan_is_chosen_the_rule_is_worth_all_that_it_takes_off(
    run: Any, device: Any, two_layers: Path
) -> None:
    device.whole = lambda name, us: {"none": 150.0, "untuned": 90.0}.get(name, 100.0)
    result = run(two_layers, trials=6)
    found = found_by(result)
    assert (result.chosen, found.start_sum_us) == ("untuned", None)
    assert [step.kind for step in found.steps] == [RULE], "better schedules are not in what was chosen"
    assert found.steps[0].us == pytest.approx(found.start_us - found.end_us)
    assert found.remainder_us == pytest.approx(0.0, abs=1e-6 * found.start_us)


def test_each_step_is_worth_what_the_device_takes_off(run: Any, device: Any, two_layers: Path) -> None:
    device.cost = lambda workload, _schedule: 10.0 + 5.0 * len(workload.operators)
    found = found_by(run(two_layers))
    worth = {step.kind: step.us for step in found.steps}
    kernels_saved = worth[RULE] / (10.0 + device.launch_us)
    assert kernels_saved == pytest.approx(round(kernels_saved)), "each kernel that the rule saves is worth as much"
    assert worth.get(SCHEDULES, 0.0) == 0.0, "no schedule is better than another"


@pytest.mark.long
def test_a_fusion_that_the_rule_lacks_is_a_step_of_its_own(run: Any, device: Any, two_layers: Path) -> None:
    def cost(workload: Workload, _schedule: object) -> float:
        kinds = [operator.op_type for operator in workload.operators]
        return 5.0 if "Softmax" in kinds and len(kinds) > 1 else 50.0 * len(kinds)

    device.cost = cost
    result = run(two_layers)
    found = found_by(result)
    (step,) = [one for one in found.steps if one.kind == FUSED]
    assert "Softmax" in step.what and " -> " in step.what
    assert step.us > 0


def test_what_a_rewrite_is_worth_stands_apart_from_what_the_rule_fuses(
    run: Any, device: Any, onnx_builder: Any, tmp_path: Path
) -> None:
    b = onnx_builder()
    left, right = b.op("Mul", "left", "x", "y"), b.op("Mul", "right", "x", "z")
    model = b.save(tmp_path / "sum.onnx", {name: [64, 64] for name in "xyz"}, [b.op("Add", "sum", left, right)])
    found = found_by(run(Path(model)))
    assert [step for step in found.steps if step.kind == REWRITE], found
    assert found.start_us - total_us(found) == pytest.approx(found.end_us)


@pytest.mark.long
def test_the_summary_of_the_run_keeps_the_same_numbers(run: Any, device: Any, two_layers: Path) -> None:
    result = run(two_layers)
    kept = kept_summary(result)
    assert waterfall_of(kept) == found_by(result)
    assert kept["not_asked"] == [asdict(one) for one in result.not_asked] if result.not_asked else True


def test_what_a_short_search_did_not_ask_is_told_with_what_it_promises(run: Any, device: Any, two_layers: Path) -> None:
    result = run(two_layers, trials=6)
    kinds = {one.kind: one for one in result.not_asked}
    assert {"plans", "schedules"} <= set(kinds)
    assert result.more_time is not None and result.more_time.gain_us >= 0
    assert kept_summary(result)["not_asked"]


@pytest.mark.long
def test_a_search_that_tried_everything_has_no_schedules_left(run: Any, device: Any, two_layers: Path) -> None:
    assert "schedules" not in {one.kind for one in run(two_layers).not_asked}


def test_only_rewrites_that_one_of_two_plans_makes_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes as long as going through the whole graph; a large network has hundreds."""
    made: list[tuple[str, ...]] = []

    def apply(graph: Any, steps: Any) -> Any:
        made.append(tuple(steps))
        return SimpleNamespace(by_name={**graph.by_name, made[-1][-1]: 1})

    monkeypatch.setattr("autofuse.search.standing.waterfall.apply", apply)
    graph: Any = SimpleNamespace(by_name={"conv": 1})
    plan: Any = SimpleNamespace(rewrites=("a@1", "b@2", "c@3", "d@4"), copies=())
    other: Any = SimpleNamespace(rewrites=("a@1", "b@2", "d@4"), copies=())
    assert _ties(graph, plan, plan) == [] and made == []
    assert _ties(graph, plan, other) == [(frozenset({"c@3"}), "c")]
    assert made == [("a@1", "b@2"), ("c@3",)]
