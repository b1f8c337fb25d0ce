"""Whole jobs on scripted searches, in real processes: sharing, crashes, hangs, refusals, stops, going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autofuse.database.database import open_database
from autofuse.database.job_records import TaskStart
from autofuse.environment.place import Place
from autofuse.errors import DatabaseError, InputError
from autofuse.job import coordinator as coordinator_module
from autofuse.job import worker as worker_module
from autofuse.job.coordinator import JobListener
from autofuse.job.outcome import JobOutcome
from autofuse.job.run import run_job
from autofuse.job.settings import JobSettings, WorkerSpec

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
LOCAL = WorkerSpec("local", "local", Place(device="generic-avx2"))
OPENER = "scripted_sessions:open_scripted"
Job = Callable[..., JobOutcome]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def make(name: str, **script: Any) -> Path:
        path = tmp_path / f"{name}.onnx"
        path.write_text(json.dumps({"name": name, **script}))
        return path

    return make


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(coordinator_module, "BEAT_S", 0.2)

    def run(
        models: list[Path],
        workers: tuple[WorkerSpec, ...] = (LOCAL,),
        listener: JobListener | None = None,
        **settings: Any,
    ) -> JobOutcome:
        chosen = JobSettings(**{"budget_s": 4.0, "threads": 1, **settings})
        return run_job(
            models,
            workers,
            chosen,
            database=str(tmp_path / "p.db"),
            name="night",
            listener=listener or JobListener(),
            opener=OPENER,
            import_paths=[HERE],
        )

    return run


def measured(folder: Path) -> Counter[str]:
    lines = [line for path in folder.glob("measured-*") for line in path.read_text().splitlines()]
    assert len(lines) == len(set(lines)), "no candidate twice"
    return Counter(line.split()[0] for line in lines)


def test_all_models_are_searched_and_confirmed(job: Job, write: Any, tmp_path: Path) -> None:
    outcome = job([write("a", candidates=20), write("b", candidates=20), write("c", candidates=20)], budget_s=600.0)
    assert (outcome.state, outcome.complete, outcome.exit_code) == ("finished", True, 0)
    assert [task.state for task in outcome.tasks] == ["done"] * 3
    assert {task.chosen for task in outcome.tasks} == {"search"}
    assert measured(tmp_path) == {"a": 20, "b": 20, "c": 20}
    assert outcome.measured == 60
    released = Counter((tmp_path / "released").read_text().split())
    assert set(released) == {"a", "b", "c"}, "a device serves one search at a time"
    assert min(released.values()) >= 2, "let go of after each slice"
    assert outcome.elapsed_s < 300, "what is exhausted is not waited for"


@pytest.mark.long
def test_what_promises_more_gets_more_candidates(job: Job, write: Any, tmp_path: Path) -> None:
    job([write("poor", headroom=0.0001), write("rich", headroom=0.004)], budget_s=None, trials=96)
    found = measured(tmp_path)
    assert found["poor"] > 0
    assert found["rich"] > 2 * found["poor"]


def test_models_that_the_time_does_not_reach_are_told_so_and_not_read(job: Job, write: Any, tmp_path: Path) -> None:
    """The time is over before a search process has started; what it began is concluded all the same."""
    outcome = job([write(name) for name in "abcde"], budget_s=0.001)
    assert (outcome.complete, outcome.exit_code) == (True, 6)
    unbegun = [task for task in outcome.tasks if task.state == "failed"]
    assert len(unbegun) >= 4
    assert all(task.failure == coordinator_module.UNBEGUN and task.measured == 0 for task in unbegun)
    assert set(measured(tmp_path)) == {Path(task.model).stem for task in outcome.tasks if task.state == "done"}


@pytest.mark.long
def test_early_stopping_spends_nothing_on_a_model_without_promise(job: Job, write: Any, tmp_path: Path) -> None:
    outcome = job([write("poor", headroom=1e-7)], budget_s=600.0, trials=200, early_stopping=0.05)
    assert outcome.exit_code == 0
    assert outcome.elapsed_s < 300
    assert measured(tmp_path)["poor"] <= 200


@pytest.mark.long
def test_a_search_that_crashes_once_costs_one_slice(job: Job, write: Any, tmp_path: Path) -> None:
    model = write("a", candidates=5, behaviour="crash", mark=str(tmp_path / "mark"))
    outcome = job([model, write("b", candidates=5)], budget_s=600.0)
    assert outcome.exit_code == 0
    assert [task.state for task in outcome.tasks] == ["done", "done"]


@pytest.mark.long
def test_a_model_that_always_crashes_is_given_up_and_the_others_are_done(job: Job, write: Any) -> None:
    outcome = job([write("bad", behaviour="killed"), write("b", candidates=5)], budget_s=600.0)
    assert [task.state for task in outcome.tasks] == ["failed", "done"]
    assert "killed by the system" in outcome.tasks[0].failure
    assert outcome.exit_code == 75


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("InputError", 2),
        pytest.param("PlanError", 6, marks=pytest.mark.long),
        pytest.param("WrongResultError", 4, marks=pytest.mark.long),
    ],
)
def test_a_model_that_is_refused_fails_with_its_exit_code(job: Job, write: Any, kind: str, code: int) -> None:
    outcome = job([write("bad", open_behaviour=kind), write("b", candidates=5)], budget_s=600.0)
    assert [task.state for task in outcome.tasks] == ["failed", "done"]
    assert outcome.tasks[0].failure == f"{kind} on purpose"
    assert outcome.exit_code == code


@pytest.mark.long
def test_a_search_that_hangs_is_ended(job: Job, write: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Long before its slice is over, which for a single model is nearly the whole night."""
    monkeypatch.setattr(worker_module, "SILENCE_S", 20.0)
    model = write("a", candidates=5, behaviour="hang", mark=str(tmp_path / "mark"))
    outcome = job([model], budget_s=8 * 3600.0)
    assert [task.state for task in outcome.tasks] == ["done"]
    assert outcome.elapsed_s < 600


