"""What a time, a ratio and a decision are: the one definition behind every screen, DataFrame and JSON.

A race times its contenders in turn, block by block, in rounds. The rounds that count are those in which the blocks of
all contenders are good, so that the medians of a race are medians of the same blocks; where the clock has drifted and
most are not, those in which it was the same for all; where it swings from block to block, those in which nobody had to
wait for a core. A ratio is the quotient of two such medians, and stands beside
them; below `MIN_BLOCKS` blocks there is none. Its interval is of all rounds in which both of its blocks are good, so
that a third contender whose blocks were disturbed takes nothing from what the race says of the two.

Trust belongs to what is said. A time is trusted by the clock and the noise around its own blocks. A ratio of two times
of one race is trusted when its interval decides it, whatever the clock was: one is faster, or they differ by no more
than `TOLERANCE`. A ratio of times that were measured apart is trusted when both times are.

Noise never decides which of several contenders is chosen: `decide`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from statistics import median

from autofuse.values.statistics import Interval, median_interval, ratio_interval

CONFIDENCE = 0.95
TOLERANCE = 0.01
"""Times that differ by no more than this part are a tie."""
FULL_CLOCK = 0.95
"""A probe at this part of the best probe's speed, or above, shows full clock.

A core that boosts alone loses up to 4 % when its neighbour wakes; a throttled or shared one loses far more.
"""

MIN_BLOCKS = 5
"""Good blocks that a ratio needs on either side: five equal signs in a row have odds of 1 in 16 by chance."""
FAR = 1.2
"""Intervals of two times of one race that lie further apart than so many times are not noise, whatever their rounds."""
LONG_US = 5e5
MIN_LONG_BLOCKS = 2
"""Blocks that suffice where one call takes `LONG_US` (half a second) or more: it averages the noise by itself."""
DRIFTED = 2
"""Where so many times as many rounds had one clock for all as were good, it is those that count; and those in which
nobody waited, where they are so many times as many again: an interval of their pairs says what the clock's swings leave
undecided, and one of five rounds says nothing."""

FASTER, SLOWER, SAME = "faster", "slower", "no difference"
UNDECIDED, NOT_TRUSTED = "undecided", "not trusted"
TOO_FEW, APART = "too few good blocks", "never good in the same rounds"
VERDICTS = (FASTER, SLOWER, SAME, UNDECIDED, NOT_TRUSTED, TOO_FEW, APART)
"""What a ratio says of the new time; the last two mean that there is no ratio."""

Good = Mapping[int, float]
"""Time of each good block of a contender, microseconds a call, by its round."""


@dataclass(frozen=True)
class Timed:
    """A time that can be compared with another.

    `us`: the median that screens show, with its interval, microseconds a call. `counted_us`: the good blocks that it
    is of, and `rounds`: their rounds in the race called `race` ("": it was measured by itself). `good`: all its blocks
    of that race that may count, by round, whatever the other contenders' are; empty where `rounds` are all of them.
    """

    us: Interval
    trusted: bool
    counted_us: tuple[float, ...] = ()
    race: str = ""
    rounds: tuple[int, ...] = ()
    good: Good = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        """Whether it has the blocks that a ratio needs."""
        return len(self.counted_us) >= blocks_needed(self.us.median)

    def pairs(self, other: Timed) -> tuple[list[float], list[float]] | None:
        """This one's and the other's blocks in the rounds of one race in which both are good; None where they are too
        few to be compared in pairs."""
        if not self.race or self.race != other.race:
            return None
        one, two = (time.good or dict(zip(time.rounds, time.counted_us, strict=True)) for time in (self, other))
        rounds = sorted(one.keys() & two.keys())
        if not rounds or (len(rounds) < MIN_BLOCKS and self.rounds != other.rounds):
            return None
        return [one[number] for number in rounds], [two[number] for number in rounds]


@dataclass(frozen=True)
class Ratio:
    """The old time over the new one (above 1: the new one is faster), with its 95 % interval.

    `trusted`: what it says is decided. `old_us` and `new_us`: the two medians; `value` is their quotient. `blocks`:
    those of the interval, on the side that has fewer. `value`, `lo`, `hi`: None where there is no ratio. `verdict`: one
    of `VERDICTS`, on the new time.
    """

    old_us: float
    new_us: float
    blocks: int
    trusted: bool
    verdict: str
    value: float | None = None
    lo: float | None = None
    hi: float | None = None


def kept(us: float) -> float:
    """A block's time with the 6 digits that are stored of it, so that a ratio is the same before and after."""
    return float(f"{us:.6g}")


