"""The queue of jobs: tasks are claimed under a lease, given back, taken over from the dead.

Safe for several coordinators on one database: a claim locks its row (`SKIP LOCKED` where the database can), and every
later change of a task asks that the lease still be the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, insert, or_, select, text, update

from autofuse.database.job_records import (
    DONE,
    FAILED,
    FINISHED,
    INTERRUPTED,
    LEFT,
    QUEUED,
    RUNNING,
    SEARCH,
    WORKING,
    JobInfo,
    TaskInfo,
    TaskProgress,
    TaskStart,
    WorkerInfo,
)
from autofuse.database.records import Json, canonical_json
from autofuse.database.retries import persistent
from autofuse.database.tables.columns import free_lease, insert_unless_there, lease_columns
from autofuse.database.tables.job_schema import JobRow, TaskRow, WorkerRow
from autofuse.database.tables.owner import Owner, is_dead, this_process
from autofuse.errors import InputError

LEASE_S = 90.0
"""A process that has given no sign of life for so long is taken for dead (one of this machine: as soon as it is)."""
MAX_ATTEMPTS = 3
"""Searches that may die with a task before it is given up."""

_JOB, _TASK, _WORKER = (row.__table__.c for row in (JobRow, TaskRow, WorkerRow))
JOB_NUMBERS, WORKER_NUMBERS = ("active_s",), ("measured", "beat", "owner_pid", "owner_started")
TASK_NUMBERS = (
    "position", "attempts", "spent_s", "reserve_s", "gain", "measured", "failed", "best_us", "baseline_us", "run_id",
)  # fmt: skip
"""Columns that are computed with."""
COUNTS = frozenset(("position", "attempts", "measured", "failed", "run_id", "owner_pid"))
"""Those of whole numbers."""
_OWNER = ("owner_host", "owner_pid", "owner_boot_id", "owner_started")
_NOW = {
    "postgresql": "SELECT extract(epoch FROM clock_timestamp())",
    "sqlite": "SELECT (julianday('now') - 2440587.5) * 86400.0",
}


class Transactions(Protocol):
    """The part of a profiling database that the queue needs."""

    def reading(self) -> AbstractContextManager[Connection]: ...

    def writing(self) -> AbstractContextManager[Connection]: ...


class JobQueue:
    """The queue of jobs of one profiling database; every method is one transaction. `owner`: who leases what is
    claimed."""

    def __init__(self, transactions: Transactions, owner: Owner | None = None) -> None:
        self._base = transactions
        self._owner = owner or this_process()

    # jobs

    @persistent
    def open_job(self, name: str, tasks: Sequence[TaskStart], settings: Mapping[str, Json]) -> JobInfo:
        """The job of this name, made or gone on with; InputError when it is one of other models or devices.

        An ended job is opened again: its tasks are searched further. `settings` count unless somebody works on it.
        """
        canonical_json(settings)
        with self._base.writing() as sql:
            number = _insert_job(sql, name, settings)
            if number is not None:
                _insert_tasks(sql, number, tasks)
                return _job(sql, number)
            row = sql.execute(select(JobRow.__table__).where(_JOB.name == name).with_for_update()).mappings().one()
            _refuse_another(sql, row["id"], name, tasks)
            self._reopen(sql, row, settings)
            return _job(sql, row["id"])

    def _reopen(self, sql: Connection, row: RowMapping, settings: Mapping[str, Json]) -> None:
        number = row["id"]
        if any(worker.alive for worker in _workers(sql, number)):
            return  # somebody works on it: the caller joins in
        values: dict[str, Any] = {
            "state": RUNNING,
            "stop_asked": False,
            "finished_at": None,
            "settings": dict(settings),
        }
        if row["state"] in (FINISHED, FAILED):
            values |= {"active_s": 0.0, "summary": None}
            sql.execute(
                update(TaskRow)
                .where(_TASK.job_id == number)
                .values(state=QUEUED, phase=SEARCH, attempts=0, failure=None, result=None, gain=None, **free_lease())
            )
        sql.execute(update(JobRow).where(_JOB.id == number).values(**values))

    @persistent
    def unfinished(self, tasks: Sequence[TaskStart]) -> str | None:
        """Name of the newest job of exactly these tasks that has not ended by itself."""
        wanted = sorted((task.model_sha256, task.device) for task in tasks)
        with self._base.reading() as sql:
            open_jobs = sql.execute(
                select(_JOB.id, _JOB.name).where(_JOB.state.in_((RUNNING, INTERRUPTED))).order_by(_JOB.id.desc())
            )
            for number, name in open_jobs.all():
                rows = sql.execute(select(_TASK.model_sha256, _TASK.device).where(_TASK.job_id == number))
                if sorted(tuple(row) for row in rows) == wanted:
                    return str(name)
        return None

    @persistent
    def job(self, name: str | None = None) -> JobInfo | None:
        """The job of this name (None: the newest), with its tasks and workers."""
        query = select(_JOB.id).order_by(_JOB.id.desc()).limit(1)
        if name is not None:
            query = query.where(_JOB.name == name)
        with self._base.reading() as sql:
            number = sql.execute(query).scalar_one_or_none()
            return None if number is None else _job(sql, number)

    @persistent
    def job_of_run(self, run_id: int) -> JobInfo | None:
        """The newest job that a run is a part of; None for a run of its own."""
        query = select(_TASK.job_id).where(_TASK.run_id == run_id).order_by(_TASK.job_id.desc()).limit(1)
        with self._base.reading() as sql:
            number = sql.execute(query).scalar_one_or_none()
            return None if number is None else _job(sql, number)

    @persistent
    def share(self, job_id: int, device: str) -> tuple[tuple[TaskInfo, ...], int]:
        """The tasks of one device, and how many workers alive share them."""
        with self._base.reading() as sql:
            tasks = tuple(_tasks(sql, and_(_TASK.job_id == job_id, _TASK.device == device)))
            alive = sum(worker.alive for worker in _workers(sql, job_id) if worker.device == device)
        return tasks, max(1, alive)

    @persistent
    def ask_to_stop(self, job_id: int) -> None:
        """Every coordinator of the job stops after the candidates in flight."""
        with self._base.writing() as sql:
            sql.execute(update(JobRow).where(_JOB.id == job_id).values(stop_asked=True))

    @persistent
    def end_job(self, job_id: int, state: str, summary: Mapping[str, Json]) -> None:
        """Records how a job ended, unless somebody else still works on it."""
        canonical_json(summary)
        with self._base.writing() as sql:
            if any(worker.alive for worker in _workers(sql, job_id)):
                return
            ended = {"state": state, "summary": dict(summary), "finished_at": datetime.now(UTC)}
            sql.execute(update(JobRow).where(_JOB.id == job_id).values(**ended))

    # workers

    def join(self, job_id: int, name: str, device: str) -> int:
        """A worker begins to work for a job; its number."""
        with self._base.writing() as sql:
            values = {"job_id": job_id, "name": name, "device": device, "state": WORKING, "note": "", "measured": 0}
            lease = {**lease_columns(self._owner), "beat": _now(sql)}
            number: int = sql.execute(insert(WorkerRow).values(**values, **lease).returning(_WORKER.id)).scalar_one()
        return number

    @persistent
    def leave(self, worker_id: int, state: str = LEFT, note: str = "") -> None:
        """A worker works no more: "left", or "lost"."""
        with self._base.writing() as sql:
            sql.execute(update(WorkerRow).where(_WORKER.id == worker_id).values(state=state, note=note, **free_lease()))

    @persistent
    def note(self, worker_id: int, note: str, measured: int) -> None:
        """What a worker is doing, for whoever asks for the status."""
        with self._base.writing() as sql:
            sql.execute(update(WorkerRow).where(_WORKER.id == worker_id).values(note=note, measured=measured))

    @persistent
    def beat(self, job_id: int, active_s: float) -> tuple[bool, tuple[int, ...]]:
        """A sign of life for everything that the caller leases: (whether to stop, numbers of its tasks).

        A task that is missing in the answer was taken over by another coordinator. `active_s`: seconds of the budget
        that are spent. What dead coordinators held is queued again.
        """
        with self._base.writing() as sql:
            now = _now(sql)
            for row, columns in ((TaskRow, _TASK), (WorkerRow, _WORKER)):
                mine = and_(columns.job_id == job_id, *_leased_by(columns, self._owner))
                sql.execute(update(row).where(mine).values(beat=now))
            self._release_dead(sql, job_id)
            sql.execute(update(JobRow).where(_JOB.id == job_id, _JOB.active_s < active_s).values(active_s=active_s))
            held = sql.execute(select(_TASK.id).where(_TASK.job_id == job_id, *_leased_by(_TASK, self._owner)))
            stop = sql.execute(select(_JOB.stop_asked).where(_JOB.id == job_id)).scalar_one()
            return bool(stop), tuple(held.scalars())

    # tasks

    @persistent
    def claim(self, job_id: int, device: str, phase: str, least_gain: float = 0.0) -> TaskInfo | None:
        """Leases the task of a device that is expected to gain most; None when none is left in this phase.

        In the search: those not begun first, then the largest expected gain, if above `least_gain`. In the
        confirmation: those not begun last.
        """
        with self._base.writing() as sql:
            self._release_dead(sql, job_id)
            here = [_TASK.job_id == job_id, _TASK.device == device, _TASK.state == QUEUED]
            if phase == SEARCH:
                here += [_TASK.phase == SEARCH, or_(_TASK.gain.is_(None), _TASK.gain > least_gain)]
            fresh = _TASK.gain.is_not(None) if phase == SEARCH else _TASK.gain.is_(None)
            order = (fresh, _TASK.gain.desc(), _TASK.position)
            query = select(_TASK.id).where(*here).order_by(*order).limit(1).with_for_update(skip_locked=True)
            number = sql.execute(query).scalar_one_or_none()
            if number is None:
                return None
            lease = {**lease_columns(self._owner), "beat": _now(sql), "state": RUNNING, "phase": phase}
            sql.execute(update(TaskRow).where(_TASK.id == number).values(**lease))
            return next(iter(_tasks(sql, _TASK.id == number)))

    @persistent
    def give_back(self, task_id: int, progress: TaskProgress | None) -> bool:
        """Ends a slice of the search: the task is queued again; False when the lease was lost meanwhile.

        `progress` None: nothing came of it (the worker was lost, the job is stopping). A task with nothing left to
        try has no gain to expect.
        """
        return self._end(task_id, {"state": QUEUED, **_brought(progress)})

    @persistent
    def died(self, task_id: int, failure: str) -> bool:
        """The process that searched died: the task is queued again, or given up after `MAX_ATTEMPTS`."""
        with self._base.writing() as sql:
            row = sql.execute(select(_TASK.attempts).where(_TASK.id == task_id)).scalar_one() + 1
        values = {"attempts": row, "state": FAILED if row >= MAX_ATTEMPTS else QUEUED, "failure": failure}
        return self._end(task_id, values)

    @persistent
    def fail(self, task_id: int, failure: str, result: Mapping[str, Json]) -> bool:
        """The task cannot be done; `result`: its exit code."""
        return self._end(task_id, {"state": FAILED, "failure": failure, "result": dict(result)})

    @persistent
    def finish(self, task_id: int, result: Mapping[str, Json], progress: TaskProgress) -> bool:
        """The task's winner is confirmed."""
        canonical_json(result)
        return self._end(task_id, {**_brought(progress), "state": DONE, "result": dict(result), "failure": None})

    def _end(self, task_id: int, values: Mapping[str, Any]) -> bool:
        mine = and_(_TASK.id == task_id, *_leased_by(_TASK, self._owner))
        with self._base.writing() as sql:
            changed = sql.execute(update(TaskRow).where(mine).values(**{**values, **free_lease(), "beat": None}))
            return changed.rowcount == 1

    def _release_dead(self, sql: Connection, job_id: int) -> None:
        """Queue again what dead coordinators held."""
        now = _now(sql)
        leased = select(_TASK.id, _TASK.beat, *_owner_of(_TASK)).where(_TASK.job_id == job_id, _TASK.state == RUNNING)
        dead = [row["id"] for row in sql.execute(leased).mappings() if not _alive(row, now)]
        sql.execute(
            update(TaskRow).where(_TASK.id.in_(dead), _TASK.state == RUNNING).values(state=QUEUED, **free_lease())
        )


