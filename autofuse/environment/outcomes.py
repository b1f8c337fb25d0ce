"""The outcome of a race of whole networks, as the profiling database keeps it."""

from __future__ import annotations

from dataclasses import replace

from autofuse.database.records import PlanOutcome, SampleBlock
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
        own, state="ok", failure=None, median_us=us.median, ci_lo_us=us.lo, ci_hi_us=us.hi,
        trusted=result.timed.trusted, max_rel_error=result.max_rel_error, blocks=blocks,
    )  # fmt: skip
