"""Complaints of a database driver, in words that tell the reader what to change."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, exc, text

from autofuse.errors import AutofuseError, DatabaseError

KEPT = "everything recorded before is kept"

_SQLITE = {
    "SQLITE_FULL": f"the disk is full: free some space, or name a file on another disk with --db ({KEPT})",
    "SQLITE_IOERR": f"reading or writing the file failed: check the disk, its quota and its free space ({KEPT})",
    "SQLITE_READONLY": "it is read-only: make the file and its folder writable, or name another one with --db",
    "SQLITE_PERM": "access was refused: make the file and its folder readable and writable, or choose another --db",
    "SQLITE_CANTOPEN": "it cannot be opened: check that its folder exists and is readable and writable",
    "SQLITE_NOTADB": "it is not an SQLite database: name another file with --db, or move this one away",
    "SQLITE_CORRUPT": "the database is damaged: move it away (`sqlite3 FILE .recover` may save its rows) "
    "and start a new one, or restore a copy",
    "SQLITE_BUSY": "another process has kept it locked for too long: wait for that process or end it, then try again",
    "SQLITE_LOCKED": "another connection has kept it locked for too long: end that process, then try again",
}


@contextmanager
def clear_errors(place: str) -> Iterator[None]:
    """Turn every error of the driver into one `DatabaseError` about `place` that says what to change."""
    with errors_of(f"profiling database {place}"):
        yield


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Does what `clear_errors` does, with the whole `name` of what is at fault."""
    try:
        yield
    except exc.DBAPIError as error:
        raise DatabaseError(f"{name}: {_reason(error.orig)}") from error
    except (sqlite3.Error, exc.SQLAlchemyError) as error:
        raise DatabaseError(f"{name}: {_reason(error)}") from error
    except UnicodeDecodeError as error:  # of a damaged file's own names, which SQLite puts into its messages
        raise DatabaseError(f"{name}: {_SQLITE['SQLITE_CORRUPT']}") from error
    except ValueError as error:  # SQLite keeps any value in any column: texts that are no JSON, and no date
        if not unexpected(error):
            raise
        raise content_error(name, f"a value is unfit for its column: {error}") from error


def unexpected(error: BaseException | None) -> bool:
    """Whether an error may come from what a database holds: nobody raised it on purpose."""
    return isinstance(error, Exception) and not isinstance(error, AutofuseError | OSError)


def content_error(name: str, problem: str) -> DatabaseError:
    """The error for rows that autofuse would never write."""
    return DatabaseError(
        f"{name}: its content was changed by something else ({problem}); `autofuse db check` shows all that is wrong: "
        "restore a copy, or move it away and start a new one"
    )


def damage_of(connection: Connection) -> list[str]:
    """What a full check of an SQLite file finds: pages, indices, rows that name missing ones."""
    damage = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check")) if row[0] != "ok"]
    orphans = connection.execute(text("PRAGMA foreign_key_check"))
    return damage + [f"{row[0]} row {row[1]} names a missing {row[2]}" for row in orphans]


def _reason(error: BaseException | None) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    for prefix, advice in _SQLITE.items():
        if name.startswith(prefix):
            return advice
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"{first_line} ({name or type(error).__name__})"
