"""The budget is kept: whole searches on a virtual clock, on which reading, building and measuring take long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.fusion.plan import FusionPlan
from autofuse.measure.networks.libraries import NO_TIME
from autofuse.search.progress import TuneResult
from tests.search.conftest import SyntheticDevice

Tune = Callable[..., TuneResult]
TICK_S = 0.5


def allowed_s(budget_s: float) -> float:
    """When a search with this budget has to have ended."""
    return 1.1 * budget_s + 10.0


@dataclass
class World:
    """How long everything takes, in seconds of the virtual clock.

    `load_s`, `reference_s`: opening. `candidate_s`: building and timing a candidate. `kernel_s`: a kernel of a whole
    library, and `told_s`, what the builds of candidates let expect of one. `start_s`: a process that builds. `run_s`:
    loading and checking a library. `cores`: builds side by side.
    """

    load_s: float = 1.0
    reference_s: float = 2.0
    candidate_s: float = 1.0
    kernel_s: float = 0.8
    told_s: float | None = None
    start_s: float = 3.0
    run_s: float = 2.0
    cores: int = 1
    now: float = 0.0
    built: list[str] = field(default_factory=list)

    def take(self, seconds: float, left: Callable[[], float]) -> bool:
        """Lets time pass, in ticks after which a budget is looked at, as real waits do; whether it came to its end."""
        end = self.now + seconds
        while self.now < end:
            if left() <= 0:
                return False
            self.now += min(TICK_S, end - self.now)
        return True


class SlowDevice(SyntheticDevice):
    """The synthetic device in a `world`."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def stream(self, batch: Any, left: Any = lambda: float("inf"), ahead: Any = tuple) -> Any:
        told_s = self.world.kernel_s if self.world.told_s is None else self.world.told_s
        for request in range(len(batch)):
            if not self.world.take(self.world.candidate_s, left):
                return
            for _, measurement in super().stream([batch[request]], left):
                object.__setattr__(measurement, "build_s", told_s)
                yield request, measurement

    def build(
        self, model: Any, target: Any, threads: int, orders: Any, tell: Any, left: Any = None, objects: Any = None
    ) -> dict[str, str]:
        self.world.take(self.world.start_s + self.world.load_s, left)
        problems = {}
        for order in orders:
            late = order is not orders[0] and order.expected_s > left()
            if late or not self.world.take(len(order.schedules) * self.world.kernel_s, left):
                problems[order.name] = NO_TIME
                continue
            self.world.built.append(order.name)
            super().build(model, target, threads, [order], tell)
        return problems

    def race(self, contenders: Sequence[Any], inputs: Any, budget_s: float, **named: Any) -> Any:
        left, loaded = named["left"], []
        for contender in contenders:
            if self.world.take(self.world.run_s, left):
                loaded.append(contender)
        self.world.take(budget_s, left)
        return super().race(loaded) if loaded else {}

    def outputs(self, library: Path, inputs: Mapping[str, Any], left: Any = lambda: float("inf")) -> list[Any]:
        self.world.take(self.world.run_s, left)
        return super().outputs(library, inputs)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def device(world: World, monkeypatch: pytest.MonkeyPatch) -> SlowDevice:
    """A device on which time passes, and a clock that nothing else moves."""
    made = SlowDevice(world)
    monkeypatch.setattr("autofuse.search.tune.open_runner", made)
    monkeypatch.setattr("autofuse.search.finals.finals.build_libraries", made.build)
    monkeypatch.setattr("autofuse.search.tune.available_cores", lambda: world.cores)

    def sleep(seconds: float) -> None:
        world.now += seconds

    monkeypatch.setattr("autofuse.search.budget.budget.time", SimpleNamespace(monotonic=lambda: world.now, sleep=sleep))
    for name, seconds in (("load", "load_s"), ("capture", "reference_s")):
        slow(monkeypatch, f"autofuse.search.tune.{name}", world, seconds)
    return made


def slow(monkeypatch: pytest.MonkeyPatch, name: str, world: World, seconds: str) -> None:
    """The function called `name` takes the `seconds` of the world."""
    module, _, function = name.rpartition(".")
    real = getattr(__import__(module, fromlist=[function]), function)

    def taking(*arguments: Any, **named: Any) -> Any:
        world.now += getattr(world, seconds)
        return real(*arguments, **named)

    monkeypatch.setattr(name, taking)


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


@pytest.mark.parametrize("budget_s", [10.0, 60.0, 180.0])
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


def test_with_less_fewer_finalists_are_built_and_the_rest_is_named(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """A library takes 27 seconds: half of the budget holds one."""
    world.kernel_s = 4.0
    result = run(layers, budget_s=140.0)
    assert len(world.built) == 1 and world.built[0] == result.chosen
    assert result.plans[result.chosen].max_rel_error is not None, "what is chosen was checked as a whole"
    assert result.plans[result.chosen].speedup is None, "there is nothing to compare with"
    assert any("not measured whole" in sentence and "plan none" in sentence for sentence in result.left_out)
    assert "the budget left no time for everything" in result.warning


def test_what_takes_less_than_expected_leaves_time_for_what_was_left_out(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """Candidates let expect 27 seconds a library; it takes five."""
    world.told_s, world.kernel_s = 4.0, 0.4
    result = run(layers, budget_s=140.0)
    assert len(world.built) == len(set(world.built)) > 1, "the expectation alone would leave time for one"
    assert sum(time.median_us is not None for time in result.plans.values()) == len(world.built)
    assert world.now <= allowed_s(140.0)


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


def test_what_an_earlier_run_checked_is_kept_when_there_is_no_time_to_check_another(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    first = run(layers, budget_s=900.0)
    world.now, world.kernel_s = 0.0, 30.0
    again = run(layers, budget_s=60.0)
    assert again.plan_key == first.plan_key
    assert any("not built and checked as a whole" in sentence for sentence in again.left_out)


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


def test_wrong_tiles_and_no_time_for_others_end_without_any(
    run: Tune, device: SlowDevice, world: World, layers: Path
) -> None:
    """A plan that is wrong as a whole is never the answer, even where no time is left for another."""
    device.whole = lambda name, us: "output 0: off" if name == world.built[0] else us
    world.kernel_s = 4.0
    result = run(layers, budget_s=140.0)
    assert result.chosen != world.built[0]
    assert world.now <= allowed_s(140.0)
