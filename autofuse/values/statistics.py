"""Medians and ratios of samples with their intervals; what a screen says of them: `autofuse.values.ratios`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, comb, exp, floor, lgamma, log, log1p, pi, sqrt, tan
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


@dataclass(frozen=True)
class MeanInterval:
    """A mean, and two bounds: it is not below `lo`, and not above `hi`, each with `confidence`; `count`: samples."""

    mean: float
    lo: float
    hi: float
    confidence: float
    count: int


def mean_interval(samples: ArrayLike, confidence: float = 0.95) -> MeanInterval:
    """The mean of `samples` and its one-sided bounds.

    Where most samples are 0, as where an answer seldom changes, by the exact bounds of how often they are not (Clopper
    and Pearson, "The use of confidence or fiducial limits", Biometrika 26, 1934) times the largest of them; what is
    below 0 then makes nothing up. Else by Student's t. ValueError when there are none.
    """
    values = block_medians(samples)
    count, mean = len(values), float(values.mean())
    above, below = int((values > 0).sum()), int((values < 0).sum())
    if above + below <= count / 2:
        sizes = np.abs(values[values != 0])
        most, least = (float(sizes.max()), float(sizes.min())) if sizes.size else (1.0, 1.0)
        lo = least * (1.0 - share_bound(count - above, count, confidence)) if above else 0.0
        lo -= most * share_bound(below, count, confidence) if below else 0.0
        return MeanInterval(mean, min(mean, lo), share_bound(above, count, confidence) * most, confidence, count)
    if count == 1:
        return MeanInterval(mean, -float("inf"), float("inf"), confidence, 1)
    reach = student_t(confidence, count - 1) * float(values.std(ddof=1)) / sqrt(count)
    return MeanInterval(mean, mean - reach, mean + reach, confidence, count)


def share_bound(hits: int, count: int, confidence: float = 0.95) -> float:
    """The most that a share can be of which `count` samples showed `hits`, by Clopper and Pearson."""
    low, high = hits / count, 1.0
    if hits == count:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(hits, count, middle) > 1.0 - confidence else (low, middle)
    return high


def least_count(share: float, confidence: float = 0.95) -> int:
    """The samples after which a share that none of them showed is known to be below `share`."""
    return ceil(log(1.0 - confidence) / log1p(-share))


def student_t(confidence: float, freedom: int) -> float:
    """Quantile of Student's distribution (Hill's expansion about the normal one; exact for one and two degrees)."""
    if freedom == 1:
        return tan(pi * (confidence - 0.5))
    if freedom == 2:
        return (2 * confidence - 1) / sqrt(2 * confidence * (1 - confidence))
    z = NormalDist().inv_cdf(confidence)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(z + sum(term / freedom**power for power, term in enumerate(terms, 1)))


def _at_most(hits: int, count: int, share: float) -> float:
    """P(Binomial(count, share) <= hits)."""
    if share <= 0 or share >= 1:
        return 1.0 if share <= 0 else float(hits >= count)
    whole = lgamma(count + 1)
    logs = (
        whole - lgamma(k + 1) - lgamma(count - k + 1) + k * log(share) + (count - k) * log1p(-share)
        for k in range(hits + 1)
    )
    return min(1.0, sum(exp(one) for one in logs))
