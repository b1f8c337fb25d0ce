"""The messages of a search about itself: where it is, what it has, when it will end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.search.budget.budget import now
from autofuse.search.progress import Progress
from autofuse.search.standing.standing import Standing


@dataclass(frozen=True)
class Teller:
    """A teller that shows the state of a search to `watch`, called with a word on the thing at hand.

    `started`: on the budget's clock. `finale_s`: seconds that building and measuring the finalists will take.
    `rival_us`: ONNX Runtime's time of the whole model here, if it was ever measured.
    """

    standing: Standing
    watch: Callable[[Progress], None]
    started: float
    budget_s: float | None
    trials: int | None
    finale_s: Callable[[], float]
    rival_us: float | None = None

    def __call__(self, note: str) -> None:
        """Tells the state, with a note."""
        standing, evidence = self.standing, self.standing.evidence
        counts, best_us, firsts = evidence.counts, standing.best_us(), standing.firsts
        done = counts.measured
        if self.trials is None:
            done = sum(len(search.tried) for search in evidence.searches.values())
        part = (sum(search.best_us is not None for search in firsts), len(firsts)) if firsts else standing.built
        baseline_us = standing.baseline_us() if best_us is not None else None
        self.watch(
            Progress(
                standing.phase, note, self._elapsed_s(), self.budget_s, done, self.trials, counts.ok, counts.failed,
                counts.hits, best_us, baseline_us, self.rival_us, part, self._left_s(), standing.asking,
            )
        )  # fmt: skip

    def _elapsed_s(self) -> float:
        return now() - self.started

    def _left_s(self) -> float | None:
        if self.standing.ends_at is not None:
            return max(0.0, self.standing.ends_at - now())
        elapsed_s, measured = self._elapsed_s(), self.standing.evidence.counts.measured
        if self.budget_s is None and self.trials is None:
            return None
        return until_the_end(
            None if self.budget_s is None else self.budget_s - elapsed_s,
            None if self.trials is None else self.trials - measured,
            self.finale_s(),
            elapsed_s / max(1, measured),
        )


def until_the_end(left_s: float | None, trials: int | None, finals_s: float, each_s: float) -> float | None:
    """Seconds until a search has measured its finalists; None where it has no end.

    `left_s` of its budget and `trials` left of its candidates (None: no such limit); `finals_s`: to build and measure
    the finalists; `each_s`: seconds that a candidate takes.
    """
    ends = [left_s - finals_s] if left_s is not None else []
    ends += [trials * each_s] if trials is not None else []
    return max(0.0, min(ends)) + finals_s if ends else None