@pytest.mark.long
def test_a_worker_that_is_lost_leaves_its_work_to_the_other(job: Job, write: Any, tmp_path: Path) -> None:
    """Both workers share the device; three failures in a row end one of them."""
    models = [write(name, candidates=10) for name in "abcd"]
    mark = tmp_path / "mark"
    models.append(write("lost", candidates=10, open_behaviour="DeviceError", mark=str(mark)))
    outcome = job(models, (LOCAL, replace(LOCAL, name="other")), budget_s=600.0)
    assert outcome.exit_code == 0
    assert {task.state for task in outcome.tasks} == {"done"}
    assert measured(tmp_path) == dict.fromkeys(["a", "b", "c", "d", "lost"], 10)


@pytest.mark.long
def test_a_job_whose_only_worker_is_lost_says_so_and_can_go_on(
    job: Job, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "PATIENCE_SHARE", 0.0)
    model = write("a", candidates=5, open_behaviour="DeviceError")
    outcome = job([model], budget_s=3600.0)
    assert (outcome.state, outcome.exit_code) == ("interrupted", 75)
    assert "DeviceError on purpose" in outcome.lost_workers[0]


@pytest.mark.long
def test_a_worker_that_comes_back_goes_on_with_the_job(
    job: Job, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only one: the job waits for it for a part of its budget."""
    monkeypatch.setattr(coordinator_module, "RETRY_S", 0.5)
    away, said = tmp_path / "away", []
    away.touch()

    def say(text: str) -> None:
        said.append(text)
        away.unlink()

    model = write("a", candidates=5, **{"open_behaviour": "DeviceError", "while": str(away)})
    outcome = job([model], listener=JobListener(say=say), budget_s=3600.0)
    assert (outcome.exit_code, outcome.lost_workers) == (0, ())
    assert len(said) == 1
    assert "the worker local is lost; it is tried again now and then" in said[0]
    assert measured(tmp_path) == {"a": 5}


@pytest.mark.long
def test_a_search_beyond_its_memory_limit_costs_its_model_and_no_other(job: Job, write: Any) -> None:
    outcome = job([write("bad", behaviour="grow"), write("b", candidates=5)], budget_s=600.0, memory_bytes=1 << 30)
    assert [task.state for task in outcome.tasks] == ["failed", "done"]
    assert "out_of_memory" in outcome.tasks[0].failure


@pytest.mark.long
def test_kernels_that_are_not_trusted_are_named(job: Job, write: Any) -> None:
    (task,) = job([write("a", candidates=5, untrusted=["Conv 1x8"])], budget_s=600.0).tasks
    assert (task.trusted, task.untrusted) == (True, ("Conv 1x8",))


def test_a_job_until_a_time_of_day_has_what_is_left_until_then(tmp_path: Path) -> None:
    tasks = [TaskStart("/m", "0" * 64, "local")]
    with open_database(tmp_path / "p.db") as base:
        base.jobs.open_job("night", tasks, JobSettings(None, ends_at=5000.0).to_json())
        base.jobs.beat(base.jobs.open_job("night", tasks, JobSettings(None, ends_at=5000.0).to_json()).id, 400.0)
        job = base.jobs.job("night")
        assert job is not None
        driver = coordinator_module.Coordinator(base, job, [], clock=lambda: 4000.0)
        assert driver.left_s() == pytest.approx(1000.0, abs=5.0), "by the clock on the wall"
        assert driver.budget_s() == pytest.approx(1400.0, abs=5.0), "with what an earlier process spent"
        late = coordinator_module.Coordinator(base, job, [], clock=lambda: 9000.0)
        assert late.left_s() < 0


@pytest.mark.parametrize(
    ("verdict", "code"), [(None, 5), pytest.param("faster", 5, marks=pytest.mark.long), ("undecided", 0)]
)
def test_a_winner_slower_than_the_default_has_its_own_exit_code(
    verdict: str | None, code: int, job: Job, write: Any
) -> None:
    """Not where noise left it open, and the simpler plan was taken."""
    assert job([write("a", candidates=5, slower=True, verdict=verdict)], budget_s=600.0).exit_code == code


def test_a_stop_finishes_the_candidate_and_the_job_goes_on_later(job: Job, write: Any, tmp_path: Path) -> None:
    models = [write("a"), write("b", candidates=30)]
    stopped = job(
        models, listener=JobListener(stop_asked=lambda: bool(list(tmp_path.glob("measured-*")))), budget_s=600.0
    )
    assert (stopped.state, stopped.exit_code, stopped.complete) == ("interrupted", 130, False)
    assert stopped.elapsed_s < 300, "long before its budget is spent"
    with open_database(tmp_path / "p.db", read_only=True) as base:
        found = base.jobs.job("night")
        assert found is not None
        assert (found.state, {task.state for task in found.tasks}) == ("interrupted", {"queued"})
        assert found.active_s > 0
    base_count = sum(measured(tmp_path).values())
    assert base_count > 0


@pytest.mark.long
def test_a_second_interrupt_ends_at_once_and_the_job_goes_on_later(job: Job, write: Any, tmp_path: Path) -> None:
    def interrupted() -> bool:
        if list(tmp_path.glob("measured-*")):
            raise KeyboardInterrupt  # what the second Ctrl-C raises
        return False

    models = [write("a", candidates=60)]
    with pytest.raises(KeyboardInterrupt):
        job(models, listener=JobListener(stop_asked=interrupted), budget_s=600.0)
    with open_database(tmp_path / "p.db", read_only=True) as base:
        found = base.jobs.job("night")
    assert found is not None
    assert (found.state, found.tasks[0].state) == ("interrupted", "queued")
    assert job(models, budget_s=600.0).exit_code == 0
    assert measured(tmp_path) == {"a": 60}


def test_the_verb_stop_reaches_the_coordinator(job: Job, write: Any, tmp_path: Path) -> None:
    def stop() -> None:
        deadline = time.monotonic() + 600
        while not list(tmp_path.glob("measured-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        with open_database(tmp_path / "p.db") as base:
            found = base.jobs.job("night")
            assert found is not None
            base.jobs.ask_to_stop(found.id)

    thread = threading.Thread(target=stop)
    thread.start()
    outcome = job([write("a")], budget_s=600.0)
    thread.join()
    assert (outcome.state, outcome.exit_code) == ("interrupted", 130)


def test_a_full_disk_stops_cleanly(job: Job, write: Any, monkeypatch: Any) -> None:
    with pytest.raises(DatabaseError, match="takes 0 MiB, more than --disk-limit allows"):
        job([write("a")], disk_bytes=1, budget_s=600.0)
    monkeypatch.setattr(coordinator_module, "LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(DatabaseError, match="MiB are free on its disk.*everything recorded is kept"):
        job([write("a")], budget_s=600.0)


def test_what_cannot_be_a_job_is_refused_before_anything_runs(job: Job, write: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the model"):
        job([tmp_path / "absent.onnx"])
    with pytest.raises(InputError, match="--space: 'absent' is unknown"):
        job([write("a")], space="absent")
    assert not (tmp_path / "p.db").exists()


MARK = "AUTOFUSE_TEST_MARK"


def marked(process: psutil.Process, mark: str) -> bool:
    """Whether it lives and descends from what was started with this mark."""
    with suppress(psutil.Error):
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    return False


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from autofuse.environment.place import Place
from autofuse.job.coordinator import JobListener
from autofuse.job.run import run_job
from autofuse.job.settings import WorkerSpec, JobSettings
run_job({models!r} and [Path(m) for m in {models!r}], [WorkerSpec("local", "local", Place(device="generic-avx2"))],
        JobSettings(budget_s=600.0, threads=1), database={base!r}, name="night", listener=JobListener(),
        opener={opener!r}, import_paths=[Path({here!r})])
"""


@pytest.mark.long
def test_a_killed_coordinator_takes_its_searches_along_and_the_next_one_goes_on(
    job: Job, write: Any, tmp_path: Path
) -> None:
    """Also where all its tasks were under way: nothing is left to claim until the dead one's lease is void."""
    models = [write("a", candidates=150)]
    code = KILLED.format(here=str(HERE), models=[str(m) for m in models], opener=OPENER, base=str(tmp_path / "p.db"))
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), MARK: str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob("measured-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    with open_database(tmp_path / "p.db", read_only=True) as base:
        running = base.jobs.job("night")
    assert running is not None
    assert running.state == "running"
    process.send_signal(signal.SIGKILL)
    process.wait()
    with open_database(tmp_path / "p.db", read_only=True) as base:
        dead = base.jobs.job("night")
    assert dead is not None
    assert dead.state == "interrupted", "status sees it by the lease, with no coordinator to say so"
    while searches := [one for one in psutil.process_iter() if marked(one, str(tmp_path))]:
        assert time.monotonic() < deadline, f"{searches} outlive their coordinator"
        time.sleep(0.05)
    assert 0 < sum(measured(tmp_path).values()) < 150
    outcome = job(models, budget_s=600.0)
    assert (outcome.state, outcome.exit_code) == ("finished", 0)
    assert measured(tmp_path) == {"a": 150}
