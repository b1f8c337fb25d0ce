"""Medians and ratios of samples with their intervals; what a screen says of them: `autofuse.values.ratios`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, floor, lgamma, log, pi, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 2000
EXACT_BELOW = 200
SEED = 20210620


@dataclass(frozen=True)
class Interval:
    """A median with the interval [`lo`, `hi`] around it, all in the unit of the samples.

    `confidence`: the coverage really reached, below the one asked for when the samples are few
    (one sample: 0.0, and `lo` = `hi` = `median`). `count`: samples or blocks behind it.
    """

    median: float
    lo: float
    hi: float
    confidence: float
    count: int

    @property
    def relative_width(self) -> float:
        """(hi - lo) / median; 0 for a median of 0."""
        return (self.hi - self.lo) / abs(self.median) if self.median else 0.0


def median_interval(samples: ArrayLike, confidence: float = 0.95) -> Interval:
    """Median of `samples` and its distribution-free interval between two order statistics.

    The k-th smallest and k-th largest of n samples enclose the true median with probability
    1 - 2 P(Binomial(n, 1/2) < k), whatever the distribution (David and Nagaraja, "Order Statistics",
    3rd ed., section 7.1); k is the largest with at least `confidence`, else 1 (the extremes). Samples
    of one block belong together: pass one row a block (2-D) to count each block once.
    ValueError when there are no samples, or one is not finite.
    """
    return ordered_interval(np.sort(block_medians(samples)).tolist(), confidence)


def ordered_interval(ordered: Sequence[float], confidence: float = 0.95) -> Interval:
    """`median_interval` of finite values in rising order, at least one; for few values much faster."""
    count = len(ordered)
    rank = _order_rank(count, confidence)
    coverage = 1.0 - 2.0 * _binomial_below(count, rank)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Interval(median, ordered[rank - 1], ordered[count - rank], coverage, count)


def sequential_interval(samples: ArrayLike, confidence: float = 0.95) -> Interval:
    """Median of `samples` and an interval that holds at all looks together, however often somebody looks and stops.

    A confidence sequence of the median (Darling and Robbins, "Confidence sequences for mean, variance, and median",
    PNAS 58, 1967; Howard and Ramdas, "Sequential estimation of quantiles", Bernoulli 28, 2022): a value stays out of it
    when so few samples lie on one side of it that a martingale of coin tosses, mixed over Beta(1/2, 1/2), reaches
    1 / (1 - confidence), which by Ville's inequality it ever does with that probability at most. Below 7 samples (for
    0.95) nothing can be left out: then the extremes stand for the interval, and its `confidence` is 0.
    """
    ordered = np.sort(block_medians(samples)).tolist()
    count = len(ordered)
    median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    rank = _sequential_rank(count, confidence)
    place = max(rank, 1)
    return Interval(median, ordered[place - 1], ordered[count - place], confidence if rank else 0.0, count)


def ratio_interval(a: ArrayLike, b: ArrayLike, *, paired: bool = True, confidence: float = 0.95) -> Interval:
    """The time `a` over the time `b`, with an interval over blocks.

    `paired`: a[i] and b[i] were measured next to each other (interleaved), so that drift cancels:
    `sequential_interval` of the ratios a[i] / b[i], because races end when they have seen enough. Unequal lengths are
    a ValueError.
    Otherwise the ratio of the medians with a percentile bootstrap (Efron and Tibshirani, 1993,
    chapter 13), blocks of each side resampled alone, seed fixed. One value a block, or one row a
    block (2-D, reduced to its median). Samples must be positive, else ValueError.
    """
    left, right = block_medians(a), block_medians(b)
    if min(left.min(), right.min()) <= 0:
        raise ValueError("a ratio of times needs positive samples")
    if paired:
        if len(left) != len(right):
            raise ValueError(f"paired samples must be as many: {len(left)} against {len(right)}")
        return sequential_interval(left / right, confidence)
    center = float(np.median(left) / np.median(right))
    generator = np.random.default_rng(SEED)
    resampled = _resampled_medians(left, generator) / _resampled_medians(right, generator)
    tail = (1.0 - confidence) / 2.0
    lo, hi = np.quantile(resampled, (tail, 1.0 - tail))
    count = min(len(left), len(right))
    reached = min(confidence, 1.0 - 2.0 * _binomial_below(count, 1))
    return Interval(center, min(float(lo), center), max(float(hi), center), reached, count)


def block_medians(samples: ArrayLike) -> NDArray[np.float64]:
    """One float64 a block: 1-D samples as they are, the median of each row of 2-D samples.

    ValueError when there is none, one is not finite, or there are more than two axes.
    """
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples")
    if not np.isfinite(values).all():
        raise ValueError("samples must be finite")
    if values.ndim > 2:
        raise ValueError(f"samples must have one axis, or two (blocks, samples): got {values.ndim}")
    return np.median(values, axis=1) if values.ndim == 2 else np.atleast_1d(values)


def _resampled_medians(values: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    chosen = generator.integers(0, len(values), size=(RESAMPLES, len(values)))
    return np.asarray(np.median(values[chosen], axis=1), dtype=np.float64)


@cache
def _order_rank(count: int, confidence: float) -> int:
    """Largest 1-based rank whose order-statistic interval covers `confidence`; at least 1."""
    if count >= EXACT_BELOW:
        half = NormalDist().inv_cdf(0.5 + confidence / 2.0) * sqrt(count) / 2.0
        return max(1, floor(count / 2.0 - half))
    rank = 1
    while rank < (count + 1) // 2 and 1.0 - 2.0 * _binomial_below(count, rank + 1) >= confidence:
        rank += 1
    return rank


@cache
def _sequential_rank(count: int, confidence: float) -> int:
    """1-based rank of the lower end of `sequential_interval`; 0 where there is none."""
    bound = -log(1.0 - confidence)
    rank = 0
    while 2 * rank + 1 < count and _log_martingale(count, rank) >= bound:
        rank += 1
    return rank


def _log_martingale(count: int, below: int) -> float:
    """Logarithm of 2^n B(k + 1/2, n - k + 1/2) / B(1/2, 1/2): how far `below` of `count` is from tosses of a coin."""
    return count * log(2.0) + lgamma(below + 0.5) + lgamma(count - below + 0.5) - lgamma(count + 1.0) - log(pi)


@cache
def _binomial_below(count: int, rank: int) -> float:
    """P(Binomial(count, 1/2) < rank), by the normal limit from `EXACT_BELOW` samples on."""
    if count >= EXACT_BELOW:
        return NormalDist(count / 2.0, sqrt(count) / 2.0).cdf(rank - 0.5)
    return float(sum(comb(count, k) for k in range(rank))) / 2.0**count
