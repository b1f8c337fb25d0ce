"""The outcomes of races of whole networks, as the profiling database keeps them."""

from __future__ import annotations

from dataclasses import replace

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import OK, PlanOutcome, SampleBlock, Setting
from autofuse.fusion.plan import NO_LIMITS, ScheduleLimits
from autofuse.measure.networks.bench import ContenderResult

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


def newest_median_us(base: ProfilingDatabase, setting: Setting, graph_key: str, name: str) -> float | None:
    """The newest time that a contender took for a graph in this setting; None where it was never measured."""
    wanted = (name, OK, graph_key, setting.device, setting.target, setting.threads)
    columns = ("name", "state", "graph_key", "device_fingerprint", "target_key", "threads")
    rows = base.table("plan_measurements").records()
    found = [row["median_us"] for row in rows if tuple(row[column] for column in columns) == wanted]
    return float(str(found[-1])) if found else None
