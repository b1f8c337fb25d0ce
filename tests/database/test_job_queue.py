"""The queue of jobs: who gets which task, what becomes of the tasks of the dead, several coordinators at once."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.job_records import CONFIRM, SEARCH, TaskProgress, TaskStart
from autofuse.database.record import job_queue
from autofuse.database.record.job_queue import JobQueue
from autofuse.database.records import content_key
from autofuse.database.tables.owner import this_process
from autofuse.errors import InputError


def task(name: str, device: str = "local") -> TaskStart:
    return TaskStart(f"/models/{name}.onnx", content_key(name), device)


def brought(gain: float, **more: object) -> TaskProgress:
    return TaskProgress(**{"spent_s": 10.0, "measured": 4, "failed": 1, "gain": gain, **more})  # type: ignore[arg-type]


TASKS = [task("a"), task("b"), task("c")]


@pytest.fixture
def queue(database: ProfilingDatabase) -> JobQueue:
    return database.jobs


@pytest.fixture
def job_id(queue: JobQueue) -> int:
    return queue.open_job("night", TASKS, {"budget_s": 60.0}).id


def other(database: ProfilingDatabase) -> JobQueue:
    """A coordinator on another machine."""
    return JobQueue(database, replace(this_process(), host="elsewhere"))


def dead(database: ProfilingDatabase) -> JobQueue:
    """A coordinator of this machine, of before its last boot."""
    return JobQueue(database, replace(this_process(), boot_id="earlier"))


def test_tasks_not_begun_come_first_and_then_the_largest_gain(queue: JobQueue, job_id: int) -> None:
    for gain in (0.1, 0.3, 0.2):
        claimed = queue.claim(job_id, "local", SEARCH)
        assert claimed is not None
        assert queue.give_back(claimed.id, brought(gain))
    order = []
    while (claimed := queue.claim(job_id, "local", SEARCH)) is not None:
        order.append(claimed.position)
    assert order == [1, 2, 0]


def test_a_gain_below_the_least_is_not_worth_a_slice(queue: JobQueue, job_id: int) -> None:
    for gain in (0.1, 0.3, 0.2):
        claimed = queue.claim(job_id, "local", SEARCH)
        assert claimed is not None
        queue.give_back(claimed.id, brought(gain))
    claimed = queue.claim(job_id, "local", SEARCH, least_gain=0.25)
    assert claimed is not None
    assert claimed.position == 1
    assert queue.claim(job_id, "local", SEARCH, least_gain=0.25) is None
    assert queue.claim(job_id, "local", CONFIRM) is not None, "it can be confirmed all the same"


def test_an_exhausted_task_is_not_searched_again(queue: JobQueue, job_id: int) -> None:
    for _ in TASKS:
        claimed = queue.claim(job_id, "local", SEARCH)
        assert claimed is not None
        queue.give_back(claimed.id, brought(0.5, exhausted=True))
    assert queue.claim(job_id, "local", SEARCH) is None


def test_a_task_belongs_to_its_device(queue: JobQueue) -> None:
    job = queue.open_job("farm", [task("a", "pi4"), task("a", "pi5")], {})
    claimed = queue.claim(job.id, "pi5", SEARCH)
    assert claimed is not None
    assert claimed.device == "pi5"
    assert queue.claim(job.id, "pi5", SEARCH) is None


def test_what_slices_bring_adds_up(queue: JobQueue) -> None:
    job_id = queue.open_job("night", TASKS[:1], {}).id
    for _ in range(2):
        claimed = queue.claim(job_id, "local", CONFIRM)
        assert claimed is not None
        queue.give_back(claimed.id, brought(0.1, best_us=12.0))
    job = queue.job("night")
    assert job is not None
    assert (job.tasks[0].measured, job.tasks[0].failed, job.tasks[0].spent_s) == (8, 2, 20.0)
    assert job.tasks[0].best_us == 12.0


def test_a_task_of_a_dead_coordinator_is_taken_over_at_once(database: ProfilingDatabase, job_id: int) -> None:
    mourned = dead(database)
    first = mourned.claim(job_id, "local", SEARCH)
    assert first is not None
    again = database.jobs.claim(job_id, "local", SEARCH)
    assert again is not None
    assert again.id == first.id
    assert not mourned.give_back(first.id, brought(0.1)), "its lease is another's now"


def test_a_silent_coordinator_elsewhere_is_taken_over_when_its_lease_expires(
    database: ProfilingDatabase, job_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = other(database)
    first = far.claim(job_id, "local", SEARCH)
    assert first is not None
    database.jobs.beat(job_id, 0.0)
    assert far.beat(job_id, 1.0) == (False, (first.id,))
    monkeypatch.setattr(job_queue, "LEASE_S", -1.0)
    database.jobs.beat(job_id, 0.0)
    assert far.beat(job_id, 1.0) == (False, ()), "it hears that the task is gone"


def test_a_search_that_dies_three_times_gives_its_task_up(queue: JobQueue, job_id: int) -> None:
    for attempt in range(3):
        claimed = queue.claim(job_id, "local", SEARCH)
        assert claimed is not None
        assert (claimed.position, claimed.attempts) == (0, attempt)
        queue.died(claimed.id, "crashed with SIGSEGV")
    job = queue.job()
    assert job is not None
    assert (job.tasks[0].state, job.tasks[0].failure) == ("failed", "crashed with SIGSEGV")


def test_a_job_nobody_alive_works_on_counts_as_interrupted(database: ProfilingDatabase, job_id: int) -> None:
    mourned = dead(database)
    mourned.join(job_id, "worker", "local")
    job = database.jobs.job("night")
    assert job is not None
    assert (job.state, job.workers[0].alive) == ("interrupted", False)
    worker = database.jobs.join(job_id, "worker", "local")
    job = database.jobs.job("night")
    assert job is not None
    assert (job.state, job.workers[1].alive) == ("running", True)
    database.jobs.leave(worker)
    database.jobs.end_job(job_id, "finished", {"tasks": 3})
    job = database.jobs.job("night")
    assert job is not None
    assert (job.state, job.summary) == ("finished", {"tasks": 3})


def test_the_last_coordinator_ends_the_job(database: ProfilingDatabase, job_id: int) -> None:
    far = other(database)
    worker = far.join(job_id, "worker", "local")
    database.jobs.end_job(job_id, "finished", {})
    job = database.jobs.job("night")
    assert job is not None
    assert job.state == "running"
    far.leave(worker)
    far.end_job(job_id, "finished", {})
    job = database.jobs.job("night")
    assert job is not None
    assert job.state == "finished"


def test_a_stop_reaches_every_coordinator(database: ProfilingDatabase, job_id: int) -> None:
    database.jobs.ask_to_stop(job_id)
    assert database.jobs.beat(job_id, 1.0)[0]
    assert other(database).beat(job_id, 1.0)[0]
    assert not database.jobs.open_job("night", TASKS, {}).stop_asked, "started again, it runs"


def test_the_same_name_with_other_models_is_refused(queue: JobQueue, job_id: int) -> None:
    with pytest.raises(InputError, match=r"--run: job 'night' is one of other models.*/models/d.onnx"):
        queue.open_job("night", [*TASKS, task("d")], {})


def test_an_interrupted_job_is_found_by_its_models(queue: JobQueue, job_id: int) -> None:
    assert queue.unfinished(list(reversed(TASKS))) == "night"
    assert queue.unfinished(TASKS[:2]) is None
    queue.end_job(job_id, "finished", {})
    assert queue.unfinished(TASKS) is None


def test_a_job_that_goes_on_keeps_what_it_has_spent_and_a_finished_one_begins_anew(
    queue: JobQueue, job_id: int
) -> None:
    claimed = queue.claim(job_id, "local", SEARCH)
    assert claimed is not None
    queue.finish(claimed.id, {"chosen": "default"}, brought(0.1))
    queue.beat(job_id, 40.0)
    queue.beat(job_id, 30.0)
    again = queue.open_job("night", TASKS, {"budget_s": 99.0})
    assert (again.active_s, again.tasks[0].state, again.settings["budget_s"]) == (40.0, "done", 99.0)
    queue.end_job(job_id, "finished", {})
    anew = queue.open_job("night", TASKS, {"budget_s": 99.0})
    assert (anew.active_s, anew.tasks[0].state, anew.settings["budget_s"]) == (0.0, "queued", 99.0)


def test_coordinators_that_claim_together_get_different_tasks(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    with open_database(path) as base:
        job_id = base.jobs.open_job("night", [task(str(number)) for number in range(24)], {}).id
    claimed: list[int] = []

    def work(number: int) -> None:
        with open_database(path) as base:
            mine = JobQueue(base, replace(this_process(), host=f"host{number}"))
            while (found := mine.claim(job_id, "local", SEARCH)) is not None:
                claimed.append(found.id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 24