def _brought(progress: TaskProgress | None) -> dict[str, Any]:
    """Column values of what a slice brought."""
    if progress is None:
        return {}
    names = ("gain", "reserve_s", "best_us", "baseline_us", "run_id")
    known = {name: value for name in names if (value := getattr(progress, name)) is not None}
    return {
        **known,
        **({"gain": 0.0} if progress.exhausted else {}),
        "attempts": 0,
        "spent_s": _TASK.spent_s + progress.spent_s,
        "measured": _TASK.measured + progress.measured,
        "failed": _TASK.failed + progress.failed,
    }


def _insert_job(sql: Connection, name: str, settings: Mapping[str, Json]) -> int | None:
    """Number of a new job; None when there is one of this name, which another coordinator may be making just now."""
    values = {"name": name, "state": RUNNING, "created_at": datetime.now(UTC), "active_s": 0.0, "stop_asked": False}
    statement = insert_unless_there(sql.dialect.name, JobRow)
    number: int | None = sql.execute(statement, {**values, "settings": dict(settings)}).scalar_one_or_none()
    return number


def _insert_tasks(sql: Connection, job_id: int, tasks: Sequence[TaskStart]) -> None:
    rest = {"phase": SEARCH, "state": QUEUED, "attempts": 0, "spent_s": 0.0, "measured": 0, "failed": 0}
    rows = [
        {"job_id": job_id, "position": position, "model": task.model, "model_sha256": task.model_sha256,
         "device": task.device, **rest}
        for position, task in enumerate(tasks)
    ]  # fmt: skip
    sql.execute(insert(TaskRow), rows)


