"""Plans of models with open sizes: found by the times of tiles, raced as libraries, kept, and taken by compile."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofuse import api
from autofuse.compiler.open_sizes.plans import OpenForm, RangedPlan
from autofuse.compiler.plan_ladder import FoundPlan
from autofuse.database.database import open_database
from autofuse.errors import InputError, StrictMissError
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.loading.load import load
from autofuse.measure.measurement import Failure
from autofuse.opened.row_tiles import RowModel
from autofuse.opened.search.plan_race import together
from autofuse.search.progress import SizeRatio
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, write
from tests.search.conftest import SyntheticDevice

SIZES = {"batch": (1, 5)}
TRIALS = 200


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)


@pytest.fixture
def tune(device: SyntheticDevice, space: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`tune(**changes)`: tunes the model on the synthetic device; a library is a file with the time of a call."""

    def written(self: RowModel, chosen: Sequence[RangedPlan], output: Path) -> None:
        tiled = self.tiled(chosen[0].found)
        us = [tile.runs * device.cost(tile.bound.workload, {}) for tile in tiled.tiles]  # type: ignore[operator]
        output.write_text(json.dumps(sum(us)))

    monkeypatch.setattr("autofuse.opened.search.opening.open_runner", device)
    monkeypatch.setattr(RowModel, "write", written)

    def call(**changes: Any) -> Any:
        arguments = {"sizes": SIZES, "trials": TRIALS, "threads": 1, "space": str(space), **changes}
        return api.tune(model, database=str(model.with_suffix(".db")), **arguments)

    return call


def by_kernels(_workload: Any, _schedule: Any) -> float:
    """A kernel costs the same, whatever it holds: the more is fused the better, and the rule leaves some apart."""
    return 10.0


def by_operators(workload: Any, _schedule: Any) -> float:
    """Operators cost the same, wherever they are: plans differ by launches alone."""
    return 1000.0 * len(workload.operators)


def compiled(model: Path, **more: Any) -> Any:
    return api.compile(
        model, database=str(model.with_suffix(".db")), threads=1, dry_run=True, **{"sizes": SIZES, **more}
    )


def trials_of(model: Path, run: int) -> list[Any]:
    with open_database(model.with_suffix(".db"), read_only=True) as base:
        return list(base.trials(run))


def test_a_faster_plan_is_found_raced_and_taken(tune: Any, device: SyntheticDevice, model: Path) -> None:
    device.cost = by_kernels
    untuned = compiled(model)
    found = tune()
    assert (found.chosen, found.decision.verdict, found.decision.against) == ("search", "faster", "default")
    assert found.kernels < untuned.kernels
    assert {one.size for one in found.raced} == {"1", "3", "5"}
    assert sum(one.share for one in found.raced) == pytest.approx(1)
    assert device.raced == ["stays", "best"] * 3
    taken = compiled(model)
    assert (taken.plan_key, taken.plan_tier, taken.plan) == (found.plan_key, "hit", "chosen (search)")
    other = compiled(model, sizes={"batch": (2, 5)})
    assert (other.plan_key, other.plan_tier) == (found.plan_key, "nearest shape")
    assert other.plan.endswith("for batch 1 to 5")
    assert any(one.state == "complete" for one in trials_of(model, found.run_id))


@pytest.mark.long
def test_a_second_search_begins_with_the_plan_of_the_first(tune: Any, device: SyntheticDevice, model: Path) -> None:
    device.cost = by_kernels
    first = tune()
    again = tune(trials=3)
    assert (again.chosen, again.plan_key, again.decision) == ("previous", first.plan_key, None)
    assert compiled(model).plan_key == first.plan_key


def test_plans_that_differ_by_less_than_a_tie_are_not_raced(tune: Any, device: SyntheticDevice, model: Path) -> None:
    device.cost = by_operators
    found = tune()
    assert (found.chosen, found.decision, found.plan_key) == ("default", None, compiled(model).plan_key)
    assert not device.raced
    assert compiled(model, strict=True).plan == "chosen (default)"


@pytest.mark.parametrize(("whole", "verdict"), [(2.0, "faster"), (1.0, "no difference")])
@pytest.mark.long
def test_what_the_race_does_not_find_faster_is_not_taken(
    tune: Any, device: SyntheticDevice, model: Path, whole: float, verdict: str
) -> None:
    """The sums of tiles are not the library: noise, or a race that says otherwise, leaves the plan that stays."""
    device.cost = by_kernels
    device.noise = 0.001
    device.whole = lambda name, us: 100.0 * (whole if name == "best" else 1.0)
    untuned = compiled(model)
    found = tune()
    assert (found.chosen, found.decision.verdict) == ("default", verdict)
    assert found.decision.trusted and found.decision.against == "search"
    assert found.decision.ratio == pytest.approx(whole, rel=0.05), "the other one's time over that of the one taken"
    assert compiled(model).plan_key == untuned.plan_key == found.plan_key


