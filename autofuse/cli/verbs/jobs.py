"""Verbs about running work: `status` reads SQL only, `stop` leaves a word for the coordinators."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Annotated

import typer

from autofuse.cli.failures import say
from autofuse.cli.options import Database, OutputFormat
from autofuse.cli.screens.job_view import job_body, job_line, job_text, refreshed
from autofuse.cli.screens.render import console, show
from autofuse.cli.screens.run_view import run_text
from autofuse.cli.verbs.databases import run_body
from autofuse.errors import InputError
from autofuse.values.arguments import whole_number

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase
    from autofuse.database.job_records import JobInfo
    from autofuse.database.records import RunInfo

WATCH_S = 2.0
STOP_WAIT_S = 1.0

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
    from autofuse.database.database import open_database

    with open_database(database, read_only=True) as opened:
        if not watch:
            job, info = _newest(opened, run)
            if job is not None:
                show(job_body(job), form, job_text(job))
            else:
                body = run_body(opened, _there(info))
                show(body, form, run_text(body))
            return
        screen = console()
        with refreshed(screen) as redraw:
            while True:
                job, info = _newest(opened, run)
                running = (job.state if job is not None else _there(info).state) == "running"
                if job is not None:
                    redraw(job_text(job) if screen.is_terminal else job_line(job))
                else:
                    redraw(run_text(run_body(opened, _there(info))))
                if not running:
                    return
                time.sleep(WATCH_S)


def stop(
    database: Database = None,
    run: Run = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.")] = False,
) -> None:
    """Stop a running job (or run) after the candidates in flight; the same `tune` goes on from there."""
    from autofuse.database.database import open_database

    with open_database(database) as opened:
        job, info = _newest(opened, run)
        state, name = (job.state, job.name) if job is not None else (_there(info).state, _there(info).name)
        if state != "running":
            say(f"autofuse: {name} is not running: it is {state}")
            return
        if job is not None:
            opened.jobs.ask_to_stop(job.id)
        else:
            _signal(opened, _there(info))
        say(f"autofuse: {name} stops after the candidates in flight")
        while wait and state == "running":
            time.sleep(STOP_WAIT_S)
            job, info = _newest(opened, run)
            state = job.state if job is not None else _there(info).state


def _signal(opened: ProfilingDatabase, info: RunInfo) -> None:
    """A run of one model listens to signals only: its process must be on this machine."""
    owner = opened.run_owner(info.id)
    if owner is None:
        raise InputError(f"run {info.id} is worked on by another machine: stop it there")
    os.kill(owner.pid, signal.SIGTERM)


def _newest(opened: ProfilingDatabase, run: str | None) -> tuple[JobInfo | None, RunInfo | None]:
    """The job or run that is meant: by name, by number, or the newest of both. A job's own runs do not count."""
    if run is not None:
        job = opened.jobs.job(run)
        number = whole_number(run)
        info = opened.run(number) if number is not None and job is None else None
        info = info or (opened.run(name=run) if job is None else None)
        if job is None and info is None:
            raise InputError(f"{opened.location.text}: no job {run!r} and no run {run} recorded; see `autofuse status`")
        return job, info
    job, info = opened.jobs.job(), opened.run()
    if job is not None and info is not None:
        own = {task.run_id for task in job.tasks}
        later = info.started_at > (job.finished_at or info.started_at)
        return (None, info) if info.id not in own and later and job.state != "running" else (job, None)
    return job, info


def _there(info: RunInfo | None) -> RunInfo:
    if info is None:
        raise InputError("no run is recorded; `autofuse tune` starts one")
    return info
