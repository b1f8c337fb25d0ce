"""Timing one candidate in gated slices: what counts, when to stop, and whether to trust the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autofuse.measure.measurement import WAITED_LIMIT, Slice, Timing, least_disturbed
from autofuse.measure.timing.clock import Clock
from autofuse.values.ratios import DRIFTED, FULL_CLOCK
from autofuse.values.statistics import median_interval

MIN_GOOD = 3
MIN_ENOUGH = 7
CHEAP_US = 50_000.0
"""A first call that looks hopeless is repeated unless it takes longer: the machine may just have stood still."""
HOPELESS = 3.0
"""A candidate that takes so many times as long as the incumbent is not timed any further, however disturbed it was."""
PATIENCE = 4
"""Good slices are taken up to so many times the usual number while their interval is too wide to trust."""


@dataclass(frozen=True)
class SamplingPolicy:
    """The rules of timing one candidate: how long, and what to believe.

    `block_s`: aim of one slice. `good_slices`: full number of good slices (more while their interval is wider
    than `width_limit`); fewer (7 or more) suffice once the interval is within `precision` of the median, or within
    `first_precision` where there is no incumbent to compare with.
    `cap_s`: give up after so many seconds. `settle_probes`: probes to wait for full clock before a slice runs
    anyway. `waited_limit`: part of a slice that threads may have waited for a core.
    A candidate is timed only as long as it can win. It stops as "slower" when so many good slices are all so many
    times slower than the incumbent as `rejects` says: the more slices agree, the smaller the difference may be. One
    alone may have stood still with the whole machine, which no probe beside it tells. Disturbances only add time: so
    `disturbed_slices` of any kind, each freed of the waiting and the clock that were seen around it, say the same when
    all are `reject_disturbed` times slower. `width_limit`: interval beyond which a result is not
    trusted. `cold_constants`: flush packed weights from the caches before each call. `patient`: wait for full clock up
    to the cap, also where the slices agree that the core has another one.
    """

    block_s: float = 0.006
    good_slices: int = 21
    precision: float = 0.004
    first_precision: float = 0.01
    cap_s: float = 1.5
    settle_probes: int = 25
    clock_floor: float = FULL_CLOCK
    waited_limit: float = WAITED_LIMIT
    rejects: tuple[tuple[int, float], ...] = ((2, 1.5), (3, 1.15), (5, 1.02))
    disturbed_slices: int = 7
    reject_disturbed: float = 1.1
    width_limit: float = 0.05
    cold_constants: bool = False
    patient: bool = False


SETTLING = 3.0
"""A time that settles something is waited for so many times as long as another one."""


def settling(policy: SamplingPolicy) -> SamplingPolicy:
    """The policy for a candidate whose time settles something: it has longer for its good slices."""
    return replace(policy, cap_s=SETTLING * policy.cap_s, patient=True)


BlockRunner = Callable[[int], float]
"""Runs a number of calls; mean seconds of one."""


def sample(
    run: BlockRunner,
    clock: Clock,
    waited_ns: Callable[[], int],
    policy: SamplingPolicy,
    best_us: float | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Time `run` slice by slice until there are enough good ones, it is clearly slower, or time is up.

    A slice is good when the clock probes before and after it show full clock and its threads did not wait
    for a core. Every slice is kept. `best_us`: the incumbent; None never stops early.
    """
    start = now()
    first_us = run(1) * 1e6
    slices: list[Slice] = []
    before = clock.settle(policy.settle_probes, policy.clock_floor)
    hopeless_us = HOPELESS * max(best_us, 500.0) if best_us is not None else float("inf")
    if before * first_us > hopeless_us and first_us < CHEAP_US:
        first_us = run(1) * 1e6
    if before * first_us > hopeless_us:
        once = Slice(first_us, 1, before, 0.0, before >= policy.clock_floor)
        return _verdict([once], clock, policy, "slower")
    calls = max(1, round(policy.block_s * 1e6 / max(first_us, 0.1)))
    if calls > 3:  # the first call was cold: size the blocks by a warm one
        calls = max(1, round(policy.block_s / max(run(min(calls, 10)), 1e-7)))
    while True:
        slices.append(_slice(run, calls, before, clock, waited_ns, policy))
        stopped = _stop(slices, policy, best_us, now() - start)
        if stopped:
            return _verdict(slices, clock, policy, stopped)
        before = slices[-1].clock
        if before < policy.clock_floor:
            before = clock.settle(policy.settle_probes, policy.clock_floor)


