"""Verbs that read the profiling database: `db info|check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from autofuse.cli.failures import EXIT_FAILED_CHECK, say
from autofuse.cli.options import Database, Device, OutputFormat, Threads
from autofuse.cli.screens.next_steps import after_checking, after_database_info
from autofuse.cli.screens.render import describe, plain, records, show

if TYPE_CHECKING:
    from autofuse.api.results import Revalidated

database_verbs = typer.Typer(help="The profiling database: its content, and whether it is sound.", no_args_is_help=True)


@database_verbs.command("info")
def info(database: Database = None, form: OutputFormat = "text") -> None:
    """Show where the database is and what it holds."""
    from autofuse import api

    found = api.db_info(database)
    show(found, form, describe(found), after_database_info(len(found.runs), {"database": database}))


@database_verbs.command("check")
def check(
    database: Database = None,
    revalidate: Annotated[
        int | None,
        typer.Option("--revalidate", metavar="N", min=1, help="Measure N winners again (after TVM changed)."),
    ] = None,
    device: Device = "local",
    threads: Threads = None,
    form: OutputFormat = "text",
) -> None:
    """Check the database for damage; and, when asked, whether its winners still hold.

    Pages, indices, references, what autofuse never makes (triggers, views), values unfit for their columns, and
    whether every report can be made. Damage and a winner that fails today end with an error; a winner that is slower
    than it was does not: its times are of two moments of one machine.
    """
    from autofuse import api

    found = api.db_check(database, revalidate=revalidate, device=device, threads=threads, progress=_tell)
    lines = [f"{found.location}: {problem}" for problem in found.problems] or [f"{found.location}: sound"]
    text: RenderableType = Text("\n".join(lines))
    rows = [_winner_row(one) for one in found.revalidated]
    then = after_checking({"database": database}) if found.ok and not revalidate else None
    show(found, form, Group(text, records(plain(rows))) if rows else text, then)
    if not found.ok or any(one.verdict == "failed" for one in found.revalidated):
        raise typer.Exit(EXIT_FAILED_CHECK)


def _tell(done: Revalidated) -> None:
    say(f"{done.label}: {done.verdict}{f' ({done.note})' if done.note else ''}")


def _winner_row(one: Revalidated) -> dict[str, object]:
    known = one.lo is not None and one.hi is not None
    return {
        "group": one.label,
        "kernels": one.uses,
        "stale": one.stale,
        "old_us": one.old_us,
        "new_us": one.new_us,
        "old / new": f"{one.ratio:.3f} [{one.lo:.3f}, {one.hi:.3f}]" if known else "-",
        "verdict": one.verdict,
        "note": one.note,
    }
