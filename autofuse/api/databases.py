"""The profiling database as a whole: looked at, checked, merged, sent, cut down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.errors import InputError
from autofuse.values.arguments import Duration, StrPath, parse_duration, parse_size

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase
    from autofuse.database.files.manifest import ExportedFile
    from autofuse.database.files.merge import MergeReport
    from autofuse.database.files.pruning import PruneReport
    from autofuse.database.files.upkeep import MigrationReport
    from autofuse.search.lab.revalidation import Revalidated

RUN_FACTS = ("run_id", "model_name", "state", "device", "threads", "started_at")
DEVICE_FACTS = ("device_id", "name", "fingerprint")


@dataclass(frozen=True)
class DatabaseInfo:
    """Where a database is, and what it holds; `file_bytes`: None for a server."""

    location: str
    file_bytes: int | None
    rows: Mapping[str, int]
    devices: Sequence[Mapping[str, object]]
    runs: Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class DatabaseCheck:
    """What is wrong with a database (nothing: it is sound), and its winners that were measured again."""

    location: str
    ok: bool
    problems: Sequence[str]
    revalidated: tuple[Revalidated, ...]


@dataclass(frozen=True)
class DatabaseMerge:
    """What was, or under `dry_run` would be, appended to the database at `location`. `priors`: it has rows that others
    shared."""

    location: str
    merged: Sequence[MergeReport]
    priors: bool = False


@dataclass(frozen=True)
class DatabaseExport:
    """What was written: JSON lines in `folder`, plan searches in the Optuna journal `optuna`; None: not asked for.

    `bytes`: that the lines take on disk, packed where they are.
    """

    folder: str | None = None
    bytes: int | None = None
    files: Sequence[ExportedFile] | None = None
    optuna: str | None = None
    studies: Sequence[str] | None = None


def db_info(database: str | None = None) -> DatabaseInfo:
    """Where the database is and what it holds."""
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import row_counts

    with open_database(database, read_only=True) as opened:
        path = opened.location.path
        return DatabaseInfo(
            opened.location.text,
            path.stat().st_size if path else None,
            {table.removeprefix("af_"): count for table, count in row_counts(opened).items()},
            _table(opened, "devices", DEVICE_FACTS),
            _table(opened, "runs", RUN_FACTS),
        )


def _table(opened: ProfilingDatabase, name: str, columns: Iterable[str]) -> list[dict[str, object]]:
    return [{key: row[key] for key in columns} for row in opened.table(name).records()]


def db_check(
    database: str | None = None,
    *,
    revalidate: int | None = None,
    device: str = "local",
    threads: int | None = None,
    progress: Callable[[Revalidated], None] | None = None,
) -> DatabaseCheck:
    """Check the database for damage; and, when asked, whether its winners still hold.

    Pages, indices, references, what autofuse never makes (triggers, views), values unfit for their columns, rows that
    contradict each other, plans that are not what their keys say, and whether every report can be made. `revalidate`:
    so many winners of this device are measured again (after TVM changed), or what others shared
    for the first time here, unless something is wrong; `progress` is
    called after each.
    """
    from autofuse.database.database import open_database
    from autofuse.views.frames.analysis import Analysis
    from autofuse.views.report.trial import unreadable, unreportable

    with open_database(database, read_only=revalidate is None, create=False) as opened:
        problems = opened.problems(content=True)
        problems = problems or unreadable(Analysis(opened)) or unreportable(Analysis(opened))
        done: tuple[Revalidated, ...] = ()
        if revalidate is not None and not problems:
            from autofuse.environment.place import Place
            from autofuse.search.lab.revalidation import revalidate as measure_again

            place = Place(database, device, threads)
            done = measure_again(opened, revalidate, place, progress=progress or _silent)
        return DatabaseCheck(opened.location.text, not problems, problems, done)


def _silent(_done: Revalidated) -> None:
    """No view of the progress."""


def db_merge(sources: Sequence[StrPath], *, database: str | None = None, dry_run: bool = False) -> DatabaseMerge:
    """Append the rows of other databases: nothing is erased, equal rows are one, the order does not matter."""
    from autofuse.database.files.appending import open_to_append
    from autofuse.database.files.upkeep import merge_database

    with open_to_append(database, dry_run) as opened:
        reports = [merge_database(opened, source, dry_run=dry_run) for source in sources]
        return DatabaseMerge(opened.location.text, reports)


def db_export(
    folder: StrPath | None = None,
    *,
    database: str | None = None,
    samples: bool = True,
    compress: bool = False,
    optuna: StrPath | None = None,
    sign: StrPath | None = None,
    share: bool = False,
    winners: bool = False,
) -> DatabaseExport:
    """Write the database as JSON lines to review and send; equal contents make equal files.

    `samples`: with every single time. `compress`: each file packed with gzip. `optuna`: a file for the plan searches,
    as an Optuna journal. `sign`: a private key that signs the folder's manifest. `share`: only times of kernels on
    kinds of CPU, with no name of a model, file, host or user; who imports them takes them as priors. `winners`: of what
    is shared, only the fastest schedule of each kernel on each kind of CPU.
    """
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import export_database

    if folder is None and optuna is None:
        raise InputError("db export: name a folder for JSON lines, or a file with --optuna")
    written: dict[str, object] = {}
    with open_database(database, read_only=True) as opened:
        if folder is not None:
            key = None if sign is None else Path(sign)
            manifest = export_database(
                opened, folder, samples=samples, compressed=compress, sign=key, share=share, winners=winners
            )
            size = sum((Path(folder) / name).stat().st_size for name in manifest.names())
            written |= {"folder": str(folder), "bytes": size, "files": manifest.files}
        if optuna is not None:
            from autofuse.search.plans.optuna_export import write_optuna_journal

            written |= {"optuna": str(optuna), "studies": write_optuna_journal(opened, Path(optuna))}
    return DatabaseExport(**written)  # type: ignore[arg-type]


def db_import(
    folder: StrPath,
    *,
    database: str | None = None,
    dry_run: bool = False,
    trust: Sequence[StrPath] = (),
    shared: bool = False,
) -> DatabaseMerge:
    """Append the rows of an export, after checking sizes, hashes and every value; nothing of it is ever run.

    `trust`: files of public keys, one of which must have signed it. `shared`: take it as rows of others, whatever it
    says it is: a schedule of theirs may cost a measurement, and counts only once it was measured here.
    """
    from autofuse.database.ask.transfers import any_shared
    from autofuse.database.files.appending import open_to_append
    from autofuse.database.files.upkeep import import_database

    with open_to_append(database, dry_run) as opened:
        keys = [Path(key) for key in trust]
        report = import_database(opened, folder, dry_run=dry_run, trust=keys, shared=shared)
        with opened.reading() as sql:
            return DatabaseMerge(opened.location.text, [report], any_shared(sql))


def db_prune(
    database: str | None = None,
    *,
    older_than: Duration | None = None,
    max_size: str | int | None = None,
    keep: int = 3,
    dry_run: bool = False,
) -> PruneReport:
    """Delete candidates that lost, with their samples; whatever `compile` or `tune` may choose stays.

    `older_than`: only what did not change for so long. `max_size`: oldest first, until the file is that small. `keep`:
    best schedules of each task that stay.
    """
    from autofuse.database.database import open_database
    from autofuse.database.files.upkeep import prune_database

    age_s = None if older_than is None else parse_duration(older_than, "--older-than")
    limit = None if max_size is None else parse_size(max_size, "--max-size")
    with open_database(database, create=False) as opened:
        return prune_database(opened, older_than_s=age_s, max_bytes=limit, keep=keep, dry_run=dry_run)


def db_migrate(database: str | None = None, *, backup: bool = True) -> MigrationReport:
    """Bring the database to this version's schema (other verbs that write do so too, without a backup)."""
    from autofuse.database.files.upkeep import migrate_database

    return migrate_database(database, backup=backup)
