"""What a job came to: a row a model and device, and an exit code for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autofuse.database.job_records import DONE, FAILED, LOST, JobInfo, TaskInfo
from autofuse.search.progress import ChoiceDecision
from autofuse.values.names import plan_name

EXIT_SLOWER, EXIT_LOST, EXIT_INTERRUPTED, EXIT_CRASHED = 5, 75, 130, 75
SLOWER = 1.02
"""Beyond this ratio to the default plan a winner counts as slower."""


@dataclass(frozen=True)
class TaskOutcome:
    """A model on a device. `speedup`: of the chosen plan over plan "none", with its interval, measured whole.

    `state`: "done", "failed", or "open" when the job ended before. `failure`: why; `warning`: what to know of it.
    `trusted`: the choice is decided (of a plan that was measured alone: its time is trusted); `untrusted`: its kernels
    that were chosen by times which are not trusted. `sizes`: what stays open, as it is typed. `decision`: what the race
    of its plans came to.
    """

    model: str
    device: str
    state: str
    chosen: str | None
    median_us: float | None
    speedup: float | None
    ci_lo: float | None
    ci_hi: float | None
    trusted: bool | None
    measured: int
    failed: int
    spent_s: float
    failure: str = ""
    warning: str = ""
    untrusted: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    decision: ChoiceDecision | None = None


@dataclass(frozen=True)
class JobOutcome:
    """A job's end. `complete`: every task is done or failed. `exit_code`: see the README."""

    run: str
    state: str
    complete: bool
    exit_code: int
    elapsed_s: float
    measured: int
    failed: int
    tasks: tuple[TaskOutcome, ...]
    lost_workers: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def outcome_of(job: JobInfo, elapsed_s: float, stopping: str) -> JobOutcome:
    """The outcome of a job as it stands; `stopping`: why it was stopped early ("" when it was not)."""
    tasks = tuple(_task(task) for task in job.tasks)
    complete = all(task.state in (DONE, FAILED) for task in job.tasks)
    latest = {worker.name: worker for worker in job.workers}  # one that came back stands there again
    lost = tuple(f"{worker.name}: {worker.note}" for worker in latest.values() if worker.state == LOST)
    state = "finished" if complete else "interrupted"
    return JobOutcome(
        job.name, state, complete, _exit_code(job, complete, stopping), elapsed_s,
        sum(task.measured for task in tasks), sum(task.failed for task in tasks), tasks, lost,
    )  # fmt: skip


def _exit_code(job: JobInfo, complete: bool, stopping: str) -> int:
    failed = [task for task in job.tasks if task.state == FAILED]
    if failed:
        code = (failed[0].result or {}).get("exit_code")
        return code if isinstance(code, int) else EXIT_CRASHED
    if not complete:
        return EXIT_INTERRUPTED if stopping else EXIT_LOST
    return EXIT_SLOWER if any(_slower_than_default(task.result or {}) for task in job.tasks) else 0


def _slower_than_default(result: Mapping[str, Any]) -> bool:
    """Whether the chosen plan is slower than the default; noise does not say so where both were in one race."""
    decision = result.get("decision") or {}
    if decision and not decision.get("trusted"):
        return False
    plans = result.get("plans") or {}
    chosen, default = plans.get(result.get("chosen")) or {}, plans.get("default") or {}
    mine, other = chosen.get("median_us"), default.get("median_us")
    return mine is not None and other is not None and mine > SLOWER * other


def _task(task: TaskInfo) -> TaskOutcome:
    result: Mapping[str, Any] = task.result or {}
    plan: Mapping[str, Any] = (result.get("plans") or {}).get(result.get("chosen")) or {}
    chosen, decision = result.get("chosen"), result.get("decision") or {}
    state = task.state if task.state in (DONE, FAILED) else "open"
    return TaskOutcome(
        task.model, task.device, state, chosen and plan_name(chosen), plan.get("median_us"), plan.get("speedup"),
        plan.get("ci_lo"), plan.get("ci_hi"), decision.get("trusted", plan.get("trusted")), task.measured, task.failed,
        task.spent_s, task.failure or "", str(result.get("warning") or ""), tuple(result.get("untrusted") or ()),
        sizes=tuple(result.get("sizes") or ()), decision=ChoiceDecision(**decision) if decision else None,
    )  # fmt: skip
