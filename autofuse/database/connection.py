"""The place of a profiling database, and an engine that talks to it: paths, URLs, pragmas."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.pool import QueuePool, StaticPool

from autofuse.errors import DatabaseError
from autofuse.values.outputs import refuse_beside_database

SQLITE_HEADER = b"SQLite format 3\x00"
MEMORY = ":memory:"
WRITE_OPTION = "autofuse_write"
SYNC_EVERY_S = 1.0


@dataclass(frozen=True)
class Location:
    """The location of a database: an SQLite `path` (None: in memory) or the `url` of a server; `text` names it."""

    text: str
    path: Path | None = None
    url: URL | None = None

    @property
    def address(self) -> str:
        """What opens the same database again, in any folder; a password stands in it as it is."""
        if self.url is not None:
            return self.url.render_as_string(hide_password=False)
        return self.text if self.path is None else str(self.path.absolute())

    @property
    def is_sqlite(self) -> bool:
        """Whether SQLite holds it."""
        return self.url is None


def default_path() -> Path:
    """`profile.db` in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("autofuse") / "profile.db"


def locate(path_or_url: str | os.PathLike[str] | Location | None) -> Location:
    """What the user means by a path or a URL; None: the default path. DatabaseError for a text that is no URL."""
    if isinstance(path_or_url, Location):
        return path_or_url
    if path_or_url is None:
        path_or_url = default_path()
    text = os.fspath(path_or_url)
    if text == MEMORY:
        return Location(MEMORY)
    if "://" not in text:
        if kind := re.match(r"([A-Za-z][A-Za-z0-9_+.-]+):/", text):
            raise DatabaseError(f"profiling database {text}: {kind[0]!r} begins neither a path nor a URL; {_ALLOWED}")
        if not text:
            raise DatabaseError("profiling database: the path is empty; name a file such as profile.db")
        path = Path(text).expanduser()
        return Location(str(path), path)
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError) as error:
        raise DatabaseError(f"profiling database {text.split('@')[-1]}: not a URL; {_ALLOWED}") from error
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise DatabaseError(f"profiling database: unknown kind {url.drivername!r}; {_ALLOWED}")
    if url.get_backend_name() == "sqlite":
        if url.query:
            raise DatabaseError(f"profiling database {text}: options after '?' are not supported; {_ALLOWED}")
        return locate(url.database or MEMORY)
    return Location(url.render_as_string(hide_password=True), url=url)


_ALLOWED = "allowed are a file path, sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME"


def require_database(path_or_url: str | None) -> None:
    """DatabaseError at once where a database that is only asked is not there, or is none."""
    prepare_file(locate(path_or_url), read_only=True)


def prepare_file(location: Location, read_only: bool, create: bool = True) -> None:
    """Make the folder of a database to be written, and refuse what cannot become or be one.

    `create`: whether a file that does not exist may become one.
    """
    path = location.path
    if path is None:
        return
    place = f"profiling database {path}"
    if not read_only:
        refuse_beside_database(path, place)
    try:
        if path.is_dir():
            raise DatabaseError(f"{place}: it is a folder; name a file in it, such as {path / 'profile.db'}")
        if not path.exists():
            if read_only or not create:
                raise DatabaseError(f"{place}: no such file; check --db, or run `autofuse tune` first")
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.is_file():
            raise DatabaseError(f"{place}: it is no regular file; name a file")
        else:
            _refuse_foreign_file(path, place, read_only)
    except OSError as error:
        raise DatabaseError(f"{place}: {error.strerror or error}; name another file with --db") from error
    if not read_only:
        for needed in (path, path.parent):
            if needed.exists() and not os.access(needed, os.W_OK):
                raise DatabaseError(f"{place}: {needed} is read-only; make it writable, or choose another --db")


def check_file(path_or_url: str | os.PathLike[str] | None) -> None:
    """Refuse a file at a database's place that is none, before other work; nothing is made."""
    location = locate(path_or_url)
    if location.path is not None and location.path.exists():
        prepare_file(location, read_only=False)


def _refuse_foreign_file(path: Path, place: str, read_only: bool) -> None:
    if not os.access(path, os.R_OK):
        raise DatabaseError(f"{place}: it is not readable; change its permissions, or choose another --db")
    with path.open("rb") as file:
        head = file.read(len(SQLITE_HEADER))
    if not head and read_only:
        raise DatabaseError(f"{place}: the file is empty; run `autofuse tune` first, or choose another --db")
    if head and head != SQLITE_HEADER:
        raise DatabaseError(f"{place}: it is not an SQLite database; name another file with --db, or move it away")


def make_engine(location: Location, read_only: bool, busy_timeout_s: float) -> Engine:
    """An engine whose connections keep foreign keys, wait for locks and begin writes at once."""
    if location.url is not None:
        return _server_engine(location.url)
    path = location.path

    def connect() -> sqlite3.Connection:
        return connect_sqlite(path, read_only, busy_timeout_s)

    pool = StaticPool if path is None else QueuePool
    engine = create_engine("sqlite://", creator=connect, poolclass=pool)
    event.listen(engine, "begin", _begin)
    return engine


def _server_engine(url: URL) -> Engine:
    try:
        return create_engine(url, pool_pre_ping=True)
    except exc.NoSuchModuleError as error:
        raise DatabaseError(f"profiling database: unknown kind {url.drivername!r}; {_ALLOWED}") from error
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"profiling database: {url.drivername!r} needs the Python package {error.name!r}: "
            "install it with pip install 'autofuse[postgres]', and write postgresql+psycopg://USER@HOST/NAME"
        ) from error


def connect_sqlite(path: Path | None, read_only: bool, busy_timeout_s: float) -> sqlite3.Connection:
    """A connection of the driver's own, without transactions of its making; `path` None: in memory."""
    if path is None:
        connection = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
    else:
        uri = path.absolute().as_uri() + f"?mode={'ro' if read_only else 'rwc'}"
        if read_only and _needs_immutable(path):
            uri += "&immutable=1"
        connection = sqlite3.connect(
            uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _needs_immutable(path: Path) -> bool:
    """Whether SQLite could not make the shared-memory file that reading a WAL database needs."""
    wal = path.with_name(path.name + "-wal")
    pending = wal.exists() and wal.stat().st_size > 0
    return not pending and not os.access(path.parent, os.W_OK)


def use_write_ahead_log(engine: Engine, busy_timeout_s: float) -> None:
    """Let readers and the writer of an SQLite file pass each other; the file keeps the setting.

    Only once the file is known to be ours. SQLite does not wait by itself while another process switches too.
    """
    deadline = time.monotonic() + busy_timeout_s
    raw = engine.raw_connection()
    try:
        while True:
            try:
                raw.cursor().execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    finally:
        raw.close()


def _begin(connection: Connection) -> None:
    """Writers take the lock when they begin: a lock asked for later fails at once instead of waiting."""
    if connection.get_execution_options().get(WRITE_OPTION, False):
        _choose_durability(connection)
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN")


def _choose_durability(connection: Connection) -> None:
    """A commit survives the process in any case; every commit that comes `SYNC_EVERY_S` after the last
    synced one is forced to the disk with all before it, so that a power cut costs a second's work."""
    now = time.monotonic()
    full = now - connection.info.get("synced_at", -SYNC_EVERY_S) >= SYNC_EVERY_S
    if connection.info.get("full") != full:
        connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        connection.info["full"] = full
    if full:
        connection.info["synced_at"] = now
