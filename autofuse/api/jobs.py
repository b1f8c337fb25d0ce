"""Work that is going on: how it stands, and its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autofuse.errors import InputError
from autofuse.values.arguments import whole_number

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase
    from autofuse.database.job_records import JobInfo
    from autofuse.database.records import RunInfo
    from autofuse.views.run_status import RunStatus

STOP_WAIT_S = 1.0
Wanted = str | int | None
"""A job by its name, a run by its number or name; None: the newest of both."""


@dataclass(frozen=True)
class Stopping:
    """The job or run that a stop was meant for; `asked`: whether it was running, so that it stops now."""

    name: str
    state: str
    asked: bool


def status(database: str | None = None, *, run: Wanted = None) -> JobInfo | RunStatus:
    """How a job or a run stands; works beside a running one. Its `state` is "interrupted" when its process is gone."""
    from autofuse.database.connection import require_database

    require_database(database)
    from autofuse.database.database import open_database
    from autofuse.views.run_status import run_status

    with open_database(database, read_only=True) as opened:
        job, info = _newest(opened, run)
        return job if job is not None else run_status(opened, _there(info))


def left_s(job: JobInfo, now: float) -> float | None:
    """Seconds that a running job may still take; None for one that has no end, or has ended. `now`: since 1970.

    Never less than building and measuring the finalists of what is not confirmed may take.
    """
    budget_s, ends_at = job.settings.get("budget_s"), job.settings.get("ends_at")
    if job.state != "running":
        return None
    if isinstance(ends_at, int | float):
        left = ends_at - now
    elif isinstance(budget_s, int | float):
        left = budget_s - job.active_s
    else:
        return None
    from autofuse.job.timetable import finals_s

    return max(0.0, left, finals_s(job.tasks, left + job.active_s, max(1, sum(worker.alive for worker in job.workers))))


def stop(
    database: str | None = None,
    *,
    run: Wanted = None,
    wait: bool = False,
    progress: Callable[[Stopping], None] | None = None,
) -> Stopping:
    """Stop a running job (or run) after the candidates in flight; the same `tune` goes on from there.

    `wait`: return when it has stopped; `progress` is called before, once it is told.
    """
    from autofuse.database.connection import require_database

    require_database(database)
    from autofuse.database.database import open_database

    with open_database(database, create=False) as opened:
        job, info = _newest(opened, run)
        found = job if job is not None else _there(info)
        told = Stopping(found.name, found.state, found.state == "running")
        if told.asked and job is not None:
            opened.jobs.ask_to_stop(job.id)
        elif told.asked:
            _signal(opened, _there(info))
        if progress is not None:
            progress(told)
        state = told.state
        while wait and state == "running":
            time.sleep(STOP_WAIT_S)
            job, info = _newest(opened, run)
            state = (job if job is not None else _there(info)).state
        return Stopping(told.name, state, told.asked)


def _signal(opened: ProfilingDatabase, info: RunInfo) -> None:
    """A run of one model listens to signals only: its process must be on this machine."""
    owner = opened.run_owner(info.id)
    if owner is None:
        raise InputError(f"run {info.id} is worked on by another machine: stop it there")
    os.kill(owner.pid, signal.SIGTERM)


def _newest(opened: ProfilingDatabase, run: Wanted) -> tuple[JobInfo | None, RunInfo | None]:
    """The job or run that is meant: by name, by number, or the newest of both. A job's own runs do not count."""
    if run is not None:
        name, number = str(run), whole_number(str(run))
        job = opened.jobs.job(name)
        info = opened.run(number) if number is not None and job is None else None
        info = info or (opened.run(name=name) if job is None else None)
        if job is None and info is None:
            raise InputError(
                f"{opened.location.text}: no job {name!r} and no run {run} recorded; see `autofuse status`"
            )
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
