"""The end of a search of a model in parts is kept: how long compiling and racing whole models will take, and what the
segments get of the time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.parted.together import race_seconds
from autofuse.search.budget.budget import Budget, now
from autofuse.search.budget.time_budget import CHECK_S, FINALE_SHARE, KERNEL_S, LINK_S
from autofuse.search.progress import TuneResult
from autofuse.segments.choice import Piece

RACE_PART = 0.1
"""Part of the budget that the race of whole models takes."""
LATE, LATE_S = 0.1, 10.0
"""Whole models are raced as long as that ends so much of the budget, and so many seconds, after it at the latest."""
LEAST_SEGMENT_S = 5.0
"""A segment that is searched gets so many seconds at least, on a machine that has nothing else to do: those of less
work are left out where there are too few."""
KERNEL_OPERATORS = 3
"""Operators of a kernel, as long as nothing is planned."""
CHECKS = 5
"""Processes that check whole models in ONNX Runtime, or run them, before their race."""
UNSURE = 1.2
"""Compiling is expected to take so many times as long as the kernels of the search took."""
Searched = tuple[Piece, TuneResult]
"""A segment that was searched, and what it came to."""


@dataclass(frozen=True)
class Ending:
    """The end of a search of a model in parts. `budget_s`: of all (None: without an end), begun at `since` (of the
    budget's clock). `crowding`: how many times as long as alone a step takes here."""

    pieces: Sequence[Piece]
    budget_s: float | None
    since: float
    crowding: float = 1.0

    @property
    def race_s(self) -> float:
        """Seconds of timing whole models, as the budget means it."""
        return race_seconds(None if self.budget_s is None else RACE_PART * self.budget_s)

    def whole_s(self, searched: Sequence[Searched]) -> float:
        """Seconds of compiling and checking whole models, as far as is known from the segments that were searched."""
        operators = sum(len(piece.nodes) for piece in self.pieces)
        known_s = sum(result.compile_s for _, result in searched)
        known = sum(len(piece.nodes) for piece, result in searched if result.compile_s)
        guess_s = KERNEL_S * self.crowding / KERNEL_OPERATORS * max(0, operators - known)
        kernels_s = known_s * operators / known if known else guess_s
        return UNSURE * kernels_s + (LINK_S + CHECKS * CHECK_S) * self.crowding

    def kept_s(self, searched: Sequence[Searched]) -> float:
        """Seconds kept for whole models: those that they need, half of the budget at most; none where that is too
        little even for a late race, for they are not raced then."""
        needed_s = self.race_s + self.whole_s(searched)
        if self.budget_s is None:
            return needed_s
        most_s = FINALE_SHARE * self.budget_s
        return min(needed_s, most_s) if needed_s <= most_s + LATE * self.budget_s + LATE_S else 0.0

    def searching(self, searched: Sequence[Searched]) -> float:
        """Seconds left for searching segments."""
        return math.inf if self.budget_s is None else self.since + self.budget_s - self.kept_s(searched) - now()

    def segment_s(self, left: Sequence[Piece], searched: Sequence[Searched]) -> float | None:
        """Seconds for the first of the segments that are `left`; 0 where there is no time for it, None where there is
        no end. The very first is searched in any case."""
        seconds = self.searching(searched)
        if math.isinf(seconds):
            return None
        if seconds <= 0:
            return 0.0 if searched else 1.0
        work = [max(piece.work_us, 1.0) for piece in left]
        return max(1.0, min(seconds, max(seconds * work[0] / sum(work), LEAST_SEGMENT_S * self.crowding)))

    def race(self, searched: Sequence[Searched]) -> Budget | None:
        """The time in which whole models are compiled and raced; None where that would end too late."""
        if self.budget_s is None:
            return Budget()
        latest = Budget(self.since + (1.0 + LATE) * self.budget_s + LATE_S)
        return latest if latest.left() >= self.whole_s(searched) + race_seconds(None) else None
