"""Looking after a profiling database as a whole: merge, export, import, prune, migrate. SQLite files only."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection

from autofuse.database import connection
from autofuse.database.content.forms import forms
from autofuse.database.content.source import open_source, revision_of
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.faults import clear_errors
from autofuse.database.files import pruning, sharing
from autofuse.database.files.exporting import export
from autofuse.database.files.importing import read_export
from autofuse.database.files.manifest import GZIP, Compression, Manifest
from autofuse.database.files.merge import MergeReport, merge
from autofuse.database.files.pruning import PruneReport
from autofuse.database.tables.owner import Owner, is_dead
from autofuse.database.tables.schema import HEAD_REVISION, Base
from autofuse.errors import DatabaseError, InputError
from autofuse.values.outputs import Kind, output_file
from autofuse.values.scratch import scratch_folder
from autofuse.values.signatures import private_key

CACHE_KIB = 256 << 10
MOST_KEPT = 10**9
MORE_ROUNDS = 6
"""Times that pruning to a size goes on when the file turned out larger than its rows suggested."""

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class MigrationReport:
    """The report of a migration. `before`, `after`: revisions of the schema; `backup`: copy of the older file (None:
    it was current)."""

    location: str
    before: str
    after: str
    backup: str | None


def merge_database(
    into: ProfilingDatabase, source: StrPath, *, dry_run: bool = False, name: str | None = None
) -> MergeReport:
    """Append the rows of another profiling database that `into` lacks.

    All of it or, on a DatabaseError, nothing. The same again changes nothing, and the order of several merges does not
    matter: equal rows are one, and a candidate's time follows from all its measurements. `dry_run`: only say what
    would happen. `name`: what messages call the source (None: its path).
    """
    place = connection.locate(source)
    if place.path is not None and into.location.path is not None and _same(place.path, into.location.path):
        raise DatabaseError(f"profiling database {place.text}: it cannot be merged into itself")
    name = name or f"profiling database {place.text}"
    with open_source(source, name) as other, _transaction(into, "merge", dry_run) as own:
        own.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # of this connection: pages are not written twice
        tables, verdicts = merge(own, other, name)
        own.execute("PRAGMA cache_size = -2000")
    return MergeReport(name, dry_run, tables, verdicts)


def export_database(
    database: ProfilingDatabase,
    folder: StrPath,
    *,
    samples: bool = True,
    compressed: bool = False,
    sign: Path | None = None,
    share: bool = False,
    winners: bool = False,
) -> Manifest:
    """Write everything as JSON lines, one file a table, with a manifest; see `exporting`.

    `samples` False leaves out single times: a tenth of the size, but a candidate that is measured again elsewhere is
    then judged by its last measurement alone. `compressed`: each file with gzip; the manifest states what is in it.
    `sign`: a private key to sign it with. `share`: only what names nobody and nothing, see `sharing`; `winners`: of
    that, only the first schedule of each kernel on each device. InputError for `winners` without `share`.
    """
    if winners and not share:
        raise InputError("db export: --winners is of what is shared; add --share")
    if sign is not None:
        private_key(sign)
    packed: Compression = GZIP if compressed else ""
    with _snapshot(database, "export") as own, _shareable(own, winners) if share else nullcontext(own) as source:
        return export(source, Path(folder), samples=samples, compression=packed, key=sign)


@contextmanager
def _shareable(own: sqlite3.Connection, winners: bool) -> Iterator[sqlite3.Connection]:
    """A copy of a database that holds only what may be shared, or the winners of that."""
    with scratch_folder() as scratch, closing(sqlite3.connect(scratch / "share.db", isolation_level=None)) as copy:
        own.backup(copy)
        sharing.keep_shareable(copy, own_only=True)
        if winners:
            pruning.keep_first(copy)
        yield copy


def import_database(
    into: ProfilingDatabase, folder: StrPath, *, dry_run: bool = False, trust: Sequence[Path] = (), shared: bool = False
) -> MergeReport:
    """Append the rows of an export that `into` lacks; InputError when it was altered or is none.

    `trust`: files of public keys, one of which must have signed it. `shared`: whatever it says it is, only times of
    kernels are taken, as priors (see `sharing`); an export that was made to be shared is taken so in any case.
    """
    with scratch_folder() as scratch:
        staging = scratch / "import.db"
        read_export(Path(folder), staging, trust)
        _reduce(staging, shared)
        return merge_database(into, staging, dry_run=dry_run, name=f"export {os.fspath(folder)}")


def _reduce(staging: Path, shared: bool) -> None:
    """Takes from an import what shared rows may not bring along, if it is one of them."""
    open_database(staging).close()  # at this version's schema
    with closing(sqlite3.connect(staging)) as connection:
        if shared or sharing.all_shared(connection):
            with connection:
                sharing.keep_shareable(connection, own_only=False)


def prune_database(
    database: ProfilingDatabase,
    *,
    older_than_s: float | None = None,
    max_bytes: int | None = None,
    keep: int = 3,
    dry_run: bool = False,
) -> PruneReport:
    """Delete what lost and will not be missed, see `pruning.prune`, and give the space back.

    InputError without an age or a size, DatabaseError while a run is using the database.
    """
    if older_than_s is None and max_bytes is None:
        raise InputError("db prune: say what may go: --older-than 90d, --max-size 500M, or both")
    if not 1 <= keep <= MOST_KEPT:
        raise InputError(f"--keep: got {keep}, allowed: an integer from 1 to {MOST_KEPT}")
    if not dry_run:
        database.release_dead()
    before = None if older_than_s is None else datetime.now(UTC) - timedelta(seconds=older_than_s)
    report = _pruned(database, before, max_bytes, keep, dry_run)
    for further in range(MORE_ROUNDS):
        if dry_run or report.fits or max_bytes is None or not report.removed:
            break
        goal = max(1, max_bytes - (report.bytes_after - max_bytes) * 2**further)
        more = _pruned(database, before, goal, keep, dry_run)
        removed = {table: report.removed.get(table, 0) + count for table, count in more.removed.items()}
        fits = more.bytes_after <= max_bytes
        report = replace(more, bytes_before=report.bytes_before, removed={**report.removed, **removed}, fits=fits)
        if not more.removed:
            break
    return report


def _pruned(
    database: ProfilingDatabase, before: datetime | None, max_bytes: int | None, keep: int, dry_run: bool
) -> PruneReport:
    """One round: how small the file became is known only after it was written anew."""
    with _transaction(database, "prune", dry_run) as own:
        if not dry_run and (user := _user(own)):
            raise DatabaseError(f"profiling database {database.location.text}: {user} is using it; stop that first")
        report = pruning.prune(own, before=before, max_bytes=max_bytes, keep=keep, dry_run=dry_run)
    if dry_run or database.location.path is None:
        return report
    _vacuum(database.location.path, database.location.text)
    with _snapshot(database, "prune") as own:
        size = pruning.content_bytes(own)
    return replace(report, bytes_after=size, fits=max_bytes is None or size <= max_bytes)


def migrate_database(path_or_url: StrPath | None, *, backup: bool = True) -> MigrationReport:
    """Bring a database to this version's schema, the older file kept beside it as `NAME.REVISION.bak`."""
    place = connection.locate(path_or_url)
    connection.prepare_file(place, read_only=False)
    if place.path is None or not place.path.exists():
        raise DatabaseError(f"profiling database {place.text}: no such file; name the one to migrate with --db")
    before = revision_of(place)
    copy = None
    if before != HEAD_REVISION and backup:
        copy = _copied(place.path, place.path.with_name(f"{place.path.name}.{before}.bak"))
    open_database(path_or_url).close()
    return MigrationReport(place.text, before, HEAD_REVISION, None if copy is None else str(copy))


