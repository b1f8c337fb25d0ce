"""Verbs that look after the profiling database: `db merge|export|import|prune|migrate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.options import Database, OutputFormat, Sign, Trust
from autofuse.cli.screens.next_steps import after_appending, after_migrating, after_pruning, after_writing_export
from autofuse.cli.screens.render import Format, plain, records, show
from autofuse.values.arguments import size

if TYPE_CHECKING:
    from autofuse.api.results import DatabaseMerge, MergeReport

KEPT = 3
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")]


def add_to(group: typer.Typer) -> None:
    """Register the verbs of this module under `db`."""
    for name, verb in (
        ("merge", merge),
        ("export", export),
        ("import", import_),
        ("prune", prune),
        ("migrate", migrate),
    ):
        group.command(name)(verb)


def merge(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Profiling databases to take rows from.")],
    database: Database = None,
    dry_run: DryRun = False,
    form: OutputFormat = "text",
) -> None:
    """Append the rows of other databases to --db: nothing is erased, equal rows are one, the order does not matter."""
    from autofuse import api

    found = api.db_merge(sources, database=database, dry_run=dry_run)
    dry = ["db", "merge", *map(str, sources)] if dry_run else []
    _show_appended(found, form, dry, database)


def export(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Where the JSON lines and their manifest are written.")
    ] = None,
    database: Database = None,
    samples: Annotated[bool, typer.Option("--samples/--no-samples", help="With every single time, or without.")] = True,
    compress: Annotated[bool, typer.Option("--compress", help="Pack each file with gzip.")] = False,
    optuna: Annotated[
        Path | None,
        typer.Option("--optuna", metavar="FILE", help="Write the searches (plans, schedules) as an Optuna journal."),
    ] = None,
    sign: Sign = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share", help="Only times of kernels: no name of a model, file, host or user. Priors for others."
        ),
    ] = False,
    winners: Annotated[
        bool, typer.Option("--winners", help="Of what is shared, only the fastest schedule of each kernel.")
    ] = False,
    form: OutputFormat = "text",
) -> None:
    """Write the database as JSON lines to review and send; equal contents make equal files."""
    from autofuse import api

    found = api.db_export(
        folder, database=database, samples=samples, compress=compress, optuna=optuna, sign=sign, share=share,
        winners=winners,
    )  # fmt: skip
    lines = []
    if found.files is not None and found.bytes is not None:
        lines.append(f"{found.folder}: {sum(file.rows for file in found.files):,} rows, {size(found.bytes)}")
    if found.studies is not None:
        shown = f"show them with `optuna-dashboard {found.optuna}`"
        lines.append(f"{found.optuna}: {len(found.studies)} studies; {shown}")
    body = {name: value for name, value in vars(found).items() if value is not None}
    then = after_writing_export(str(found.folder), sign is not None) if found.folder is not None else None
    show(body, form, Text("\n".join(lines)), then)


def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `autofuse db export` wrote.")],
    database: Database = None,
    dry_run: DryRun = False,
    trust: Trust = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Take them as rows of others: priors, to be measured here before they count."),
    ] = False,
    form: OutputFormat = "text",
) -> None:
    """Append the rows of an export, after checking sizes, hashes and every value; nothing of it is ever run."""
    from autofuse import api

    found = api.db_import(folder, database=database, dry_run=dry_run, trust=trust or (), shared=shared)
    keys = [part for key in trust or () for part in ("--trust", str(key))] + (["--shared"] if shared else [])
    _show_appended(found, form, ["db", "import", str(folder), *keys] if dry_run else [], database)


def prune(
    database: Database = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="AGE", help="Only what did not change for so long: 90d.")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", metavar="SIZE", help="Oldest first, until the file is that small: 500M.")
    ] = None,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", help="Best schedules of each workload that stay (3 at least).")
    ] = KEPT,
    dry_run: DryRun = False,
    form: OutputFormat = "text",
) -> None:
    """Delete candidates that lost, with their samples; whatever `compile` or `tune` may choose stays."""
    from autofuse import api

    report = api.db_prune(database, older_than=older_than, max_size=max_size, keep=keep, dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    gone = ", ".join(f"{count:,} {table.removeprefix('af_')}" for table, count in report.removed.items()) or "nothing"
    text = f"{verb} {gone}: {size(report.bytes_before)} -> {size(report.bytes_after)}"
    if not report.fits:
        text += f"\nmore than {max_size} is left: the {report.kept_candidates:,} candidates kept may still be chosen"
    named = {"--older-than": older_than, "--max-size": max_size, "--keep": None if keep == KEPT else str(keep)}
    options = [part for name, value in named.items() if value is not None for part in (name, value)]
    show(report, form, Text(text), after_pruning(options, dry_run, {"database": database}))


def migrate(
    database: Database = None,
    backup: Annotated[bool, typer.Option("--backup/--no-backup", help="Keep the older file beside it.")] = True,
    form: OutputFormat = "text",
) -> None:
    """Bring the database to this version's schema (other verbs that write do so too, without a backup)."""
    from autofuse import api

    report = api.db_migrate(database, backup=backup)
    if report.before == report.after:
        text = f"{report.location}: schema {report.after} already"
    else:
        kept = f"; the older file is {report.backup}" if report.backup else ""
        text = f"{report.location}: schema {report.before} -> {report.after}{kept}"
    show(report, form, Text(text), after_migrating({"database": database}))


def _show_appended(found: DatabaseMerge, form: Format, dry: Sequence[str], database: str | None) -> None:
    """What was appended to a database; `dry`: the command of a dry run, without that option."""
    text = Group(*(_merged(report, found.location) for report in found.merged))
    if found.priors:
        text = Group(
            text, Text("What others shared counts once it was measured here: by `tune`, or by the next command.")
        )
    show(found, form, text, after_appending(dry, {"database": database}, found.priors))


def _merged(report: MergeReport, place: str) -> RenderableType:
    verb = "would be" if report.dry_run else "were"
    new = sum(table.new for table in report.tables)
    head = f"{report.source}: {new:,} rows {verb} appended to {place}, {report.verdicts:,} candidates judged anew"
    rows = [
        {
            "table": table.table.removeprefix("af_").replace("_", " "),
            "rows": table.rows,
            "new": table.new,
            "updated": table.updated,
        }
        for table in report.tables
        if table.new or table.updated
    ]
    return Group(Text(head), records(plain(rows))) if rows else Text(f"{report.source}: nothing new")
