"""The state of a run or a job: what it did, what it did not do, and the command that goes on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from autofuse.database.connection import default_path
from autofuse.database.job_records import CONFIRM, DONE, FAILED, QUEUED, RUNNING, SEARCH
from autofuse.environment.alone import ALONE
from autofuse.values.arguments import Constant, command_line, format_duration
from autofuse.values.names import counted
from autofuse.views.run_status import length_s

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase
    from autofuse.database.job_records import JobInfo, TaskInfo
    from autofuse.database.records import RunInfo

FINISHED, INTERRUPTED = "finished", "interrupted"


def run_standing(info: RunInfo, frames: Mapping[str, pd.DataFrame], base: ProfilingDatabase) -> list[str]:
    """Sentences about a run that has not finished; of one that has, what its race with ONNX Runtime alone said.

    `frames`: "measurements", "failures", "trials", "plan_measurements" and "choices" of the run alone. `base`: where
    it stands.
    """
    if info.state == FINISHED:
        said = (info.summary or {}).get(ALONE)
        return [f"The chosen plan as a whole: {said}."] if said else []
    if info.state == RUNNING:
        return [f"It has been running for {_lasted(info, frames)}: this is what it has so far.", _did(frames)]
    how = "It was interrupted" if info.state == INTERRUPTED else "It ended with an error"
    return [f"{how} after {_lasted(info, frames)}.", _did(frames), f"To go on from there: {run_command(info, base)}"]


def run_length_s(info: RunInfo, frames: Mapping[str, pd.DataFrame]) -> float:
    """See `length_s`."""
    dates = [frames[name]["created_at"].max() for name in ("measurements", "plan_measurements")]
    return length_s(info, [date.to_pydatetime() for date in dates if not pd.isna(date)])


def run_command(info: RunInfo, base: ProfilingDatabase) -> str:
    """The command that goes on with an interrupted run of `base`, as it is typed."""
    arguments = info.arguments
    words = ["autofuse", "tune", str(arguments.get("model", f"{info.model_name}.onnx"))]
    if arguments.get("device", "local") != "local":
        words += ["--device", str(arguments["device"])]
    words += ["--threads", str(info.setting.threads)]
    words += _limits(info.budget.get("seconds"), info.budget.get("trials"))
    return command_line([*words, *_options(arguments), *_database(base)])


def job_standing(job: JobInfo, base: ProfilingDatabase) -> list[str]:
    """Sentences about a job of `base`: how far it is, and how to go on where it has not ended by itself."""
    tasks = job.tasks
    done = sum(task.state == DONE for task in tasks)
    parts = [
        f"{done} of {len(tasks)} done",
        *_counted(tasks, "failed", lambda task: task.state == FAILED),
        *_counted(tasks, "being worked on", lambda task: task.state == RUNNING and job.state == RUNNING),
        *_counted(tasks, "searched but not confirmed", lambda task: _is_open(task, job) and task.run_id is not None),
        *_counted(tasks, "not begun", lambda task: _is_open(task, job) and task.run_id is None),
    ]
    budget_s = job.settings.get("budget_s")
    of = f" (budget {format_duration(budget_s)})" if isinstance(budget_s, int | float) else ""
    how = {RUNNING: "It is still running", FINISHED: "It finished", INTERRUPTED: "It was interrupted"}
    text = [f"{how.get(job.state, 'It ended with an error')} after {format_duration(job.active_s)}{of}."]
    text.append(f"Models and devices: {', '.join(parts)}.")
    if job.state not in (RUNNING, FINISHED):
        text.append(f"To go on from there: {job_command(job, base)}")
    return text


def job_command(job: JobInfo, base: ProfilingDatabase) -> str:
    """The command that goes on with a job, as it is typed; devices elsewhere are named as they were the first time."""
    settings = job.settings
    words = ["autofuse", "tune", *dict.fromkeys(task.model for task in job.tasks), "--run", job.name]
    for device in dict.fromkeys(task.device for task in job.tasks):
        words += [] if device == "local" else ["--device", device]
    words += ["--threads", str(settings["threads"])] if settings.get("threads") else []
    if settings.get("ends_at") is None:
        words += _limits(settings.get("budget_s"), settings.get("trials"))
    else:
        words += ["--until", "HH:MM"]
    return command_line([*words, *_options(settings), *_database(base)])


def task_state(task: TaskInfo, job: JobInfo) -> str:
    """The state of one model and device of a job, in a few words."""
    if task.state in (DONE, FAILED):
        return task.state
    if task.state == RUNNING and job.state == RUNNING:
        return "being confirmed" if task.phase == CONFIRM else "being searched"
    if task.run_id is None:
        return "not begun"
    return "searched, not confirmed" if task.phase == SEARCH else "confirmation cut off"


def plan_gap(info: RunInfo) -> str:
    """Why a run has no whole-model time."""
    if info.state == RUNNING:
        return "No plan is measured whole yet: that comes at the end of the run."
    if info.state == FINISHED:
        return "No plan was measured whole."
    return "No plan was measured whole: the run ended before its finalists were measured."


def _did(frames: Mapping[str, pd.DataFrame]) -> str:
    """What a run has done so far, and what it has not."""
    measured, failed = len(frames["measurements"]), len(frames["failures"])
    timed = int((frames["plan_measurements"]["state"] == "ok").sum())
    parts = [
        f"{counted(measured, 'candidate')} measured ({failed} failed)",
        f"{counted(len(frames['trials']), 'plan')} tried",
    ]
    if frames["choices"].empty:
        whole = f"{counted(timed, 'plan')} measured whole" if timed else "no plan measured whole"
        lacking = (
            f"{whole}, none chosen: `compile` has the schedules that were measured, and the plan by the fixed rule"
        )
        return f"{', '.join(parts)}, {lacking}."
    return f"{', '.join(parts)}, {counted(timed, 'plan')} measured whole, and a plan was chosen."


def _lasted(info: RunInfo, frames: Mapping[str, pd.DataFrame]) -> str:
    budget_s = info.budget.get("seconds")
    of = f" (budget {format_duration(budget_s)})" if isinstance(budget_s, int | float) else ""
    return f"{format_duration(run_length_s(info, frames))}{of}"


def _limits(budget_s: object, trials: object) -> list[str]:
    budget = ["--budget", f"{budget_s:g}s"] if isinstance(budget_s, int | float) else []
    return [*budget, *(["--trials", str(trials)] if isinstance(trials, int) else [])]


def _options(settings: Mapping[str, Any]) -> list[str]:
    """What a run or a job was told beside its limits."""
    words: list[str] = []
    for name, sizes in (settings.get("shapes") or {}).items():
        words += ["--shape", f"{name}={','.join(map(str, sizes))}"]
    for text in settings.get("sizes") or ():
        words += ["--sizes", str(text)]
    words += ["--trace", str(settings["trace"]["file"])] if settings.get("trace") else []
    for name, one in (settings.get("constants") or {}).items():
        words += ["--constant", f"{name}={Constant.from_json(one).text}"]
    words += ["--exact"] if settings.get("exact") else []
    words += ["--space", str(settings["space"])] if settings.get("space") else []
    return words


def _database(base: ProfilingDatabase) -> list[str]:
    location = base.location
    known = location.path is not None and location.path.absolute() == default_path().absolute()
    return [] if known else ["--db", location.text]


def _is_open(task: TaskInfo, job: JobInfo) -> bool:
    return task.state == QUEUED or (task.state == RUNNING and job.state != RUNNING)


def _counted(tasks: Sequence[TaskInfo], what: str, which: Any) -> list[str]:
    count = sum(which(task) for task in tasks)
    return [f"{count} {what}"] if count else []


def model_name(task: TaskInfo) -> str:
    """Name of a task's model."""
    return Path(task.model).stem