def row_counts(database: ProfilingDatabase) -> Mapping[str, int]:
    """The number of rows of each table."""
    with _snapshot(database, "info") as own:
        return {
            form.name: own.execute(f"SELECT COUNT(*) FROM {form.name}").fetchone()[0] for form in forms(Base.metadata)
        }


class _Undone(Exception):  # noqa: N818 not an error: how a dry run leaves its transaction
    """Thrown at the end of a dry run, so that nothing of it stays."""


@contextmanager
def _transaction(database: ProfilingDatabase, verb: str, dry_run: bool) -> Iterator[sqlite3.Connection]:
    """The driver's own connection in one write transaction, undone at its end when `dry_run`."""
    with suppress(_Undone), database.writing() as sql:
        yield _driver(database, sql, verb)
        if dry_run:
            raise _Undone


@contextmanager
def _snapshot(database: ProfilingDatabase, verb: str) -> Iterator[sqlite3.Connection]:
    """The driver's own connection, for reading everything as it is at one moment."""
    with database.reading() as sql, sql.begin():
        yield _driver(database, sql, verb)


def _driver(database: ProfilingDatabase, sql: Connection, verb: str) -> sqlite3.Connection:
    raw = sql.connection.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        raise DatabaseError(f"{database.location.text}: {verb} works on SQLite files only, not on a server")
    return raw


def _user(own: sqlite3.Connection) -> str:
    """A process that may still write to the file, by the leases in it; "" when there is none."""
    for table in Base.metadata.sorted_tables:
        if "owner_pid" in table.columns:
            columns = "id, owner_host, owner_pid, owner_boot_id, owner_started"
            for number, host, pid, boot, started in own.execute(
                f"SELECT {columns} FROM {table.name} WHERE owner_pid IS NOT NULL"
            ):
                if not is_dead(Owner(host or "", pid, boot or "", started or 0.0)):
                    return f"process {pid} on {host} ({table.name.removeprefix('af_')} {number})"
    return ""


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _copied(path: Path, copy: Path) -> Path:
    if copy.exists() or copy.is_symlink():
        raise DatabaseError(f"profiling database {path}: its backup {copy} exists already; move that away first")
    with (
        output_file(copy, Kind("a backup"), option="backup") as part,
        clear_errors(str(path)),
        closing(sqlite3.connect(path)) as source,
        closing(sqlite3.connect(part)) as target,
    ):
        source.backup(target)
    return copy


def _vacuum(path: Path, text: str) -> None:
    with clear_errors(text), closing(sqlite3.connect(path, isolation_level=None, timeout=60.0)) as own:
        own.execute("VACUUM")
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
