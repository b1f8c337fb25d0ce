"""A sentinel candidate, measured again and again: it tells when the device has become slower than it was.

Each timing already holds its blocks against the clock. The sentinel sees what that does not: heat that builds up over
minutes, memory that a neighbour uses, a governor that changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from autofuse.measure.measurement import Measurement, MeasureRequest
from autofuse.measure.runner import Runner
from autofuse.search.schedules.schedule_search import Schedule, WorkloadSearch

EVERY, LEAST_S = 40, 60.0
"""Candidates, and seconds, between two measurements of the sentinel at least."""
DRIFT = 1.05
"""The device is disturbed when the sentinel takes more than this part of its best time."""
RESTS = 4
"""Rests, each twice as long as the one before, after which a device that stays slow is taken as it is."""
SHORTEST_US, LONGEST_US = 20.0, 20_000.0
"""A sentinel is neither so short that it sees little, nor so long that it costs much."""


@dataclass(frozen=True)
class Noted:
    """A measured candidate that the next sentinel may cast doubt on; `uid`: of its measurement."""

    search: WorkloadSearch
    schedule: Schedule
    uid: str
    us: float


@dataclass(frozen=True)
class Finding:
    """A finding of the sentinel. `ratio`: its time over its best; `recovered`: after a rest, if one was needed.

    `doubted`: what was measured since it was last well.
    """

    ratio: float
    recovered: bool
    doubted: tuple[Noted, ...] = ()

    @property
    def reason(self) -> str:
        """Why the candidates are doubted."""
        return f"the sentinel beside it took {self.ratio:.2f} times its best time"


@dataclass
class DriftSentinel:
    """The drift sentinel of one runner. `rest_s`: first rest of a disturbed device, in seconds.

    `checks`, `worst`: how often the sentinel was measured, and its worst ratio; `distrusted`: candidates doubted.
    """

    runner: Runner
    rest_s: float
    clock: Callable[[], float] = time.monotonic
    checks: int = 0
    worst: float = 1.0
    distrusted: int = 0
    _sentinel: MeasureRequest | None = None
    _best_us: float = 0.0
    _since: list[Noted] = field(default_factory=list)
    _last: float | None = None

    def note(self, request: MeasureRequest, measurement: Measurement, noted: Noted) -> None:
        """Takes in a measured candidate; the first fit one becomes the sentinel."""
        if self._last is None:
            self._last = self.clock()
        timing = measurement.timing
        if timing is None or not timing.trusted:
            return
        self._since.append(noted)
        if self._sentinel is None and SHORTEST_US <= timing.us.median <= LONGEST_US:
            self._sentinel = replace(request, best_us=None, undisturbed=True)
            self._best_us = timing.us.median

    @property
    def due(self) -> bool:
        """Whether it is time to measure the sentinel."""
        waited = self._last is not None and self.clock() - self._last >= LEAST_S
        return self._sentinel is not None and waited and len(self._since) >= EVERY

    def inspect(self, rest: Callable[[float], None] = time.sleep) -> Finding:
        """Measure the sentinel; a device that is slower than it was rests, and what was measured since is doubted.

        `rest`: waits for so many seconds.

        A device that stays slow through all rests is taken as it is from now on.
        """
        first = self._ratio()
        ratio, rest_s = first, self.rest_s
        for _ in range(RESTS):
            if ratio is not None and ratio <= DRIFT:
                break
            rest(rest_s)
            rest_s *= 2
            ratio = self._ratio()
        else:
            if ratio is not None:
                self._best_us *= ratio
        doubted = () if first is not None and first <= DRIFT else tuple(self._since)
        self._since.clear()
        self._last = self.clock()
        self.distrusted += len(doubted)
        return Finding(first or float("inf"), ratio is not None and ratio <= DRIFT, doubted)

    def summary(self) -> dict[str, float]:
        """What it saw, for the run's record."""
        return {"checks": self.checks, "worst_ratio": self.worst, "distrusted": self.distrusted}

    def _ratio(self) -> float | None:
        """The sentinel's time over its best; None when it failed."""
        assert self._sentinel is not None
        self.checks += 1
        (found,) = self.runner.measure([self._sentinel])
        if found.timing is None:
            return None
        ratio = found.timing.us.median / self._best_us
        self.worst = max(self.worst, ratio)
        if found.timing.trusted and ratio < 1.0:
            self._best_us = found.timing.us.median
        return ratio


def worth_again(doubted: Sequence[Noted], slower: float, most: int) -> list[Noted]:
    """The doubted candidates that may be the best of their workload: the best itself, or what a device slower by
    `slower` times may have kept from being it; the nearest to it first."""
    near: list[tuple[float, int, Noted]] = []
    for noted in doubted:
        best_us = noted.search.best_us
        if best_us is not None and noted.us / max(slower, 1.0) <= best_us:
            near.append((noted.us / best_us, len(near), noted))
    return [noted for _, _, noted in sorted(near, key=lambda item: item[:2])[:most]]
