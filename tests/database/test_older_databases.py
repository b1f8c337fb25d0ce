"""A database of each older schema (a dump in `revisions/`) comes to the newest one with all its rows.

A new migration needs the dump of the schema before it: fill a database with `recorded.fill`, before the change, and
write `sqlite3 p.db .dump` there.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from autofuse.database.database import open_database
from autofuse.database.files.upkeep import export_database, merge_database, migrate_database
from autofuse.database.tables import migration
from autofuse.database.tables.schema import HEAD_REVISION
from autofuse.errors import DatabaseError
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
        assert {table: after[table] for table in before} == before
        choices = [database.best_plan(setting_of(database, device), GRAPH) for device in ("laptop", "board")]
        (choice,) = [choice for choice in choices if choice is not None]
        assert choice.plan_key == "a" * 64 and choice.groups[0].operators == ("op",)
        key = outcome("conv", 0, None).candidate.workload_key
        found = {d: database.lookup(setting_of(database, d), [key]) for d in ("laptop", "board")}
        assert any(found.values())


def test_a_step_can_be_taken_back(older: Path) -> None:
    from alembic import command
    from alembic.config import Config

    with open_database(older) as database:
        config = Config()
        config.set_main_option("script_location", str(migration.MIGRATIONS))
        before = counts(older)
        with database.writing() as connection:
            config.attributes["connection"] = connection
            command.downgrade(config, older.stem)
        assert counts(older)["af_measurement"] == before["af_measurement"]
        database.migrate()
        assert counts(older)["af_measurement"] == before["af_measurement"]


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
