"""The job: many models on many workers, until the time is spent, nothing is left, or somebody says stop."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from autofuse.database.database import ProfilingDatabase
from autofuse.database.job_records import (
    FINISHED,
    INTERRUPTED,
    LEFT,
    LOST,
    RUNNING,
    JobInfo,
    TaskInfo,
)
from autofuse.errors import DatabaseError, DeviceError, PlanError
from autofuse.job.outcome import JobOutcome, outcome_of
from autofuse.job.requests import SearchError, TurnEnded
from autofuse.job.settings import JobSettings, WorkerSpec
from autofuse.job.timetable import begun, for_task, next_turn
from autofuse.job.worker import OPENER, Setup, Worker
from autofuse.measure.measurement import Failure
from autofuse.values.scratch import scratch_folder

POLL_S = 0.1
BEAT_S = 5.0
"""Seconds between two signs of life, which are also when a stop, a full disk and lost leases are noticed."""
LEAST_FREE_BYTES = 100 << 20
"""Room that the disk of the database must have left."""
WORKER_FAILURES = 3
"""Slices in a row that may fail through the worker before it counts as lost."""
RETRY_S, MOST_RETRY_S = 60.0, 600.0
"""Seconds until a lost worker is tried again; each time twice as many, at most the second number."""
UNBEGUN = "the job's time was over before this model's turn: give a larger --budget, or fewer models"
PATIENCE_SHARE, MOST_PATIENCE_S = 0.1, 3600.0
"""Part of the budget for which a job without any worker waits for one to come back, and the longest such wait."""


@dataclass(frozen=True)
class JobListener:
    """A listener to a running job: `stop_asked` is called often, `watch` with each new state, `say` with
    what people should know."""

    stop_asked: Callable[[], bool] = lambda: False
    watch: Callable[[JobInfo], None] = lambda _job: None
    say: Callable[[str], None] = lambda _text: None


@dataclass
class _Lost:
    """A worker that did not answer: when it was lost, when it is tried again, and the pause after that."""

    spec: WorkerSpec
    since: float
    again: float
    pause_s: float


@dataclass
class Coordinator:
    """The driver of this process's workers for one job. `opener`, `import_paths`: see `Setup`."""

    base: ProfilingDatabase
    job: JobInfo
    specs: Sequence[WorkerSpec]
    listener: JobListener = field(default_factory=JobListener)
    opener: str = OPENER
    import_paths: Sequence[Path] = ()
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.queue = self.base.jobs
        self.settings = JobSettings.from_json(self.job.settings)
        self._began = time.monotonic()
        self._spent_before = self.job.active_s
        self._workers: list[Worker] = []
        self._lost: list[_Lost] = []
        self._beaten = -BEAT_S
        self._stopping = ""
        self._full: DatabaseError | None = None
        self._least_s: dict[int, float] = {}

    # time

    @property
    def active_s(self) -> float:
        """Seconds of the budget that are spent, those of earlier processes included."""
        return self._spent_before + time.monotonic() - self._began

    def budget_s(self) -> float | None:
        """Seconds that the job may take in all; None without an end."""
        if self.settings.ends_at is not None:
            return max(1.0, self.active_s + self.settings.ends_at - self.clock())
        return self.settings.budget_s

    def left_s(self) -> float:
        """Seconds left of the job."""
        budget = self.budget_s()
        return float("inf") if budget is None else budget - self.active_s

    # the loop

    def run(self) -> JobOutcome:
        """Work until the job has ended or is to stop; what came of it.

        A stop (a signal, the verb `stop`) lets the candidates in flight finish; KeyboardInterrupt ends at once. Either
        way the job can be gone on with. DatabaseError when the database cannot be written any more.
        """
        with scratch_folder() as folder:
            self._setup = Setup(self.base.location.address, self.settings, folder, self.opener, self.import_paths)
            try:
                for spec in self.specs:
                    self._join(spec)
                while self._advance():
                    time.sleep(POLL_S)
            except KeyboardInterrupt:
                self._close_at_once()
                raise
            finally:
                self._leave()
        if self._full is not None:
            raise self._full
        return self._end()

    def _close_at_once(self) -> None:
        """Ends the searches where they are, and says in the database that they and the job were interrupted."""
        self._stopping = self._stopping or "interrupted"
        self._leave()
        self._workers.clear()
        self.base.release_dead()
        self._end()

    def _advance(self) -> bool:
        """One round over the workers; False when all is done."""
        if self.listener.stop_asked():
            self._stop("interrupted")
        self._pulse()
        self._try_lost()
        waiting = False
        for worker in list(self._workers):
            if worker.task is not None:
                self._listen(worker)
            if worker.task is None and not self._stopping:
                waiting = self._next(worker) or waiting
        return waiting or any(worker.task is not None for worker in self._workers) or self._awaits_a_worker()

    def _join(self, spec: WorkerSpec) -> Worker:
        self._workers.append(Worker(spec, self.queue.join(self.job.id, spec.name, spec.device), self._setup))
        return self._workers[-1]

    def _try_lost(self) -> None:
        """Tries lost workers again when it is time to."""
        now = time.monotonic()
        for lost in [lost for lost in self._lost if now >= lost.again and not self._stopping]:
            lost.pause_s = min(MOST_RETRY_S, 2 * lost.pause_s)
            lost.again = now + lost.pause_s
            if lost.spec not in [worker.spec for worker in self._workers]:
                self._join(lost.spec).failures = WORKER_FAILURES - 1  # lost again at once if it does not answer

    def _awaits_a_worker(self) -> bool:
        """Whether there is none left, and one may come back in time."""
        if self._workers or self._stopping or not self._lost:
            return False
        patience_s = min(MOST_PATIENCE_S, PATIENCE_SHARE * (self.budget_s() or 0.0), self.left_s())
        return time.monotonic() - max(lost.since for lost in self._lost) < patience_s

    def _pulse(self) -> None:
        if time.monotonic() - self._beaten < BEAT_S:
            return
        self._beaten = time.monotonic()
        stop, held = self.queue.beat(self.job.id, self.active_s)
        if stop:
            self._stop("stopped")
        for worker in self._workers:
            if worker.task is not None and worker.task.id not in held:
                worker.kill()  # this process was silent for so long that another one took the task over
                worker.task = None
        mine = {worker.task.id for worker in self._workers if worker.task is not None}
        for number in set(held) - mine:
            self.queue.give_back(number, None)  # claimed in a transaction whose answer was lost
        self._check_disk()
        job = self.queue.job(self.job.name)
        if job is not None:
            self.listener.watch(job)

    def _check_disk(self) -> None:
        path = self.base.location.path
        if path is None:
            return
        free, used = shutil.disk_usage(path.parent).free, sum(file.stat().st_size for file in _files(path))
        limit = self.settings.disk_bytes
        if limit is not None and used > limit:
            self._full = DatabaseError(
                f"profiling database {path}: it takes {used >> 20} MiB, more than --disk-limit allows: raise the limit "
                "and run the same command again; everything recorded is kept"
            )
        elif free < LEAST_FREE_BYTES:
            self._full = DatabaseError(
                f"profiling database {path}: only {free >> 20} MiB are free on its disk: free some space and run the "
                "same command again; everything recorded is kept"
            )
        if self._full is not None:
            self._stop("full")

    def _stop(self, why: str) -> None:
        if not self._stopping:
            self._stopping = why
            for worker in self._workers:
                worker.ask_to_stop()

    # one worker

    def _next(self, worker: Worker) -> bool:
        """Gives the worker a task; whether it has one, or may get one later (others still hold some)."""
        mine, sharing = self.queue.share(self.job.id, worker.spec.device)
        turn = next_turn(mine, sharing, self.settings, self.budget_s(), self.left_s(), self._least_s)
        if turn is not None:
            task = self.queue.claim(self.job.id, worker.spec.device, turn.phase, turn.least_gain)
            if task is not None and self.left_s() <= 0 and not begun(task):  # it is not even read
                self.queue.fail(task.id, UNBEGUN, {"exit_code": PlanError.exit_code})
                return True
            if task is not None:
                try:
                    worker.start(task, for_task(turn, task, mine, sharing, self.left_s(), self._least_s))
                except DeviceError as error:
                    self._worker_failed(worker, str(error))
                return True
        return any(task.state == RUNNING for task in mine)

    def _listen(self, worker: Worker) -> None:
        reply = worker.collect()
        if reply is None:
            return
        task = worker.task
        assert task is not None
        if isinstance(reply, Failure):
            worker.task = None
            self._died(worker, task, reply)
        elif reply.error is not None:
            worker.task = None
            self._refused(worker, task, reply.error)
        else:
            self._brought(task, reply)
            worker.failures, worker.task = 0, None
            self._lost = [lost for lost in self._lost if lost.spec != worker.spec]

    def _brought(self, task: TaskInfo, turn: TurnEnded) -> None:
        if turn.least_s is not None:
            self._least_s[task.id] = turn.least_s
        if turn.result is not None and turn.progress is not None:
            self.queue.finish(task.id, asdict(turn.result), turn.progress)
        else:
            self.queue.give_back(task.id, turn.progress)

    def _died(self, worker: Worker, task: TaskInfo, failure: Failure) -> None:
        """The search process crashed, hung or ran out of memory."""
        if self._stopping:
            self.queue.give_back(task.id, None)
            return
        self.queue.died(task.id, f"{failure.kind}: {failure.message}")
        worker.failures += 1

    def _refused(self, worker: Worker, task: TaskInfo, error: SearchError) -> None:
        """The search ended with an error that it could name: of the worker, of the database, or of the model."""
        kind, text = error.kind, error.text
        if kind == DeviceError.__name__:
            self._worker_failed(worker, text, task)
        elif kind == DatabaseError.__name__ and self.base.location.path is None:
            self.queue.died(task.id, text)  # a server that went away in the middle of something: tried again
        elif kind == DatabaseError.__name__:
            self.queue.give_back(task.id, None)
            self._full = DatabaseError(text)
            self._stop("full")
        else:
            self.queue.fail(task.id, text, {"exit_code": error.exit_code})

    def _worker_failed(self, worker: Worker, why: str, task: TaskInfo | None = None) -> None:
        """The worker gives its task back; after some failures in a row the job goes on without it."""
        held = task or worker.task
        worker.task = None
        if held is not None:
            self.queue.give_back(held.id, None)
        worker.kill()
        worker.failures += 1
        if worker.failures >= WORKER_FAILURES:
            self.queue.leave(worker.number, LOST, why)
            self._workers.remove(worker)
            if worker.spec not in [lost.spec for lost in self._lost]:
                now = time.monotonic()
                self._lost.append(_Lost(worker.spec, now, now + RETRY_S, RETRY_S))
                self.listener.say(f"the worker {worker.spec.name} is lost; it is tried again now and then: {why}")

    # the end

    def _leave(self) -> None:
        for worker in self._workers:
            if worker.busy:
                worker.kill()
            if worker.task is not None:
                self.queue.give_back(worker.task.id, None)
            worker.close()
            self.queue.leave(worker.number, LEFT)
        if not self._workers:
            return
        self.queue.beat(self.job.id, self.active_s)

    def _end(self) -> JobOutcome:
        job = self.queue.job(self.job.name)
        assert job is not None
        outcome = outcome_of(job, self.active_s, self._stopping)
        state = FINISHED if outcome.complete else INTERRUPTED
        self.queue.end_job(job.id, state, outcome.to_json())
        return outcome


def _files(path: Path) -> list[Path]:
    """The database's file with those beside it that hold its latest changes."""
    return [file for suffix in ("", "-wal", "-shm") if (file := path.with_name(path.name + suffix)).exists()]
