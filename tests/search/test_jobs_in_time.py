"""Jobs keep their time: the coordinator with real searches of several models, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.database.job_records import TaskInfo
from autofuse.environment.place import Place
from autofuse.job.coordinator import JobListener
from autofuse.job.outcome import JobOutcome
from autofuse.job.requests import CloseSearches, StartSearcher, TakeTurn, TurnEnded
from autofuse.job.run import run_job
from autofuse.job.searcher import Searcher
from autofuse.job.settings import JobSettings, WorkerSpec
from autofuse.job.timetable import Turn
from autofuse.job.worker import OPENER, Setup
from tests.search.slow_device import SlowDevice, World, put_in_place

Job = Callable[..., JobOutcome]


class WorkerHere:
    """A worker whose search "process" is this one: a turn is over when it was begun."""

    def __init__(self, spec: WorkerSpec, number: int, setup: Setup) -> None:
        self.spec, self.number, self.failures, self.busy = spec, number, 0, False
        self.task: TaskInfo | None = None
        self._ended: TurnEnded | None = None
        self._searcher = Searcher()
        stop, pulse = setup.folder / "stop", setup.folder / "pulse"
        self._searcher.start(StartSearcher(setup.settings, spec, OPENER, setup.database, number, stop, pulse))

    def start(self, task: TaskInfo, turn: Turn) -> None:
        self.task = task
        self._ended = self._searcher.take_turn(
            TakeTurn(turn.phase, task.model, task.device, turn.seconds, turn.race_s, turn.trials)
        )

    def collect(self) -> TurnEnded | None:
        return self._ended

    def close(self) -> None:
        self._searcher.close(CloseSearches())


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def device(world: World, monkeypatch: pytest.MonkeyPatch) -> SlowDevice:
    return put_in_place(world, monkeypatch)


@pytest.fixture
def job(device: SlowDevice, world: World, space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """`job(models, seconds)`: the job of these models on the slow device."""

    def sleep(seconds: float) -> None:
        world.now += seconds

    clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now, sleep=sleep)
    monkeypatch.setattr("autofuse.job.coordinator.time", clock)
    monkeypatch.setattr("autofuse.job.searcher.time", clock)
    monkeypatch.setattr("autofuse.job.coordinator.Worker", WorkerHere)

    def call(models: Sequence[Path], seconds: float, **settings: Any) -> JobOutcome:
        chosen = JobSettings(seconds, threads=1, space=str(space), trained="none", **settings)
        worker = WorkerSpec("local", "local", Place(threads=1))
        database = str(tmp_path / "profile.db")
        return run_job(models, [worker], chosen, database=database, name="night", listener=JobListener())

    return call


@pytest.fixture
def networks(onnx_builder: Any, tmp_path: Path) -> list[Path]:
    """Three networks of two to four dense layers, no two of the same size."""
    found = []
    for number in range(3):
        b = onnx_builder()
        x, width = "x", 8 + 8 * number
        shape = [4, width]
        for layer in range(2 + number):
            x = b.op("Relu", f"relu{layer}", b.dense(f"dense{layer}", x, (width, width + 1)))
            width += 1
        found.append(Path(b.save(tmp_path / f"net{number}.onnx", {"x": shape}, [x])))
    return found


@pytest.mark.parametrize(("count", "trials"), [(2, 8), (3, 8), (3, None)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"crowding": 2.0, "load_s": 2.0, "reference_s": 4.0, "start_s": 4.0, "run_s": 4.0, "candidate_s": 2.0},
        {"reference_s": 12.0},
    ],
    ids=["a quiet machine", "a busy one", "opening takes long"],
)
def test_every_model_of_a_job_is_built_and_checked_whole(
    changes: dict[str, float], count: int, trials: int | None, job: Job, world: World, networks: Sequence[Path]
) -> None:
    for name, value in changes.items():
        setattr(world, name, value)
    seconds = 60.0 * count
    outcome = job(networks[:count], seconds, trials=trials)
    assert world.now <= 1.1 * seconds + 10.0
    assert outcome.complete and outcome.exit_code == 0
    for task in outcome.tasks:
        assert task.median_us is not None and "not built and checked" not in task.warning, task.warning
