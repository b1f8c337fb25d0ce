"""What a race of whole networks came to, as the profiling database keeps it."""

from __future__ import annotations

from autofuse.database.records import Block, PlanOutcome
from autofuse.measure.networks.bench import ContenderResult


def plan_outcome(result: ContenderResult, name: str, series: str, plan_key: str | None) -> PlanOutcome:
    """A contender's time over the rounds that count with all its blocks, or its failure."""
    if result.timed is None or result.samples is None:
        failure = result.wrong or result.error or "no time"
        state = "wrong" if result.wrong else "run_error"
        return PlanOutcome(state=state, failure=failure, name=name, series=series, plan_key=plan_key)
    us = result.timed.us
    blocks = tuple(Block((part.us,), part.clock, not part.good) for part in result.samples.slices)
    return PlanOutcome(
        state="ok", median_us=us.median, ci_lo_us=us.lo, ci_hi_us=us.hi, trusted=result.timed.trusted,
        max_rel_error=result.max_rel_error, blocks=blocks, name=name, series=series, plan_key=plan_key,
    )  # fmt: skip
