"""The state of a single run, from what the database has of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from autofuse.database.ask.times import beside_no_fusion
from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import RunInfo
from autofuse.environment.worth import Waterfall, waterfall_of

WHOLE = (
    "name", "series", "state", "median_us", "ci_lo_us", "ci_hi_us", "trusted", "speedup", "speedup_lo", "speedup_hi",
    "verdict",
)  # fmt: skip
"""What is said of each plan that was measured whole."""


@dataclass(frozen=True)
class RunStatus:
    """A run: `outcomes` counts what became of its candidates, `whole_model` has a row (`WHOLE`) a measured plan.
    `waterfall`: what each decision was worth, once the run has ended."""

    run: int
    state: str
    model: str
    threads: int
    started_at: datetime
    elapsed_s: float
    budget: Mapping[str, Any]
    measured: int
    outcomes: Mapping[str, int]
    summary: Mapping[str, Any]
    whole_model: Sequence[Mapping[str, Any]]
    waterfall: Waterfall | None = None


def length_s(info: RunInfo, measured_at: Iterable[datetime]) -> float:
    """Seconds from the start of a run to its end; to the last of `measured_at` where its process was killed."""
    end = info.finished_at
    if end is None:
        end = datetime.now(UTC) if info.state == "running" else max(measured_at, default=info.started_at)
    return max(0.0, (end - info.started_at).total_seconds())


def run_status(opened: ProfilingDatabase, info: RunInfo) -> RunStatus:
    """The state of the run `info` now."""
    counts = opened.outcome_counts(info.id)
    table = opened.table("plan_measurements", info.id).records()
    dates = [row["created_at"] for row in (*opened.table("measurements", info.id).records(), *table)]
    rows = beside_no_fusion([row for row in table if row["run_id"] is not None])
    return RunStatus(
        run=info.id,
        state=info.state,
        model=info.model_name,
        threads=info.setting.threads,
        started_at=info.started_at,
        elapsed_s=length_s(info, [date for date in dates if isinstance(date, datetime)]),
        budget=dict(info.budget),
        measured=sum(counts.values()),
        outcomes=counts,
        summary=dict(info.summary or {}),
        whole_model=[{key: row[key] for key in WHOLE} for row in rows],
        waterfall=waterfall_of(info.summary),
    )
