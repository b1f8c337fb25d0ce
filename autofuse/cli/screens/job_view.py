"""How a job stands: tables and a live view on a terminal, one line a minute elsewhere and in a log file."""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from autofuse.api import left_s
from autofuse.cli.screens.live import LINE_EVERY_S, View
from autofuse.cli.screens.render import describe, explained, records
from autofuse.cli.screens.tune_view import decision_text
from autofuse.cli.terminal import printable
from autofuse.values.arguments import format_duration
from autofuse.values.outputs import Inputs, Kind, check_output

if TYPE_CHECKING:
    from autofuse.api.results import JobInfo, JobOutcome, TaskInfo, TaskOutcome

HOUR_S = 3600.0
LOG_BYTES, LOG_FILES = 1 << 20, 4
"""Size at which a log is put aside, and how many are kept."""
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} .*: \d+ of \d+ models done, \d+ candidates, ")
"""How a line of a log begins (`job_line`): many programs write the same date and hour."""
NAMED = 3
"""Kernels that a note names."""


def job_body(job: JobInfo) -> dict[str, object]:
    """A job as one JSON object."""
    return {
        "run": job.name,
        "state": job.state,
        "created_at": job.created_at.isoformat(timespec="seconds"),
        "active_s": job.active_s,
        "budget_s": job.settings.get("budget_s"),
        **_until(job),
        **_sizes(job),
        "left_s": left_s(job, time.time()),
        "measured": _measured(job),
        "measured an hour": _an_hour(job),
        "tasks": [_task_row(task) for task in job.tasks],
        "workers": [
            {"worker": worker.name, "device": worker.device, "measured": worker.measured, "doing": worker.note,
             "state": worker.state if worker.alive else _gone(worker.state)}
            for worker in job.workers
        ],
    }  # fmt: skip


def _an_hour(job: JobInfo) -> int | None:
    """Candidates measured in an hour, at the pace so far; None for a job that has just begun."""
    pace = _measured(job) / job.active_s * HOUR_S if job.active_s > 0 else math.inf
    return round(pace) if math.isfinite(pace) else None


def _until(job: JobInfo) -> dict[str, object]:
    """When a job ends that was given a time of day: instead of a budget."""
    ends_at = job.settings.get("ends_at")
    return (
        {"until": f"{datetime.fromtimestamp(ends_at, UTC).astimezone():%H:%M}"}
        if isinstance(ends_at, int | float)
        else {}
    )


def _sizes(job: JobInfo) -> dict[str, object]:
    """What stays open in those models that have it."""
    sizes = job.settings.get("sizes")
    return {"sizes": ", ".join(map(str, sizes))} if isinstance(sizes, list) and sizes else {}


def job_text(job: JobInfo) -> RenderableType:
    """A job for people: workers that are gone are left out, unless they were lost."""
    body = job_body(job)
    rows = zip(_rows(body["workers"]), job.workers, strict=True)
    workers = [row for row, worker in rows if worker.alive or _lost(row)]
    hidden = ("tasks", "workers", "budget_s" if "until" in body else "until")
    head = {name: value for name, value in body.items() if name not in hidden}
    parts: list[RenderableType] = [describe(head), "", records(body["tasks"], "models")]
    return Group(*parts, "", records(workers, "workers")) if workers else Group(*parts)


def outcome_text(outcome: JobOutcome) -> RenderableType:
    """A job's end for people."""
    head = {"run": outcome.run, "state": outcome.state, "elapsed_s": outcome.elapsed_s, "measured": outcome.measured}
    rows = [
        {"model": Path(task.model).stem, "device": task.device, "state": task.state, "plan": task.chosen,
         "median_us": task.median_us, "of no fusion": _interval(task.speedup, task.ci_lo, task.ci_hi),
         "trusted": task.trusted, "measured": task.measured}
        for task in outcome.tasks
    ]  # fmt: skip
    notes = [f"{Path(task.model).stem}: {text}" for task in outcome.tasks if (text := task.failure or task.warning)]
    notes += [f"{Path(task.model).stem}: {_distrust(task.untrusted)}" for task in outcome.tasks if task.untrusted]
    notes += [f"{Path(task.model).stem}: {_open(task)}" for task in outcome.tasks if task.sizes]
    notes += [f"lost: {worker}" for worker in outcome.lost_workers]
    parts: list[RenderableType] = [describe(head), "", records(rows)]
    return Group(*parts, "", Text("\n".join(notes))) if notes else Group(*parts)


