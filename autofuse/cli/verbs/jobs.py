"""Verbs about running work: `status` reads SQL only, `stop` leaves a word for the coordinators."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, cast

import typer
from rich.console import RenderableType

from autofuse.cli.failures import say
from autofuse.cli.options import Database, OutputFormat
from autofuse.cli.screens.job_view import job_body, job_line, job_text, refreshed
from autofuse.cli.screens.next_steps import after_status
from autofuse.cli.screens.render import console, explained, plain, show
from autofuse.cli.screens.run_view import run_text

if TYPE_CHECKING:
    from autofuse.api.results import JobInfo, RunStatus, Stopping

WATCH_S = 2.0

Run = Annotated[
    str | None,
    typer.Option("--run", metavar="NAME-or-N", help="Name of a job, or number of a run. [default: the newest]"),
]


def status(
    database: Database = None,
    run: Run = None,
    watch: Annotated[bool, typer.Option("--watch", help="Again every two seconds, until it has ended.")] = False,
    form: OutputFormat = "text",
) -> None:
    """Show how tuning stands; works beside a running one, and says when its process is gone."""
    from autofuse import api

    if not watch:
        found = api.status(database, run=run)
        body = _body(found)
        show(body, form, _text(found), after_status(str(body["run"]), found.state, {"database": database}))
        return
    screen = console()
    with refreshed(screen) as redraw:
        while True:
            found = api.status(database, run=run)
            redraw(job_line(found) if is_job(found) and not screen.is_terminal else explained(_text(found)))
            if found.state != "running":
                return
            time.sleep(WATCH_S)


def _body(found: JobInfo | RunStatus) -> Mapping[str, Any]:
    body = job_body(found) if is_job(found) else plain(found)
    assert isinstance(body, dict)
    return body


def _text(found: JobInfo | RunStatus) -> RenderableType:
    if is_job(found):
        return job_text(found)
    return run_text(_body(found), cast("RunStatus", found).waterfall)


def is_job(found: JobInfo | RunStatus) -> TypeGuard[JobInfo]:
    """Whether it is a job; else a run of one model."""
    return hasattr(found, "tasks")


def stop(
    database: Database = None,
    run: Run = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.")] = False,
) -> None:
    """Stop a running job (or run) after the candidates in flight; the same `tune` goes on from there."""
    from autofuse import api

    api.stop(database, run=run, wait=wait, progress=_tell)


def _tell(found: Stopping) -> None:
    after = "stops after the candidates in flight" if found.asked else f"is not running: it is {found.state}"
    say(f"autofuse: {found.name} {after}")
