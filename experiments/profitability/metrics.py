"""How good decisions are: regret, harm, ranking, calibration; pure functions of numbers.

A gain is `log(apart / fused)` of the times of one choice: above 0, fusing pays. Scores are anything that is higher
where its author would rather fuse, or which plan it would rather take.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def regret(scores: Floats, times: Floats, count: int) -> float:
    """Best time among the `count` highest scores over the best of all, minus 1.

    Of equal scores any may come first: the expectation over all orders. So equal scores everywhere are the random
    choice, exactly.
    """
    count = min(count, len(times))
    last = np.sort(scores)[-count]
    above = times[scores > last]
    tied = times[scores == last]
    known = above.min() if len(above) else np.inf
    best = _expected_least(np.minimum(tied, known), count - len(above))
    return best / float(times.min()) - 1.0


def _expected_least(values: Floats, count: int) -> float:
    """Expected minimum of `count` of the values, drawn without replacement."""
    total = comb(len(values), count)
    ranked = np.sort(values)
    ways = (comb(len(values) - 1 - place, count - 1) for place in range(len(values)))
    return float(sum(way / total * float(value) for way, value in zip(ways, ranked, strict=True)))


def harm(fuse: Flags, ruled: Flags, gain: Floats, noise: Floats) -> float:
    """Share of the decisions that were slower, by more than `noise`, than those of a rule that needs no learning."""
    slower = np.where(fuse, gain < -noise, gain > noise)
    return float(np.mean(slower & (fuse != ruled)))


def lost(fuse: Flags, gain: Floats, noise: Floats) -> float:
    """Share of the accepted fusions that were slower than not fusing by more than `noise`; 0 when none was accepted."""
    return float(np.mean(gain[fuse] < -noise[fuse])) if fuse.any() else 0.0


def missed(fuse: Flags, gain: Floats, noise: Floats) -> float:
    """Share of the refused fusions that were faster than not fusing by more than `noise`; 0 when none was refused."""
    return float(np.mean(gain[~fuse] > noise[~fuse])) if not fuse.all() else 0.0


def cost_of_decisions(fuse: Flags, fused: Floats, apart: Floats) -> float:
    """Time of what was decided over the time of the better choices, minus 1."""
    return float(np.where(fuse, fused, apart).sum() / np.minimum(fused, apart).sum() - 1.0)


def auc(scores: Floats, pays: Flags) -> float:
    """Probability that a choice that pays has the higher score than one that does not (equal: a half).

    NaN when all pay, or none.
    """
    good, bad = scores[pays], scores[~pays]
    if not len(good) or not len(bad):
        return float("nan")
    ranked = np.sort(bad)
    below = np.searchsorted(ranked, good, side="left")
    not_above = np.searchsorted(ranked, good, side="right")
    return float((below + not_above).sum() / (2 * len(good) * len(bad)))


@dataclass(frozen=True)
class Bin:
    """Choices to which a similar probability was given: how many, its mean, and the share that paid."""

    count: int
    stated: float
    observed: float


def reliability(probability: Floats, pays: Flags, bins: int = 10) -> list[Bin]:
    """Bins of equal width over [0, 1]; empty ones are left out."""
    place = np.minimum((probability * bins).astype(int), bins - 1)
    inside = [place == number for number in range(bins)]
    return [
        Bin(int(here.sum()), float(probability[here].mean()), float(pays[here].mean())) for here in inside if here.any()
    ]


def calibration_error(bins: list[Bin]) -> float:
    """Mean distance between what was stated and what was observed, by count; NaN without bins."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.stated - part.observed) for part in bins) / total if total else float("nan")


def coverage(truth: Floats, low: Floats, high: Floats) -> float:
    """Share of the truths inside their intervals; NaN when there are none."""
    return float(np.mean((low <= truth) & (truth <= high))) if len(truth) else float("nan")
