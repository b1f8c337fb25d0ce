"""The process that searches for one worker: `python -m autofuse.job.searcher`, a child of the coordinator.

A crash, a hang or a lack of memory in here costs the slice under way; everything measured is recorded already.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.job_records import CONFIRM, TaskProgress
from autofuse.errors import AutofuseError
from autofuse.job.requests import CloseSearches, SearchError, StartSearcher, TakeTurn, TurnEnded
from autofuse.job.settings import JobSettings, WorkerSpec
from autofuse.job.timetable import HOUR_S, OPEN_SESSIONS
from autofuse.measure.children.child import Handlers, serve
from autofuse.measure.children.messages import Done
from autofuse.measure.children.process import own_memory
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import Progress, SearchRequest
from autofuse.search.schedules.prospects import Prospect, expected_saving
from autofuse.values.arguments import file_title, micros
from autofuse.values.ratios import expected_ratio

if TYPE_CHECKING:
    from autofuse.search.session import SearchSession

NOTE_EVERY_S = 2.0
LOCKS = "autofuse.values.locks"
"""The logger that tells of waits."""
OBSERVED, MOST_TRUSTED = 0.5, 4.0
"""Weight of what the last slice did save, against its forecast; a lucky slice counts as this much luck at most."""


class _Waiting(logging.Handler):
    """Hands on what a wait for another process says."""

    def __init__(self, told: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told(record.getMessage().removeprefix("autofuse: "))


class Searcher:
    """Open searches by model and device; answers one request at a time."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str], tuple[ExitStack, SearchSession]] = OrderedDict()
        self._base: ProfilingDatabase | None = None
        self._settings, self._spec = JobSettings(None), WorkerSpec("", "local")
        self._stop, self._pulse, self._worker = Path(), Path(), 0
        self._noted, self._before = 0.0, 0
        self._title = self._opener_name = ""
        self._waiting = _Waiting(self.waits)

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {StartSearcher: self.start, TakeTurn: self.take_turn, CloseSearches: self.close}

    def start(self, request: StartSearcher) -> Done:
        """Open the database, and import what opens a search."""
        self._settings, self._spec, self._opener_name = request.settings, request.spec, request.opener
        self._base = open_database(request.database)
        self._stop, self._pulse, self._worker = request.stop, request.pulse, request.worker
        self._opener()
        logging.getLogger(LOCKS).addHandler(self._waiting)
        return Done()

    def waits(self, text: str) -> None:
        """Tell the status what the search waits for: it is not hung."""
        with suppress(OSError):  # the job may have ended, and its folder with it: the wait itself goes on
            self._pulse.touch()
        self._note(text)

    def close(self, _request: CloseSearches) -> Done:
        """End all searches cleanly."""
        logging.getLogger(LOCKS).removeHandler(self._waiting)
        while self._open:
            self._close_oldest()
        return Done()

    def take_turn(self, request: TakeTurn) -> TurnEnded:
        """Search on, or measure the finalists, for about `seconds`; what that brought."""
        started = time.monotonic()
        budget = Budget.lasting(request.seconds, self._stop_asked)
        key = request.model, request.device
        self._title = file_title(Path(request.model))
        try:
            session = self._session(*key)
            before = session.counts.ok, session.counts.failed
            self._before = sum(before)
            turn = (self._confirm if request.phase == CONFIRM else self._search)(session, request, budget)
        except KeyboardInterrupt:  # while the model was opened
            return TurnEnded()
        except AutofuseError as error:
            self._forget(key, error)
            return TurnEnded(error=SearchError(type(error).__name__, str(error), error.exit_code))
        session.release()  # a device serves one client at a time: the next slice may be another model's
        self._note("")
        counts = session.counts
        progress = TaskProgress(
            spent_s=time.monotonic() - started,
            measured=counts.ok + counts.failed - sum(before),
            failed=counts.failed - before[1],
            run_id=session.run_id,
            best_us=session.best_us(),
            baseline_us=session.baseline_us(),
            reserve_s=max(0.0, session.reserve(race_s=request.race_s)() - request.race_s),
        )
        if turn.progress is not None:
            progress = replace(progress, gain=turn.progress.gain, exhausted=turn.progress.exhausted)
        return replace(turn, progress=progress, least_s=session.least_s())

    def _search(self, session: SearchSession, request: TakeTurn, budget: Budget) -> TurnEnded:
        before_us, ahead, measured = session.best_us(), session.ahead(), session.counts.measured
        started = time.monotonic()
        exhausted = session.advance(budget, request.trials)
        spent_s, new = time.monotonic() - started, session.counts.measured - measured
        after_us = session.best_us()
        saved = 1.0 - after_us / before_us if before_us and after_us else None
        gain = gain_in_an_hour(session.ahead(), ahead, new, spent_s, saved) if session.ready() else None
        return TurnEnded(TaskProgress(spent_s=spent_s, measured=new, failed=0, gain=gain, exhausted=exhausted))

    def _confirm(self, session: SearchSession, request: TakeTurn, budget: Budget) -> TurnEnded:
        if not session.ready():
            first_times = budget.keeping(session.reserve(budget.left() / 2, request.race_s))
            session.advance(first_times, trials=0)
        result = session.conclude(budget, request.race_s)
        if result is not None:
            self._open.pop((request.model, request.device))[0].close()
        return TurnEnded(result=result)

    # sessions

    def _session(self, model: str, device: str) -> SearchSession:
        key = model, device
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key][1]
        while self._open and (len(self._open) >= OPEN_SESSIONS or self._crowded()):
            self._close_oldest()
        assert self._base is not None
        settings, stack = self._settings, ExitStack()
        self._progress(None)
        place = replace(self._spec.place, database=self._base.location.text, threads=settings.threads)
        request = SearchRequest(
            seed=settings.seed, space=settings.space, exact=settings.exact, trained=settings.trained,
            given=settings.given, sizes=settings.sizes, trace=settings.trace, progress=self._progress,
            stop=self._stop_asked, alone=True,
        )  # fmt: skip
        session: SearchSession = stack.enter_context(
            self._opener()(Path(model), self._base, place, request, scheduler=settings.scheduler)
        )
        self._open[key] = stack, session
        return session

    def _opener(self) -> Callable[..., Any]:
        module, _, name = self._opener_name.partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return found

    def _crowded(self) -> bool:
        limit = self._settings.memory_bytes
        return limit is not None and own_memory(os.getpid()) > limit // 2

    def _close_oldest(self) -> None:
        _, (stack, _session) = self._open.popitem(last=False)
        stack.close()

    def _forget(self, key: tuple[str, str], error: AutofuseError) -> None:
        if key in self._open:
            stack, _session = self._open.pop(key)
            stack.__exit__(type(error), error, error.__traceback__)

    def _stop_asked(self) -> bool:
        """Whether the coordinator wants the search to stop after the candidate in flight; a sign of life, too."""
        self._pulse.touch()
        return self._stop.exists()

    def _progress(self, state: Progress | None) -> None:
        """Tells the status what is done."""
        self._pulse.touch()
        now = time.monotonic()
        if now - self._noted >= NOTE_EVERY_S or state is None:
            self._noted = now
            phase = "opening" if state is None else doing(state)
            count = 0 if state is None else state.ok + state.failed - self._before
            self._note(f"{self._title}, {phase}", count)

    def _note(self, text: str, measured: int = 0) -> None:
        """What the status shows of this worker; `measured`: in the slice under way, the others are the task's."""
        assert self._base is not None
        self._base.jobs.note(self._worker, text, measured)


