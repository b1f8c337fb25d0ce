"""Searches that follow a script in place of a model: what a job does when they take long, crash, hang or refuse.

A "model" is a JSON file: {"behaviour": ..., "headroom": part of its time that each candidate saves, ...}.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autofuse import errors
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import ChoiceDecision, PlanTime, Progress, SearchRequest, TuneResult
from autofuse.search.schedules.prospects import Prospect

CANDIDATE_S = 0.02


@dataclass
class ScriptedSession:
    """The part of `ModelSession` that a search process uses."""

    model: Path
    script: dict[str, Any]
    progress: Callable[[Progress], None]
    us: float = 1000.0
    state: str = "interrupted"
    counts: Any = field(default_factory=lambda: Counts())
    run_id: None = None

    def advance(self, budget: Budget, trials: int | None = None) -> bool:
        """Measures until the budget, the trials or the script's candidates are used up."""
        misbehave(self.script)
        counts, limit = self.counts, None if trials is None else self.counts.measured + trials
        while (budget.left() or not counts.ok) and not (limit is not None and counts.measured >= limit):
            if self.known() >= self.script.get("candidates", 1000):
                return True
            time.sleep(CANDIDATE_S)
            self.us *= 1.0 - self.script.get("headroom", 0.01)
            counts.ok += 1
            with (self.model.parent / f"measured-{self.model.stem}").open("a") as file:
                file.write(f"{self.model.stem} {self.known() + 1}\n")
            self.progress(Progress("schedules", "conv", 1.0, None, counts.ok, None, counts.ok, 0, 0, self.us, 1000.0))
            if budget.stopped():
                return False
        return False

    def release(self) -> None:
        with (self.model.parent / "released").open("a") as file:
            file.write(f"{self.model.stem}\n")

    def known(self) -> int:
        """Candidates that were ever measured: what a real search learns from the database."""
        path = self.model.parent / f"measured-{self.model.stem}"
        return path.read_text().count("\n") if path.exists() else 0

    def ready(self) -> bool:
        return self.known() > 0

    def best_us(self) -> float | None:
        return self.us if self.ready() else None

    def baseline_us(self) -> float | None:
        return 1000.0

    def reserve(self, _allowed_s: float = 0.0, race_s: float = 0.0) -> Callable[[], float]:
        return lambda: race_s + float(self.script.get("finale_s", 0.1))

    def least_s(self) -> float:
        return float(self.script.get("finale_s", 0.1))

    def ahead(self) -> tuple[Prospect, ...]:
        return (Prospect(self.script.get("headroom", 0.01) * 100, 1 + self.counts.ok, 1000),)

    def conclude(self, budget: Budget, race_s: float | None = None) -> TuneResult | None:
        if budget.stopped():
            return None
        misbehave(self.script, "confirm_")
        slower = self.script.get("slower", False)
        untrusted = tuple(self.script.get("untrusted", ()))
        verdict = self.script.get("verdict")
        decision = ChoiceDecision("default", verdict, verdict != "undecided") if verdict else None
        plans = {
            "default": PlanTime(3, 1000.0, 1000.0, 1.1, 1.0, 1.2, True, 1e-7),
            "search": PlanTime(2, self.us, 2000.0 if slower else self.us, 1.5, 1.4, 1.6, True, 1e-7),
        }
        return TuneResult(
            self.model.stem, "run", 1, "db", "local", 1, "finished", 1.0, 1, 0, 0, 1, "search", "key", 2, plans,
            untrusted=untrusted, decision=decision,
        )  # fmt: skip


@dataclass
class Counts:
    """As `autofuse.search.schedules.evidence.Counts`."""

    ok: int = 0
    failed: int = 0

    @property
    def measured(self) -> int:
        return self.ok + self.failed


def misbehave(script: dict[str, Any], when: str = "") -> None:
    """What the script says happens now: once where it names a "mark" to leave, as long as the file "while" is there."""
    kind = script.get(f"{when}behaviour")
    if kind is None or ("while" in script and not Path(script["while"]).exists()):
        return
    mark = Path(script["mark"]) if "mark" in script else None
    if mark is not None:
        if mark.exists():
            return
        mark.touch()
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "hang":
        time.sleep(3600)
    elif kind == "grow":
        kept = []
        while True:
            kept.append(bytearray(1 << 26))
    else:
        raise getattr(errors, kind)(f"{kind} on purpose")


@contextmanager
def open_scripted(
    model: Path, _base: object, _place: object, request: SearchRequest, **_rest: object
) -> Iterator[ScriptedSession]:
    """See `autofuse.search.tune.open_session`."""
    script = json.loads(model.read_text())
    misbehave(script, "open_")
    yield ScriptedSession(model, script, request.progress)
