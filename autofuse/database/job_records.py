"""The values that go into and come out of the tables of jobs; plain dataclasses, no SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from autofuse.database.records import Json

RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"
JOB_STATES = (RUNNING, FINISHED, INTERRUPTED, FAILED)
QUEUED, DONE = "queued", "done"
TASK_STATES = (QUEUED, RUNNING, DONE, FAILED)
SEARCH, CONFIRM = "search", "confirm"
PHASES = (SEARCH, CONFIRM)
WORKING, LOST, LEFT = "working", "lost", "left"
WORKER_STATES = (WORKING, LOST, LEFT)


@dataclass(frozen=True)
class TaskStart:
    """A model (absolute path) to be tuned on a device."""

    model: str
    model_sha256: str
    device: str


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """A task as stored; see `autofuse.database.tables.job_schema.TaskRow`."""

    id: int
    job_id: int
    position: int
    model: str
    model_sha256: str
    device: str
    phase: str
    state: str
    attempts: int
    spent_s: float
    reserve_s: float | None
    gain: float | None
    measured: int
    failed: int
    best_us: float | None
    baseline_us: float | None
    run_id: int | None
    failure: str | None
    result: Mapping[str, Json] | None


@dataclass(frozen=True, kw_only=True)
class WorkerInfo:
    """A worker as stored. `beat_age_s`: seconds since its last sign of life. `alive`: whether its lease holds."""

    id: int
    name: str
    device: str
    state: str
    note: str
    measured: int
    beat_age_s: float
    alive: bool


@dataclass(frozen=True, kw_only=True)
class JobInfo:
    """A stored job with its tasks and workers; `state` "interrupted" when nobody alive works on a running one."""

    id: int
    name: str
    state: str
    created_at: datetime
    finished_at: datetime | None
    active_s: float
    stop_asked: bool
    settings: Mapping[str, Json]
    summary: Mapping[str, Json] | None
    tasks: tuple[TaskInfo, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskProgress:
    """The progress of a task in a slice of time; see `autofuse.database.tables.job_schema.TaskRow`."""

    spent_s: float
    measured: int
    failed: int
    gain: float | None = None
    reserve_s: float | None = None
    best_us: float | None = None
    baseline_us: float | None = None
    run_id: int | None = None
    exhausted: bool = False