def blocks_needed(us: float) -> int:
    """Good blocks that a ratio needs of a time of `us` microseconds a call."""
    return MIN_LONG_BLOCKS if us >= LONG_US else MIN_BLOCKS


def compare(old: Timed, new: Timed, confidence: float = CONFIDENCE) -> Ratio:
    """`new` against `old`.

    Two times of one race are compared by the rounds in which both are good, in pairs, so that drift cancels: the
    interval is that of the rounds' ratios, as wide as it must be to hold the quotient of the medians. Other times are
    compared by a bootstrap of both sides.
    """
    pairs = old.pairs(new)
    left, right = pairs or (old.counted_us, new.counted_us)
    bare = Ratio(old.us.median, new.us.median, min(len(left), len(right)), False, TOO_FEW)
    if not (old.enough and new.enough):
        return bare
    paired = pairs is not None
    if not paired and old.race and old.race == new.race and max(old.us.median, new.us.median) < LONG_US:
        return replace(bare, verdict=APART)
    value = old.us.median / new.us.median
    interval = ratio_interval(left, right, paired=paired, confidence=confidence)
    low, high = min(interval.lo, value), max(interval.hi, value)
    if paired:
        verdict = verdict_of(low, high) if interval.confidence >= confidence else UNDECIDED
        trusted = verdict != UNDECIDED
    else:
        trusted = old.trusted and new.trusted
        verdict = NOT_TRUSTED if not trusted else FASTER if low > 1.0 else SLOWER if high < 1.0 else SAME
    return replace(bare, trusted=trusted, verdict=verdict, value=value, lo=low, hi=high)


def verdict_of(low: float, high: float) -> str:
    """What the interval [`low`, `high`] of a ratio says; a difference within `TOLERANCE` is none."""
    if low >= 1.0 / (1.0 + TOLERANCE) and high <= 1.0 + TOLERANCE:
        return SAME
    return FASTER if low > 1.0 else SLOWER if high < 1.0 else UNDECIDED


def differs(ratio: Ratio, margin: float) -> bool:
    """Whether a ratio's interval leaves out 1 by more than `margin`."""
    return ratio.lo is not None and ratio.hi is not None and (ratio.lo > 1 + margin or ratio.hi < 1 / (1 + margin))


def over_shares(ratios: Sequence[tuple[Ratio, float]]) -> Ratio | None:
    """The geometric mean of ratios, each with the share that it has of all; None where one of them has no value."""
    known = [(one.value, one.lo, one.hi) for one, _ in ratios if one.value and one.lo and one.hi]
    total = sum(share for _, share in ratios)
    if not ratios or len(known) < len(ratios) or not total:
        return None
    powers = [share / total for _, share in ratios]
    value, low, high = (
        prod(one**power for one, power in zip(each, powers, strict=True)) for each in zip(*known, strict=True)
    )
    old, new = (sum(getattr(one, name) * share for one, share in ratios) / total for name in ("old_us", "new_us"))
    verdict = verdict_of(low, high)
    return Ratio(old, new, min(one.blocks for one, _ in ratios), verdict != UNDECIDED, verdict, value, low, high)


