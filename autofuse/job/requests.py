"""What a coordinator asks of its search processes, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.database.job_records import TaskProgress
from autofuse.job.settings import JobSettings, WorkerSpec
from autofuse.measure.children.messages import Done, FilePath, Message, Request
from autofuse.search.progress import TuneResult


@dataclass(frozen=True)
class StartSearcher(Request[Done]):
    """Open the database. `opener`: "package.module:function" that opens a model's search.

    `worker`: of its row in the database. `stop`: the file that asks for a stop by being there; `pulse`: touched while
    it works.
    """

    settings: JobSettings
    spec: WorkerSpec
    opener: str
    database: str
    worker: int
    stop: FilePath
    pulse: FilePath


@dataclass(frozen=True)
class SearchError:
    """An error that ends a task: the name of its class, its text, and the exit code that it stands for."""

    kind: str
    text: str
    exit_code: int


@dataclass(frozen=True)
class TurnEnded(Message):
    """The end of a turn: how far the task is, its result when that is final, or the error that ends it.

    `least_s`: seconds that building, checking and timing one finalist would take.
    """

    progress: TaskProgress | None = None
    result: TuneResult | None = None
    error: SearchError | None = None
    least_s: float | None = None


@dataclass(frozen=True)
class TakeTurn(Request[TurnEnded]):
    """Work on a model on a device for `seconds`; `trials`, `race_s`: see `timetable.Turn`.

    `phase`: search on (`job_records.SEARCH`), or measure its finalists whole (`CONFIRM`).
    """

    phase: str
    model: str
    device: str
    seconds: float
    race_s: float
    trials: int | None = None


@dataclass(frozen=True)
class CloseSearches(Request[Done]):
    """End all searches cleanly."""
