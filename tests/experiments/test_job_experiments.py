"""The experiments about jobs: the drill's bookkeeping, verdicts beside a neighbour, a farm in virtual time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from autofuse.measure.networks.bench import ContenderResult
from experiments.fault_drill import drill
from experiments.fault_drill.faults import FAULTS, Fault
from experiments.noisy_neighbour.run import neighbour, row
from experiments.scale.simulate import simulate


class FakeScene:
    """A job that records a measurement each time it is looked at, and ends now and then."""

    database = "postgres"

    def __init__(self) -> None:
        self.rows: dict[str, tuple[object, ...]] = {}
        self.extended, self.looks, self.finishing, self.forgets = 0, 0, False, False

    def start(self) -> None:
        pass

    def supervise(self) -> Counter[str]:
        return Counter({"job": 1})

    def snapshot(self) -> dict[str, tuple[object, ...]]:
        self.looks += 1
        if self.forgets and self.looks == 20:
            self.rows.pop("3")
        self.rows[str(self.looks)] = (self.looks, self.looks, "ok", 1.0, 5, True)
        return dict(self.rows)

    def job_finished(self) -> bool:
        return self.finishing or self.looks % 7 == 0

    def extend(self) -> None:
        self.extended += 1
        self.looks += 1

    def let_finish(self) -> None:
        self.finishing = True


@pytest.fixture
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drill, "SETTLE_S", (0.0, 0.0))
    monkeypatch.setattr(drill, "HASTE", 1.0)
    monkeypatch.setattr(drill, "FAULTS", [Fault(str(n), lambda _scene, _chance, n=n: n < 3) for n in range(4)])


def strike(scene: FakeScene, count: int, seconds: float = 60.0) -> drill.Story:
    return drill.strike(scene, count, seconds, 1, lambda _text: None)  # type: ignore[arg-type]


def test_each_kind_of_fault_strikes_about_equally_often(haste: None) -> None:
    scene = FakeScene()
    story = strike(scene, 30)
    assert sum(story.struck.values()) == 30
    assert set(story.struck) == {"0", "1", "2"}
    assert set(story.missed) == {"3"}
    assert max(story.struck.values()) - min(story.struck.values()) <= 3
    assert scene.extended > 0, "a job that ends before the faults do goes on"
    assert story.problems == []


def test_a_measurement_that_vanishes_is_a_problem(haste: None) -> None:
    scene = FakeScene()
    scene.forgets = True
    story = strike(scene, 40)
    assert story.problems == ["1 measurements are gone or changed, the first is 3"]


def test_the_faults_end_when_their_time_is_over(haste: None) -> None:
    assert not strike(FakeScene(), 10, seconds=0.0).struck


def test_the_drill_strikes_every_part_of_a_job() -> None:
    names = " ".join(fault.name for fault in FAULTS)
    for part in ("coordinator", "search", "worker", "server", "device", "SIGSTOP", "disk", "database", "corrupt"):
        assert part in names


def result(ratio: float, wrong: str = "") -> ContenderResult:
    return ContenderResult(100.0 * ratio, ratio, ratio * 0.99, ratio * 1.01, True, wrong=wrong)


TASK: dict[str, Any] = {"trusted": True, "untrusted": [], "measured": 10}


@pytest.mark.parametrize(
    ("measured", "noisy", "same", "verdict"),
    [
        (result(1.02), TASK, False, "same"),
        (result(0.8), TASK, False, "same"),
        (result(1.2), TASK, True, "same"),
        (result(1.2), {**TASK, "trusted": False}, False, "said"),
        (result(1.2), {**TASK, "untrusted": ["Conv 1x8"]}, False, "said"),
        (result(1.2), TASK, False, "WRONG"),
        (result(1.0, wrong="off by 2"), {**TASK, "trusted": False}, True, "WRONG"),
    ],
)
def test_a_winner_is_the_same_or_the_job_said_that_it_does_not_trust_it(
    measured: ContenderResult, noisy: dict[str, Any], same: bool, verdict: str
) -> None:
    assert row(Path("net.onnx"), measured, TASK, noisy, same).verdict == verdict


def test_the_neighbour_goes_when_its_time_is_over(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with neighbour(1, 1, tmp_path / "log"):
        assert {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_small_farm_finishes_its_night(tmp_path: Path) -> None:
    found = simulate(tmp_path, models=3, workers=2, hours=1.0)
    assert found["tasks"] == found["confirmed"] == 6
    assert found["slices"] >= 6
    assert found["least_candidates"] > 0
    assert found["coordinator_load_percent"] < 5
