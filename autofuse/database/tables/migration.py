"""Bringing a database to this version's schema, or saying why it cannot be."""

from __future__ import annotations

import io
import logging
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from autofuse.database.tables.schema import HEAD_REVISION, PREFIX, VERSION_TABLE, Base
from autofuse.errors import DatabaseError

MIGRATIONS = Path(__file__).resolve().parent / "migrations"
LOCK_KEY = 0x6175746F66757365
"""Key of the advisory lock of PostgreSQL that one migration at a time holds: "autofuse" in ASCII."""


def stored_revision(connection: Connection) -> str | None:
    """The schema revision that the database says it has; None for one that has no tables of ours."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()


def is_current(connection: Connection) -> bool:
    """Whether the schema is this version's."""
    return stored_revision(connection) == HEAD_REVISION


def upgrade(connection: Connection, place: str) -> None:
    """Create or migrate the tables inside the caller's transaction; DatabaseError when that cannot be.

    Refused: a schema newer than this autofuse, and an SQLite file that belongs to another program.
    """
    if connection.dialect.name == "postgresql":  # others that start now wait here, and find it done
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
    revision = stored_revision(connection)
    if revision == HEAD_REVISION:
        return
    names = [name for name in inspect(connection).get_table_names() if name != VERSION_TABLE]
    ours = [name for name in names if name.startswith(PREFIX)]
    if revision is None and ours:
        raise DatabaseError(f"{place}: it has tables such as {ours[0]} but no schema version; move it away")
    if revision is None and names and connection.dialect.name == "sqlite":
        raise DatabaseError(
            f"{place}: it belongs to another program (its tables: {', '.join(sorted(names)[:3])}); choose a new file"
        )
    if revision is not None:
        refuse_unknown(revision, place)
    _run_alembic(connection)


def refuse_unusable(connection: Connection, place: str) -> None:
    """DatabaseError unless the schema is this version's, with every table and column."""
    revision = stored_revision(connection)
    if revision is None:
        raise DatabaseError(f"{place}: it is no profiling database of autofuse; choose another --db")
    if revision != HEAD_REVISION:
        refuse_unknown(revision, place)
        raise DatabaseError(
            f"{place}: its schema {revision} is older than {HEAD_REVISION}; open it for writing once "
            "(any `autofuse tune --db ...`), which migrates it"
        )
    inspector = inspect(connection)
    columns = inspector.get_multi_columns()
    for table in Base.metadata.sorted_tables:
        found = {column["name"] for column in columns.get((None, table.name), ())}
        missing = sorted({column.name for column in table.columns} - found)
        if missing:
            raise DatabaseError(
                f"{place}: table {table.name} lacks {', '.join(missing)}; the file was changed by something else: "
                "restore a copy, or move it away and start a new one"
            )


def refuse_unknown(revision: str, place: str) -> None:
    """DatabaseError for a schema that this autofuse has no migration from."""
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    try:
        ScriptDirectory(str(MIGRATIONS)).get_revision(revision)
    except (CommandError, AssertionError) as error:  # Alembic asserts that it is not empty
        raise DatabaseError(
            f"{place}: its schema {revision!r} is not known to this autofuse (it knows up to {HEAD_REVISION!r}); "
            "upgrade autofuse"
        ) from error


def create(connection: Connection, revision: str, place: str) -> None:
    """Make the tables of an older `revision` in an empty database; DatabaseError for one that is not known."""
    refuse_unknown(revision, place)
    _run_alembic(connection, revision)


def _run_alembic(connection: Connection, revision: str = "head") -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    logging.getLogger("alembic").setLevel(logging.WARNING)
    command.upgrade(config, revision)
