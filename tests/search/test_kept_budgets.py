"""The budget is kept: whole searches on a virtual clock, on which reading, building and measuring take long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.fusion.plan import FusionPlan
from autofuse.measure.networks.libraries import NO_TIME
from autofuse.search.progress import TuneResult
from tests.search.slow_device import TICK_S, SlowDevice, World, put_in_place

Tune = Callable[..., TuneResult]


def allowed_s(budget_s: float) -> float:
    """When a search with this budget has to have ended."""
    return 1.1 * budget_s + 10.0


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def device(world: World, monkeypatch: pytest.MonkeyPatch) -> SlowDevice:
    return put_in_place(world, monkeypatch)


@pytest.fixture
def layers(onnx_builder: Any, tmp_path: Path) -> Path:
    """Six dense layers of different sizes, each with its own kernel."""
    b = onnx_builder()
    x, width = "x", 8
    for number in range(6):
        x = b.op("Relu", f"relu{number}", b.dense(f"dense{number}", x, (width, width + 1)))
        width += 1
    return Path(b.save(tmp_path / "layers.onnx", {"x": [4, 8]}, [x]))


def choice(database: Path, result: TuneResult) -> FusionPlan:
    """What `compile` finds."""
    with open_database(database, read_only=True) as base:
        assert base.problems() == []
        (row,) = base.table("choices").records()
        assert row["plan_key"] == result.plan_key
        return FusionPlan.from_json(base.plan(str(row["plan_key"])) or "")


@pytest.mark.parametrize("budget_s", [10.0, pytest.param(60.0, marks=pytest.mark.long), 180.0])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kernel_s": 6.0},
        {"kernel_s": 6.0, "told_s": 0.1},
        {"candidate_s": 12.0},
        {"load_s": 3.0, "reference_s": 6.0, "candidate_s": 4.0, "kernel_s": 4.0},
        {"run_s": 40.0},
        {"cores": 2, "kernel_s": 2.0},
    ],
    ids=[
        "quick",
        "slow builds",
        "builds slower than expected",
        "slow candidates",
        "all slow",
        "slow runs",
        "two cores",
    ],
)
def test_a_search_ends_in_time_whatever_takes_long(
    budget_s: float, changes: dict[str, Any], run: Tune, device: SlowDevice, world: World, layers: Path, tmp_path: Path
) -> None:
    for name, value in changes.items():
        setattr(world, name, value)
    result = run(layers, budget_s=budget_s)
    assert world.now <= allowed_s(budget_s)
    assert result.state == "finished"
    assert choice(tmp_path / "profile.db", result).groups


def test_with_time_enough_nothing_is_left_out(run: Tune, device: SlowDevice, world: World, layers: Path) -> None:
    result = run(layers, budget_s=900.0)
    assert result.left_out == () and result.warning == ""
    assert {"default", "search", "none"} <= set(world.built)
    assert all(time.median_us is not None for time in result.plans.values())


@pytest.mark.long
def test_where_the_finalists_are_soon_decided_the_search_goes_on_from_what_won(
    run: Tune, device: SlowDevice, world: World, layers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_decided(world, device, monkeypatch)
    told: list[tuple[str, int]] = []
    result = run(
        layers, budget_s=600.0, space=str(wide(tmp_path)), progress=lambda state: told.append((state.phase, state.ok))
    )
    phases = [phase for phase, before in zip(told[1:], told, strict=False) if phase[0] != before[0]]
    names = [phase for phase, _ in phases]
    first, last = names.index("confirming"), len(names) - 1 - names[::-1].index("confirming")
    assert "searching on" in names[first:last], names
    assert phases[last][1] > phases[first][1], "something was measured in between"
    assert world.built.count(result.chosen) > 1 or result.chosen == "previous", "what was chosen was raced again"
    assert world.now <= allowed_s(600.0)


def test_what_was_chosen_stays_where_a_second_race_does_not_come_to_it(
    run: Tune, device: SlowDevice, world: World, layers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_decided(world, device, monkeypatch)
    race, races = SlowDevice.race, list[list[str]]()

    def without(self: SlowDevice, contenders: Any, *given: Any, **named: Any) -> Any:
        final = any(one.name in ("untuned", "previous") for one in contenders)
        if final and races:
            contenders = [one for one in contenders if one.name != "previous"]
        races.extend([[one.name for one in contenders]] if final else [])
        return race(self, contenders, *given, **named)

    monkeypatch.setattr(SlowDevice, "race", without)
    result = run(layers, budget_s=600.0, space=str(wide(tmp_path)))
    assert len(races) > 1 and result.chosen in races[0]
    assert choice(tmp_path / "profile.db", result).key == result.plan_key, "the one choice that was recorded"


def soon_decided(world: World, device: SlowDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """Much time is kept for whole libraries, which are built and raced quickly then."""
    monkeypatch.setattr("autofuse.search.finals.finale.QUIET_RACE", 1.0)
    world.kernel_s, world.start_s, world.run_s, world.decided_s, world.candidate_s = 0.1, 0.5, 0.2, 2.0, 3.0
    device.noise = 0.0


def wide(folder: Path) -> Path:
    """A space with more schedules than there is time for."""
    path = folder / "wide.toml"
    path.write_text("schema = 1\n", encoding="utf-8")
    return path


def test_with_less_fewer_finalists_are_built_and_the_rest_is_named(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """A library takes 27 seconds: half of the budget holds one."""
    world.kernel_s = 4.0
    result = run(layers, budget_s=110.0)
    assert len(world.built) == 1 and world.built[0] == result.chosen
    assert result.plans[result.chosen].max_rel_error is not None, "what is chosen was checked as a whole"
    assert result.plans[result.chosen].speedup is None, "there is nothing to compare with"
    assert any("not measured whole" in sentence and "plan none" in sentence for sentence in result.left_out)
    assert "the budget left no time for everything" in result.warning


def test_the_default_is_built_and_checked_although_it_takes_more_than_half_of_the_budget(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """Its kernels take 72 of 120 seconds: the search is shorter, and what is chosen is known to be right."""
    world.kernel_s = 12.0
    result = run(layers, budget_s=120.0)
    assert world.built == ["default"] and result.plans["default"].max_rel_error is not None
    assert result.measured > 0 and world.now <= allowed_s(120.0)


@pytest.mark.parametrize("budget_s", [54.0, 60.0, 70.0])
def test_on_a_busy_machine_time_is_kept_for_all_that_takes_longer_there(
    budget_s: float, run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """Reading the model took three times as long as the processor worked on it, and so do processes and checks."""
    world.crowding, world.load_s, world.reference_s = 3.0, 2.0, 4.0
    world.start_s, world.run_s, world.kernel_s, world.told_s = 6.0, 6.0, 0.5, 0.5
    result = run(layers, budget_s=budget_s)
    assert result.plans["default"].max_rel_error is not None
    assert world.now <= allowed_s(budget_s)


def test_what_takes_less_than_expected_leaves_time_for_what_was_left_out(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """Candidates let expect 27 seconds a library; it takes five."""
    world.told_s, world.kernel_s = 4.0, 0.4
    result = run(layers, budget_s=140.0)
    assert len(world.built) == len(set(world.built)) > 1, "the expectation alone would leave time for one"
    assert sum(time.median_us is not None for time in result.plans.values()) == len(world.built)
    assert world.now <= allowed_s(140.0)


@pytest.mark.parametrize(("reference_s", "further"), [(2.0, True), (16.0, False)])
def test_time_that_is_there_is_used_although_it_is_not_expected_to_suffice(
    reference_s: float, further: bool, run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """Candidates let expect three minutes a library; it takes three seconds. Further checks come after the first."""
    world.told_s, world.kernel_s, world.reference_s = 30.0, 0.5, reference_s
    result = run(layers, budget_s=46.0, trials=6)
    default = result.plans["default"]
    assert default.max_rel_error is not None and default.median_us is not None
    assert ("was checked as a whole on one set of inputs only" in result.warning) is not further
    assert world.now <= allowed_s(46.0)


@pytest.mark.parametrize("kernel_s", [1.0, 2.0])
def test_builds_that_take_longer_than_expected_take_it_from_the_race(
    kernel_s: float, run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """The default comes first, and is worth more than a long race of what is built after it."""
    world.told_s, world.kernel_s = 0.2, kernel_s
    result = run(layers, budget_s=90.0)
    assert world.built[:1] == ["default"]
    assert result.plans["default"].median_us is not None
    assert world.now <= allowed_s(90.0)


def test_a_short_budget_holds_one_plan_that_is_built_whole(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """A single finalist is timed; there is nothing that a race would decide."""
    world.load_s, world.kernel_s, world.candidate_s = 0.5, 0.4, 1.5
    result = run(layers, budget_s=40.0)
    assert world.built
    assert result.plans[result.chosen].median_us is not None
    assert world.now <= allowed_s(40.0)


@pytest.mark.long
def test_winners_that_are_not_trusted_take_no_time_from_the_finalists(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    device.trusted = lambda _workload: False
    for budget_s in (60.0, 90.0, 140.0):
        world.now, world.built[:] = 0.0, []
        result = run(layers, budget_s=budget_s)
        assert world.built, f"of {budget_s} seconds nothing was left to build a plan whole"
        assert result.plans[result.chosen].median_us is not None


def test_without_time_for_a_single_library_the_answer_is_not_claimed_to_be_checked(
    run: Tune, device: SlowDevice, world: World, layers: Path, tmp_path: Path
) -> None:
    world.kernel_s = 30.0
    result = run(layers, budget_s=120.0)
    assert world.built == []
    time = result.plans[result.chosen]
    assert (time.median_us, time.max_rel_error, time.problem) == (None, None, NO_TIME)
    assert any("was not built and checked as a whole, only its kernels one by one" in s for s in result.left_out)
    with open_database(tmp_path / "profile.db", read_only=True) as base:
        info = base.run(result.run_id)
        assert info is not None and info.summary is not None
        assert info.summary["left_out"] == list(result.left_out)
        (row,) = base.table("choices").records()
    assert (row["median_us"], row["trusted"]) == (None, False)


def test_a_budget_that_opening_uses_up_ends_with_the_default_and_says_what_it_lacks(
    run: Tune, device: SlowDevice, world: World, layers: Path, tmp_path: Path
) -> None:
    """Opening is the least that a search takes: it cannot be cut short, and nothing comes after it."""
    world.reference_s = 30.0
    result = run(layers, budget_s=10.0)
    assert world.now <= world.load_s + world.reference_s + 1.0
    assert (result.chosen, result.measured) == ("default", 0)
    assert any("distinct kernels of plan default were not measured" in sentence for sentence in result.left_out)
    assert choice(tmp_path / "profile.db", result).groups


@pytest.mark.long
def test_what_an_earlier_run_checked_is_kept_when_there_is_no_time_to_check_another(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    first = run(layers, budget_s=900.0)
    world.now, world.kernel_s = 0.0, 30.0
    again = run(layers, budget_s=60.0)
    assert again.plan_key == first.plan_key
    assert any("not built and checked as a whole" in sentence for sentence in again.left_out)


def test_a_reference_that_has_no_time_left_is_not_begun(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """Loading a library takes longer than expected: what is chosen was checked on one set of inputs only."""
    world.reference_s, world.run_s = 10.0, 8.0
    result = run(layers, budget_s=100.0)
    assert result.plans[result.chosen].max_rel_error is not None
    assert world.now <= 100.0 + TICK_S


@pytest.mark.long
def test_the_search_uses_the_time_that_finalists_do_not_need(
    run: Tune, device: SlowDevice, world: World, layers: Path, tmp_path: Path
) -> None:
    wide = tmp_path / "wide.toml"
    wide.write_text("schema = 1\n")
    result = run(layers, budget_s=300.0, space=str(wide))
    assert world.now >= 0.8 * 300.0
    assert result.measured * world.candidate_s >= 0.4 * 300.0


def test_a_stop_is_heard_while_finalists_are_built(
    run: Tune, device: SlowDevice, world: World, layers: Path, tmp_path: Path
) -> None:
    """And what was measured is there for the run that goes on."""
    heard: list[float] = []

    def stop() -> bool:
        if world.built and not heard:
            heard.append(world.now)
        return bool(heard)

    with pytest.raises(KeyboardInterrupt):
        run(layers, budget_s=900.0, stop=stop)
    assert world.now - heard[0] <= 1.0
    with open_database(tmp_path / "profile.db", read_only=True) as base:
        (row,) = base.table("runs").records()
        assert (row["state"], base.table("choices").records()) == ("interrupted", [])
    first = set(device.measured)
    device.measured.clear()
    assert run(layers, budget_s=900.0).hits > 0
    assert not first & set(device.measured), "nothing is measured twice"


@pytest.mark.long
def test_wrong_tiles_and_no_time_for_others_end_without_any(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """A plan that is wrong as a whole is never the answer, even where no time is left for another."""
    device.whole = lambda name, us: "output 0: off" if name == world.built[0] else us
    world.kernel_s = 4.0
    result = run(layers, budget_s=140.0)
    assert result.chosen != world.built[0]
    assert world.now <= allowed_s(140.0)