def same_thing(one: Timed) -> Ratio:
    """The ratio of a time to itself: 1, whatever was measured."""
    us = one.us.median
    return Ratio(us, us, len(one.counted_us), True, SAME, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Contender:
    """A contender of a race as it was measured: its good blocks, and whether its time is trusted.

    `otherwise`: its median where it has too few good blocks for a ratio (None: of those that it has, at least one).
    `steady`: time and clock of each block that did not wait for a core, the good ones among them, by its round; the
    clock is a part of the best that was seen.
    """

    good: Good
    trusted: bool
    otherwise: Interval | None = None
    steady: Mapping[int, tuple[float, float]] = field(default_factory=dict)


def race(contenders: Mapping[str, Contender], name: str) -> dict[str, Timed]:
    """The times of a race called `name`, over the rounds that count.

    Rounds count in which the first contender that has enough good blocks is good, and so are all others. One that would
    leave too few of them, because it is noisy or so slow that it ran in a few rounds only, stands aside: its time is
    that of its own good blocks. Where more than `DRIFTED` times as many rounds had one clock for all, those count, and
    where more than so many times as many were free of waiting, those; also where these let a contender in that the
    others shut out, and are at least half as many.
    """
    good = _common({key: one.good for key, one in contenders.items()})
    found = good
    for looser in (_alike(contenders), _steady(contenders)):
        common = _common(looser)
        more = len(common.members) > len(found.members) and len(common.rounds) * DRIFTED > len(found.rounds)
        if more or len(common.rounds) > DRIFTED * len(found.rounds):
            found = common
    times = {}
    for key, one in contenders.items():
        if key in found.members:
            times[key] = _of_rounds(found.blocks[key], one.trusted, name, found.rounds)
        elif key in good.fit or one.otherwise is None:
            times[key] = _of_rounds(one.good, one.trusted, name, tuple(sorted(one.good)))
        else:
            times[key] = Timed(one.otherwise, one.trusted, (), name)
    return times


@dataclass(frozen=True)
class _Common:
    """Blocks of contenders, those that have enough of them, and those of these that share the `rounds` (in order)."""

    blocks: Mapping[str, Good]
    fit: tuple[str, ...]
    members: frozenset[str]
    rounds: tuple[int, ...]


def _common(blocks: Mapping[str, Good]) -> _Common:
    medians = {key: median(one.values()) for key, one in blocks.items() if one}
    fit = tuple(key for key in medians if len(blocks[key]) >= blocks_needed(medians[key]))
    rounds: set[int] = set(blocks[fit[0]]) if fit else set()
    members = set(fit[:1])
    for key in sorted(fit[1:], key=lambda key: -len(blocks[key])):
        common = rounds & blocks[key].keys()
        if len(common) >= blocks_needed(min(medians[key], medians[fit[0]])):
            rounds, members = common, members | {key}
    return _Common(blocks, fit, frozenset(members), tuple(sorted(rounds)))


def _alike(contenders: Mapping[str, Contender]) -> dict[str, Good]:
    """The steady blocks of the rounds in which all contenders that ran had about one clock."""
    clocks: dict[int, list[float]] = {}
    for one in contenders.values():
        for number, (_, clock) in one.steady.items():
            clocks.setdefault(number, []).append(clock)
    alike = {number for number, each in clocks.items() if min(each) >= FULL_CLOCK * max(each)}
    return {
        key: {number: us for number, (us, _) in one.steady.items() if number in alike}
        for key, one in contenders.items()
    }


def _steady(contenders: Mapping[str, Contender]) -> dict[str, Good]:
    """The blocks that did not wait for a core, whatever the clock was."""
    return {key: {number: us for number, (us, _) in one.steady.items()} for key, one in contenders.items()}


@dataclass(frozen=True)
class Decision:
    """The contender that was `chosen`, and the one that this was decided `against`: the first one, which stays unless
    another is faster; where that was chosen, the one that may be the fastest of the others ("" where there is none).

    `ratio`: the time of that one over the chosen one's, None where they were not compared. `verdict`: "faster" (the
    chosen one is), "no difference" (a tie: the simpler one was taken, and no more than the tolerance is at stake) or
    "undecided" (the simpler one was taken, and another may be faster by more); "" where there was no other.
    `settled`: that is decided, no contender can be faster than the chosen one by more than the tolerance, and none of
    the simpler ones is as fast.
    """

    chosen: str
    against: str
    ratio: Ratio | None
    verdict: str
    settled: bool

    @property
    def trusted(self) -> bool:
        """Whether it is decided."""
        return self.verdict not in ("", UNDECIDED)


def decide(times: Mapping[str, Timed]) -> Decision:
    """The choice among contenders of one race, at least one, in their order of preference.

    The first is the one that stays when nothing is known (the default), and the simpler stand before the others. A
    later one is chosen only where it is faster beyond doubt; a difference within `TOLERANCE` is a tie, of which the
    simplest is taken, and all else is undecided.
    The chance of an error is that of `CONFIDENCE` for all comparisons of the race together (Bonferroni), at all looks.
    """
    first, *others = times
    confidence = 1.0 - (1.0 - CONFIDENCE) / max(1, len(others))
    best = first
    for name in others:
        if _beats(times[name], times[best], confidence):
            best = name
    tied = (name for name in times if _possible_gain(times[name], times[best], confidence) <= TOLERANCE)
    chosen = best if best == first else next(tied, best)
    gains = {name: _possible_gain(times[chosen], times[name], confidence) for name in times if name != chosen}
    if not gains:
        return Decision(chosen, "", None, "", True)
    against = first if chosen != first else max(gains, key=lambda name: gains[name])
    ratio = compare(times[against], times[chosen], confidence)
    gain = gains[against]
    open_verdict = FASTER if gain < 0 else SAME if gain <= TOLERANCE else UNDECIDED
    verdict = ratio.verdict if ratio.verdict in (FASTER, SAME) else open_verdict
    simpler = list(times)[: list(times).index(chosen)]
    beaten = all(_beats(times[chosen], times[name], confidence) for name in simpler)
    settled = beaten and verdict != UNDECIDED and all(gain <= TOLERANCE for gain in gains.values())
    return Decision(chosen, against, ratio, verdict, settled)


def _beats(one: Timed, other: Timed, confidence: float) -> bool:
    """Whether one is faster than the other beyond doubt.

    Where noise left them no rounds in common, it takes more than noise: two trusted times that lie far apart.
    """
    verdict = compare(other, one, confidence).verdict
    if verdict != APART:
        return verdict == FASTER
    return one.trusted and other.trusted and other.us.lo > FAR * one.us.hi


def _possible_gain(chosen: Timed, other: Timed, confidence: float) -> float:
    """The part of the chosen one's time by which the other may be faster.

    By the rounds that they share; where they share too few (a slow one ran in a few only) by their own intervals.
    """
    pairs = chosen.pairs(other)
    if pairs is None:
        return chosen.us.hi / other.us.lo - 1.0
    ratios = ratio_interval(*pairs, confidence=confidence)
    return ratios.hi - 1.0 if ratios.confidence >= confidence else float("inf")


def decided_share(parts: Iterable[tuple[float, str]], together: bool) -> float | None:
    """Part of the time of kernels that were decided on in which the decision is trusted; None where there is none.

    `parts`: the time of each such kernel, and what its schedule's ratio to the first one says (a verdict). `together`:
    one race of whole networks decided the plan and all its schedules, against what is compiled untuned.
    """
    known = list(parts)
    total = sum(us for us, _ in known)
    decided = sum(us for us, verdict in known if together or verdict in (FASTER, SLOWER, SAME))
    return decided / total if total else None


def expected_ratio(old_us: float | None, new_us: float | None) -> float | None:
    """Quotient of two sums of kernels' times: what is expected of a plan before it is measured whole, not a ratio of
    measured times; None where one is unknown."""
    return old_us / new_us if old_us and new_us else None


def percent_text(part: float) -> str:
    """A part of one as people read it: "0.0033 %"."""
    return f"{100 * part:.3g} %"


def _of_rounds(blocks: Good, trusted: bool, name: str, rounds: tuple[int, ...]) -> Timed:
    counted = tuple(blocks[number] for number in rounds)
    return Timed(median_interval(counted), trusted, counted, name, rounds, blocks)