def _open(task: TaskOutcome) -> str:
    """What was open of a model, and how its plan was decided: "batch=1:16, against plan default: faster, 1.20x ..."."""
    decided = "no other plan was raced" if task.decision is None else decision_text(task.decision)
    return f"{', '.join(task.sizes)} open; {decided}"


def job_line(job: JobInfo) -> str:
    """The whole state in one line of a log."""
    done = sum(task.state in ("done", "failed") for task in job.tasks)
    left = left_s(job, time.time())
    rest = "" if left is None else f", {format_duration(left)} left"
    doing = "; ".join(f"{worker.name}: {worker.note}" for worker in job.workers if worker.alive and worker.note)
    failed = sum(task.failed for task in job.tasks)
    parts = [
        f"{job.name} {job.state}: {done} of {len(job.tasks)} models done",
        f"{_measured(job)} candidates, {failed} failed",
        f"{format_duration(job.active_s)} gone{rest}",
    ]
    return ", ".join(parts) + (f" ({doing})" if doing else "")


def _measured(job: JobInfo) -> int:
    """Candidates so far, those of the slices under way included."""
    return sum(task.measured for task in job.tasks) + sum(worker.measured for worker in job.workers if worker.alive)


def _task_row(task: TaskInfo) -> dict[str, object]:
    from autofuse.values.ratios import expected_ratio  # late: it loads NumPy

    expected = expected_ratio(task.baseline_us, task.best_us)
    return {
        "model": Path(task.model).stem, "device": task.device, "state": task.state, "phase": task.phase,
        "spent_s": task.spent_s, "measured": task.measured, "failed": task.failed, "best_us": task.best_us,
        "expected of no fusion": None if expected is None else round(expected, 3), "gain an hour": task.gain,
        "failure": task.failure,
    }  # fmt: skip


def _distrust(labels: Sequence[str]) -> str:
    """The kernels of a winner that the machine was too disturbed for."""
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return f"not trusted are the times of {', '.join(labels[:NAMED])}{more}"


def _interval(speedup: float | None, low: float | None, high: float | None) -> str | None:
    if speedup is None:
        return None
    return f"{speedup:.2f}" if low is None or high is None else f"{speedup:.2f} ({low:.2f}–{high:.2f})"


def _rows(value: object) -> list[dict[str, object]]:
    assert isinstance(value, list)
    return value


def _lost(row: dict[str, object]) -> bool:
    return row["state"] == "lost"


def _gone(state: str) -> str:
    """A worker that says it works while its lease is void."""
    return "dead" if state == "working" else state


class JobView(View):
    """Shows a job while it is open; call it with each new state. `log`: a file that gets the lines too, rotated."""

    def __init__(
        self, screen: Console | None = None, log: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(screen, clock)
        self._last: float | None = None
        self._log = None if log is None else _rotating(log)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._log is not None:
            self._log.close()

    def __call__(self, job: JobInfo) -> None:
        """Take the newest state."""
        if self._screen.is_terminal:
            self._live.update(explained(job_text(job)))
        now = self._clock()
        if self._last is not None and now - self._last < LINE_EVERY_S:
            return
        self._last = now
        line = job_line(job)
        if not self._screen.is_terminal:
            self._print(line)
        if self._log is not None:
            self._log.emit(logging.LogRecord("autofuse", logging.INFO, "", 0, printable(line), None, None))


def _is_log(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return LOG_LINE.match(file.readline(LOG_BYTES)) is not None


LOG = Kind("a log of autofuse", _is_log)


def check_log(path: Path, inputs: Inputs) -> None:
    """InputError unless a log may be written to `path`, and its older parts beside it may be replaced."""
    for number in range(LOG_FILES):
        check_output(path.with_name(f"{path.name}.{number}") if number else path, LOG, inputs, option="--log")


def _rotating(path: Path) -> RotatingFileHandler:
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES - 1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    return handler


@contextmanager
def refreshed(screen: Console) -> Iterator[Callable[[RenderableType], None]]:
    """A place on the screen that each call writes anew; elsewhere than on a terminal, one text after the other."""
    if not screen.is_terminal:
        yield screen.print
        return
    with Live(console=screen, refresh_per_second=2) as live:
        yield live.update
