"""Samples of a contender that was timed in seven rounds, the same noise for everybody."""

from __future__ import annotations

from autofuse.measure.measurement import Slice
from autofuse.measure.timing.race import Samples
from autofuse.values.statistics import median_interval

ROUNDS = 7


def samples(us: float, trusted: bool = True) -> Samples:
    """Rounds around `us`."""
    times = [us * (1 + 0.001 * number) for number in range(ROUNDS)]
    slices = tuple(Slice(time, 3, 1.0, 0.0, True) for time in times)
    return Samples(slices, tuple(range(ROUNDS)), median_interval(times), trusted, "" if trusted else "noise")
