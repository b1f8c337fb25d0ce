"""What a measurement is expected to save, before it is made: the rules that a search chooses its questions by.

All of them in one place, all in microseconds of the network, each with where its number comes from:

- **Another schedule** of a workload: the n-th one that is tried saves `SCHEDULES / n**2` of its time on the average.
  2,700 workloads of 33 networks on two devices (`profiles/training`) say so from the third on, within a third, and the
  oracles of `experiments/replay` from the second on: half of it or less after a time that is trusted, several times as
  much after one that was disturbed.
- **A changed decision**: it saves `CHANGED` of the time of the kernels that it replaces on the average, whatever its
  tensors are (the bytes that it keeps from memory say little of it: a rank correlation of 0.3), a fold that is undone
  nearly nothing. So changes of the heaviest kernels are asked about first.
- **A side of a decision that stands behind**, like a group whose first schedule was slower than its parts with their
  best: a large lag says more of a disturbed time than of a bad decision. On the oracles the second schedule saves half
  of the time of a side that stands behind by a half or more, and what that is worth does not fall with the lag up to
  five times the other side's time (`caught_up`); by times that are trusted a side so far behind stays there.
- **Several changed decisions** must first make up for what they are known to lose, which `chance` says.
"""

from __future__ import annotations

from math import exp

SCHEDULES = 0.3
"""The n-th schedule of a workload saves this part of its time, divided by n squared."""
CHANGED = 0.06
"""Part of the time of the kernels that a changed decision replaces which it saves on the average."""
UNDONE = 0.005
"""The same of a fold that is undone: what a BatchNormalization costs by itself is hardly ever gained back."""
LITTLE = ("fold", "whole")
"""Kinds of such changes: a fold that is undone, and what changes the whole graph at once."""
CAUGHT_UP = 0.5
"""Part of what a further schedule would save of a side of a decision that stood level which it saves of one behind."""
PAYS = 0.4
"""Share of the measurements that save anything worth the name: those that do save so much more than the average."""


def saved_by_schedules(tried: int, more: float) -> float:
    """Part of its time that a workload is expected to save by so many more schedules after those that were tried."""
    start = max(tried, 1) + 0.5
    return SCHEDULES * (1.0 / start - 1.0 / (start + more))


def saved_by_change(kind: str, replaced_us: float) -> float:
    """Microseconds that a changed decision of a kind is expected to save of the kernels that it replaces."""
    return (UNDONE if kind in LITTLE else CHANGED) * replaced_us


def caught_up(saved_us: float, behind_us: float, side_us: float) -> float:
    """What is left of a further schedule's expected saving, for a kernel of a side of a decision that takes `side_us`
    and stands `behind_us` behind the other one: what it would save if both stood level, times `CAUGHT_UP`."""
    if behind_us <= 0.0:
        return saved_us
    return CAUGHT_UP * saved_us * (1.0 - behind_us / side_us) if behind_us < side_us else 0.0


def chance(saved_us: float, behind_us: float) -> float:
    """What is left of an expected saving where the first `behind_us` of it gain nothing.

    Savings are taken as: nothing, or (a share `PAYS` of them) spread about `saved_us / PAYS` as waiting times are.
    """
    if saved_us <= 0.0:
        return 0.0
    return saved_us * exp(-max(0.0, behind_us) * PAYS / saved_us)
