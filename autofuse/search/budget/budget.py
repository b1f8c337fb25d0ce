"""The time that a search, or a part of it, may still take: whoever is about to spend time asks; nothing is thrown."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

PAUSE_S = 0.5
"""Longest stretch of a pause in which nobody looks whether it should end."""


def now() -> float:
    """Seconds of the clock that budgets go by."""
    return time.monotonic()


MOST_CROWDED = 4.0
"""A step is expected to take at most so many times as long as on a machine that has nothing else to do."""

DOUBT_S = 0.2


def worked() -> float:
    """Seconds for which this thread had a processor."""
    return time.thread_time()


def total_worked() -> float:
    """Seconds for which this process and those that it waited for had a processor."""
    return sum(os.times()[:4])


def crowding(wall_s: float, worked_s: float) -> float:
    """How many times as long as alone a step takes here, from one that took `wall_s` and worked for `worked_s`.

    A short one says little: it counts as if it had begun `DOUBT_S` earlier, undisturbed.
    """
    return min(MOST_CROWDED, max(1.0, (wall_s + DOUBT_S) / (worked_s + DOUBT_S)))


def never() -> bool:
    """Nobody asks for a stop."""
    return False


def nothing() -> float:
    """Nothing is kept back."""
    return 0.0


@dataclass(frozen=True)
class Budget:
    """Time that ends at `ends_at` (of its clock; infinite: it does not), inside another budget or on its own.

    `left()` is 0 from the end on, and earlier when `over` says so: somebody asked for a stop, or what is counted is
    used up. `keeps`: seconds at its end that are kept for what comes after; they may change while it is used.
    `clock`: what it goes by; a replay of recorded answers has a clock of its own.
    """

    ends_at: float = math.inf
    over: Callable[[], bool] = never
    keeps: Callable[[], float] = nothing
    outer: Budget | None = None
    stop: Callable[[], bool] = never
    clock: Callable[[], float] = now

    @classmethod
    def lasting(cls, seconds: float | None, stop: Callable[[], bool] = never, since: float | None = None) -> Budget:
        """`seconds` from now, or from `since` (None: without an end); `stop`: whether somebody asks for a stop."""
        start = now() if since is None else since
        return cls(math.inf if seconds is None else start + seconds, stop, stop=stop)

    def now(self) -> float:
        """Seconds of its clock."""
        return self.clock()

    def left(self) -> float:
        """Seconds that may still be taken; 0 when it is time to stop."""
        if self.over():
            return 0.0
        own = self.ends_at - self.now()
        return max(0.0, (own if self.outer is None else min(own, self.outer.left())) - self.keeps())

    def spent(self) -> bool:
        """Whether nothing is left."""
        return self.left() <= 0

    def stopped(self) -> bool:
        """Whether somebody asked for a stop: then not even an answer is wanted."""
        return self.stop()

    def part(self, seconds: float) -> Budget:
        """At most `seconds` of it, from now on."""
        return Budget(self.now() + seconds, outer=self, stop=self.stop, clock=self.clock)

    def keeping(self, keeps: Callable[[], float]) -> Budget:
        """All of it but so many seconds at its end."""
        return Budget(keeps=keeps, outer=self, stop=self.stop, clock=self.clock)

    def before(self, seconds: float) -> Budget:
        """All of it but its last `seconds`."""
        return self.keeping(lambda: seconds)

    def until(self, over: Callable[[], bool]) -> Budget:
        """It, or less: until `over` says that something else is used up."""
        return Budget(over=over, outer=self, stop=self.stop, clock=self.clock)

    def pause(self, seconds: float, tell: Callable[[float], None]) -> None:
        """Waits, `tell`ing how long still; ends early when nothing is left."""
        end = self.now() + seconds
        while (left := min(end - self.now(), self.left())) > 0:
            tell(left)
            time.sleep(min(left, PAUSE_S))
