"""A database of each older schema (a dump in `revisions/`) comes to the newest one with all its rows.

A new migration needs the dump of the schema before it: fill a database with `recorded.fill`, before the change, and
write `sqlite3 p.db .dump` there.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from autofuse.database.database import open_database
from autofuse.database.files.upkeep import export_database, merge_database, migrate_database
from autofuse.database.records import content_key
from autofuse.database.tables import migration
from autofuse.database.tables.schema import HEAD_REVISION
from autofuse.environment.plan_evidence import known_limits
from autofuse.errors import DatabaseError
from autofuse.fusion.plan import FusionPlan, Group, ScheduleLimits
from tests.database.recorded import GRAPH, outcome, setting_of

DUMPS = Path(__file__).with_name("revisions")
REVISIONS = [script.revision for script in ScriptDirectory(str(migration.MIGRATIONS)).walk_revisions()]
OLDER = [revision for revision in REVISIONS if revision != HEAD_REVISION]


@pytest.fixture(params=OLDER)
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database at an older schema."""
    path = tmp_path / f"{request.param}.db"
    connection = sqlite3.connect(path)
    connection.executescript((DUMPS / f"{request.param}.sql").read_text())
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    return path


def counts(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {table: connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables}
    connection.close()
    return found


def test_every_older_schema_has_a_dump() -> None:
    assert {path.stem for path in DUMPS.glob("*.sql")} >= set(OLDER)


def test_a_step_keeps_every_row_and_every_answer(older: Path) -> None:
    before = counts(older)
    assert before["af_measurement"] == 12 and before["af_choice"] == 1
    with pytest.raises(DatabaseError, match="older than"):
        open_database(older, read_only=True)
    with open_database(older) as database:
        assert database.problems() == []
        after = counts(older)
        before.pop("af_versions")  # r0004 leaves the one out that was kept by hand, and so joins some
        before = {{"af_board": "af_worker"}.get(table, table): count for table, count in before.items()}
        assert {table: after[table] for table in before} == before
        choices = [database.best_plan(setting_of(database, device), GRAPH) for device in ("laptop", "board")]
        (choice,) = [choice for choice in choices if choice is not None]
        assert choice.plan_key == "a" * 64 and choice.groups[0].operators == ("op",)
        key = outcome("conv", 0, None).candidate.workload_key
        found = {d: database.lookup(setting_of(database, d), [key]) for d in ("laptop", "board")}
        assert any(found.values())


def versions_and_codes(path: Path) -> tuple[set[str], list[tuple[str, int]]]:
    """The texts of all versions, and how many candidates are of which code."""
    with closing(sqlite3.connect(path)) as connection:
        versions = {row[0] for row in connection.execute("SELECT text FROM af_versions")}
        query = "SELECT digest, COUNT(*) FROM af_candidate c JOIN af_code k ON k.id = c.code_id GROUP BY 1 ORDER BY 1"
        return versions, connection.execute(query).fetchall()


def test_times_from_before_digests_are_of_stale_code(tmp_path: Path) -> None:
    """Measured under the versions 6 and 7 that people kept by hand, and without any: all stay apart, none is a hit."""
    path = tmp_path / "r0003.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DUMPS / "r0003.sql").read_text())
        older = connection.execute("SELECT COUNT(*) FROM af_candidate").fetchone()[0]
    with open_database(path) as database:
        versions, codes = versions_and_codes(path)
        assert versions == {'{"tvm":"0.27"}'}
        assert [name for name, _ in codes] == ["", "kernels-6", "kernels-7"]
        assert sum(count for _, count in codes) == older
        setting = setting_of(database, "board")
        rows = database.measured_schedules(setting, outcome("conv", 1, None).candidate.workload_key)
        assert {row.tier for row in rows} == {"stale code"}
        same = [row for row in rows if row.schedule == '{"tile":1}' and row.median_us is not None]
        assert len({row.digest for row in same}) == len(same) >= 2
        known = outcome("conv", 1, 500.0)
        database.record_candidate(setting, known)
        best = database.lookup(setting, [known.candidate.workload_key])[known.candidate.workload_key]
        assert (best.tier, best.median_us, best.digest) == ("exact", 500.0, known.candidate.digest)


def test_a_step_can_be_taken_back(older: Path) -> None:
    from alembic import command
    from alembic.config import Config

    with open_database(older) as database:
        config = Config()
        config.set_main_option("script_location", str(migration.MIGRATIONS))
        database.record_candidate(setting_of(database, "board"), outcome("conv", 1, 500.0))
        before, codes = counts(older), versions_and_codes(older)
        with database.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, older.stem)
        assert counts(older)["af_measurement"] == before["af_measurement"]
        database.migrate()
        assert counts(older)["af_measurement"] == before["af_measurement"]
        assert versions_and_codes(older) == codes and database.problems() == []


