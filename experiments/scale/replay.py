"""A device that answers after its recorded time: what a search process opens in place of a real model's search.

A "model" is a JSON file {"name": ..., "candidates": [[seconds, microseconds or 0], ...], "confirm_s": ...}. Every
answer is recorded in the profiling database, as a real one is, so that a job which is killed goes on where it was.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Candidate, CandidateOutcome, RunStart, SampleBlock, Setting, content_key
from autofuse.device.target import Target
from autofuse.environment.place import Place
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import PlanTime, Progress, SearchRequest, TuneResult
from autofuse.search.schedules.evidence import Counts
from autofuse.search.schedules.prospects import Prospect

TARGET = Target("znver4", 16, 32, 2, 32768, 1 << 20)
TICK_S = 0.05


@dataclass
class ReplaySession:
    """As `autofuse.search.session.ModelSession`, over one workload whose candidates are known beforehand."""

    model: Path
    base: ProfilingDatabase
    setting: Setting
    run_id: int
    progress: Callable[[Progress], None]
    script: Mapping[str, Any]
    state: str = "interrupted"
    counts: Counts = field(default_factory=Counts)

    @property
    def workload(self) -> str:
        return f'"{self.script["name"]}"'

    def known(self) -> dict[str, float | None]:
        """Times of the schedules that were measured, by their text."""
        stored = self.base.measured_schedules(self.setting, content_key(self.workload))
        return {one.schedule: one.median_us for one in stored}

    def advance(self, budget: Budget, trials: int | None = None) -> bool:
        limit, known = math.inf if trials is None else self.counts.measured + trials, self.known()
        for number, (took_s, us) in enumerate(self.script["candidates"]):
            schedule = f'{{"number":{number}}}'
            if schedule in known:
                continue
            if budget.spent() or self.counts.measured >= limit:
                return False
            self._answer_after(took_s, budget)
            if budget.stopped():
                return False
            self._record(schedule, us)
            known[schedule] = us or None
        return True

    def _answer_after(self, seconds: float, budget: Budget) -> None:
        """Waits; a stop is noticed meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not budget.stopped():
            time.sleep(min(left, TICK_S))
            self._tell()

    def _record(self, schedule: str, us: float) -> None:
        candidate = Candidate(content_key(self.workload), self.workload, str(self.script["name"]), schedule)
        if us:
            blocks = tuple(SampleBlock((us * (1 + 0.001 * number),)) for number in range(10))
            outcome = CandidateOutcome(
                candidate=candidate, state="ok", median_us=us, ci_lo_us=us * 0.99, ci_hi_us=us * 1.01, trusted=True,
                blocks=blocks,
            )  # fmt: skip
        else:
            outcome = CandidateOutcome(candidate=candidate, state="build_error", failure="as recorded")
        self.base.record_candidate(self.setting, outcome, self.run_id)
        self.counts.ok += bool(us)
        self.counts.failed += not us
        self._tell()

    def _tell(self) -> None:
        counts = self.counts
        self.progress(
            Progress("schedules", "replayed", 0.0, None, counts.measured, None, counts.ok, counts.failed, 0, None, None)
        )

    def release(self) -> None:
        """Nothing is held."""

    def ready(self) -> bool:
        return any(us is not None for us in self.known().values())

    def best_us(self) -> float | None:
        return min((us for us in self.known().values() if us is not None), default=None)

    def baseline_us(self) -> float | None:
        return next((us for us in self.known().values() if us is not None), None)

    def reserve(self, _allowed_s: float = 0.0, race_s: float = 0.0) -> Callable[[], float]:
        return lambda: race_s + 0.0

    def ahead(self) -> tuple[Prospect, ...]:
        known = len(self.known())
        return (Prospect(1.0, known, len(self.script["candidates"]) - known),)

    def conclude(self, budget: Budget, _race_s: float | None = None) -> TuneResult | None:
        self._answer_after(float(self.script["confirm_s"]), budget)
        if budget.stopped():
            return None
        times = self.known()
        best = min((us, text) for text, us in times.items() if us is not None)
        plan = PlanTime(1, best[0], best[0], 1.0, 1.0, 1.0, True, 0.0)
        self.state = "finished"
        return TuneResult(
            str(self.script["name"]), "replay", self.run_id, "", "replay", 1, "finished", 0.0, len(times), 0, 0,
            0, best[1], content_key(best[1]), 1, {best[1]: plan},
        )  # fmt: skip


@contextmanager
def open_session(
    model: Path,
    base: ProfilingDatabase,
    place: Place,
    request: SearchRequest,
    **_rest: object,
) -> Iterator[ReplaySession]:
    """See `autofuse.search.tune.open_session`."""
    script = json.loads(model.read_text(encoding="utf-8"))
    name = place.find(measuring=True).profile.name
    setting = base.setting(
        fingerprint=content_key(name), device_name=name, device_facts={}, target=TARGET,
        threads=1, versions={"replay": "1"},
    )  # fmt: skip
    base.release_dead()
    start = RunStart(
        name=str(script["name"]), model_name=str(script["name"]), model_sha256=content_key(model.read_text()),
        graph_key=content_key(str(script["name"])), seed=0,
    )  # fmt: skip
    old = base.interrupted_run(setting, start.model_sha256)
    if old is not None:
        base.resume_run(old.id)
    run_id = old.id if old is not None else base.start_run(setting, start)
    session = ReplaySession(model, base, setting, run_id, request.progress, script)
    try:
        yield session
    finally:
        base.finish_run(run_id, session.state)
