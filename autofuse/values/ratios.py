"""What a time and a ratio are: the one definition behind every screen, DataFrame and JSON.

A race times its contenders in turn, block by block, in rounds. The rounds that count are those in which the blocks of
all contenders are good, so that the medians of a race are medians of the same blocks. A ratio is the quotient of two
such medians, and stands beside them; below `MIN_BLOCKS` blocks there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from autofuse.values.statistics import Interval, median_interval, ratio_interval

MIN_BLOCKS = 5
"""Good blocks that a ratio needs on either side: five equal signs in a row have odds of 1 in 16 by chance."""
LONG_US = 5e5
MIN_LONG_BLOCKS = 2
"""Blocks that suffice where one call takes `LONG_US` (half a second) or more: it averages the noise by itself."""

FASTER, SLOWER, SAME = "faster", "slower", "no difference"
NOT_TRUSTED, TOO_FEW, APART = "not trusted", "too few good blocks", "never good in the same rounds"
VERDICTS = (FASTER, SLOWER, SAME, NOT_TRUSTED, TOO_FEW, APART)
"""What a ratio says of the new time; the last two mean that there is no ratio."""

Good = Mapping[int, float]
"""Time of each good block of a contender, microseconds a call, by its round."""


@dataclass(frozen=True)
class Timed:
    """A time that can be compared with another.

    `us`: the median that screens show, with its interval, microseconds a call. `counted_us`: the good blocks that it
    is of, and `rounds`: their rounds in the race called `race` ("": it was measured by itself).
    """

    us: Interval
    trusted: bool
    counted_us: tuple[float, ...] = ()
    race: str = ""
    rounds: tuple[int, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether it has the blocks that a ratio needs."""
        return len(self.counted_us) >= blocks_needed(self.us.median)


@dataclass(frozen=True)
class Ratio:
    """The old time over the new one (above 1: the new one is faster), with its 95 % interval.

    `old_us` and `new_us`: the two medians; `value` is their quotient. `blocks`: good blocks on the side that has
    fewer. `value`, `lo`, `hi`: None where there is no ratio. `verdict`: one of `VERDICTS`, on the new time.
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


def compare(old: Timed, new: Timed) -> Ratio:
    """`new` against `old`.

    Two times of one race are compared by the rounds that count, in pairs, so that drift cancels: the interval is that
    of the rounds' ratios, as wide as it must be to hold the quotient of the medians. Other times are compared by a
    bootstrap of both sides.
    """
    blocks = min(len(old.counted_us), len(new.counted_us))
    bare = Ratio(old.us.median, new.us.median, blocks, old.trusted and new.trusted, TOO_FEW)
    if not (old.enough and new.enough):
        return bare
    beside = bool(old.race) and old.race == new.race
    paired = beside and old.rounds == new.rounds
    if beside and not paired and max(old.us.median, new.us.median) < LONG_US:
        return Ratio(bare.old_us, bare.new_us, blocks, bare.trusted, APART)
    value = old.us.median / new.us.median
    interval = ratio_interval(old.counted_us, new.counted_us, paired=paired)
    low, high = min(interval.lo, value), max(interval.hi, value)
    verdict = FASTER if low > 1.0 else SLOWER if high < 1.0 else SAME
    return Ratio(
        bare.old_us, bare.new_us, blocks, bare.trusted, verdict if bare.trusted else NOT_TRUSTED, value, low, high
    )


def differs(ratio: Ratio, margin: float) -> bool:
    """Whether a ratio's interval leaves out 1 by more than `margin`."""
    return ratio.lo is not None and ratio.hi is not None and (ratio.lo > 1 + margin or ratio.hi < 1 / (1 + margin))


def same_thing(one: Timed) -> Ratio:
    """The ratio of a time to itself: 1, whatever was measured."""
    us = one.us.median
    return Ratio(us, us, len(one.counted_us), one.trusted, SAME if one.trusted else NOT_TRUSTED, 1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Contender:
    """A contender of a race as it was measured: its good blocks, and whether its time is trusted.

    `otherwise`: its median where it has too few good blocks for a ratio (None: of those that it has, at least one).
    """

    good: Good
    trusted: bool
    otherwise: Interval | None = None


def race(contenders: Mapping[str, Contender], name: str) -> dict[str, Timed]:
    """The times of a race called `name`, over the rounds that count.

    Rounds count in which the first contender that has enough good blocks is good, and so are all others. One that would
    leave too few of them, because it is noisy or so slow that it ran in a few rounds only, stands aside: its time is
    that of its own good blocks.
    """
    medians = {key: median(one.good.values()) for key, one in contenders.items() if one.good}
    fit = [key for key in medians if len(contenders[key].good) >= blocks_needed(medians[key])]
    rounds: set[int] = set(contenders[fit[0]].good) if fit else set()
    members = set(fit[:1])
    for key in sorted(fit[1:], key=lambda key: -len(contenders[key].good)):
        common = rounds & contenders[key].good.keys()
        if len(common) >= blocks_needed(min(medians[key], medians[fit[0]])):
            rounds, members = common, members | {key}
    kept_rounds = tuple(sorted(rounds))
    return {
        key: _of_rounds(one, name, kept_rounds)
        if key in members
        else _of_rounds(one, name, tuple(sorted(one.good)))
        if key in fit or one.otherwise is None
        else Timed(one.otherwise, one.trusted, (), name)
        for key, one in contenders.items()
    }


def expected_ratio(old_us: float | None, new_us: float | None) -> float | None:
    """Quotient of two sums of kernels' times: what is expected of a plan before it is measured whole, not a ratio of
    measured times; None where one is unknown."""
    return old_us / new_us if old_us and new_us else None


def _of_rounds(one: Contender, name: str, rounds: tuple[int, ...]) -> Timed:
    counted = tuple(one.good[number] for number in rounds)
    return Timed(median_interval(counted), one.trusted, counted, name, rounds)
