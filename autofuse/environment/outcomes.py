"""The outcomes of races of whole networks, as the profiling database keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autofuse.database.ask.times import timed_plans
from autofuse.database.ask.views import races_of
from autofuse.database.database import ProfilingDatabase
from autofuse.database.record.benchmarks import record_benchmark
from autofuse.database.records import OK, PlanOutcome, SampleBlock, Setting
from autofuse.fusion.plan import NO_LIMITS, ScheduleLimits
from autofuse.measure.networks.bench import ContenderResult
from autofuse.values.ratios import Timed

NO_TIME = "no time"


def plan_outcome(
    result: ContenderResult, name: str, series: str, plan_key: str | None, limits: ScheduleLimits = NO_LIMITS
) -> PlanOutcome:
    """A contender's time over the rounds that count with all its blocks, or its failure.

    A block is flagged when its threads waited for a core; its clock stands beside it.
    """
    own = PlanOutcome(
        state="run_error", failure=NO_TIME, name=name, series=series, plan_key=plan_key, limits=limits.to_json()
    )
    if result.timed is None or result.samples is None:
        failure = result.wrong or result.error or NO_TIME
        state = "wrong" if result.wrong else "run_error"
        return replace(own, state=state, failure=failure)
    us = result.timed.us
    blocks = tuple(SampleBlock((part.us,), part.clock, not part.steady) for part in result.samples.slices)
    return replace(
        own, state=OK, failure=None, median_us=us.median, ci_lo_us=us.lo, ci_hi_us=us.hi,
        trusted=result.timed.trusted, max_rel_error=result.max_rel_error, blocks=blocks,
    )  # fmt: skip


def record_race(base: ProfilingDatabase, setting: Setting, key: str, results: Mapping[str, ContenderResult]) -> None:
    """Keep the times of a race of whole models under a key of what was raced; `setting`: one of this database."""
    series = uuid.uuid4().hex
    outcomes = [plan_outcome(result, name, series, None) for name, result in results.items()]
    with base.writing() as sql:
        record_benchmark(sql, setting, key, outcomes)


def newest_race(base: ProfilingDatabase, setting: Setting, key: str) -> dict[str, Timed]:
    """The times of the contenders, by name, in the newest race that was kept under a key in this setting."""
    here = _races_here(base, setting, key)
    newest = [row for row in here if row["series"] == here[-1]["series"]]
    times = timed_plans(newest)
    numbers = {row["name"]: row["plan_measurement_id"] for row in newest}
    return {name: times[number] for name, number in numbers.items() if number in times}


def newest_median_us(base: ProfilingDatabase, setting: Setting, graph_key: str, name: str) -> float | None:
    """The newest time that a contender took for a graph in this setting; None where it was never measured."""
    rows = _races_here(base, setting, graph_key)
    found = [row["median_us"] for row in rows if (row["name"], row["state"]) == (name, OK)]
    return float(found[-1]) if found else None


def _races_here(base: ProfilingDatabase, setting: Setting, key: str) -> list[dict[str, Any]]:
    """The contenders of all races that were kept under a key in this setting, in the order of their recording."""
    wanted = setting.device, setting.target, setting.threads
    with base.reading() as sql:
        rows = races_of(sql, key)
    return [row for row in rows if (row["device_fingerprint"], row["target_key"], row["threads"]) == wanted]