def _slice(
    run: BlockRunner, calls: int, before: float, clock: Clock, waited_ns: Callable[[], int], policy: SamplingPolicy
) -> Slice:
    waited = waited_ns()
    seconds = run(calls)
    waited = waited_ns() - waited
    ratio = min(before, clock.settle(2, policy.clock_floor))
    part = waited / max(seconds * calls * 1e9, 1.0)
    good = ratio >= policy.clock_floor and part <= policy.waited_limit
    return Slice(seconds * 1e6, calls, ratio, part, good)


def _stop(slices: Sequence[Slice], policy: SamplingPolicy, best_us: float | None, elapsed_s: float) -> str:
    if best_us is not None and _slower(slices, policy, best_us):
        return "slower"
    good = [piece.us for piece in slices if piece.good]
    narrow = 2 * (policy.precision if best_us is not None else policy.first_precision)
    wanted = policy.width_limit if len(good) >= policy.good_slices else narrow
    if _width(good) <= wanted or len(good) >= PATIENCE * policy.good_slices:
        return "enough"
    if elapsed_s >= policy.cap_s:
        return "time"
    drifted = not policy.patient and elapsed_s * PATIENCE >= policy.cap_s and _drifted(slices, policy)
    return "drifted" if drifted else ""


def _drifted(slices: Sequence[Slice], policy: SamplingPolicy) -> bool:
    """Whether the clock has left its full speed for longer than a candidate is timed: nobody waits for a core, the
    slices agree, and hardly one is good. Waiting on would say nothing more."""
    steady = [piece.us for piece in slices if piece.steady]
    good = sum(piece.good for piece in slices)
    return len(steady) >= policy.good_slices and good * DRIFTED < len(steady) and _width(steady) <= policy.width_limit


def _width(times_us: Sequence[float]) -> float:
    """Width of the interval of their median, as a part of it; infinite where they are too few to say."""
    return median_interval(times_us).relative_width if len(times_us) >= MIN_ENOUGH else float("inf")


def _slower(slices: Sequence[Slice], policy: SamplingPolicy, best_us: float) -> bool:
    """Whether these slices leave no chance that the candidate takes `best_us` or less."""
    good = [piece.us for piece in slices if piece.good]
    if any(len(good) >= count and min(good) > ratio * best_us for count, ratio in policy.rejects):
        return True
    if len(slices) < 2:
        return False
    optimistic = min(piece.us * piece.clock * max(0.0, 1.0 - piece.waited) for piece in slices)
    surely = policy.reject_disturbed if len(slices) >= policy.disturbed_slices else HOPELESS
    return optimistic > surely * best_us


def _verdict(slices: Sequence[Slice], clock: Clock, policy: SamplingPolicy, stopped: str) -> Timing:
    good = [piece.us for piece in slices if piece.good]
    probe_us = clock.full_s * 1e6
    needed = 1 if stopped == "slower" else MIN_GOOD
    if len(good) < needed:
        slow = sum(piece.clock < policy.clock_floor for piece in slices)
        waiting = sum(piece.waited > policy.waited_limit for piece in slices)
        reason = f"{len(good)} good of {len(slices)} slices ({slow} below full clock, {waiting} waited for a core)"
        best = median_interval(least_disturbed(slices, MIN_GOOD))
        return Timing(best, tuple(slices), False, reason, stopped, probe_us)
    interval = median_interval(good)
    if stopped != "slower" and interval.relative_width > policy.width_limit:
        reason = f"the interval is {interval.relative_width:.1%} of the median wide"
        return Timing(interval, tuple(slices), False, reason, stopped, probe_us)
    return Timing(interval, tuple(slices), True, "", stopped, probe_us)
