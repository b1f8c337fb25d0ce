"""Intervals cover what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autofuse.values.statistics import median_interval, ordered_interval, ratio_interval

TIMES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=60)


def noise(seed: int, count: int, center: float = 100.0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(center, 1.0, count)


@given(TIMES)
def test_the_median_lies_in_its_interval_which_lies_in_the_samples(samples: list[float]) -> None:
    interval = median_interval(samples)
    assert min(samples) <= interval.lo <= interval.median <= interval.hi <= max(samples)
    assert interval.median == pytest.approx(float(np.median(samples)))
    assert interval == median_interval(samples[::-1]) == ordered_interval(sorted(samples))


@pytest.mark.parametrize("count", [6, 9, 25, 199, 400])
def test_the_interval_covers_the_true_median_as_often_as_it_says(count: int) -> None:
    generator = np.random.default_rng(count)
    found = [median_interval(generator.exponential(1.0, count)) for _ in range(600)]
    hits = sum(one.lo <= np.log(2.0) <= one.hi for one in found)
    assert 0.92 <= hits / 600 <= 1.0


def test_known_ranks_of_the_binomial_table() -> None:
    for count, low in ((6, 1), (9, 2), (10, 2), (20, 6), (30, 10), (100, 40)):
        interval = median_interval(range(1, count + 1))
        assert (interval.lo, interval.hi) == (low, count + 1 - low)
        assert interval.confidence >= 0.95


def test_few_samples_confess_their_low_coverage() -> None:
    assert median_interval([7.0]).confidence == 0.0
    assert median_interval([7.0, 8.0, 9.0]).confidence == pytest.approx(0.75)


def test_rows_are_blocks_and_count_once() -> None:
    rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert median_interval(rows) == median_interval([2.0, 5.0])


def test_the_ratio_is_that_of_a_to_b_and_repeatable() -> None:
    interval = ratio_interval(noise(1, 9, 200.0), noise(2, 9))
    assert interval.lo <= 2.0 <= interval.hi
    assert interval == ratio_interval(noise(1, 9, 200.0), noise(2, 9))
    loose = ratio_interval(noise(1, 9, 200.0), noise(2, 12), paired=False)
    assert loose == ratio_interval(noise(1, 9, 200.0), noise(2, 12), paired=False)


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [([], [1.0], "no samples"), ([np.nan], [1.0], "finite"), ([0.0], [1.0], "positive"), ([1.0], [1.0, 2.0], "many")],
)
def test_unusable_samples_are_refused(a: list[float], b: list[float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ratio_interval(a, b)
