"""A job tunes models in parts beside others: a session a segment, then whole models are raced."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autofuse
from autofuse.parted.in_time import UNSURE
from autofuse.parted.session import PartsSession
from autofuse.parted.together import race_seconds
from autofuse.search.budget.budget import Budget
from autofuse.search.progress import TuneResult
from autofuse.search.schedules.evidence import Counts
from autofuse.search.schedules.prospects import Prospect
from autofuse.values.names import ONNX_RUNTIME
from tests.segments.models import model_of, normal, written

TOLD = TuneResult("m", "", 0, "", "", 1, "", 0.0, 0, 0, 0, 0, "", "", 0, warning="not raced")


@dataclass
class Segment:
    """The part of `ModelSession` that a job uses: notes what it is asked."""

    run_id: int
    us: float | None = None
    counts: Counts = field(default_factory=Counts)
    share: float = 1.0
    asked: list[tuple[float, int | None]] = field(default_factory=list)
    released: int = 0
    stopped: bool = False
    told: TuneResult | None = None
    concluded: list[float] = field(default_factory=list)

    def advance(self, budget: Budget, trials: int | None = None) -> bool:
        self.asked.append((budget.left(), trials))
        self.counts.ok += trials or 1
        return self.share == 0

    def ready(self) -> bool:
        return self.us is not None

    def best_us(self) -> float | None:
        return self.us

    def baseline_us(self) -> float | None:
        return None if self.us is None else 2 * self.us

    def ahead(self) -> tuple[Prospect, ...]:
        return (Prospect(self.share, 3, 5),) if self.share else ()

    def reserve(self, _allowed_s: float, race_s: float | None) -> Callable[[], float]:
        return lambda: 1.0 + (race_s or 0.0)

    def least_s(self) -> float:
        return 3.0

    def compile_s(self) -> float:
        return 5.0

    def release(self) -> None:
        self.released += 1

    def conclude(self, budget: Budget, _race_s: float | None) -> Any:
        self.concluded.append(budget.left())
        return None if self.stopped or budget.stopped() else self.told or SimpleNamespace()


def session_of(*segments: Segment, work_us: tuple[float, ...]) -> PartsSession:
    told: Any = lambda results, race_s: (results, race_s)  # noqa: E731
    return PartsSession(segments, work_us, told)


def test_segments_share_a_turn_by_their_work_until_all_have_a_time() -> None:
    first, second = Segment(1), Segment(2)
    session = session_of(first, second, work_us=(300.0, 100.0))
    assert not session.ready() and session.best_us() is None and session.run_id == 1
    assert not session.advance(Budget.lasting(80.0), 8)
    assert first.asked[0] == (pytest.approx(60.0, abs=0.5), 6)
    assert second.asked[0] == (pytest.approx(80.0, abs=0.5), 2)  # nobody comes after it: all that is left
    assert (first.released, second.released, session.counts.measured) == (1, 1, 8)


def test_then_they_share_it_by_what_may_still_be_gained() -> None:
    first, second = Segment(1, us=300.0, share=0.0), Segment(2, us=100.0, share=0.5)
    session = session_of(first, second, work_us=(300.0, 100.0))
    assert (session.best_us(), session.baseline_us()) == (400.0, 800.0)
    assert session.ahead() == (Prospect(0.125, 3, 5),)
    assert not session.advance(Budget.lasting(None))
    assert first.asked[0][0] == math.inf
    session.advance(Budget.lasting(80.0))
    assert first.asked[1][0] < 1.0
    second.share = 0.0
    assert session.advance(Budget.lasting(1.0))
    assert session.reserve(race_s=10.0)() == 2 * (11.0 + UNSURE * 5.0) + 10.0
    assert session.least_s() == 2 * (3.0 + UNSURE * 5.0) + race_seconds(None)


def test_whole_models_race_where_there_is_time() -> None:
    results = (TOLD, TOLD)
    session = session_of(Segment(1, us=1.0, told=TOLD), Segment(2, us=1.0, told=TOLD), work_us=(1.0, 1.0))
    assert session.conclude(Budget(), 10.0) == ([*results], 10.0)
    assert session.conclude(Budget.lasting(1.0), 10.0) == ([*results], None), "compiling takes longer"
    first = session.sessions[0]
    assert session.conclude(Budget.lasting(100.0), 10.0) is not None
    assert first.concluded == pytest.approx([float("inf"), 0.5, 100.0 - 2 * UNSURE * 5.0 - 10.0], abs=0.3)  # type: ignore[attr-defined]


def test_a_stop_leaves_no_result() -> None:
    first, second = Segment(1, us=1.0), Segment(2, us=1.0, stopped=True)
    assert session_of(first, second, work_us=(1.0, 1.0)).conclude(Budget.lasting(None), 1.0) is None
    assert first.released == second.released == 1


@pytest.mark.long
@pytest.mark.slow
def test_a_job_tunes_a_model_in_parts_beside_another(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    halves = model_of(
        "net (float[64,1024] x) => (float[64,1024] y, int64[2,n] h) { a = MatMul (x, w) y = Relu (a) h = NonZero (y) }",
        w=normal(1024, 1024),
    )
    whole = model_of("net (float[4,8] x) => (float[4,8] y) { a = Relu (x) y = Exp (a) }")
    paths = [written(halves, tmp_path), written(whole, tmp_path / "whole")]
    database = str(tmp_path / "times.db")
    outcome = autofuse.tune_all(paths, database=database, budget=600, trials=6, threads=1, run="both")
    assert outcome.complete, outcome
    parts, other = outcome.tasks
    assert parts.state == other.state == "done"
    assert parts.chosen in ("segments", ONNX_RUNTIME) and parts.median_us is not None and parts.measured >= 1
    assert "raced whole: " in parts.warning
    report = autofuse.compile(paths[0], database=database, threads=1, dry_run=True)
    assert (len(report.parts) == 2) == (parts.chosen == "segments")
