"""What a search tells of itself: where it is, what it has, when it will end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from autofuse.search.progress import Progress
from autofuse.search.shares import finals_seconds

if TYPE_CHECKING:
    from autofuse.search.session import ModelSession


def state_of(session: ModelSession, note: str) -> Progress:
    """The state of a search, as `Progress` has it; `note`: the thing at hand."""
    counts, best_us = session.bench.counts, session.best_us()
    done = counts.measured
    if session.trials is None:
        done = sum(len(search.tried) for search in session.bench.searches.values())
    firsts = session.firsts
    return Progress(
        session.phase, note, session.elapsed_s(), session.budget_s, done, session.trials, counts.ok, counts.failed,
        counts.hits, best_us, session.baseline_us() if best_us is not None else None, session.rival_us,
        (sum(search.best_us is not None for search in firsts), len(firsts)) if firsts else None, _left_s(session),
    )  # fmt: skip


def _left_s(session: ModelSession) -> float | None:
    if session.ends_at is not None:
        return max(0.0, session.ends_at - time.monotonic())
    elapsed_s, measured = session.elapsed_s(), session.bench.counts.measured
    return until_the_end(
        None if session.budget_s is None else session.budget_s - elapsed_s,
        None if session.trials is None else session.trials - measured,
        session.builds_s() + finals_seconds(session.budget_s),
        sum(search.best_us is None for search in session.firsts) if session.phase == "baselines" else 0,
        elapsed_s / max(1, measured),
    )


def until_the_end(
    left_s: float | None, trials: int | None, finals_s: float, firsts: int, each_s: float
) -> float | None:
    """Seconds until a search has measured its finalists; None where it has no end.

    `left_s` of its budget and `trials` left of its candidates (None: no such limit); `finals_s`: to build and measure
    the finalists; `firsts`: candidates that are measured whatever they take; `each_s`: seconds that one takes.
    """
    ends = [left_s - finals_s] if left_s is not None else []
    ends += [trials * each_s] if trials is not None else []
    return max(0.0, firsts * each_s, min(ends)) + finals_s if ends else None