def doing(state: Progress) -> str:
    """What the status of a job shows of a search: "phase 3 of 4, search of schedules, Conv 1x8; best 6.712 ms, 1.84x
    of no fusion"; the ratios are those that the sums of the groups let expect."""
    text = ", ".join(filter(None, (state.where, state.note)))
    if state.best_us is None:
        return text
    text += f"; best {micros(state.best_us)}"
    for rival_us, rival in ((state.baseline_us, "no fusion"), (state.rival_us, "ONNX Runtime")):
        if (ratio := expected_ratio(rival_us, state.best_us)) is not None:
            text += f", {ratio:.2f}x of {rival}"
    return text


def gain_in_an_hour(
    ahead: Sequence[Prospect], before: Sequence[Prospect], measured: int, spent_s: float, saved: float | None
) -> float:
    """Part of a model's time that an hour more of search is expected to save, between 0 and 1.

    `ahead`: what is left to gain now, `before`: what was before the last slice, which measured so many candidates in
    `spent_s` and did save `saved` (None: nothing to compare with). Half of the forecast is corrected by how the one for
    that slice came out.
    """
    rate = max(measured, 1) / max(spent_s, 1e-3)
    forecast = expected_saving(ahead, rate * HOUR_S)
    expected = expected_saving(before, measured)
    if saved is None or expected <= 0:
        return forecast
    return min(1.0, forecast * (1.0 - OBSERVED + OBSERVED * min(saved / expected, MOST_TRUSTED)))


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(Searcher().handlers())


if __name__ == "__main__":
    main()
