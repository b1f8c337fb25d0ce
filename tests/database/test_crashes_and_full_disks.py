"""kill -9 and a full disk: what was reported as recorded is there exactly once, and the file is sound."""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from sqlalchemy.event import listen

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import Candidate, CandidateOutcome, RunStart, SampleBlock, Setting, content_key
from autofuse.device.target import Target
from autofuse.errors import DatabaseError

Outcome = Callable[..., CandidateOutcome]


def record_for_ever(path: Path, first: int, pipe: int) -> None:
    """Record tile after tile; write the run's number, then each tile once its commit is done."""
    database = open_database(path)
    setting = database.setting(
        fingerprint="f",
        device_name="d",
        device_facts={},
        threads=1,
        versions={"tvm": "1"},
        target=Target("znver4", 16, 32, 2, 32768, 1 << 20),
    )
    database.release_dead()
    start = RunStart(name="r", model_name="m", model_sha256="0", graph_key="g", seed=0)
    run = database.start_run(setting, start)
    os.write(pipe, f"{run}\n".encode())
    blocks = tuple(SampleBlock((1.5,) * 20, 1.0) for _ in range(5))
    for tile in itertools.count(first):
        outcome = CandidateOutcome(
            candidate=Candidate(f"w{tile % 7}", "{}", "w", f'{{"tile":{tile}}}'),
            state="ok",
            median_us=1.5,
            ci_lo_us=1.0,
            ci_hi_us=2.0,
            trusted=True,
            blocks=blocks,
            uid=str(tile),
        )
        database.record_candidate(setting, outcome, run)
        os.write(pipe, f"{tile}\n".encode())


@contextmanager
def recorder(path: Path, first: int, file_limit: int | None = None) -> Iterator[tuple[int, IO[str]]]:
    """A child process that records; its id, and what it says line by line. Forked: ten starts of Python take long."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if file_limit is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
            record_for_ever(path, first, writing)
        except DatabaseError as error:
            os.write(writing, f"DatabaseError {error}\n".encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as said:
        try:
            yield child, said
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def recorded(path: Path) -> Counter[int]:
    """How often each tile stands in the database; each with its measurement and all its samples."""
    with open_database(path) as opened:
        assert opened.problems() == []
        candidates = opened.table("candidates")
        place = candidates.columns.index("schedule")
        assert len(opened.table("measurements").rows) == len(candidates.rows)
        assert len(opened.table("samples").rows) == 5 * len(candidates.rows)
        return Counter(json.loads(str(row[place]))["tile"] for row in candidates.rows)


@pytest.mark.long
def test_killed_ten_times_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    path = tmp_path / "profile.db"
    chance = random.Random(5)
    reported: list[int] = []
    runs: list[int] = []
    for _ in range(10):
        start = max(reported, default=-1)  # the last one again: recording it a second time must change nothing
        with recorder(path, max(start, 0)) as (child, said):
            runs.append(int(said.readline()))
            reported += [int(said.readline()) for _ in range(chance.randint(1, 8))]
            time.sleep(chance.uniform(0.0, 0.05))  # somewhere in the one that is under way
            os.kill(child, signal.SIGKILL)
            reported += [int(line) for line in said.read().split()]
        found = recorded(path)
        assert set(found.values()) <= {1}
        assert set(reported) <= set(found)
        assert len(found) - len(set(reported)) <= 10  # at most the one in flight at each kill
    assert len(set(reported)) > 20
    with open_database(path) as opened:
        assert opened.release_dead() == runs[-1:]
        assert [opened.run(number).state for number in runs] == ["interrupted"] * 10  # type: ignore[union-attr]


def test_a_full_disk_stops_the_recording_and_keeps_what_stands(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    done = 0
    with database._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(DatabaseError, match="disk is full.*everything recorded before is kept"):
        while True:
            database.record_candidate(setting, make_outcome(tile=done))
            done += 1
    assert 0 < done < 1000
    assert len(database.measured_schedules(setting, content_key("conv"))) == done
    with database._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")
    database.record_candidate(setting, make_outcome(tile=done))
    assert len(database.measured_schedules(setting, content_key("conv"))) == done + 1
    assert database.problems() == []


def test_a_file_that_may_not_grow_gives_one_clear_message(tmp_path: Path) -> None:
    path = tmp_path / "profile.db"
    with recorder(path, 0, file_limit=1_000_000) as (_, said):
        _, *lines, last = said.read().splitlines()
    assert last.startswith("DatabaseError ") and "disk" in last and "kept" in last
    assert len(lines) > 5
    assert recorded(path) == Counter(int(line) for line in lines)


def test_recording_grows_with_nothing_and_a_night_stays_small(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome
) -> None:
    """As many statements for the last candidate as for the first, and one commit; 100,000 candidates within 200 MB."""
    statements: list[str] = []
    commits: list[object] = []
    listen(database._engine, "before_cursor_execute", lambda _c, _u, text, *_: statements.append(text))
    listen(database._engine, "commit", commits.append)
    counts = []
    blocks = tuple(make_outcome(us=123.456).blocks) * 3
    text = '{"text": "' + "x" * 1500 + '"}'
    for batch in range(4):
        statements.clear()
        commits.clear()
        for number in range(250):
            tile = 250 * batch + number
            outcome = make_outcome(f"workload {number % 25}", tile=tile, blocks=blocks)
            candidate = replace(outcome.candidate, workload_text=text, workload_label="Conv")
            database.record_candidate(setting, CandidateOutcome(**{**vars(outcome), "candidate": candidate}))
        counts.append(len(statements))
        assert len(commits) == 250
    assert max(counts) <= 10 * 250, counts
    database.close()
    assert database.location.path is not None
    assert database.location.path.stat().st_size / 1000 < 2000
