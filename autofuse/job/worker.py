"""The coordinator's handle on one worker: its search process, the task it holds, how often it failed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autofuse.database.job_records import TaskInfo
from autofuse.job.requests import CloseSearches, StartSearcher, TakeTurn, TurnEnded
from autofuse.job.settings import JobSettings, WorkerSpec
from autofuse.job.timetable import Turn
from autofuse.measure.children.process import Child, Reply
from autofuse.measure.measurement import Failure
from autofuse.values.processes import default_memory

SEARCHER = "autofuse.job.searcher"
OPENER = "autofuse.search.tune:open_session"
"""What opens a model's search; another function of this form may stand in for devices (`experiments/scale/replay.py`).
Never read from a database: it names code."""
START_S = 120.0
SILENCE_S = 600.0
"""Seconds without a sign of life (a candidate, a step of a build) after which a search process is taken for hung."""
STOP_S = 60.0
"""Seconds in which a search process must stop after it was asked to."""


@dataclass(frozen=True)
class Setup:
    """The setup of every search process of a job: where the database is, what is asked, where it finds the opener."""

    database: str
    settings: JobSettings
    folder: Path
    opener: str = OPENER
    import_paths: Sequence[Path] = ()


class Worker:
    """A worker of a job: one device, here or elsewhere, and the process that searches on it.

    `number`: of its row in the database. Make and use it in one thread.
    """

    def __init__(self, spec: WorkerSpec, number: int, setup: Setup) -> None:
        self.spec, self.number, self._setup = spec, number, setup
        self.task: TaskInfo | None = None
        self.turn: Turn | None = None
        self.failures = 0
        self._child: Child | None = None
        self._greeted = False
        self._stop, self._pulse = setup.folder / f"stop-{number}", setup.folder / f"pulse-{number}"
        self._heard = 0, 0.0

    @property
    def busy(self) -> bool:
        """Whether a slice is under way."""
        return self._child is not None and self._child.busy

    @property
    def pid(self) -> int | None:
        """Process id of the search process, if there is one."""
        return self._child.pid if self._child is not None and self._child.alive else None

    def start(self, task: TaskInfo, turn: Turn) -> None:
        """Begin a turn with a claimed task; DeviceError when no process can be started."""
        self.task, self.turn = task, turn
        if self._child is None or not self._child.running():
            self._spawn()
        elif self._greeted:
            self._send()

    def collect(self) -> TurnEnded | Failure | None:
        """The answer to the turn under way, a Failure when its process died, or None while it lasts."""
        assert self._child is not None
        reply: Reply | None = self._child.collect(True)
        if reply is None and self._greeted and self._silent_s() > SILENCE_S:
            reply = Failure("timeout", f"the search gave no sign of life for {SILENCE_S:g} s")
        if reply is None:
            return None
        if isinstance(reply, Failure):
            self.kill()
        elif not self._greeted:
            self._greeted = True
            self._send()
            return None
        assert isinstance(reply, TurnEnded | Failure)
        return reply

    def ask_to_stop(self) -> None:
        """The search stops after the candidate in flight."""
        self._stop.touch()
        if self._child is not None and self._child.busy:
            self._child.deadline = min(self._child.deadline or 0.0, time.monotonic() + STOP_S)

    def kill(self) -> None:
        """End the search process, whatever it does."""
        if self._child is not None:
            self._child.kill()
        self._child, self._greeted = None, False

    def _silent_s(self) -> float:
        """Seconds since the search process last touched its file."""
        beat, now = self._pulse.stat().st_mtime_ns if self._pulse.exists() else 0, time.monotonic()
        if beat != self._heard[0]:
            self._heard = beat, now
        return now - self._heard[1]

    def close(self) -> None:
        """End the search process; an idle one ends its runs first."""
        child = self._child
        if child is not None and self._greeted and child.running() and not child.busy:
            child.request(CloseSearches(), STOP_S)
            while child.collect(True) is None:
                time.sleep(0.02)
        self.kill()
        for path in (self._stop, self._pulse):
            path.unlink(missing_ok=True)

    def _spawn(self) -> None:
        self.kill()
        setup = self._setup
        memory = setup.settings.memory_bytes or default_memory(1)
        self._child = Child(SEARCHER, memory, {}, setup.import_paths)
        hello = StartSearcher(
            setup.settings, self.spec, setup.opener, setup.database, self.number, self._stop, self._pulse
        )
        self._child.request(hello, START_S)

    def _send(self) -> None:
        assert self._child is not None and self.task is not None and self.turn is not None
        task, turn = self.task, self.turn
        self._heard = self._heard[0], time.monotonic()
        request = TakeTurn(turn.phase, task.model, task.device, turn.seconds, turn.race_s, turn.trials)
        self._child.request(request, turn.seconds + SILENCE_S)