def _refuse_another(sql: Connection, job_id: int, name: str, tasks: Sequence[TaskStart]) -> None:
    known = {(task.model_sha256, task.device): task.model for task in _tasks(sql, _TASK.job_id == job_id)}
    asked = {(task.model_sha256, task.device): task.model for task in tasks}
    if known.keys() != asked.keys():
        other = sorted({**known, **asked}[key] for key in known.keys() ^ asked.keys())
        raise InputError(
            f"--run: job {name!r} is one of other models, sizes or devices (differing: {', '.join(other[:3])}); "
            "choose another name, or repeat its own"
        )


def _job(sql: Connection, number: int) -> JobInfo:
    row = _counted(sql.execute(select(JobRow.__table__).where(_JOB.id == number)).mappings().one(), JOB_NUMBERS)
    if not isinstance(row["settings"], dict):
        raise ValueError("column settings holds no object")
    workers = tuple(_workers(sql, number))
    state = row["state"]
    if state == RUNNING and not any(worker.alive for worker in workers):
        state = INTERRUPTED
    values = {field.name: row[field.name] for field in fields(JobInfo) if field.name not in ("tasks", "workers")}
    return JobInfo(**{**values, "state": state}, tasks=tuple(_tasks(sql, _TASK.job_id == number)), workers=workers)