def limited(path: Path, plain_too: bool) -> tuple[str, str]:
    """r0004 with a choice whose plan says "winograd", as that version wrote it; the keys with and without it."""
    plain = FusionPlan((Group(("a", "b")),))
    text = '{"folds":[],"groups":[["a","b"]],"winograd":2}'
    old = content_key(text)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DUMPS / "r0004.sql").read_text())
        body = {"schema": 1, "key": old, "folds": [], "winograd": 2, "groups": [["a", "b"]]}
        connection.execute("UPDATE af_plan SET key = ?, text = ?", (old, json.dumps(body, indent=1) + "\n"))
        if plain_too:
            connection.execute(
                "INSERT INTO af_plan (key, graph_key, text, origin, created_at) "
                "SELECT ?, graph_key, ?, 'search', created_at FROM af_plan",
                (plain.key, plain.to_json()),
            )
            connection.execute(
                "INSERT INTO af_edge (run_id, plan_id, producer, consumer, fused, reason) "
                "SELECT run_id, plan_id + 1, producer, consumer, 0, 'chosen_rule' FROM af_edge"
            )
        connection.commit()
    return old, plain.key


@pytest.mark.parametrize("plain_too", [False, True], ids=["alone", "beside the same plan without it"])
def test_a_limit_in_a_plan_comes_to_stand_beside_it(tmp_path: Path, plain_too: bool) -> None:
    path = tmp_path / "r0004.db"
    _, key = limited(path, plain_too)
    with open_database(path) as database:
        assert database.problems() == []
        (plan,) = database.table("plans").records()
        assert (plan["plan_key"], plan["plan"]) == (key, FusionPlan((Group(("a", "b")),)).to_json())
        choices = {device: database.best_plan(setting_of(database, device), GRAPH) for device in ("laptop", "board")}
        ((device, choice),) = [(name, one) for name, one in choices.items() if one is not None]
        assert choice.plan_key == key
        assert known_limits(database, setting_of(database, device), GRAPH) == ScheduleLimits(2)
        (edge,) = database.table("edges").records()
        assert (edge["plan_key"], edge["reason"]) == (key, "chosen_measured")
        assert {row["plan_key"] for row in database.table("plan_measurements").records()} == {key, None}
    with closing(sqlite3.connect(path)) as connection:
        limits = connection.execute("SELECT limits FROM af_plan_measurement ORDER BY name").fetchall()
    assert limits == [('{"winograd_tile": 2}',), (None,)]


def test_a_limit_that_is_taken_back_into_its_plan_is_the_old_text_again(tmp_path: Path) -> None:
    from alembic import command
    from alembic.config import Config

    path = tmp_path / "r0004.db"
    old, key = limited(path, plain_too=False)

    def stored() -> list[tuple[str, str]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(
                "SELECT p.key, p.text FROM af_choice c JOIN af_plan p ON p.id = c.plan_id"
            ).fetchall()

    before = stored()
    config = Config()
    config.set_main_option("script_location", str(migration.MIGRATIONS))
    with open_database(path) as database:
        assert [one for one, _ in stored()] == [key]
        with database.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, "r0004")
        assert stored() == before and before[0][0] == old
        database.migrate()
        assert [one for one, _ in stored()] == [key] and database.problems() == []


def test_what_worked_for_a_job_is_a_worker_after_the_step(tmp_path: Path) -> None:
    """Two of them stand in the dump: one lost, one left."""
    path = tmp_path / "r0005.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DUMPS / "r0005.sql").read_text())
    with open_database(path) as database:
        job = database.jobs.job("night")
        assert job is not None and database.problems() == []
        assert [(one.name, one.device, one.state, one.note, one.measured) for one in job.workers] == [
            ("pi:9091", "raspberry-pi-5", "lost", "no answer", 7), ("local 2", "local", "left", "", 9)
        ]  # fmt: skip
        assert database.jobs.join(job.id, "pi:9091", "raspberry-pi-5") == 3


def test_migrate_keeps_the_older_file(older: Path) -> None:
    original = older.with_name("original.db")
    original.write_bytes(older.read_bytes())
    report = migrate_database(older)
    assert (report.before, report.after) == (older.stem, HEAD_REVISION)
    assert report.backup is not None and counts(Path(report.backup)) == counts(original)
    again = migrate_database(older)
    assert (again.before, again.after, again.backup) == (HEAD_REVISION, HEAD_REVISION, None)


def test_an_older_database_is_merged_without_being_touched(older: Path, tmp_path: Path) -> None:
    with open_database(tmp_path / "new.db") as database:
        assert merge_database(database, older).changes > 40
        export_database(database, tmp_path / "one")
    assert counts(older)["af_alembic_version"] == 1
    connection = sqlite3.connect(older)
    assert connection.execute("SELECT version_num FROM af_alembic_version").fetchone() == (older.stem,)
    connection.close()
    migrate_database(older, backup=False)
    with open_database(tmp_path / "new.db") as database:
        assert merge_database(database, older).changes == 0


def test_a_missing_file_cannot_be_migrated(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="no such file"):
        migrate_database(tmp_path / "absent.db")
    assert not (tmp_path / "absent.db").exists()
