"""Is the core at full clock and ours alone: a probe loop held against its best, and time spent waiting."""

from __future__ import annotations

import heapq
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from autofuse.values.ratios import FULL_CLOCK

FLUKES = 3
"""The reference is the third best probe, so that two lucky ones cannot make all others look slow."""

PROBE_STEPS = 200_000
"""Steps of the multiply-add loop: 0.35-0.5 ms on cores of 2.5 to 3.5 GHz with two FMA pipes."""

CALIBRATION_PROBES = 60


class Clock:
    """Speed of the cores, as the part of the best that this session has seen.

    `probe` runs the loop once and returns its wall seconds. `best_s`: probes that earlier processes of
    the session found best, so that a new process inherits what full clock is.
    """

    def __init__(self, probe: Callable[[], float], best_s: tuple[float, ...] = ()) -> None:
        self._probe = probe
        self._best = [-seconds for seconds in best_s]
        heapq.heapify(self._best)

    @property
    def best_s(self) -> tuple[float, ...]:
        """The best probes so far, ascending, at most `FLUKES` of them."""
        return tuple(sorted(-seconds for seconds in self._best))

    @property
    def reference_s(self) -> float:
        """Seconds of a probe at full clock; 0 before the first probe."""
        return -self._best[0] if self._best else 0.0

    def inherit(self, best_s: tuple[float, ...]) -> None:
        """Take over probes that another process found best."""
        known = set(self.best_s)
        for seconds in best_s:
            if seconds not in known:  # else it came from here, and must not count twice
                self._note(seconds)

    def _note(self, seconds: float) -> None:
        if len(self._best) < FLUKES:
            heapq.heappush(self._best, -seconds)
        else:
            heapq.heappushpop(self._best, -seconds)

    def calibrate(self, probes: int = CALIBRATION_PROBES) -> None:
        """Run `probes` probes to learn what full clock is."""
        for _ in range(probes):
            self.ratio()

    def ratio(self) -> float:
        """Speed now: 1 at full clock, less when slower or disturbed."""
        seconds = self._probe()
        self._note(seconds)
        return min(1.0, self.reference_s / seconds)

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
