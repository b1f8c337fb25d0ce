"""Is the core at full clock and ours alone: a probe loop held against what it reaches, and time spent waiting."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autofuse.values.ratios import FULL_CLOCK

FLUKES = 3
"""Full clock begins as the third best probe, so that two lucky ones cannot make all others look slow."""
REACHED, STEP = 0.1, 1e-4
"""From then on it is what one probe in ten reaches, learned in relative steps: a core that was 10 % faster is believed
after 1,100 probes (seconds of tuning), one that stays 10 % slower after 10,000 (a minute). The best of all would be a
boost of a moment: on a shared Emerald Rapids 8 % above what the core does all night, and most times were disturbed."""

PROBE_STEPS = 200_000
"""Steps of the multiply-add loop: 0.35-0.5 ms on cores of 2.5 to 3.5 GHz with two FMA pipes."""

CALIBRATION_PROBES = 60


class Clock:
    """Speed of the cores, as a part of what they reach in this session.

    `probe` runs the loop once and returns its wall seconds.
    """

    def __init__(self, probe: Callable[[], float]) -> None:
        self._probe = probe
        self._first: list[float] = []
        self._full_s = 0.0

    @property
    def full_s(self) -> float:
        """Seconds of a probe at full clock; 0 before the first probe."""
        return self._full_s

    def inherit(self, full_s: float) -> None:
        """Take over what another process of the session knows of full clock (0: nothing), in place of learning it."""
        self._full_s = full_s or self._full_s

    def _learn(self, seconds: float) -> None:
        if self._full_s and not self._first:
            if seconds != self._full_s:
                faster = seconds < self._full_s
                self._full_s *= 1.0 - STEP * (1.0 - REACHED) if faster else 1.0 + STEP * REACHED
            return
        self._first = sorted((*self._first, seconds))[:FLUKES]
        self._full_s = self._first[-1]

    def calibrate(self, probes: int = CALIBRATION_PROBES) -> None:
        """Run `probes` probes to begin with what full clock is."""
        self._first, self._full_s = [], 0.0
        for _ in range(probes):
            self._learn(self._probe())
        self._first = []

    def ratio(self) -> float:
        """Speed now: 1 at full clock, less when slower or disturbed."""
        seconds = self._probe()
        self._learn(seconds)
        return min(1.0, self._full_s / seconds)

    def settle(self, patience: int, floor: float = FULL_CLOCK) -> float:
        """Probe until full clock shows, `patience` probes at most; the last ratio."""
        ratio = self.ratio()
        for _ in range(patience - 1):
            if ratio >= floor:
                break
            ratio = self.ratio()
        return ratio


_LISTENING: set[int] = set()
"""Threads of this process that compute nothing."""


def listening() -> None:
    """Says that the calling thread computes nothing from now on: it hears what others say, and may wait for a core
    while they compute on it."""
    _LISTENING.add(threading.get_native_id())


def waited_ns() -> int:
    """Nanoseconds that threads of this process which compute have been ready but not running, since they started.

    Linux counts it per thread (`schedstat`: run delay). Elsewhere: wall time minus this thread's CPU time,
    which only differences of calls within a busy stretch give meaning to.
    """
    if sys.platform == "linux":
        try:
            tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) not in _LISTENING]
            return sum(int((task / "schedstat").read_text().split()[1]) for task in tasks)
        except (OSError, ValueError, IndexError):
            pass
    return time.perf_counter_ns() - time.thread_time_ns()


@contextmanager
def pin_main_thread() -> Iterator[int | None]:
    """Pin the calling thread, for a while, to a core that no other thread of the process is pinned to.

    TVM pins its own workers but leaves the main thread to roam, so both can share a core. Enter after
    the pool has started, because new threads inherit the affinity. Yields the core; None where the system
    cannot pin.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield None
        return
    allowed = os.sched_getaffinity(0)
    core = min(allowed - _cores_of_other_threads() or allowed)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, allowed)


def _cores_of_other_threads() -> set[int]:
    own, taken = threading.get_native_id(), set()
    try:
        tasks = [int(task.name) for task in Path("/proc/self/task").iterdir()]
    except OSError:
        return set()
    for task in tasks:
        try:
            cores = os.sched_getaffinity(task)
        except OSError:
            continue
        if task != own and len(cores) == 1:
            taken |= cores
    return taken
