"""The migrations make exactly the tables that the code maps, in one step that succeeds or leaves nothing."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.tables import migration
from autofuse.database.tables.schema import HEAD_REVISION, VERSION_TABLE, Base

ROOT = Path(__file__).resolve().parents[2]


def shape(path: Path) -> dict[str, list[str]]:
    """Each table's and index's own SQL, its clauses in any order."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: sorted(clauses(sql)) for name, sql in rows if name != VERSION_TABLE}


def clauses(sql: str) -> list[str]:
    """What stands between the commas that are in no further brackets."""
    found, depth = [""], 0
    for letter in " ".join(sql.split()):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if (letter in "(," and depth == 1) or depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [clause.strip() for clause in found if clause.strip()]


def test_a_migrated_database_equals_the_mapped_tables(database: ProfilingDatabase, tmp_path: Path) -> None:
    """Compared by SQL too: Alembic's own comparison sees no CHECK constraint."""
    engine = create_engine(f"sqlite:///{tmp_path / 'mapped.db'}")
    Base.metadata.create_all(engine)
    engine.dispose()
    assert database.location.path is not None
    assert shape(database.location.path) == shape(tmp_path / "mapped.db")
    with database._engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "target_metadata": Base.metadata}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_the_code_knows_the_newest_revision() -> None:
    scripts = ScriptDirectory(str(migration.MIGRATIONS))
    assert scripts.get_heads() == [HEAD_REVISION]


def test_every_table_has_the_prefix_and_every_class_the_suffix() -> None:
    for mapper in Base.registry.mappers:
        assert mapper.class_.__name__.endswith("Row")
        assert mapper.local_table.name.startswith("af_")  # type: ignore[attr-defined]


def test_the_tables_can_be_made_in_postgresql_too() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in Base.metadata.sorted_tables:
        assert "CREATE TABLE af_" in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert len(str(index.name)) <= 63
            assert "CREATE INDEX ix_af_" in str(CreateIndex(index).compile(dialect=dialect))


def test_down_and_up_again(database: ProfilingDatabase, tmp_path: Path) -> None:
    from alembic import command
    from alembic.config import Config

    assert database.location.path is not None
    before = shape(database.location.path)
    config = Config()
    config.set_main_option("script_location", str(migration.MIGRATIONS))
    with database._writer.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert shape(database.location.path) == {}
    database.migrate()
    assert shape(database.location.path) == before


def test_a_migration_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = migration._run_alembic

    def broken(connection: object) -> None:
        run(connection)  # type: ignore[arg-type]
        raise RuntimeError("the power went away")

    monkeypatch.setattr(migration, "_run_alembic", broken)
    with pytest.raises(RuntimeError, match="power"):
        open_database(tmp_path / "profile.db")
    assert shape(tmp_path / "profile.db") == {}
    monkeypatch.undo()
    with open_database(tmp_path / "profile.db") as opened:
        assert opened.problems() == []


@pytest.mark.long
def test_processes_that_open_a_new_database_together_all_succeed(tmp_path: Path) -> None:
    code = f"from autofuse.database.database import open_database as o; print(o({str(tmp_path / 'p.db')!r}).problems())"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for child in children:
        output, errors = child.communicate(timeout=600)
        assert (output, errors) == ("[]\n", "")
