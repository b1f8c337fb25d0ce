"""Runs end, are cut off and resumed; a lease of a dead process is freed, one of a living process never."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import text

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import CandidateOutcome, RunStart, Setting, Trial, content_key
from autofuse.database.tables import owner
from autofuse.errors import InputError

Outcome = Callable[..., CandidateOutcome]
Settings = Callable[..., Setting]
Runs = Callable[..., RunStart]
CONV = content_key("conv")


def hand_over(database: ProfilingDatabase, table: str, **lease: object) -> None:
    """Pretend that another process owns every leased row."""
    changes = ", ".join(f"owner_{name} = :{name}" for name in lease)
    with database._writer.begin() as sql:
        sql.execute(text(f"UPDATE {table} SET {changes}"), lease)


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return child.pid


def test_a_run_reads_back_as_it_was_started_and_finished(
    database: ProfilingDatabase, setting: Setting, make_run: Runs
) -> None:
    number = database.start_run(setting, make_run())
    started = database.run(number)
    assert started is not None and (started.state, started.finished_at, started.setting) == ("running", None, setting)
    assert (started.seed, started.arguments) == (7, {"budget": "10m"})
    assert started.provenance == {"governor": None, "mhz": 3700}
    database.finish_run(number, summary={"speedup": 1.3})
    finished = database.run(name="night")
    assert finished is not None and finished.finished_at is not None
    assert (finished.state, finished.summary) == ("finished", {"speedup": 1.3})
    assert started.started_at <= finished.finished_at and finished.finished_at.tzinfo is not None


def test_the_newest_run_of_a_name_is_meant(database: ProfilingDatabase, setting: Setting, make_run: Runs) -> None:
    first = database.start_run(setting, make_run("a"))
    second = database.start_run(setting, make_run("a"))
    third = database.start_run(setting, make_run("b"))
    assert [database.run(first).id, database.run(name="a").id, database.run().id] == [first, second, third]  # type: ignore[union-attr]
    assert database.run(name="c") is None and database.run(99) is None


@pytest.mark.parametrize("state", ["running", "done"])
def test_a_run_ends_in_a_final_state(database: ProfilingDatabase, setting: Setting, make_run: Runs, state: str) -> None:
    number = database.start_run(setting, make_run())
    with pytest.raises(InputError, match="finished, interrupted, failed"):
        database.finish_run(number, state)
    with pytest.raises(InputError, match="no run 77"):
        database.finish_run(77)


def test_a_living_run_is_left_alone_and_not_taken_over(
    database: ProfilingDatabase, setting: Setting, make_run: Runs
) -> None:
    number = database.start_run(setting, make_run())
    assert database.release_dead() == []
    with pytest.raises(InputError, match="still running"):
        database.resume_run(number)
    assert database.interrupted_run(setting, content_key("net")) is None


@pytest.mark.parametrize("how", ["process ended", "machine rebooted", "process id reused"])
def test_a_cut_off_run_is_found_and_resumed(
    database: ProfilingDatabase, setting: Setting, make_run: Runs, how: str
) -> None:
    number = database.start_run(setting, make_run())
    leases: dict[str, dict[str, object]] = {
        "process ended": {"pid": dead_pid()},
        "machine rebooted": {"boot_id": "an earlier boot"},
        "process id reused": {"started": 1.0},
    }
    hand_over(database, "af_run", **leases[how])
    assert database.release_dead() == [number]
    found = database.interrupted_run(setting, content_key("net"))
    assert found is not None and found.id == number
    database.resume_run(number)
    assert database.run(number).state == "running"  # type: ignore[union-attr]
    assert database.release_dead() == []


def test_a_run_of_another_host_is_never_declared_dead(
    database: ProfilingDatabase, setting: Setting, make_run: Runs
) -> None:
    database.start_run(setting, make_run())
    hand_over(database, "af_run", host="elsewhere", pid=1, boot_id="x", started=0.0)
    assert database.release_dead() == []


def test_only_the_same_model_device_and_threads_are_resumed(
    database: ProfilingDatabase, make_setting: Settings, make_run: Runs
) -> None:
    here = make_setting()
    database.finish_run(database.start_run(here, make_run()), "interrupted")
    assert database.interrupted_run(here, content_key("net")) is not None
    assert database.interrupted_run(make_setting(tvm="0.28"), content_key("net")) is not None
    assert database.interrupted_run(here, content_key("other")) is None
    assert database.interrupted_run(make_setting(threads=2), content_key("net")) is None
    assert database.interrupted_run(make_setting(device="board"), content_key("net")) is None
    database.finish_run(database.start_run(here, make_run()), "finished")
    assert database.interrupted_run(here, content_key("net")) is None


def test_trials_are_kept_for_a_search_that_resumes(
    database: ProfilingDatabase, setting: Setting, make_run: Runs
) -> None:
    run = make_run()
    number = database.start_run(setting, run)
    database.record_plan(run.graph_key, "p1", "{}", "search")
    first = Trial(number=0, answers={"fuse a": True}, state="complete", plan_key="p1", composed_us=10.0)
    second = Trial(number=1, answers={"fuse a": False}, state="running")
    database.record_trial(number, second)
    database.record_trial(number, first)
    assert database.trials(number) == (first, second)
    done = replace(second, state="fail")
    database.record_trial(number, done)
    assert database.trials(number) == (first, done)


def test_outcomes_of_a_run_are_counted(
    database: ProfilingDatabase, setting: Setting, make_outcome: Outcome, make_run: Runs
) -> None:
    number = database.start_run(setting, make_run())
    for tile, us in ((1, 1.0), (2, 2.0), (3, None)):
        database.record_candidate(setting, make_outcome(tile=tile, us=us), number)
    database.record_candidate(setting, make_outcome(tile=9))
    assert database.outcome_counts(number) == {"build_error": 1, "ok": 2}


def test_this_process_is_alive_and_an_ended_one_is_dead() -> None:
    here = owner.this_process()
    assert not owner.is_dead(here)
    assert owner.is_dead(replace(here, pid=dead_pid()))
    assert owner.is_dead(replace(here, started=here.started - 100.0))
