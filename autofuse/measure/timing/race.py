"""Timing rivals against each other: blocks in turn (A B A B), each between two clock probes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from autofuse.measure.measurement import WAITED_LIMIT, Left, Slice, least_disturbed, no_end
from autofuse.measure.timing.clock import Clock
from autofuse.values.ratios import FULL_CLOCK, Ratio, Timed, blocks_needed, compare, decide, kept, race
from autofuse.values.ratios import Contender as Timings
from autofuse.values.statistics import Interval, median_interval


@dataclass(frozen=True)
class TimedBlock:
    """A timed block of calls of a contender: mean `seconds` of a call, and the part its threads waited."""

    seconds: float
    waited: float = 0.0


LOOKS = 32
"""A long race is looked at after each further part of so many of its rounds, a short one after each round."""

BlockOf = Callable[[int], TimedBlock]
"""Runs a block of so many calls; may raise `ContenderLostError`."""


class ContenderLostError(Exception):
    """A contender crashed or hung; the others go on."""


@dataclass(frozen=True)
class InterleavingPolicy:
    """`block_s`: aim of one block. Rounds go on until `budget_s` seconds are spent, or, after `min_rounds`
    good ones, every ratio's interval is within `precision` of its median, `max_rounds` at most.

    `width_limit`: interval of a median beyond which it is not trusted. A contender so slow that it
    would not reach `min_rounds` blocks in its equal share of the budget runs as many as fit, at least one.
    `deciding`: rounds go on until it is decided which contender is to be chosen (`autofuse.values.ratios.decide`: the
    first one stays unless another is faster) instead of until every ratio is precise.
    """

    block_s: float = 0.01
    budget_s: float = 20.0
    min_rounds: int = 11
    max_rounds: int = 600
    precision: float = 0.01
    settle_probes: int = 25
    clock_floor: float = FULL_CLOCK
    waited_limit: float = WAITED_LIMIT
    width_limit: float = 0.05
    deciding: bool = False


DECIDING = InterleavingPolicy(block_s=0.006, deciding=True, max_rounds=10_000)
"""Finalists take turns in short blocks: beside other work hardly a long one stays undisturbed (at a load of 4 on two
cores none of 38 blocks of 30 ms, and 15 to 40 % of those of 6 ms), and what disturbs a block decides nothing."""


@dataclass(frozen=True)
class Samples:
    """All blocks of one contender. `rounds`: the round of each slice, so that rivals can be paired.

    `us`: median over good slices (over the least disturbed where too few are good; never trusted then).
    `error`: how it was lost, if it was.
    """

    slices: tuple[Slice, ...]
    rounds: tuple[int, ...]
    us: Interval | None
    trusted: bool
    reason: str
    error: str = ""

    def good(self) -> dict[int, float]:
        """Time (µs) of each good slice by its round."""
        return {number: piece.us for number, piece in zip(self.rounds, self.slices, strict=True) if piece.good}

    def steady(self) -> dict[int, tuple[float, float]]:
        """Time (µs) and clock of each slice that did not wait for a core by its round."""
        pairs = zip(self.rounds, self.slices, strict=True)
        return {number: (piece.us, piece.clock) for number, piece in pairs if piece.steady}


@dataclass
class _Contender:
    """State of one contender while the rounds run."""

    run: BlockOf
    calls: int = 1
    block_cost_s: float = 0.0
    slow: bool = False
    slices: list[Slice] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    spent_s: float = 0.0
    error: str = ""


def interleaved(
    contenders: Mapping[str, BlockOf],
    clock: Clock,
    policy: InterleavingPolicy,
    now: Callable[[], float] = time.perf_counter,
    left: Left = no_end,
) -> dict[str, Samples]:
    """Time `contenders` in turn, the order shifted by one each round; see `InterleavingPolicy`.

    No block begins when no time is `left`. Drift and neighbours hit all alike, and ratios are taken within rounds. A
    contender is a function of its own because it usually runs in another process.
    """
    start = now()
    states = {name: _Contender(run) for name, run in contenders.items()}
    for state in states.values():
        if left() > 0:
            _size(state, clock, policy, policy.budget_s / len(states), now)
    names = list(states)
    number = 0
    while left() > 0 and number < policy.max_rounds and any(not state.error for state in states.values()):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            if left() > 0:
                _take_turn(states[name], number, clock, policy, policy.budget_s / len(states), now)
        number += 1
        if now() - start >= policy.budget_s or _enough(states, number, policy):
            break
    return {name: _summary(state, policy) for name, state in states.items()}


def times_of(samples: Mapping[str, Samples], name: str = "race") -> dict[str, Timed]:
    """The times of contenders over the rounds that count, see `autofuse.values.ratios.race`.

    The first one is the one that the others are compared with. Those without a block have no time.
    """
    return race(
        {key: Timings(one.good(), one.trusted, one.us, one.steady()) for key, one in samples.items() if one.us}, name
    )


def ratio_of(rival: Samples, first: Samples) -> Ratio | None:
    """The time of `rival` over that of `first`, by the rounds that count between the two; None when either has none."""
    times = times_of({"first": first, "rival": rival})
    return compare(times["rival"], times["first"]) if len(times) == 2 else None


def _size(
    state: _Contender, clock: Clock, policy: InterleavingPolicy, share_s: float, now: Callable[[], float]
) -> None:
    """Calls of a block, from one timed call; that call is the block of the first round when the contender is slow."""
    start = now()
    before = clock.settle(policy.settle_probes, policy.clock_floor)
    try:
        block = state.run(1)
    except ContenderLostError as error:
        state.error = str(error)
        return
    state.spent_s = now() - start
    state.calls = max(1, round(policy.block_s / max(block.seconds, 1e-7)))
    state.block_cost_s = state.spent_s if state.calls == 1 else block.seconds * (state.calls + 1)
    if state.block_cost_s * policy.min_rounds > share_s and state.calls == 1:
        state.slow = True
        _note(state, 0, block, before, clock, policy)


def _take_turn(
    state: _Contender, number: int, clock: Clock, policy: InterleavingPolicy, share_s: float, now: Callable[[], float]
) -> None:
    fits = state.spent_s + state.block_cost_s <= share_s
    if state.error or number in state.rounds or (state.slow and state.slices and not fits):
        return
    start = now()
    before = clock.settle(policy.settle_probes, policy.clock_floor)
    try:
        block = state.run(state.calls)
    except ContenderLostError as error:
        state.error = str(error)
        return
    _note(state, number, block, before, clock, policy)
    state.spent_s += now() - start


def _note(
    state: _Contender, number: int, block: TimedBlock, before: float, clock: Clock, policy: InterleavingPolicy
) -> None:
    ratio = min(before, clock.settle(2, policy.clock_floor))
    good = ratio >= policy.clock_floor and block.waited <= policy.waited_limit
    state.slices.append(Slice(kept(block.seconds * 1e6), state.calls, ratio, block.waited, good))
    state.rounds.append(number)


def _enough(states: Mapping[str, _Contender], rounds: int, policy: InterleavingPolicy) -> bool:
    """Whether these rounds say what the race is to say."""
    if not policy.deciding or sum(not state.error for state in states.values()) < 2:
        return _precise(list(states.values()), policy)
    if rounds < policy.min_rounds or rounds % max(1, rounds // LOOKS):
        return False
    known = {name: _summary(state, policy) for name, state in states.items() if not state.error and state.slices}
    return decide(times_of(known)).settled


def _precise(states: Sequence[_Contender], policy: InterleavingPolicy) -> bool:
    """Whether every contender that can has its good rounds, and every ratio to the first is narrow.

    Where all are slow, each needs as many as a ratio does.
    """
    racing = [state for state in states if not state.error]
    steady = [state for state in racing if not state.slow]
    known = {str(place): _summary(state, policy) for place, state in enumerate(steady or racing)}
    if not known:
        return True
    for samples in known.values():
        least = policy.min_rounds if steady else blocks_needed(samples.us.median if samples.us else 0.0)
        if len(samples.good()) < least:
            return False
    first, *others = times_of(known).values()
    ratios = [compare(other, first) for other in others]
    if any(ratio.value is None for ratio in ratios):
        return False
    widths = [(ratio.hi - ratio.lo) / ratio.value for ratio in ratios if ratio.value and ratio.lo and ratio.hi]
    return all(width <= 2 * policy.precision for width in [*widths, first.us.relative_width])


def _summary(state: _Contender, policy: InterleavingPolicy) -> Samples:
    slices, rounds = tuple(state.slices), tuple(state.rounds)
    good = [piece.us for piece in slices if piece.good]
    if not slices:
        return Samples(slices, rounds, None, False, state.error or "no block was run", state.error)
    needed = blocks_needed(median(piece.us for piece in slices))
    interval = median_interval(good if len(good) >= needed else least_disturbed(slices, needed))
    reason = state.error or _distrust(state, len(good), needed, interval, policy)
    return Samples(slices, rounds, interval, not reason, reason, state.error)


def _distrust(state: _Contender, good: int, needed: int, interval: Interval, policy: InterleavingPolicy) -> str:
    """Why a median is not to be trusted; "" when it is."""
    if good < needed:
        slow = sum(piece.clock < policy.clock_floor for piece in state.slices)
        waiting = sum(piece.waited > policy.waited_limit for piece in state.slices)
        count = len(state.slices)
        return f"{good} good of {count} blocks ({slow} below full clock, {waiting} waited for a core), {needed} needed"
    if interval.relative_width > policy.width_limit:
        return f"the interval is {interval.relative_width:.1%} of the median wide"
    return ""