def test_a_plan_that_is_wrong_as_a_whole_is_a_recorded_failure(tune: Any, device: SyntheticDevice, model: Path) -> None:
    device.cost = by_kernels
    device.whole = lambda name, us: "off by 0.1" if name == "best" else us
    found = tune()
    assert found.chosen == "default"
    assert "off by 0.1" in found.warning
    assert trials_of(model, found.run_id)[-1].state == "fail"


@pytest.mark.long
def test_a_plan_whose_library_cannot_be_built_is_a_recorded_failure(
    tune: Any, device: SyntheticDevice, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RowModel, chosen: Sequence[RangedPlan], output: Path) -> None:
        if output.stem == "best":
            raise ValueError("TVM: no loop here")
        output.write_text("1.0")

    device.cost = by_kernels
    monkeypatch.setattr(RowModel, "write", broken)
    found = tune()
    assert found.chosen == "default"
    assert "its library was not built: TVM: no loop here" in found.warning
    assert trials_of(model, found.run_id)[-1].state == "fail"


def test_a_plan_whose_tiles_fail_is_a_recorded_failure(tune: Any, device: SyntheticDevice, model: Path) -> None:
    def cost(workload: Any, _schedule: Any) -> float | Failure:
        return Failure("wrong", "off by 0.1") if workload.label.startswith("Add+") else 1000.0 * len(workload.operators)

    device.cost = cost
    found = tune()
    states = {one.state for one in trials_of(model, found.run_id)}
    assert {"complete", "fail"} <= states
    assert found.chosen == "default"


def test_a_tile_that_always_fails_does_not_end_the_search_of_plans(
    tune: Any, device: SyntheticDevice, model: Path
) -> None:
    def cost(workload: Any, _schedule: Any) -> float | Failure:
        return Failure("timeout", "no answer") if workload.label.startswith("Gemm+Relu") else 10.0

    device.cost = cost
    found = tune()
    assert any(one.us is None for one in found.tiles)
    assert found.plan_trials > 1


def test_without_the_time_for_a_race_the_plan_stays(
    tune: Any, device: SyntheticDevice, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.cost = by_kernels
    monkeypatch.setattr("autofuse.opened.search.plan_race.PlanRace.needed_s", lambda self, best: float("inf"))
    monkeypatch.setattr("autofuse.opened.search.opening.timing_seconds", lambda budget_s: float("inf"))
    found = tune(budget="1h")
    assert found.chosen == "default"
    assert "was not raced" in found.warning


def test_a_strict_compile_needs_a_plan_of_these_sizes(tune: Any, device: SyntheticDevice, model: Path) -> None:
    with pytest.raises(StrictMissError, match="no search of plans over these sizes ended here: run `autofuse tune`"):
        compiled(model, strict=True)


@pytest.mark.long
def test_a_stored_plan_under_which_the_size_cannot_stay_open_is_a_miss(
    tune: Any, device: SyntheticDevice, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.cost = by_kernels
    untuned = compiled(model)
    tune()
    monkeypatch.setattr(OpenForm, "fits", lambda self, found: False)
    assert (compiled(model).plan_key, compiled(model).plan) == (untuned.plan_key, "default rule")


def test_a_form_asks_whether_sizes_may_stay_open(model: Path) -> None:
    def refuse(_found: FoundPlan) -> None:
        raise InputError("it mixes rows")

    graph = load(model, {"x": (4, 24)})
    form = OpenForm(graph, "sha", (OpenSize("batch", 1, 5),), refuse, lambda _: (0,))
    found = FoundPlan(none_plan(graph), "hit", "")
    assert not form.fits(found)
    assert replace(form, check=id).fits(found)


def test_ratios_of_sizes_weigh_by_the_time_of_calls() -> None:
    """Half of the time at 2.00 and half at 1.00 is two thirds of the time; one size without a ratio leaves it open."""
    at = [SizeRatio("1", 0.5, 2.0, 1.9, 2.1), SizeRatio("8", 0.5, 1.0, 0.99, 1.01)]
    found = together(at)
    assert found.ratio == pytest.approx(1 / 0.75)
    assert found.verdict == "faster"
    assert together([*at, SizeRatio("16", 0.1, problem="too few good blocks")]).ratio is None
