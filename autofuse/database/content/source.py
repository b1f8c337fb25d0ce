"""A database file that somebody else made: opened for reading, only after it was found to be what it says."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from sqlalchemy import create_engine

from autofuse.database.connection import Location, connect_sqlite, locate, make_engine, prepare_file
from autofuse.database.content.values import MAX_TEXT
from autofuse.database.faults import errors_of
from autofuse.database.tables import migration
from autofuse.database.tables.schema import HEAD_REVISION, PREFIX, VERSION_TABLE
from autofuse.errors import DatabaseError
from autofuse.values.scratch import scratch_folder

BUSY_TIMEOUT_S = 60.0


@contextmanager
def open_source(path_or_url: str | os.PathLike[str], name: str | None = None) -> Iterator[sqlite3.Connection]:
    """One snapshot of an SQLite profiling database, read-only; an older one is migrated as a copy.

    `name`: what messages call it (None: its path).
    DatabaseError when it is missing, damaged, of another program or a newer autofuse, or when it holds tables that
    are not as autofuse makes them, triggers or views: nothing that the file brings along is ever run.
    """
    location = locate(path_or_url)
    place = name or f"profiling database {location.text}"
    if location.path is None:
        raise DatabaseError(f"{place}: only SQLite files can be read into another database; name a file")
    prepare_file(location, read_only=True)
    with errors_of(place), closing(_connect(location)) as raw:
        _refuse_damage(raw, place)
        if _revision(raw, place) == HEAD_REVISION:
            _refuse_other_schema(raw, place)
            yield raw
            return
        with scratch_folder() as folder:
            copy = folder / "copy.db"
            _migrated_copy(raw, copy, place)
            with closing(_connect(Location(location.text, copy))) as migrated:
                _refuse_other_schema(migrated, place)
                yield migrated


def revision_of(location: Location) -> str:
    """Revision of a database file's schema; DatabaseError when it is none of ours."""
    place = f"profiling database {location.text}"
    with errors_of(place), closing(_connect(location)) as raw:
        _refuse_damage(raw, place)
        return _revision(raw, place)


def _connect(location: Location) -> sqlite3.Connection:
    connection = connect_sqlite(location.path, read_only=True, busy_timeout_s=BUSY_TIMEOUT_S)
    for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "query_only = ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MAX_TEXT)
    connection.execute("BEGIN")
    return connection


def _refuse_damage(raw: sqlite3.Connection, place: str) -> None:
    found = raw.execute("PRAGMA quick_check(1)").fetchone()
    if found is None or found[0] != "ok":
        told = " ".join(str(found and found[0]).split())  # SQLite says it in several lines
        raise DatabaseError(f"{place}: it is damaged ({told}); `autofuse db check` says more")
    alive = raw.execute("SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view')").fetchone()
    if alive is not None:
        raise DatabaseError(f"{place}: it has a {alive[0]} ({alive[1]}), which autofuse never makes; it is not read")


def _revision(raw: sqlite3.Connection, place: str) -> str:
    tables = {name for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if VERSION_TABLE not in tables:
        raise DatabaseError(f"{place}: it is no profiling database of autofuse; name another file")
    rows = raw.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()
    revision = rows[0][0] if len(rows) == 1 else None
    if not isinstance(revision, str):
        raise DatabaseError(f"{place}: its table {VERSION_TABLE} must name one schema, found {rows[:3]!r}")
    if revision != HEAD_REVISION:
        migration.refuse_unknown(revision, place)
    return revision


def _refuse_other_schema(raw: sqlite3.Connection, place: str) -> None:
    found = shape_of(raw)
    for name, sql in expected_shape().items():
        if name not in found:
            raise DatabaseError(f"{place}: it lacks {name}; the file was changed by something else")
        if found[name] != sql:
            raise DatabaseError(f"{place}: {name} is not as autofuse makes it; the file was changed by something else")


def shape_of(raw: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """The SQL of each of our tables and indices, its clauses in any order."""
    rows = raw.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {
        name: tuple(sorted(line.strip().rstrip(",") for line in sql.split("\n")))
        for name, sql in rows
        if name.startswith((PREFIX, f"ix_{PREFIX}")) and name != VERSION_TABLE
    }


@cache
def expected_shape() -> dict[str, tuple[str, ...]]:
    """The tables and indices that this version's migrations make."""
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            migration.upgrade(connection, "an empty database")
            raw = connection.connection.driver_connection
            assert isinstance(raw, sqlite3.Connection)
            return shape_of(raw)
    finally:
        engine.dispose()


def _migrated_copy(raw: sqlite3.Connection, copy: Path, place: str) -> None:
    with closing(sqlite3.connect(copy)) as blank:
        raw.backup(blank)
    engine = make_engine(Location(place, copy), read_only=False, busy_timeout_s=BUSY_TIMEOUT_S)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA trusted_schema = OFF")
            migration.upgrade(connection, place)
    finally:
        engine.dispose()