def _tasks(sql: Connection, condition: ColumnElement[bool]) -> Iterator[TaskInfo]:
    names = [field.name for field in fields(TaskInfo)]
    query = select(*(_TASK[name] for name in names)).where(condition).order_by(_TASK.position)
    for row in sql.execute(query).mappings().all():
        yield TaskInfo(**_counted(row, TASK_NUMBERS))


def _workers(sql: Connection, job_id: int) -> Iterator[WorkerInfo]:
    now = _now(sql)
    query = select(WorkerRow.__table__).where(_WORKER.job_id == job_id).order_by(_WORKER.id)
    for row in sql.execute(query).mappings().all():
        _counted(row, WORKER_NUMBERS)
        yield WorkerInfo(
            id=row["id"], name=row["name"], device=row["device"], state=row["state"], note=row["note"],
            measured=row["measured"], beat_age_s=now - (row["beat"] or 0.0),
            alive=row["state"] == WORKING and _alive(row, now),
        )  # fmt: skip


def _counted(row: RowMapping, names: Sequence[str]) -> RowMapping:
    """`row`, whose columns of these names hold numbers or nothing: SQLite keeps any value in any column."""
    for name in names:
        value, whole = row[name], name in COUNTS
        if isinstance(value, float) and (whole or not math.isfinite(value)):
            raise ValueError(f"column {name} holds no {'whole' if whole else 'finite'} number")
        if not isinstance(value, int | float | None):
            raise ValueError(f"column {name} holds no number")
    return row


def _alive(row: RowMapping, now: float) -> bool:
    """Whether a lease holds: its process lives, as far as this machine can know, and has told so lately."""
    if row["owner_pid"] is None or now - (row["beat"] or 0.0) > LEASE_S:
        return False
    started = row["owner_started"] or 0.0
    return not is_dead(Owner(row["owner_host"] or "", row["owner_pid"], row["owner_boot_id"] or "", started))


def _owner_of(columns: Any) -> list[ColumnElement[Any]]:
    return [columns[name] for name in _OWNER]


def _leased_by(columns: Any, owner: Owner) -> list[ColumnElement[bool]]:
    return [columns[name] == value for name, value in lease_columns(owner).items()]


def _now(sql: Connection) -> float:
    """Seconds since 1970 by the database's clock."""
    return float(sql.execute(text(_NOW[sql.dialect.name])).scalar_one())
