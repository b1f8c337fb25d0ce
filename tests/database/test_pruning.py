"""Pruning makes a database smaller and changes no answer."""

from __future__ import annotations

import random
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autofuse.database.ask.lookups import SCHEDULES_TRIED
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.files.upkeep import prune_database
from autofuse.database.records import BestSchedule, RunStart
from autofuse.errors import DatabaseError, InputError
from tests.database.recorded import GRAPH, LABELS, fill, outcome, setting_of

VERSIONS = ("0.27", "0.28", "0.29")
DAY = 86400.0


def grown(path: Path, seed: int) -> Path:
    """Candidates of several devices and versions, some of which failed under one version only."""
    fill(path, seed, busy=False)
    dice = random.Random(seed)
    with open_database(path) as database:
        for _ in range(120):
            setting = setting_of(database, dice.choice(("laptop", "board")), dice.choice(VERSIONS))
            us = None if dice.random() < 0.3 else float(dice.randrange(50, 60))
            state = dice.choice(("wrong", "build_error", "timeout"))
            code = dice.choice(("today", "before the change"))
            tile = dice.randrange(8)
            database.record_candidate(setting, outcome(dice.choice(LABELS), tile, us, state=state, code=code))
    return path


def answers(database: ProfilingDatabase) -> dict[tuple[str, str], object]:
    """What compile would be told, for versions that were measured with and for one that was not."""
    keys = [outcome(label, 0, None).candidate.workload_key for label in LABELS]
    found: dict[tuple[str, str], object] = {}
    for device in ("laptop", "board"):
        for tvm in (*VERSIONS, "0.99"):
            setting = setting_of(database, device, tvm)
            plan = database.best_plan(setting, GRAPH)
            found[device, tvm] = ({key: tried(rows) for key, rows in database.ranked(setting, keys).items()}, plan)
    return found


def tried(rows: tuple[BestSchedule, ...]) -> list[BestSchedule]:
    """The candidates whose code `compile` looks at: all of the best few schedules."""
    schedules = list(dict.fromkeys(row.schedule_key for row in rows))[:SCHEDULES_TRIED]
    return [row for row in rows if row.schedule_key in schedules]


def age(path: Path, days: float) -> None:
    """Make everything older."""
    moment = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%d %H:%M:%S.%f")
    with sqlite3.connect(path) as connection:
        for table, column in (("af_candidate", "updated_at"), ("af_trial", "created_at")):
            connection.execute(f"UPDATE {table} SET {column} = ?", (moment,))
    connection.close()


@pytest.mark.parametrize("seed", range(6))
def test_no_answer_changes_whatever_was_measured(seed: int, tmp_path: Path) -> None:
    path = grown(tmp_path / "p.db", seed)
    age(path, 100)
    with open_database(path) as database:
        before = answers(database)
        report = prune_database(database, older_than_s=90 * DAY, keep=1)
        assert report.removed["af_candidate"] > 5 and report.removed["af_sample"] > 5
        assert answers(database) == before
        assert database.problems() == []
        assert len(database.table("choices").rows) == 1 and len(database.table("runs").rows) == 1
        again = prune_database(database, older_than_s=90 * DAY, keep=1)
        assert again.removed == {}


def test_what_is_younger_than_the_age_stays(tmp_path: Path) -> None:
    path = grown(tmp_path / "p.db", 1)
    with open_database(path) as database:
        assert prune_database(database, older_than_s=DAY).removed == {}
        rows = len(database.table("candidates").rows)
        assert prune_database(database, older_than_s=1e-6, keep=1000).removed.get("af_candidate", 0) < rows


def test_a_size_is_reached_oldest_first_or_said_to_be_out_of_reach(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    fill(path, 2, busy=False)
    with open_database(path) as database:
        setting = setting_of(database)
        for tile in range(150):
            database.record_candidate(setting, outcome("conv", 1000 + tile, 500.0 + tile))
        full = prune_database(database, max_bytes=1 << 40)
        assert full.removed == {} and full.fits
        goal = int(full.bytes_before * 0.85)
        report = prune_database(database, max_bytes=goal, keep=1)
        assert report.fits and report.bytes_after <= goal and path.stat().st_size <= goal + 8192
        tiles = {
            row.schedule
            for row in database.measured_schedules(setting, outcome("conv", 0, None).candidate.workload_key)
        }
        assert '{"tile":1149}' in tiles and '{"tile":1002}' not in tiles
        hopeless = prune_database(database, max_bytes=1000, keep=1)
        assert not hopeless.fits and hopeless.kept_candidates > 0


def test_a_dry_run_says_the_same_and_does_nothing(tmp_path: Path) -> None:
    path = grown(tmp_path / "p.db", 3)
    age(path, 100)
    with open_database(path) as database:
        rows = database.table("candidates").rows
        said = prune_database(database, older_than_s=DAY, keep=1, dry_run=True)
        assert database.table("candidates").rows == rows
        done = prune_database(database, older_than_s=DAY, keep=1)
    assert said.removed == done.removed and said.dry_run


def test_a_database_in_use_is_left_alone(tmp_path: Path) -> None:
    with open_database(tmp_path / "p.db") as database:
        setting = setting_of(database)
        database.start_run(
            setting, RunStart(name="now", model_name="m", model_sha256="0" * 64, graph_key=GRAPH, seed=0)
        )
        with pytest.raises(DatabaseError, match=r"\(run 1\) is using it"):
            prune_database(database, older_than_s=DAY)
    with (
        open_database(fill(tmp_path / "q.db", 1)) as database,
        pytest.raises(DatabaseError, match=r"\(candidate \d+\) is using it"),
    ):
        prune_database(database, older_than_s=DAY)


def test_it_must_be_said_what_may_go(tmp_path: Path) -> None:
    with open_database(tmp_path / "p.db") as database:
        with pytest.raises(InputError, match="--older-than"):
            prune_database(database)
        with pytest.raises(InputError, match="--keep"):
            prune_database(database, older_than_s=1.0, keep=0)
