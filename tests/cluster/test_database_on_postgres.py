"""The profiling database on PostgreSQL: the same answers, several coordinators at once, a server that restarts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from servers import Postgres

from autofuse.database import retries
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.job_records import SEARCH, TaskProgress, TaskStart
from autofuse.database.record.job_queue import JobQueue
from autofuse.database.records import (
    Candidate,
    CandidateOutcome,
    ChosenGroup,
    PlanOutcome,
    RunStart,
    SampleBlock,
    Trial,
    content_key,
)
from autofuse.database.tables.owner import this_process
from tests.database.recorded import setting_of

pytestmark = pytest.mark.cluster


def outcome(workload: str, tile: int, us: float = 100.0) -> CandidateOutcome:
    candidate = Candidate(
        content_key(workload), f'"{workload}"', workload, f'{{"tile": {tile}}}', content_key(f"{workload} {tile}")
    )
    blocks = tuple(SampleBlock((us * 0.99, us, us * 1.01), 1.0) for _ in range(3))
    return CandidateOutcome(
        candidate=candidate,
        state="ok",
        median_us=us,
        ci_lo_us=us * 0.99,
        ci_hi_us=us * 1.01,
        trusted=True,
        blocks=blocks,
    )


def rows(base: ProfilingDatabase, view: str) -> list[dict[str, Any]]:
    return base.table(view).records()


def test_a_whole_run_is_recorded_and_found_again(postgres: Postgres) -> None:
    with open_database(postgres.url) as base:
        here = setting_of(base)
        start = RunStart(name="r", model_name="m", model_sha256="0" * 64, graph_key="g" * 64, seed=2**40)
        run_id = base.start_run(here, start)
        number = base.record_candidate(here, outcome("conv", 8, 90.0), run_id)
        base.record_candidate(here, outcome("conv", 4, 80.0), run_id)
        base.record_candidate(here, outcome("conv", 4, 70.0), run_id)
        base.record_plan("g" * 64, "p" * 64, "{}", "search")
        base.record_trial(
            run_id, Trial(number=0, answers={"a": "b"}, state="complete", plan_key="p" * 64, composed_us=1.0)
        )
        base.record_plan_measurement(
            run_id,
            PlanOutcome(state="ok", median_us=9.0, ci_lo_us=8.0, ci_hi_us=10.0, trusted=True, name="search", series="s",
                        plan_key="p" * 64, blocks=(SampleBlock((9.0,)),)),
        )  # fmt: skip
        groups = [ChosenGroup(("conv",), content_key("conv"), number, 80.0)]
        base.record_choice(run_id, "p" * 64, groups, median_us=9.0, trusted=True)
        base.finish_run(run_id)
    with open_database(postgres.url, read_only=True) as base:
        best = base.lookup(here, [content_key("conv")])[content_key("conv")]
        assert best.schedule == '{"tile":4}'
        assert 70.0 <= best.median_us <= 80.0
        choice = base.best_plan(here, "g" * 64)
        assert choice is not None
        assert (choice.source, choice.plan_key) == ("chosen", "p" * 64)
        found = base.run(run_id)
        assert found is not None
        assert (found.state, found.seed) == ("finished", 2**40)


def test_threads_that_record_the_same_candidates_lose_and_double_nothing(postgres: Postgres) -> None:
    def record(number: int) -> None:
        with open_database(postgres.url) as base:
            here = setting_of(base, "shared")
            for tile in range(10):
                base.record_candidate(here, replace(outcome("shared", tile), uid=f"{number}-{tile}"))

    threads = [threading.Thread(target=record, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_database(postgres.url, read_only=True) as base:
        mine = {row["candidate_id"] for row in rows(base, "candidates") if row["label"] == "shared"}
        measured = Counter(row["candidate_id"] for row in rows(base, "measurements") if row["candidate_id"] in mine)
    assert len(mine) == 10
    assert set(measured.values()) == {4}


def test_coordinators_that_start_together_make_one_schema_and_one_job(postgres: Postgres) -> None:
    url, tasks = postgres.database("together"), [TaskStart("/m", content_key("m"), "local")]

    def start(_number: int) -> int:
        with open_database(url) as base:
            return base.jobs.open_job("night", tasks, {}).id

    with ThreadPoolExecutor(6) as pool:
        numbers = list(pool.map(start, range(6)))
    assert len(set(numbers)) == 1
    with open_database(url, read_only=True) as base:
        job = base.jobs.job("night")
    assert job is not None
    assert len(job.tasks) == 1


def test_coordinators_share_a_queue(postgres: Postgres) -> None:
    tasks = [TaskStart(f"/m/{number}", content_key(str(number)), "local") for number in range(30)]
    with open_database(postgres.url) as base:
        job_id = base.jobs.open_job("shared", tasks, {}).id
    claimed: list[int] = []

    def work(number: int) -> None:
        with open_database(postgres.url) as base:
            mine = JobQueue(base, replace(this_process(), host=f"host{number}"))
            while (found := mine.claim(job_id, "local", SEARCH)) is not None:
                claimed.append(found.id)
                assert mine.give_back(found.id, TaskProgress(spent_s=1.0, measured=1, failed=0, exhausted=True))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 30
    with open_database(postgres.url) as base:
        job = base.jobs.job("shared")
        assert job is not None
        assert sum(task.measured for task in job.tasks) == 30


def test_a_restart_in_the_middle_costs_time_and_no_sample(postgres: Postgres) -> None:
    """Three restarts, as by a power cut, while two processes' worth of threads record."""
    done, opened = threading.Event(), threading.Barrier(3)
    recorded: list[str] = []

    def record(number: int) -> None:
        with open_database(postgres.url) as base:
            here = setting_of(base, "restarted")
            opened.wait(60.0)
            count = 0
            while not done.is_set():
                uid = f"restart-{number}-{count}"
                base.record_candidate(here, replace(outcome("restarted", count % 7), uid=uid))
                recorded.append(uid)
                count += 1

    threads = [threading.Thread(target=record, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    opened.wait(60.0)
    for _ in range(3):
        before = len(recorded)
        time.sleep(0.5)
        postgres.restart(after_s=0.7)
        deadline = time.monotonic() + 30
        while len(recorded) <= before + 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(recorded) > before + 2, "recording goes on after the restart"
    done.set()
    for thread in threads:
        thread.join()
    with open_database(postgres.url, read_only=True) as base:
        found = Counter(uid for (uid,) in _uids(base) if uid.startswith("restart-"))
        samples = Counter(row["measurement_id"] for row in rows(base, "samples"))
    assert found == Counter(recorded), "each measurement that was reported as recorded is there once"
    assert set(samples.values()) == {3}


def _uids(base: ProfilingDatabase) -> list[tuple[str]]:
    from sqlalchemy import text

    with base.reading() as sql:
        return [tuple(row) for row in sql.execute(text("SELECT uid FROM af_measurement"))]  # type: ignore[misc]


def test_a_server_that_stays_away_is_an_error_that_says_so(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    from autofuse.errors import DatabaseError

    monkeypatch.setattr(retries, "PATIENCE_S", 1.0)
    with open_database(postgres.url) as base:
        postgres.stop()
        try:
            with pytest.raises(DatabaseError, match="profiling database postgresql"):
                base.run()
        finally:
            postgres.start()
        base.run()
